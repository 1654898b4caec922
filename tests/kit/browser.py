"""Headless Chromium without the internet, and a record of its pages' messages and requests."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Error, Page, expect, sync_playwright

#: Milliseconds, a limit for a busy machine.
PATIENCE = 120_000.0

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # Names of other machines do not resolve, so that no packet leaves this one.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@contextmanager
def open_chromium(*, proxy: str | None = None) -> Iterator[Browser]:
    """Headless Chromium for a block; skips the test if it is not installed.

    Playwright runs an event loop in this thread meanwhile, so a block should not outlast the tests
    of one module. The proxy is for all hosts but 127.0.0.1.
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
    """A new context of a browser; messages, requests, dialogs and visits of all its frames.

    Playwright does not report the requests of a frame that is being created.
    """

    def __init__(self, browser: Browser, **options: Any) -> None:
        # By default, Playwright emulates a light color scheme in every page.
        self.context = browser.new_context(**{"color_scheme": "null", **options})
        self.context.set_default_timeout(PATIENCE)
        #: Kind, text and source of each console line and uncaught error.
        self.messages: list[tuple[str, str, str]] = []
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.visits: list[str] = []
        add, listen = self.messages.append, self.context.on
        listen("console", lambda said: add((said.type, said.text, said.location["url"])))
        listen("weberror", lambda error: add(("uncaught", str(error.error), "")))
        listen("dialog", self._dialog)
        listen("request", lambda request: self.requests.append(request.url))
        listen("page", self._page)

    def forget(self) -> None:
        for seen in (self.messages, self.dialogs, self.requests, self.visits):
            seen.clear()

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        with suppress(Error):  # it closes with its page
            dialog.dismiss()

    def _page(self, page: Page) -> None:
        page.on("framenavigated", lambda frame: self.visits.append(frame.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))

    def errors(self, known: Iterable[str] = ()) -> list[str]:
        """Return console errors and uncaught errors whose text matches no known pattern."""
        said = [f"{kind}: {text} ({source})" for kind, text, source in self.messages]
        wrong = [each for each in said if each.startswith(("error: ", "uncaught: "))]
        return [each for each in wrong if not any(re.search(one, each) for one in known)]

    def strangers(self, *origins: str) -> list[str]:
        """Return requests and documents of other origins than these (`http://host:port`)."""
        hosts = {urlsplit(each).netloc for each in origins}
        asked = [url for url in self.requests if not _within(url, hosts)]
        inline = {"", "about:blank", "about:srcdoc"}
        return asked + [url for url in {*self.visits} - inline if urlsplit(url).netloc not in hosts]

    def check(self, *origins: str, known: Iterable[str] = ()) -> None:
        assert self.errors(known) == self.dialogs == self.strangers(*origins) == []


def _within(url: str, hosts: set[str]) -> bool:
    parts = urlsplit(url)
    if parts.scheme in {"http", "ws"}:
        return parts.netloc in hosts
    # JupyterLab's icons, and objects in memory.
    return parts.scheme == "blob" or url.startswith("data:image/")
