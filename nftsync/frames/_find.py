"""Search for tokens, collections and wallets by name."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, frame_of, integers
from nftsync.columnar.columns import text as text_column
from nftsync.columnar.filters import shown, whole_number
from nftsync.columnar.source import IN_JSON, Parameters, Source, Store, positions, reading
from nftsync.columnar.tokens import NAMING, read_tokens
from nftsync.errors import InputError, NftsyncWarning
from nftsync.store.contracts import contract_key, short_address
from nftsync.store.wallets import wallet_names
from nftsync.text import without_controls

_LONGEST, _MOST = 200, 100_000

#: The beginning of an id or address, or its two ends as `brief` shows them.
_PART_OF_ID = re.compile("(0x[0-9a-f]{4,}|[0-9a-f-]{6,})(?:…([0-9a-f-]{4,}))?", re.IGNORECASE)

#: Ranks of matches, best first.
_EXACT, _PREFIX, _WORDS, _SUBSTRING, _OTHER = range(5)

#: Matches in the name weigh most, then in the creator, then in the description.
_INDEXED = """
    SELECT rowid FROM tokens_fts WHERE tokens_fts MATCH ?
    ORDER BY bm25(tokens_fts, 10.0, 1.0, 3.0), rowid LIMIT ?
"""
_LIKE = r"SELECT token_no FROM tokens WHERE name LIKE ? ESCAPE '\' ORDER BY token_no LIMIT ?"

#: Holders and tokens by id: known tokens of a collection, held tokens of a wallet.
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

#: Token names to compare with the search text: their words share a prefix with its words.
_CANDIDATES, _PREFIX_LENGTH = 2_000, 3


class _Match(NamedTuple):
    rank: int
    kind: str
    name: str
    id: str
    collection: str | None = None


def find(db: Store = None, text: str = "", *, limit: int = 50) -> pd.DataFrame:
    """Find tokens, collections and wallets by name, at most `limit`, the best matches first.

    The text has no operators. A token matches if all words appear in its name, creator or
    description; the last word may be incomplete. If no token matches, the text may appear anywhere
    in a name. Wallets match by label or group, and collections by name. Case does not matter;
    accents do not matter for tokens. An id or address also matches by its first six characters or
    more, or by its two ends as `brief` shows them.

    Returns:
        Exact matches, names that begin with the text, and others; in each rank, wallets,
        collections, tokens. Columns: `frames.explain("find")`.

    Warns:
        NftsyncWarning: nothing matches; the warning lists similar names.
    """
    phrase = without_controls(text)[:_LONGEST].strip() if isinstance(text, str) else ""
    if not phrase:
        raise InputError(f"cannot search for {shown(text)}; give a name, or part of one")
    limit = whole_number("limit", limit, _MOST)
    with reading(db) as source:
        others = [*_wallets(source, phrase), *_collections(source, phrase)]
        matches = [*others, *_tokens(source, phrase, limit)]
        matches = sorted(matches, key=lambda match: match.rank)[:limit]
        counts = {kind: _counts(source, kind, matches) for kind in _COUNTS}
        similar = [] if matches else _similar_names(source, phrase)
    if not matches:
        instead = f"; similar names: {', '.join(map(repr, similar))}" if similar else ""
        warnings.warn(f"no match for {phrase!r}{instead}", NftsyncWarning, stacklevel=3)
    return _frame(matches, counts)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _rank(name: str | None, phrase: str) -> int | None:
    if not name:
        return None
    name, phrase = _folded(name), _folded(phrase)
    if name == phrase:
        return _EXACT
    if name.startswith(phrase):
        return _PREFIX
    words = re.findall(r"\w+", name)
    if all(any(other.startswith(word) for other in words) for word in phrase.split()):
        return _WORDS
    return _SUBSTRING if phrase in name else None


def _id_test(phrase: str) -> Callable[[str], bool]:
    part = _PART_OF_ID.fullmatch(phrase)
    if part is None:
        return lambda one: contract_key(one) == contract_key(phrase)
    begins, ends = part[1].lower(), (part[2] or "").lower()
    return lambda one: one.lower().startswith(begins) and one.lower().endswith(ends)


def _wallets(source: Source, phrase: str) -> Iterator[_Match]:
    is_match = _id_test(phrase)
    rows = list(source.rows("SELECT wallet_id, label, wallet_group FROM wallets"))
    names = wallet_names([row[:2] for row in rows])
    for name, (wallet, label, group) in zip(names, rows, strict=True):
        rank = _rank(label, phrase)
        if rank is None and _rank(group, phrase) is not None:
            rank = _OTHER
        if is_match(wallet):
            rank = _EXACT
        if rank is not None:
            yield _Match(rank, "wallet", name, wallet)


def _collections(source: Source, phrase: str) -> Iterator[_Match]:
    is_match = _id_test(phrase)
    rows = source.rows(
        "SELECT contract, name FROM contracts WHERE contract IN"
        " (SELECT contract FROM sampled_tokens)"
    )
    for contract, name in rows:
        rank = _EXACT if is_match(contract) else _rank(name, phrase)
        if rank is not None:
            yield _Match(rank, "collection", name or short_address(contract), contract)


def _tokens(source: Source, phrase: str, limit: int) -> list[_Match]:
    numbers = _numbers_by_id(source, phrase, limit)
    if words := _words(phrase):
        query = " ".join(f'"{word}"' for word in words)
        numbers += _numbers(source, _INDEXED, (f"{query}*", limit))
    if not numbers:
        pattern = re.sub(r"[%_\\]", r"\\\g<0>", phrase)
        numbers = _numbers(source, _LIKE, (f"%{pattern}%", limit))
    which = np.array([*dict.fromkeys(numbers)], dtype=np.int64)
    tokens = read_tokens(source, NAMING, wanted=which)
    rows = pa.array(positions(tokens.numbers, which))
    content = tokens.content
    columns = (content["name"], content["nft"], tokens.token_ids, content["collection"])
    is_match = _id_test(phrase)
    matches = []
    values = (column.take(rows).to_pylist() for column in columns)
    for name, nft, token, collection in zip(*values, strict=True):
        rank = _EXACT if is_match(token) else _rank(name, phrase)
        matches.append(_Match(_OTHER if rank is None else rank, "token", nft, token, collection))
    return matches


def _numbers_by_id(source: Source, phrase: str, limit: int) -> list[int]:
    part = _PART_OF_ID.fullmatch(phrase)
    if part is None:
        return []
    query = """
        SELECT token_no FROM tokens WHERE token_id >= ?1 AND token_id < ?1 || 'g'
        AND token_id GLOB ?2 ORDER BY token_id LIMIT ?3"""
    begins, ends = part[1].lower(), (part[2] or "").lower()
    return _numbers(source, query, (begins, f"*{ends}", limit))


def _numbers(source: Source, query: str, parameters: Parameters) -> list[int]:
    return [row[0] for row in source.rows(query, parameters)]


def _words(phrase: str) -> list[str]:
    words = phrase.replace('"', " ").split()
    # The index has no words without letters or digits.
    return [word for word in words if any(map(str.isalnum, word))]


def _counts(
    source: Source, kind: str, matches: Iterable[_Match]
) -> dict[str, tuple[int | None, int | None]]:
    ids = [match.id for match in matches if match.kind == kind]
    rows = source.rows(_COUNTS[kind], (json.dumps(ids),)) if ids else ()
    return {key: (holders, tokens) for key, holders, tokens in rows}


def _similar_names(source: Source, phrase: str) -> list[str]:
    names = [row[0] for row in source.rows("SELECT label FROM wallets WHERE label IS NOT NULL")]
    rows = source.rows("SELECT name FROM contracts WHERE name IS NOT NULL")
    names += [row[0] for row in rows]
    begin = [f'"{word[:_PREFIX_LENGTH]}"*' for word in _words(phrase)]
    if begin:
        numbers = _numbers(source, _INDEXED, (" OR ".join(begin), _CANDIDATES))
        query = f"SELECT DISTINCT name FROM tokens WHERE token_no {IN_JSON} AND name IS NOT NULL"
        names += [row[0] for row in source.rows(query, (json.dumps(numbers),))]
    lines = {_folded(name): without_controls(name[:_LONGEST]) for name in names}
    return [lines[line] for line in get_close_matches(_folded(phrase), lines, n=3)]


def _frame(
    matches: list[_Match], counts: dict[str, dict[str, tuple[int | None, int | None]]]
) -> pd.DataFrame:
    defaults = {"wallet": (None, 0), "collection": (0, 0), "token": (0, None)}
    counted = [counts[match.kind].get(match.id, defaults[match.kind]) for match in matches]
    columns: dict[str, Any] = {}
    for name in ("kind", "name", "id", "collection"):
        columns[name] = text_column(pa.array([getattr(match, name) for match in matches], TEXT))
    for place, name in enumerate(("holders", "tokens")):
        columns[name] = integers(pa.array([counts[place] for counts in counted], INTEGER))
    return frame_of(columns)
