"""The settings file: where it is, and what it says before anything of it is checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from nftsync.errors import SettingsError

__all__ = ["FILE_NAME", "nearest_file", "read_toml"]

FILE_NAME = "nftsync.toml"

_TOML_REASON = re.compile(r"(?:Expected '=' )?[A-Za-z /-]+")
_TOML_PLACE = re.compile(r"line \d+, column \d+")


def nearest_file(here: Path) -> Path | None:
    """Find the settings file in a directory or above it."""
    for folder in (here, *here.parents):
        try:
            if (folder / FILE_NAME).is_file():
                return folder / FILE_NAME
        except OSError:  # a directory that may not be looked into
            continue
    return None


def read_toml(file: Path) -> dict[str, Any]:
    """Read a settings file.

    Raises:
        SettingsError: it cannot be read, or is not TOML; the message quotes none of its values.
    """
    content = ""
    try:
        content = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(content)
    except OSError as error:
        problem = f"cannot read {file}: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        problem = f"{file} is not TOML: {_toml_problem(str(error), content)}"
    except (ValueError, RecursionError):
        problem = f"{file} is not TOML: not UTF-8, or a value that is too long or too deep"
    raise SettingsError(problem)


def _toml_problem(message: str, content: str) -> str:
    """Say what tomllib says, less the part that can quote the file, which may hold secrets."""
    reason, _, place = message.rpartition(" (at ")
    found = _TOML_PLACE.match(place)
    where = found[0] if found else f"line {content.rstrip().count(chr(10)) + 1}, at the end"
    return f"{where}: {reason}" if _TOML_REASON.fullmatch(reason) else where
