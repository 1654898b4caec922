"""Terminals for commands."""

from __future__ import annotations

import pty

import pytest


def open_terminal() -> tuple[int, int]:
    """Return both ends of a terminal: the user's and the command's."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal device: {error}")
