"""Text of a comparison with a second list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nftsync.columnar.second_list import VERDICTS
from nftsync.text import counted
from nftsync.times import utc_times

if TYPE_CHECKING:
    import pandas as pd


def in_words(verdict: str) -> str:
    return verdict.replace("_", " ")


def counts_of(frame: pd.DataFrame) -> dict[str, int]:
    return {verdict: int((frame["verdict"] == verdict).sum()) for verdict in VERDICTS}


def summary(frame: pd.DataFrame, name: str) -> str:
    """Return how many holdings agree with the list of a name, and how the others differ."""
    counts = counts_of(frame)
    at = f" at {utc_times(frame.attrs['at'])}" if frame.attrs["at"] else ""
    text = f"{counts.pop('agrees'):,} of {counted(len(frame), 'holding')} agree with {name}{at}"
    kinds = ", ".join(f"{in_words(kind)} ({count:,})" for kind, count in counts.items() if count)
    return f"{text}; {sum(counts.values()):,} differ: {kinds}." if kinds else f"{text}."


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame[frame["verdict"] != "agrees"]
    return rows.loc[rows["verdict"].map(VERDICTS.index).sort_values(kind="stable").index]
