"""JupyterLab as a child process that ends with this process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from nftsync.demo.provider import demo_in_use, is_demo, stored_provider
from nftsync.errors import NftsyncError
from nftsync.terminal import interruptible


def shipped() -> list[Path]:
    """The notebooks that come with nftsync, in their order.

    Raises:
        NftsyncError: this installation has none.
    """
    installed = Path(__file__).parent / "shipped"
    in_a_checkout = Path(__file__).parents[2] / "notebooks"
    for folder in (installed, in_a_checkout):
        if found := sorted(folder.glob("[0-9]-*.ipynb")):
            return found
    raise NftsyncError("this installation of nftsync has no notebooks; install it again")


def copy_missing(directory: Path) -> list[Path]:
    """Copy the notebooks that are not in a folder yet; those that are there stay as they are.

    Args:
        directory: the folder, made if need be.

    Returns:
        The copies that were made.

    Raises:
        NftsyncError: the folder cannot be written.
    """
    made = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for notebook in shipped():
            copy = directory / notebook.name
            with suppress(FileExistsError), copy.open("xb") as file:
                file.write(notebook.read_bytes())
                made.append(copy)
    except OSError as error:
        raise NftsyncError(
            f"cannot copy the notebooks to {directory}: {error.strerror or error}; "
            "name another folder: nftsync notebook DIRECTORY"
        ) from error
    return made


def open_notebooks(
    directory: Path,
    database: Path,
    config: Path | None,
    tell: Callable[[str], object],
    *,
    port: int | None,
    browser: bool,
) -> None:
    """Copy the notebooks that are missing, and run JupyterLab on them until it is ended.

    Args:
        directory: where the notebooks are.
        database: what they open, absolute.
        config: the settings file that they read, or None.
        tell: is told what happens, a line at a time.
        port: see `run_jupyter`.
        browser: see `run_jupyter`.

    Raises:
        NftsyncError: JupyterLab cannot be started, or the folder cannot be written.
    """
    directory = directory.absolute()
    if made := copy_missing(directory):
        tell(f"Copied {', '.join(copy.name for copy in made)} to {directory}.")
    with notebook_environment(database, config, tell) as environment:
        tell(f"JupyterLab starts on {directory}, with {database}; Ctrl-C ends it.")
        run_jupyter(directory, environment, port=port, browser=browser)
    tell("JupyterLab has ended.")


@contextmanager
def notebook_environment(
    database: Path, config: Path | None, tell: Callable[[str], object]
) -> Iterator[dict[str, str]]:
    """The environment of notebooks that open this database.

    For the demo's, its provider runs during the block and is the only one that notebooks know:
    no secret that is meant for another is sent there. The demo is not begun afresh during it.

    Args:
        database: absolute.
        config: the settings file, or None for the nearest one to the notebooks.
        tell: is told what does not work, a line at a time.
    """
    environment = {  # with absolute paths: notebooks have a working directory of their own
        name: str(Path(value.strip()).absolute())
        if re.fullmatch("NFTSYNC_.*_FILE", name) and value.strip() not in {"", "-"}
        else value
        for name, value in os.environ.items()
    }
    environment["NFTSYNC_DATABASE"] = str(database)
    if not is_demo(database):
        if config is not None:
            environment["NFTSYNC_CONFIG"] = str(config)
        yield environment
        return
    kept = {name: value for name, value in environment.items() if not name.startswith("NFTSYNC_")}
    demo = {**kept, "NFTSYNC_DATABASE": str(database), "NFTSYNC_CONFIG": os.devnull}
    with ExitStack() as stack:
        try:
            stack.enter_context(demo_in_use(database))
            demo["NFTSYNC_BASE_URL"] = stack.enter_context(stored_provider(database, tell))
        except NftsyncError as error:  # notebooks still show what the database holds
            tell(f"The demo's provider does not run, so there are no pictures: {error}")
        yield demo


_NEEDED = ("jupyterlab", "ipywidgets", "plotly")
#: Seconds that JupyterLab gets to end its kernels.
_PATIENCE = 15.0
_LOOK_EVERY = 0.2
#: It asks nothing, calls nobody, and prints only its address and what goes wrong.
_QUIET = (
    "--log-level=WARN",
    "--LabApp.log_level=WARN",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)


def require_notebook_extra() -> None:
    """Make sure that what notebooks need is installed.

    Raises:
        NftsyncError: something is missing.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise NftsyncError(f"notebooks need {', '.join(missing)}: pip install 'nftsync[notebook]'")


def run_jupyter(
    directory: Path, environment: Mapping[str, str], *, port: int | None, browser: bool
) -> None:
    """Run JupyterLab on 127.0.0.1 until it ends, or until Ctrl-C, SIGTERM or SIGHUP.

    Its own random token guards it; it prints the address that holds it.

    Args:
        directory: the folder that it shows.
        environment: the whole environment of it and its kernels.
        port: where it listens, and nowhere else; None: 8888, or one of the next that is free.
        browser: open it in a browser.

    Raises:
        NftsyncError: it cannot be started, or ended by itself and not well.
    """
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        *_QUIET,
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={directory}",
        f"--ServerApp.open_browser={browser}",
    ]
    if port is not None:
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if os.geteuid() == 0:  # a container; it listens on this machine alone, behind its token
        command.append("--ServerApp.allow_root=True")
    with interruptible() as stopped, _hang_up_ends_it():
        # A session of its own: Ctrl-C is for us alone, as JupyterLab would ask before it ends.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while process.poll() is None and not stopped.wait(_LOOK_EVERY):
                pass
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            process.kill()
            process.wait()
    if process.returncode and not stopped.is_set():
        raise NftsyncError(
            f"JupyterLab ended with exit code {process.returncode}; what it printed above says why"
        )


@contextmanager
def _hang_up_ends_it() -> Iterator[None]:
    """A terminal that is closed ends JupyterLab too, which would not notice."""
    before = signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
