"""A copy of the database, of one moment, while others go on writing it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from nftsync.store.database import explained
from nftsync.store.runs import end_all_work
from nftsync.store.schema import opened_as_is
from nftsync.terminal import progress_bar
from nftsync.times import now
from nftsync.whole_files import whole_file

#: Pages that are copied between two looks at the progress bar and at Ctrl-C; some 8 MB.
_STEP = 2_000


def write_snapshot(
    database: Path,
    file: Path,
    *,
    progress: bool | None = None,
    step: int = _STEP,
    check: Callable[[Path], None] | None = None,
) -> int:
    """Copy a database as it is at one moment, while others may go on writing it.

    In the copy nothing is under way: webhooks that were being processed are pending again, and runs
    that were going on are interrupted. It has no write-ahead log and is readable by its owner only.
    It appears under its name once it is whole. A database of an earlier version is not upgraded.

    Args:
        database: what to copy.
        file: where to; its folder is made where it is missing.
        progress: show a progress bar; None shows it on a terminal.
        step: pages that are copied at once.
        check: looks at the whole copy before it has its name; what it raises leaves none.

    Returns:
        The copy's size in bytes.

    Raises:
        InputError: `file` is there already.
        StoreError: the database cannot be read, or the copy cannot be written.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - a link at its place is not followed
    with opened_as_is(database) as source, whole_file(file) as partial, explained(file):
        bar = progress_bar("Copying", 0, unit="pages", shown=progress)

        def show(_: int, remaining: int, total: int) -> None:
            bar.total = total
            bar.update(total - remaining - bar.n)

        with closing(bar), closing(sqlite3.connect(partial, isolation_level=None)) as target:
            # The source's open read transaction holds the moment: however often a writer commits
            # meanwhile, the copy need not begin again.
            source.execute("BEGIN DEFERRED")
            source.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            source.backup(target, pages=step, progress=show)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()
            end_all_work(target, now())
        if check is not None:
            check(partial)
        return partial.stat().st_size
