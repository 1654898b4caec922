"""Progress bars: on a terminal or in a notebook, nowhere else."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

__all__ = ["progress_bar"]


def progress_bar(
    label: str, total: int, *, unit: str, done: int = 0, shown: bool | None = None
) -> Any:
    """A bar with rate and remaining time, on standard error or as a notebook's widget.

    Args:
        label: what is under way.
        total: how many there are.
        unit: what is counted.
        done: how many are done already.
        shown: True or False to decide; None shows it on a terminal and in a notebook.

    Returns:
        A tqdm bar: `update(n)` and `close()`.
    """
    in_notebook = "ipykernel" in sys.modules and not sys.stderr.isatty()
    if in_notebook and shown is not False and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    hidden = not (sys.stderr.isatty() or in_notebook) if shown is None else not shown
    return tqdm(
        desc=label, total=total, unit=f" {unit}", initial=done, disable=hidden, dynamic_ncols=True
    )
