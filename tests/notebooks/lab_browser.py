"""JupyterLab as a process with its own home folder, and a notebook in a browser window."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import nbformat
from nbformat import v4
from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page

from tests.kit.browser import PATIENCE

_FLAGS = (
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--ServerApp.terminals_enabled=False",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
    # The page can call commands and read a kernel's state.
    "--LabApp.expose_app_in_browser=True",
)
_SETTINGS = {
    # Skip the question about news.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Render every cell at once, even outside the visible area.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


class Lab:
    """A process that runs JupyterLab with an empty home folder."""

    def __init__(self, home: Path, *command: object, environment: Mapping[str, str]) -> None:
        self.notebooks = home / "notebooks"
        self._home = home
        self._log = home / "jupyterlab.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *map(str, command)],
                env={**_environment(home), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        return self._log.read_text()

    @cached_property
    def address(self) -> tuple[str, str]:
        """Its base URL and token, once it answers."""

        def answered() -> tuple[str, str] | None:
            for file in (self._home / "runtime").glob("jpserver-*.json"):
                # The file may be incomplete, or the server not ready.
                with suppress(ValueError, OSError):
                    server = json.loads(file.read_text())
                    url = server["url"].rstrip("/")
                    with urlopen(f"{url}/api/status?token={server['token']}", timeout=10):
                        return url, server["token"]
            return None

        deadline = time.monotonic() + PATIENCE / 1000
        while (found := answered()) is None:
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.05)
        return found

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
def started(
    home: Path, *command: object, environment: Mapping[str, str] | None = None
) -> Iterator[Lab]:
    """Run a Python module that runs JupyterLab, for the length of a block."""
    lab = Lab(home, *command, environment=environment or {})
    try:
        yield lab
    finally:
        lab.end(signal.SIGTERM)


@contextmanager
def running_lab(home: Path, environment: Mapping[str, str]) -> Iterator[Lab]:
    """Run JupyterLab on a folder, with a page that tests can query."""
    (home / "notebooks").mkdir(parents=True)
    for name, values in _SETTINGS.items():
        file = home / f"config/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    root = f"--ServerApp.root_dir={home / 'notebooks'}"
    with started(home, "jupyterlab", *_FLAGS, root, environment=environment) as lab:
        yield lab


def _environment(home: Path) -> dict[str, str]:
    ours = ("NFTSYNC_", "JUPYTER", "PYTEST_", "PLOTLY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    folders = {f"JUPYTER_{name.upper()}_DIR": name for name in ("config", "data", "runtime")}
    folders["IPYTHONDIR"] = "ipython"
    own = {name: str(home / folder) for name, folder in folders.items()}
    return {**kept, **own, "HOME": str(home)}


class LabPage:
    """A notebook in an open window."""

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

    def gallery(self, within: Locator) -> FrameLocator:
        """Return the gallery's frame, scrolled into view, where browsers draw it."""
        frame = within.locator("iframe")
        frame.scroll_into_view_if_needed()
        return frame.content_frame

    def errors(self) -> list[str]:
        """Return the errors of cells."""
        found: list[str] = self.page.evaluate(_ERRORS)
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
_ERRORS = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .flatMap((cell) => cell.outputs ?? [])
  .filter((output) => output.output_type === 'error')
  .map((output) => `${output.ename}: ${output.evalue}`)"""


def write_notebook(
    path: Path, cells: Sequence[str], outputs: Mapping[int, dict[str, Any]] | None = None
) -> None:
    """Write an unsigned notebook of code cells, with the outputs of some by number."""
    stored = outputs or {}
    made = [
        v4.new_code_cell(
            source,
            outputs=[v4.new_output("display_data", stored[number])] if number in stored else [],
        )
        for number, source in enumerate(cells)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(v4.new_notebook(cells=made, metadata={"kernelspec": kernel}), path)
