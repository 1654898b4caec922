"""Long lists as JSON, written while they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

__all__ = ["print_json_rows"]


def print_json_rows(pages: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Print exactly one JSON value, an array with an object a line.

    Args:
        pages: the objects, some at a time.
    """
    import msgspec

    lead = b"["  # bytes: JSON is UTF-8, whatever the terminal's encoding is
    for page in pages:
        lines = [msgspec.json.encode(row) for row in page]
        if lines:
            click.echo(lead + b"\n" + b",\n".join(lines), nl=False)
            lead = b","
    click.echo(b"[]" if lead == b"[" else b"\n]")
