"""A session of notebooks: JupyterLab, with the demo's provider beside it where it is the demo's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nftsync.demo import is_demo
from nftsync.demo.files import in_use
from nftsync.demo.provider import provider_again
from nftsync.errors import NftsyncError
from nftsync.lab.copies import copy_missing
from nftsync.lab.jupyter import require_notebook_extra, run_jupyter

__all__ = ["notebook_environment", "open_notebooks"]


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
        NftsyncError: JupyterLab is not installed or cannot be started, or the folder cannot be
            written.
    """
    require_notebook_extra()
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
    environment = {**_from_anywhere(os.environ), "NFTSYNC_DATABASE": str(database)}
    if not is_demo(database):
        if config is not None:
            environment["NFTSYNC_CONFIG"] = str(config)
        yield environment
        return
    kept = {name: value for name, value in environment.items() if not name.startswith("NFTSYNC_")}
    demo = {**kept, "NFTSYNC_DATABASE": str(database), "NFTSYNC_CONFIG": os.devnull}
    with _provider(database, tell) as url:
        yield demo if url is None else {**demo, "NFTSYNC_BASE_URL": url}


def _from_anywhere(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with absolute paths: notebooks have a working directory of their own."""
    return {
        name: str(Path(value.strip()).absolute())
        if re.fullmatch("NFTSYNC_.*_FILE", name) and value.strip() not in {"", "-"}
        else value
        for name, value in environ.items()
    }


@contextmanager
def _provider(database: Path, tell: Callable[[str], object]) -> Iterator[str | None]:
    """The demo's provider; without it, notebooks still show what the database holds."""
    with ExitStack() as stack:
        try:
            stack.enter_context(in_use(database))
            url = stack.enter_context(provider_again(database))
        except NftsyncError as error:
            tell(f"The demo's provider does not run, so there are no pictures: {error}")
            yield None
            return
        tell(f"The demo's provider answers at {url}.")
        yield url
