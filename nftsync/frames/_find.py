"""Search for tokens, collections and wallets by name."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, frame_of, integers
from nftsync.columnar.columns import text as text_column
from nftsync.columnar.filters import shown, whole_number
from nftsync.columnar.source import IN_JSON, Parameters, Source, Store, positions, reading
from nftsync.columnar.tokens import NAMING, read_tokens
from nftsync.errors import InputError, NftsyncWarning
from nftsync.store.contracts import contract_key
from nftsync.store.filters import has_names
from nftsync.text import without_controls

_LONGEST, _MOST = 200, 100_000

#: The beginning of an id or address, or its two ends as `brief` shows them.
_PART_OF_ID = re.compile("(0x[0-9a-f]{4,}|[0-9a-f-]{6,})(?:…([0-9a-f-]{4,}))?", re.IGNORECASE)

#: How well something fits, from a name that is just so to one that has the text anywhere.
_SAME, _BEGINS, _WORDS, _WITHIN, _ELSEWHERE = range(5)

#: A name counts for more than who made the token, and that for more than what is said of it.
_INDEXED = """
    SELECT rowid FROM tokens_fts WHERE tokens_fts MATCH ?
    ORDER BY bm25(tokens_fts, 10.0, 1.0, 3.0), rowid LIMIT ?
"""
_LIKE = r"SELECT token_no FROM tokens WHERE name LIKE ? ESCAPE '\' ORDER BY token_no LIMIT ?"

#: By kind: of some ids, how many wallets hold one, and how many tokens are known or held.
_COUNTS = {
    "wallet": """
        SELECT wallet_id, NULL, count(*) FROM wallets JOIN balance_rows USING (wallet_no)
        WHERE held_since IS NOT NULL AND wallet_id IN (SELECT value FROM json_each(?))
        GROUP BY wallet_id""",
    "collection": """
        SELECT contract, count(DISTINCT wallet_no), count(DISTINCT t.token_no) FROM tokens t
        LEFT JOIN balance_rows b ON b.token_no = t.token_no AND held_since IS NOT NULL
        WHERE contract IN (SELECT value FROM json_each(?)) GROUP BY contract""",
    "token": """
        SELECT token_id, count(*), NULL FROM tokens JOIN balance_rows USING (token_no)
        WHERE held_since IS NOT NULL AND token_id IN (SELECT value FROM json_each(?))
        GROUP BY token_id""",
}

#: Names of tokens among which near ones are looked for: those with words that begin alike.
_NEAR, _BEGINNING = 2_000, 3


class _Found(NamedTuple):
    """A row of the result; a lower rank is a better match."""
    rank: int
    kind: str
    name: str | None
    id: str
    collection: str | None = None


def find(db: Store = None, text: str = "", *, limit: int = 50) -> pd.DataFrame:
    """Find tokens, collections and wallets by name, the best matches first.

    A token matches if all words appear in its name, creator or description; the last word may be
    incomplete. If no token matches, the text may appear anywhere in a name. Wallets match by label
    or group, and collections by name. Case does not matter; accents do not matter for tokens. An id
    or address also matches by its first six characters or more, or by its two ends as `brief` shows
    them.

    Args:
        db: the database (see `nftsync.frames`).
        text: the search text, without operators.
        limit: the maximum number of rows.

    Returns:
        `kind` (`wallet`, `collection` or `token`), `name`, `id` (for a collection, its contract's
        address in one spelling), `collection` (for a token), `holders` (wallets that hold the token
        or collection; missing for a wallet) and `tokens` (known tokens of a collection, or tokens
        that a wallet holds; missing for a token). Exact matches come first, then names that begin
        with the text, then others; in each rank, wallets before collections before tokens.

    Warns:
        NftsyncWarning: nothing matches; the warning lists similar names.

    Raises:
        InputError: the text is blank, or `limit` is out of range.
    """
    wanted = without_controls(text)[:_LONGEST].strip() if isinstance(text, str) else ""
    if not wanted:
        raise InputError(f"{shown(text)} is nothing to find; give a name, or a part of one")
    limit = whole_number("limit", limit, _MOST)
    with reading(db) as source:
        found = [
            *_wallets(source, wanted),
            *_collections(source, wanted),
            *_tokens(source, wanted, limit),
        ]
        found = sorted(found, key=lambda each: each.rank)[:limit]
        counts = {kind: _counts(source, kind, found) for kind in _COUNTS}
        near = [] if found else _near(source, wanted)
    if not found:
        instead = f"; near names: {', '.join(map(repr, near))}" if near else ""
        warnings.warn(f"nothing is called {wanted!r}{instead}", NftsyncWarning, stacklevel=2)
    return _frame(found, counts)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _rank(name: str | None, wanted: str) -> int | None:
    """Return how well a name matches; None: not at all."""
    name, wanted = _folded(name or ""), _folded(wanted)
    if name == wanted:
        return _SAME
    if name.startswith(wanted):
        return _BEGINS
    words = re.findall(r"\w+", name)
    if all(any(each.startswith(word) for each in words) for word in wanted.split()):
        return _WORDS
    return _WITHIN if wanted in name else None


def _ids(wanted: str) -> Callable[[str], bool]:
    """Return a test whether the search text means an id or address."""
    part = _PART_OF_ID.fullmatch(wanted)
    if part is None:
        return lambda one: contract_key(one) == contract_key(wanted)
    begins, ends = part[1].lower(), (part[2] or "").lower()
    return lambda one: one.lower().startswith(begins) and one.lower().endswith(ends)


def _wallets(source: Source, wanted: str) -> Iterator[_Found]:
    meant = _ids(wanted)
    for wallet, label, group in source.rows("SELECT wallet_id, label, wallet_group FROM wallets"):
        rank = _rank(label, wanted) if label else None
        if rank is None and group and _rank(group, wanted) is not None:
            rank = _ELSEWHERE
        if meant(wallet):
            rank = _SAME
        if rank is not None:
            yield _Found(rank, "wallet", label, wallet)


def _collections(source: Source, wanted: str) -> Iterator[_Found]:
    if not has_names(source.cursor):
        return
    meant = _ids(wanted)
    rows = source.rows("SELECT contract, name FROM contracts WHERE names_seen IS NOT NULL")
    for contract, name in rows:
        rank = _SAME if meant(contract) else _rank(name, wanted) if name else None
        if rank is not None:
            yield _Found(rank, "collection", name, contract)


def _tokens(source: Source, wanted: str, limit: int) -> list[_Found]:
    numbers = _by_id(source, wanted, limit)
    if words := _words(wanted):
        query = " ".join(f'"{word}"' for word in words)
        numbers += _numbers(source, _INDEXED, (f"{query}*", limit))
    if not numbers:
        pattern = re.sub(r"[%_\\]", r"\\\g<0>", wanted)
        numbers = _numbers(source, _LIKE, (f"%{pattern}%", limit))
    which = np.array([*dict.fromkeys(numbers)], dtype=np.int64)
    tokens = read_tokens(source, NAMING, wanted=which)
    rows = pa.array(positions(tokens.numbers, which))
    columns = (tokens.content["name"], tokens.token_ids, tokens.content["collection"])
    meant = _ids(wanted)
    found = []
    for name, token, of in zip(*(one.take(rows).to_pylist() for one in columns), strict=True):
        rank = _SAME if meant(token) else _rank(name, wanted)
        found.append(_Found(_ELSEWHERE if rank is None else rank, "token", name, token, of))
    return found


def _by_id(source: Source, wanted: str, limit: int) -> list[int]:
    """Return the numbers of tokens with a matching id, from the index of ids."""
    part = _PART_OF_ID.fullmatch(wanted)
    if part is None:
        return []
    query = """
        SELECT token_no FROM tokens WHERE token_id >= ?1 AND token_id < ?1 || 'g'
        AND token_id GLOB ?2 ORDER BY token_id LIMIT ?3"""
    begins, ends = part[1].lower(), (part[2] or "").lower()
    return _numbers(source, query, (begins, f"*{ends}", limit))


def _numbers(source: Source, query: str, parameters: Parameters) -> list[int]:
    return [row[0] for row in source.rows(query, parameters)]


def _words(wanted: str) -> list[str]:
    """Return the words to quote in a full-text query."""
    words = wanted.replace('"', " ").split()
    # One without a letter or digit is no word there, and would find nothing.
    return [word for word in words if any(map(str.isalnum, word))]


def _counts(
    source: Source, kind: str, found: Iterable[_Found]
) -> dict[str, tuple[int | None, int | None]]:
    """Return holders and tokens by id, for the matches of one kind."""
    ids = [each.id for each in found if each.kind == kind]
    rows = source.rows(_COUNTS[kind], (json.dumps(ids),)) if ids else ()
    return {key: (holders, tokens) for key, holders, tokens in rows}


def _near(source: Source, wanted: str) -> list[str]:
    """Return up to three names similar to the search text."""
    names = [row[0] for row in source.rows("SELECT label FROM wallets WHERE label IS NOT NULL")]
    if has_names(source.cursor):
        rows = source.rows("SELECT name FROM contracts WHERE name IS NOT NULL")
        names += [row[0] for row in rows]
    begin = [f'"{word[:_BEGINNING]}"*' for word in _words(wanted)]
    if begin:
        numbers = _numbers(source, _INDEXED, (" OR ".join(begin), _NEAR))
        query = f"SELECT DISTINCT name FROM tokens WHERE token_no {IN_JSON} AND name IS NOT NULL"
        names += [row[0] for row in source.rows(query, (json.dumps(numbers),))]
    lines = {_folded(name): without_controls(name[:_LONGEST]) for name in names}
    return [lines[each] for each in get_close_matches(_folded(wanted), lines, n=3)]


def _frame(
    found: list[_Found], counts: dict[str, dict[str, tuple[int | None, int | None]]]
) -> pd.DataFrame:
    nobody = {"wallet": (None, 0), "collection": (0, 0), "token": (0, None)}
    counted = [counts[each.kind].get(each.id, nobody[each.kind]) for each in found]
    holders, tokens = zip(*counted, strict=True) if counted else ((), ())

    def texts(name: str) -> object:
        return text_column(pa.array([getattr(each, name) for each in found], TEXT))

    return frame_of(
        {
            **{name: texts(name) for name in ("kind", "name", "id", "collection")},
            "holders": integers(pa.array(holders, INTEGER)),
            "tokens": integers(pa.array(tokens, INTEGER)),
        }
    )
