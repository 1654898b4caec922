"""Rows of hidden tokens, and the note on their number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.columnar.columns import INTEGER
from nftsync.columnar.source import Numbers, Source
from nftsync.store.hidden import HIDDEN_TOKENS
from nftsync.text import counted

#: The key in a frame's `attrs` with the number of rows left out because their tokens are hidden.
HIDDEN = "hidden"
#: The name of a statement's row of hidden tokens.
HIDDEN_ROW = "hidden"


def hidden_rows(source: Source, tokens: Numbers, *, include: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows to leave out as hidden, by token number."""
    if include or not any(source.rows("SELECT 1 FROM hidden LIMIT 1")):
        return np.zeros(len(tokens), dtype=np.bool_)
    which, parameters = source.restriction("token", np.unique(tokens))
    query = f"SELECT token_no FROM {HIDDEN_TOKENS} WHERE {which}"
    (numbers,) = source.columns(query, [INTEGER], parameters)
    return np.isin(tokens, numbers.to_numpy())


def marked(frame: pd.DataFrame, left_out: npt.NDArray[np.bool_] | int) -> pd.DataFrame:
    """Note in a frame how many rows it leaves out."""
    if count := int(np.count_nonzero(left_out)) if isinstance(left_out, np.ndarray) else left_out:
        frame.attrs[HIDDEN] = count
    return frame


def hidden_note(frame: pd.DataFrame, noun: str = "holding") -> str:
    """Return how many rows a frame leaves out: `3 hidden holdings left out`."""
    count = frame.attrs.get(HIDDEN)
    return f"{counted(count, f'hidden {noun}')} left out" if count else ""
