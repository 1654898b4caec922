"""Frames that are there to be read: shown whole, whatever pandas is set to cut off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

__all__ = ["Readable"]


class Readable(pd.DataFrame):  # type: ignore[misc]
    """A frame of a few rows of text; what is made of it is a plain frame."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Readable:
        """Put finished columns together."""
        return cls(dict(columns), copy=False)

    def _repr_html_(self) -> str:
        """The frame as Jupyter shows it: no text is cut, and all stands on the left."""
        with pd.option_context("display.max_colwidth", None):
            page: str = self.to_html(na_rep="", justify="left", border=0)
        # Texts are escaped, so these are the tags alone.
        return page.replace("<td>", '<td style="text-align: left">')

    def __repr__(self) -> str:
        texts = [name for name, kind in self.dtypes.items() if kind == "str"]
        widths = {name: max(map(len, [name, *self[name].fillna("")])) for name in texts}
        formatters = {name: f"{{:<{width}}}".format for name, width in widths.items()}
        shown: str = self.to_string(formatters=formatters, na_rep="", justify="left")
        return shown
