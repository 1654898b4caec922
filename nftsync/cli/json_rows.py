"""Long lists as JSON, written while they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec

__all__ = ["print_json_rows"]


def print_json_rows(pages: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Print exactly one JSON value, an array with an object a line.

    Args:
        pages: the objects, some at a time.
    """
    lead = "["
    for page in pages:
        lines = [msgspec.json.encode(row).decode() for row in page]
        if lines:
            click.echo(f"{lead}\n" + ",\n".join(lines), nl=False)
            lead = ","
    click.echo("[]" if lead == "[" else "\n]")
