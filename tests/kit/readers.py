"""Functions that read each frame from a database."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from nftsync import frames
from tests.kit.database import at

#: The entries of a statement.
ENTRIES = ("opening", "initial", "received", "sent", "closing")
#: The functions by their names, with arguments for a small database.
READERS: dict[str, Callable[..., pd.DataFrame]] = {
    **{name: getattr(frames, name) for name in frames.__all__},
    "holdings_as_of": lambda db: frames.holdings(db, as_of=at(3)),
    "tokens_as_of": lambda db: frames.tokens(db, as_of=at(3)),
    "changes": lambda db: frames.changes(db, since=at(2)),
    "diff": lambda db: frames.diff(db, at(0)),
    "find": lambda db: frames.find(db, "vault"),
    "holding_ages": lambda db: frames.holding_ages(db, at=at(99)),
    "statement": lambda db: frames.statement(db, at(0)),
}
for _name in ("brief", "compare", "explain", "load", "save", "value"):
    del READERS[_name]
