"""Last steps of a run: merge tokens, update copies of them in other buckets, name contracts.

A token has one row in `tokens`, in the bucket of its id. The newest read of any bucket sets its
content. If another bucket has other content, that bucket's copy is corrected, and its wallets that
hold the token get a full read next time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa

from nftsync.lake.applying import Seen, renumber
from nftsync.lake.rows import (
    BUCKET,
    KEEP_SOURCES,
    TABLES,
    chosen,
    from_mirror,
    mirror_of,
    schema_of,
    to_mirror,
)
from nftsync.lake.run_spec import ALL_BUCKETS, REPORT, RunSpec, StepReport, hand_over, report_of
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.contracts import (
    SAMPLE,
    contract_key,
    guess_name,
    names_that_differ,
    store_file_names,
    store_guesses,
)
from nftsync.store.mirror import Mirror
from nftsync.store.tokens import TokenBatch, compose, listed_fields

if TYPE_CHECKING:
    from nftsync.lake.storage import Lake

#: Target of contract names.
NAMES = -2
_AT_ONCE = 1_000

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
_COLUMNS = list(TABLES["tokens"].columns)
_STORED_COLUMNS = schema_of("tokens").names[1:]
_CONTENT = slice(_COLUMNS.index(CONTENT_COLUMNS[0]), _COLUMNS.index(CONTENT_COLUMNS[-1]) + 1)
_LIST_FIELDS = _COLUMNS.index("list_fields")
_FIRST_SEEN, _CHANGED = _COLUMNS.index("first_seen_at"), _COLUMNS.index("changed_sequence")
#: Sequence numbers may differ between buckets if the content is the same.
_SEQUENCES = {_COLUMNS.index(name) for name in ("sequence", "changed_sequence")}
_Row: TypeAlias = tuple[Any, ...]


class MergeReport(StepReport, kw_only=True):
    """Result of merging a bucket of tokens.

    Attributes:
        added: the number of new tokens.
        changed: the number of changed tokens.
        shown_by: bucket and sequence number of the reads that first showed the changes.
    """

    added: int = 0
    changed: int = 0
    shown_by: set[tuple[int, int]] = msgspec.field(default_factory=set)


def merge_tokens(spec: RunSpec, bucket: int) -> MergeReport:
    """Merge the staged reads of a bucket's tokens into their rows, unless that is done."""
    lake, commit = spec.lake, spec.commit("merge", bucket)
    if (done := report_of(lake, commit, MergeReport)) is not None:
        return done
    with mirror_of(lake, {}, bucket, ()) as mirror:
        connection = mirror.connection
        ids = pa.array(_take_in_seen(spec, bucket, mirror), pa.string())
        version, here = spec.start["tokens"], f"{BUCKET} = {bucket}"
        with mirror.transaction(spec.applied_at):
            some = (chosen(x, ids) for x in lake.batches("tokens", version, here))
            to_mirror(connection, "tokens", some)
        before = connection.total_changes
        report = _merge(spec, mirror)
        if connection.total_changes > before:
            rest = (chosen(x, ids, others=True) for x in lake.batches("tokens", version, here))
            lake.replace("tokens", chain(rest, from_mirror(connection, "tokens", bucket)), commit)
        if report.changed:
            first = spec.first_token_change[bucket]
            renumber(connection, "token_change_rows", "change_id", first, 0)
            lake.append("token_changes", from_mirror(connection, "token_changes", bucket), commit)
        messages = chain(_corrections(connection), _names(connection, spec.applied_at))
        return hand_over(lake, commit, messages, report)


def _take_in_seen(spec: RunSpec, bucket: int, mirror: Mirror) -> list[str]:
    """Load staged tokens into a table `seen`; return their ids."""
    connection = mirror.connection
    connection.execute(
        "CREATE TEMP TABLE seen (token_id TEXT, first INTEGER, sequence INTEGER, source INTEGER,"
        " row BLOB)"
    )
    for source, number, packed in spec.lake.staged(spec.run_id, "apply", target=bucket):
        if number != REPORT:
            connection.executemany(
                "INSERT INTO seen VALUES (?, ?, ?, ?, ?)",
                [
                    (row[0], min(row[_CHANGED], sequence), sequence, source, _pack(row))
                    for row, sequence in _unpack(packed, type=list[Seen])
                ],
            )
    return [row[0] for row in connection.execute("SELECT DISTINCT token_id FROM seen")]


def _merge(spec: RunSpec, mirror: Mirror) -> MergeReport:
    """Apply the staged tokens, newest last.

    A bucket's reads from `first` to `sequence` all showed the same content.
    """
    report = MergeReport()
    connection = mirror.connection
    rows = connection.execute(
        "SELECT sequence, source, row FROM seen UNION ALL"
        " SELECT first, source, row FROM seen WHERE first > ? AND first < sequence ORDER BY 1, 2",
        (spec.greatest_sequence,),
    )
    first: dict[str, tuple[int, int]] = {}
    while some := rows.fetchmany(_AT_ONCE):
        shown_rows = []
        for sequence, source, packed in some:
            row = _unpack(packed)
            shown_rows.append((sequence, row))
            if row[_CHANGED] > spec.greatest_sequence and row[_FIRST_SEEN] < spec.applied_at:
                by = row[_CHANGED], source
                first[row[0]] = min(by, first.get(row[0], by))
        with mirror.transaction(spec.applied_at):
            tokens = TokenBatch(connection, spec.applied_at, spec.run_id)
            tokens.load({row[0] for _, row in shown_rows})
            for sequence, row in shown_rows:
                tokens.see(_read_of(spec, row, sequence))
            tokens.write()
        report.added += len(tokens.new)
        report.changed += len(tokens.changes)
    report.shown_by = {(source, sequence) for sequence, source in first.values()}
    return report


def _read_of(spec: RunSpec, row: Sequence[Any], sequence: int) -> WalletRead:
    content = tuple(row[_CONTENT])
    if row[_LIST_FIELDS] is not None:
        content = compose(listed_fields(row[_LIST_FIELDS]))
    # Empty content counts only if the metadata was emptied: a list may have named only the id.
    emptied = row[_FIRST_SEEN] < spec.applied_at and row[_CHANGED] > spec.greatest_sequence
    shown = content if emptied or any(value is not None for value in content) else None
    return WalletRead(
        wallet_id="", sequence=sequence, started_at="", outcome="ok", entries=[(row[0], "1", shown)]
    )


def _corrections(connection: sqlite3.Connection) -> Iterator[tuple[int, int, bytes]]:
    """Yield token rows that differ from a bucket's copy, for that bucket or all."""
    select = TABLES["tokens"].select
    changed = f"{select} WHERE t.token_no IN (SELECT token_no FROM token_change_rows)"
    for row in connection.execute(changed):
        yield ALL_BUCKETS, 0, _pack(row)
    beside = select.replace(
        " FROM tokens t", ", seen.source, seen.row FROM temp.seen JOIN tokens t USING (token_id)"
    )
    for *row, source, packed in connection.execute(
        f"{beside} WHERE t.token_no NOT IN (SELECT token_no FROM token_change_rows)"
    ):
        if _differ(row, _unpack(packed)):
            yield source, 0, _pack(row)


def _differ(row: Sequence[Any], copy: Sequence[Any]) -> bool:
    return any(value != copy[place] for place, value in enumerate(row) if place not in _SEQUENCES)


#: The contracts of new tokens, and of tokens with another name or contract than before.
_NAMED = """
    SELECT contract_address FROM tokens WHERE first_seen_at = ?
    UNION SELECT contract_address FROM tokens WHERE token_no IN (
        SELECT token_no FROM token_change_rows
        WHERE coalesce(before -> 'name', before -> 'contract_address') IS NOT NULL)
    UNION SELECT before ->> 'contract_address' FROM token_change_rows
"""


def _names(connection: sqlite3.Connection, at: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield the addresses of contracts whose names new and changed tokens suggest."""
    addresses = [row[0] for row in connection.execute(_NAMED, (at,)) if row[0] is not None]
    if addresses:
        yield NAMES, 0, _pack(addresses)


def propagate_tokens(spec: RunSpec, bucket: int) -> None:
    """Correct a bucket's copies of tokens that differ from the merged rows."""
    lake, commit = spec.lake, spec.commit("spread", bucket)
    version, here = spec.base["known_tokens"], f"{BUCKET} = {bucket}"
    known_ids = {row[0] for row in lake.rows("known_tokens", version, here, ("token_id",))}
    corrections: dict[str, _Row] = {}
    for target in (ALL_BUCKETS, bucket):
        for _, number, packed in lake.staged(spec.run_id, "merge", target=target):
            if number != REPORT and (row := _unpack(packed))[0] in known_ids:
                corrections[row[0]] = tuple(row)
    if not corrections:
        return
    ids = pa.array(corrections, pa.string())
    wrong: dict[str, _Row] = {}
    for rows in lake.batches("known_tokens", version, here, _STORED_COLUMNS):
        batch = chosen(rows, ids)
        for copy in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if _differ(corrections[copy[0]], copy):
                wrong[copy[0]] = copy
    if not wrong:
        return
    with mirror_of(lake, spec.base, bucket, ("wallets", "known_tokens", "balances")) as mirror:
        with mirror.transaction():
            for token_id, copy in wrong.items():
                _correct(mirror.connection, corrections[token_id], copy)
        lake.replace("known_tokens", from_mirror(mirror.connection, "known_tokens", bucket), commit)
        lake.replace("wallets", from_mirror(mirror.connection, "wallets", bucket), commit)


def _correct(connection: sqlite3.Connection, row: _Row, copy: _Row) -> None:
    columns = dict(zip(_COLUMNS, row, strict=True))
    other = row[_CONTENT] != copy[_CONTENT]
    taken = [*CONTENT_COLUMNS, "first_seen_at", "updated_at", "detailed"]
    if other:
        taken += ["sequence", "changed_sequence"]
    assignments = ", ".join(f"{name} = :{name}" for name in taken)
    connection.execute(f"UPDATE tokens SET {assignments} WHERE token_id = :token_id", columns)
    connection.execute(KEEP_SOURCES, columns)
    if other:  # the wallets' digests belong to the old content
        connection.execute(
            "UPDATE wallets SET etag = NULL, body_sha256 = NULL WHERE sequence < :changed_sequence"
            " AND wallet_no IN (SELECT wallet_no FROM balance_rows JOIN tokens USING (token_no)"
            " WHERE token_id = :token_id)",
            columns,
        )


def name_contracts(spec: RunSpec, names: Mapping[str, str] | None) -> None:
    """Guess the names of contracts with new and changed tokens.

    `names` are the names in the collections file; None: no file.
    """
    lake, commit = spec.lake, spec.commit("name", 0)
    guesses = list(_guesses(lake, spec.run_id))
    with mirror_of(lake, spec.start, 0, ("contracts",)) as mirror:
        connection = mirror.connection
        before = connection.total_changes
        with mirror.transaction():
            store_guesses(connection, guesses)
            if names is not None:
                store_file_names(connection, names_that_differ(connection, names))
        if connection.total_changes > before:
            lake.replace("contracts", from_mirror(connection, "contracts", 0), commit)


def _guesses(lake: Lake, run_id: int) -> Iterator[tuple[str, str, str | None]]:
    """Yield contracts with new or changed tokens, their addresses and guessed names.

    The sample has the tokens with the first ids, because a lake's rows have no order.
    """
    key_of = lru_cache(100_000)(contract_key)
    spelled: dict[str, str] = {}
    samples: dict[str, list[list[Any]]] = {}
    for _, _, packed in lake.staged(run_id, "merge", target=NAMES):
        for address in _unpack(packed):
            spelled[key_of(address)] = address
            samples[key_of(address)] = []
    rows = lake.rows("tokens", None, "true", ("contract_address", "token_id", "name"))
    for address, *token in rows:
        if address is not None and (key := key_of(address)) in samples:
            spelled[key] = min(spelled[key], address)
            samples[key].append(token)
            if len(samples[key]) == 2 * SAMPLE:
                samples[key] = nsmallest(SAMPLE, samples[key])
    for key, address in spelled.items():
        yield key, address, guess_name([name for _, name in nsmallest(SAMPLE, samples[key])])
