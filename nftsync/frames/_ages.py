"""How long ago times were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.frames._columns import Times, moments

__all__ = ["ages"]


def ages(since: Times, until: str) -> Any:
    """Make a frame's column of the time that passed; 0 where the clock went back since.

    Args:
        since: times; NaT gives NaT.
        until: a time in the stored form.
    """
    passed = moments(pa.array([until]))[0] - since
    return pd.TimedeltaIndex(np.maximum(passed, np.timedelta64(0, "us"))).array
