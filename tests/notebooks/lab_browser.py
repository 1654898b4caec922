"""JupyterLab as a process with its own home folder, and a notebook in a browser window."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page

from tests.kit.browser import PATIENCE
from tests.kit.waiting import wait_until

_CONFIGURED = {
    # The page can call commands and read a kernel's state.
    "jupyter_lab_config.json": {"LabApp": {"expose_app_in_browser": True}},
    # Render every cell at once, even outside the visible area.
    "lab/user-settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {
        "windowingMode": "none"
    },
}


class Lab:
    """A running `nftsync notebook mine`, which tests can query."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.notebooks = home / "mine"
        self.process = process
        self._log = home / "jupyterlab.log"

    @property
    def told(self) -> str:
        return self._log.read_text()

    @cached_property
    def address(self) -> tuple[str, str]:
        def printed() -> list[tuple[str, str]]:
            return re.findall(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)\n", self.told)

        wait_until(lambda: printed() or self.process.poll() is not None, lambda: self.told)
        assert printed(), self.told
        return printed()[0]

    @property
    def url(self) -> str:
        return self.address[0]

    def open(self, context: BrowserContext, notebook: str) -> LabPage:
        """Open a notebook of the folder in a window and wait until its kernel is idle."""
        page = context.new_page()
        page.goto(f"{self.url}/doc/tree/{quote(notebook)}?token={self.address[1]}")
        return LabPage(page)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE / 1000)
        self.process.kill()
        return self.process.wait()


@contextmanager
def started(home: Path, *words: object, **variables: str) -> Iterator[Lab]:
    """Run `nftsync notebook` with an empty home folder, for the length of a block."""
    for name, values in _CONFIGURED.items():
        file = home / "config" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    ours = ("NFTSYNC_", "JUPYTER", "PYTEST_", "PLOTLY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    folders = {f"JUPYTER_{name.upper()}_DIR": name for name in ("config", "data", "runtime")}
    own = {name: str(home / folder) for name, folder in {**folders, "IPYTHONDIR": "i"}.items()}
    with (home / "jupyterlab.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nftsync", "notebook", "mine", "--no-browser", *map(str, words)],
            cwd=home,
            env={**kept, **own, "HOME": str(home), **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    lab = Lab(home, process)
    try:
        yield lab
    finally:
        lab.end(signal.SIGTERM)


class LabPage:
    def __init__(self, page: Page) -> None:
        self.page = page
        page.wait_for_function(_READY)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait for a condition without an event in Playwright."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not done():
            assert time.monotonic() < deadline
            self.page.wait_for_timeout(50)

    def run_all(self) -> None:
        """Choose Run All Cells in the menu; wait until every cell has ended, or one has failed."""
        self.page.evaluate(_LISTEN)
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.wait_for_function("window.allCellsRan")

    def outputs(self, cell: int) -> Locator:
        """Return the outputs of a cell; cells are numbered from 0, also cells of text."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea")

    def gallery(self, cell: int) -> FrameLocator:
        """Return the frame of a cell's gallery, scrolled into view, where browsers draw it."""
        frame = self.outputs(cell).locator("iframe")
        frame.scroll_into_view_if_needed()
        return frame.content_frame

    def problems(self) -> list[str]:
        found: list[str] = self.page.evaluate(_PROBLEMS)
        return found

    def live_parts(self) -> list[str]:
        """Return event handlers in outputs and their frames, and addresses of unusual schemes."""
        found: list[str] = []
        for frame in self.page.frames:
            root = ".jp-OutputArea-output" if frame == self.page.main_frame else ":root"
            found += frame.evaluate(_LIVE, root)
        return found


_LIVE = """(root) => [...document.querySelectorAll(`${root} *`)].flatMap((element) =>
  [...element.attributes].flatMap(({name, value}) => {
    // Plotly paints a heatmap as pixels.
    if (element.localName === 'image' && /^data:image\\/png;base64,/.test(value)) return [];
    const image = element.localName === 'img' && name === 'src';
    // Within `img`, browsers run no scripts of a picture.
    if (image && /^data:image\\/(png|jpeg|gif|webp|svg\\+xml);base64,/.test(value)) return [];
    const leads = /^(src|srcset|href|xlink:href|action|formaction|data|poster|background|ping)$/;
    const live = /^on/.test(name)
      || (image && !/^https?:/.test(value))
      || (leads.test(name) && /^[^#/]*:/.test(value) && !/^https?:/.test(value));
    return live ? [`${element.localName} ${name}=${value.slice(0, 200)}`] : [];
  }))"""
_READY = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return Boolean(panel?.content?.model?.cells?.length && panel.sessionContext?.isReady
    && panel.sessionContext.session?.kernel?.status === 'idle'
    && !document.querySelector('#jupyterlab-splash'));
}"""
_LISTEN = """() => {
  window.allCellsRan = false;
  window.jupyterapp.commands.commandExecuted.connect((commands, {id, result}) => {
    if (id === 'notebook:run-all-cells') result.finally(() => { window.allCellsRan = true; });
  });
}"""
_PROBLEMS = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .flatMap((cell) => cell.outputs ?? [])
  .filter((output) => output.output_type === 'error' || output.name === 'stderr')
  .map((output) => output.ename ?? output.text)"""
