"""Optional packages, and how to install them."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from nftsync.errors import NftsyncError


def require(extra: str, purpose: str, *modules: str) -> None:
    """Refuse missing modules, and name the command that installs them."""
    if missing := [name for name in modules if find_spec(name) is None]:
        command = install_command(*_packages(extra))
        raise NftsyncError(f"{purpose} need {', '.join(missing)}; to install: {command}")


def install_command(*packages: str) -> str:
    # Every environment of nftsync has pip, because sqlite-utils needs it.
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def _packages(extra: str) -> list[str]:
    from importlib.metadata import requires

    source = Path(__file__).parents[1]
    if (source / "pyproject.toml").is_file():
        return ["--editable", f"{source}[{extra}]"]
    # Not nftsync itself: no index has it, and its wheel may be gone.
    marker = f"; extra == '{extra}'"
    return [line.removesuffix(marker) for line in requires("nftsync") or () if marker in line]
