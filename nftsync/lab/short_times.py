"""Times as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["short_times"]


def short_times(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose times are cut to the second and no longer say that they are UTC; for reading.

    Args:
        frame: any frame; it stays as it is.

    Returns:
        A copy with the same rows and columns, of the same type.
    """
    times = frame.select_dtypes("datetimetz")
    shown = frame.assign(
        **{name: times[name].dt.floor("s").dt.tz_localize(None) for name in times.columns}
    )
    # What is made of a frame that shows itself in its own way is a plain one.
    kind: type[pd.DataFrame] = type(frame)
    return kind(shown)
