"""Headless Chromium, cut off from the internet, and a record of all that its pages do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    WebError,
    expect,
    sync_playwright,
)

#: Milliseconds that a busy machine may take for anything; what is awaited comes much sooner.
PATIENCE = 120_000.0

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # What would leave this machine fails at its name, before a packet is sent.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@contextmanager
def open_chromium(*, proxy: str | None = None) -> Iterator[Browser]:
    """Headless Chromium for the length of a block; skips the test where there is none.

    Playwright keeps an event loop running in this thread meanwhile, so a block should not outlast
    the tests of one module. The proxy is for all but 127.0.0.1.
    """
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("Chromium is not installed: on Debian, apt install chromium")
    expect.set_options(timeout=PATIENCE)
    way = () if proxy is None else (f"--proxy-server={proxy}",)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*_FLAGS, *way])
        try:
            yield browser
        finally:
            browser.close()


def accessibility_problems(page: Page) -> list[str]:
    """Violations of axe-core's rules: each with its first element."""
    violations = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in violations]


class Record:
    """All that pages of a browser context say, ask for, pop up and go to, of every frame.

    Playwright does not tell of what a frame asks for while it is being made.
    """

    def __init__(self, context: BrowserContext) -> None:
        #: Of each line on the console and each uncaught error its kind, text and source.
        self.messages: list[tuple[str, str, str]] = []
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.visits: list[str] = []
        context.on("console", self._console)
        context.on("weberror", self._uncaught)
        context.on("dialog", self._dialog)
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("page", self._page)

    def forget(self) -> None:
        for seen in (self.messages, self.dialogs, self.requests, self.visits):
            seen.clear()

    def _console(self, message: ConsoleMessage) -> None:
        self.messages.append((message.type, message.text, message.location["url"]))

    def _uncaught(self, error: WebError) -> None:
        self.messages.append(("uncaught", str(error.error), ""))

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        with suppress(Error):  # it closes with its page
            dialog.dismiss()

    def _page(self, page: Page) -> None:
        page.on("framenavigated", lambda frame: self.visits.append(frame.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))

    def errors(self, known: Iterable[str] = ()) -> list[str]:
        """Console errors and uncaught ones, but those whose text matches a known pattern."""
        said = [f"{kind}: {text} ({source})" for kind, text, source in self.messages]
        wrong = [each for each in said if each.startswith(("error: ", "uncaught: "))]
        return [each for each in wrong if not any(re.search(one, each) for one in known)]

    def strangers(self, *origins: str) -> list[str]:
        """Requests and documents of other origins than these, each an `http://host:port`."""
        hosts = {urlsplit(each).netloc for each in origins}
        asked = [url for url in self.requests if not _within(url, hosts)]
        return asked + [url for url in self.visits if url and not _inline(url, hosts)]

    def check(self, *origins: str, known: Iterable[str] = ()) -> None:
        """Fail on an error, a dialog, or anything of another origin than these."""
        assert self.errors(known) == []
        assert self.dialogs == []
        assert self.strangers(*origins) == []


def _within(url: str, hosts: set[str]) -> bool:
    parts = urlsplit(url)
    if parts.scheme in {"http", "ws"}:
        return parts.netloc in hosts
    # Icons of JupyterLab's own, and what scripts of its own make in memory.
    return parts.scheme == "blob" or url.startswith("data:image/")


def _inline(url: str, hosts: set[str]) -> bool:
    return url in {"about:blank", "about:srcdoc"} or urlsplit(url).netloc in hosts
