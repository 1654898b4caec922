"""JupyterLab as a process of its own, ended together with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from nftsync.errors import NftsyncError
from nftsync.interruption import interruptible

__all__ = ["require_notebook_extra", "run_jupyter"]

_NEEDED = ("jupyterlab", "ipywidgets", "plotly")
#: Seconds that JupyterLab gets to end its kernels.
_PATIENCE = 15.0
_LOOK_EVERY = 0.2
#: It asks nothing, calls nobody, and prints only its address and what goes wrong.
_QUIET = (
    *("--log-level=WARN", "--LabApp.log_level=WARN"),
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
        *(sys.executable, "-m", "jupyterlab", *_QUIET),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={directory}"),
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
            _end(process)
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


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
