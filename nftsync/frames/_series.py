"""Which tokens of a contract are one series: their names, without each one's own number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import TEXT, coded
from nftsync.frames._grouping import numbered_together
from nftsync.frames._source import Numbers

__all__ = ["series_names"]

# For RE2, whose time grows with no more than the length of the text: names are the provider's.
#: A number that ends a name: `12`, `12/100`, `12 of 100)`.
_NUMBER = r"(?i)0*(?P<number>[0-9]{1,19})(?:\s*(?:/|of)\s*[0-9]+)?[\s)\]]*$"
#: What stands between it and the name of the series: ` #`, ` (`, ` No. `, ` - Edition `; or nothing
#: if the number is all there is.
_BETWEEN = (
    r"(?is)^(?P<series>.*?)(?:^|[\s(\[#№,:;|_–—-]+)"
    r"(?:(?:no|nr|number|edition|ed)(?:\.|\s)[\s#]*)?$"
)


def series_names(
    names: pa.Array, edition: Numbers, unnumbered: npt.NDArray[np.bool_], among: Numbers
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Name the series of each token: its name, without a number at its end that is its own.

    A name that several numbers share is left as it is: the number at its end is no token's own.

    Args:
        names: each token's name.
        edition: each token's number.
        unnumbered: which tokens have none, whatever `edition` says.
        among: the same number for tokens that may be of one series.

    Returns:
        Codes (-1: no name) and the distinct names that they number.
    """
    codes, distinct = coded(names)
    if not len(distinct):
        return codes, distinct
    number = pc.struct_field(pc.extract_regex(distinct, _NUMBER), "number")
    own = pc.equal(number.take(_rows(codes)), pa.array(edition).cast(TEXT))
    numbered = pc.fill_null(own, False).to_numpy(zero_copy_only=False) & ~unnumbered
    # What is left of a million names is seldom more than a few.
    base, bases = coded(pc.replace_substring_regex(distinct, _NUMBER, ""))
    series = pc.struct_field(pc.extract_regex(bases, _BETWEEN), "series")
    series = series.cast(TEXT).take(pa.array(base))
    numbered &= pc.is_valid(series).to_numpy(zero_copy_only=False)[codes]
    numbered &= _of_one_number(numbered_together(among, codes), edition)
    # Names as they are stand before the same names without their number.
    chosen = np.where(numbered, codes + len(distinct), codes)
    return coded(pa.concat_arrays([distinct, series]).take(_rows(chosen)))


def _of_one_number(named: Numbers, edition: Numbers) -> npt.NDArray[np.bool_]:
    """Tell of which rows all that have the same name have the same number."""
    pairs = numbered_together(named, numbered_together(edition))
    _, first = np.unique(pairs, return_index=True)
    alone: npt.NDArray[np.bool_] = np.bincount(named[first])[named] == 1
    return alone


def _rows(codes: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(codes, mask=codes < 0)
