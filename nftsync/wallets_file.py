"""The wallets file: one UUID a line, or CSV with a header; `#` begins a comment."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from nftsync.errors import InputError
from nftsync.models import normalize_uuid
from nftsync.store.registry import WalletLine

__all__ = ["read_wallets_file"]

_COLUMNS = {"wallet_id", "label", "group"}


def read_wallets_file(source: Path | Literal["-"]) -> list[WalletLine]:
    """Read a wallets file.

    Args:
        source: the file, or `-` for standard input.

    Returns:
        Its wallets in their order, each once; of a wallet named twice the last line counts.

    Raises:
        InputError: it cannot be read, names no wallet, or a line is unusable; the text says which.
    """
    name = "standard input" if source == "-" else str(source)
    try:
        # Bytes: the terminal's encoding may be any, and a pipe may begin with a byte order mark.
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the wallets file {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the wallets file {name} is not UTF-8 text") from error
    lines = [
        (number, line)
        for number, line in enumerate(re.split("\r\n|\r|\n", text), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"the wallets file {name} names no wallet")
    header = [column.strip(' \t"').lower() for column in lines[0][1].split(",")]
    is_csv = "wallet_id" in header
    found = _read_csv(lines, name) if is_csv else _read_plain(lines, name)
    wallets = {wallet.wallet_id: wallet for wallet in found}
    if not wallets:
        raise InputError(f"the wallets file {name} names no wallet")
    return list(wallets.values())


def _read_plain(lines: list[tuple[int, str]], name: str) -> Iterable[WalletLine]:
    for number, line in lines:
        yield WalletLine(_wallet_id(line.partition("#")[0].strip(), name, number))


def _read_csv(lines: list[tuple[int, str]], name: str) -> Iterable[WalletLine]:
    rows = csv.reader((line + "\n" for _, line in lines), skipinitialspace=True, strict=True)
    try:
        header = [column.strip().lower() for column in next(rows)]
        if unknown := sorted(set(header) - _COLUMNS):
            raise InputError(
                f"the wallets file {name} has the unknown column {unknown[0]!r}; "
                "known are wallet_id, label and group"
            )
        if len(set(header)) < len(header):
            raise InputError(f"the wallets file {name} has a column twice")
        for row in rows:
            number = lines[rows.line_num - 1][0]
            if len(row) > len(header):
                raise InputError(
                    f"{name}, line {number}: {len(row)} values for {len(header)} columns"
                )
            fields = dict(zip(header, row, strict=False))
            yield WalletLine(
                _wallet_id(fields.get("wallet_id", "").strip(), name, number),
                fields.get("label", "").strip() or None,
                fields.get("group", "").strip() or None,
            )
    except csv.Error as error:
        raise InputError(f"the wallets file {name} is not CSV: {error}") from error


def _wallet_id(text: str, name: str, number: int) -> str:
    try:
        return normalize_uuid(text, "wallet id")
    except InputError as error:
        raise InputError(f"{name}, line {number}: {error}") from None
