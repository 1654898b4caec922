"""JupyterLab as a child process that ends with this process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from nftsync.demo.provider import demo_in_use, is_demo, stored_provider
from nftsync.errors import NftsyncError
from nftsync.extras import require
from nftsync.terminal import interruptible
from nftsync.wsgi import Listener


def shipped() -> list[Path]:
    """Return nftsync's notebooks."""
    installed = Path(__file__).parent / "shipped"
    in_a_checkout = Path(__file__).parents[2] / "notebooks"
    for folder in (installed, in_a_checkout):
        if notebooks := sorted(folder.glob("[0-9]-*.ipynb")):
            return notebooks
    raise NftsyncError("this installation of nftsync has no notebooks; reinstall nftsync")


def copy_missing(directory: Path) -> list[Path]:
    """Copy the notebooks that a folder lacks, and return the copies."""
    copies = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for notebook in shipped():
            copy = directory / notebook.name
            with suppress(FileExistsError), copy.open("xb") as file:
                file.write(notebook.read_bytes())
                copies.append(copy)
    except OSError as error:
        raise NftsyncError(
            f"cannot copy the notebooks to {directory}: {error.strerror or error}; "
            "choose another folder: nftsync notebook DIRECTORY"
        ) from error
    return copies


def open_notebooks(
    directory: Path,
    database: Path,
    config: Path | None,
    tell: Callable[[str], object],
    *,
    port: int | None,
    browser: bool,
) -> None:
    """Copy missing notebooks, and run JupyterLab on them; see `run_jupyter`."""
    directory = directory.absolute()
    if copies := copy_missing(directory):
        _trust(copies)
        tell(f"Copied {', '.join(copy.name for copy in copies)} to {directory}.")
    with notebook_environment(database, config, tell) as environment:
        tell(f"Starting JupyterLab in {directory} with {database}. Press Ctrl-C to stop it.")
        run_jupyter(directory, environment, port=port, browser=browser)
    tell("JupyterLab has stopped.")


def _trust(notebooks: list[Path]) -> None:
    """Sign notebooks, so that JupyterLab does not warn of them."""
    from nbformat import read
    from nbformat.sign import NotebookNotary

    notary: Any = NotebookNotary()
    with closing(notary.store):
        for notebook in notebooks:
            notary.sign(read(notebook, as_version=4))


@contextmanager
def notebook_environment(
    database: Path, config: Path | None, tell: Callable[[str], object]
) -> Iterator[dict[str, str]]:
    """Provide the environment for notebooks that open this database.

    For a demo's database, its provider runs during the block and is the only one configured, so no
    other provider's secret reaches it.
    """
    environment = dict(os.environ)
    with ExitStack() as stack:
        if is_demo(database):
            environment = {x: environment[x] for x in environment if not x.startswith("NFTSYNC_")}
            config = Path(os.devnull)
            try:
                stack.enter_context(demo_in_use(database))
                url = stack.enter_context(stored_provider(database, tell))
                environment["NFTSYNC_BASE_URL"] = url
            except NftsyncError as error:  # notebooks still show the database
                tell(f"The demo's provider is not running, so pictures are missing: {error}")
        for name, value in environment.items():  # notebooks have another working directory
            if re.fullmatch("NFTSYNC_.*_FILE", name) and value.strip() not in {"", "-"}:
                environment[name] = str(Path(value.strip()).absolute())
        environment["NFTSYNC_DATABASE"] = str(database)
        if config is not None:
            environment["NFTSYNC_CONFIG"] = str(config)
        yield environment


#: Time for JupyterLab to stop its kernels, in seconds.
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.2
#: With this configuration, JupyterLab asks no questions, makes no network requests, and prints only
#: its address and problems. Pings are off, because Tornado warns of their timeout; columns of times
#: are off, because they cut the names of the notebooks.
_CONFIG = Path(__file__).parent / "jupyter_config"


def require_notebook_extra() -> None:
    """Check that the packages for notebooks are installed."""
    require("notebook", "notebooks and reports", "jupyterlab", "ipywidgets", "plotly", "papermill")


def run_jupyter(
    directory: Path, environment: Mapping[str, str], *, port: int | None, browser: bool
) -> None:
    """Run JupyterLab on 127.0.0.1 until it ends, or until Ctrl-C, SIGTERM or SIGHUP.

    JupyterLab prints its address, with the random token that protects it. `environment` is its
    whole environment, and `port` the only port to try; None: 8888, or one of the next if it is
    taken.
    """
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--log-level=WARN",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={directory}",
        f"--ServerApp.open_browser={browser}",
    ]
    if port is not None:
        Listener(port=port).close()  # names the program that uses the port
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if os.geteuid() == 0:  # in a container; it still listens only on this machine, with a token
        command.append("--ServerApp.allow_root=True")
    folders = [str(_CONFIG), *filter(None, [environment.get("JUPYTER_CONFIG_PATH")])]
    environment = {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join(folders)}
    # When its terminal closes, which it would not notice, JupyterLab stops, too.
    with interruptible(signal.SIGHUP) as stopped:
        # Its own session, so that Ctrl-C does not reach JupyterLab, which would ask to confirm.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while process.poll() is None and not stopped.wait(_POLL_SECONDS):
                pass
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()
            process.wait()
    if process.returncode and not stopped.is_set():
        raise NftsyncError(
            f"JupyterLab failed with exit code {process.returncode}; see its output above"
        )
