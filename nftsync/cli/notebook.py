"""`nftsync notebook`."""

from __future__ import annotations

from pathlib import Path

import click

from nftsync.cli.output import one_line, say

__all__ = ["notebook"]


@click.command(short_help="Open JupyterLab on the notebooks, with this database.")
@click.argument("directory", default="notebooks", type=click.Path())
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port on 127.0.0.1. Default: 8888, or the next free one",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--database",
    "-d",
    metavar="FILE",
    help="What the notebooks open. Default: the configured one, else the demo's",
)
@click.option("--config", metavar="FILE", help="Settings file. Default: the nearest nftsync.toml")
def notebook(
    *, directory: str, port: int | None, no_browser: bool, database: str | None, config: str | None
) -> None:
    """Open JupyterLab on the notebooks that come with nftsync.

    Copies those that are missing in DIRECTORY (default: notebooks) and never overwrites any. Where
    no database is configured, and there is no data/nftsync.db here or above, they open that of
    `nftsync demo`, which is made first if need be. Its provider runs beside them then: pictures
    show, and nftsync.sync() has something to read. Ctrl-C ends all of it.

    \b
    Examples:
      nftsync notebook
      nftsync notebook analysis --database snapshots/2026-01-31.db
      nftsync notebook --no-browser --port 9000
    """
    from nftsync import settings
    from nftsync.lab.jupyter import require_notebook_extra
    from nftsync.lab.session import open_notebooks
    from nftsync.lab.which_database import named_or_demo

    def tell(text: str) -> None:
        say(one_line(text))

    require_notebook_extra()
    given = None if config is None else Path(config)
    loaded = settings.load({"database": database}, config=given)
    opened = named_or_demo(loaded.database, loaded.sources["database"], tell)
    file = settings.settings_file(given)
    open_notebooks(Path(directory), opened, file, tell, port=port, browser=not no_browser)
