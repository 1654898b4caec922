"""Last steps of a run: merge tokens, correct copies, name contracts.

A token has one row in `tokens`, in the bucket of its id. The newest read of any bucket sets its
content, and corrects copies in other buckets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.tokens import contract_keys
from nftsync.lake.rows import (
    KEEP_SOURCES,
    TABLES,
    bucket_of,
    chosen,
    filled,
    from_mirror,
    mirror_of,
    rows_of,
    schema_of,
    temporary_mirror,
    to_mirror,
)
from nftsync.lake.staged import StagedPart
from nftsync.lake.storage import DataFile
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
    from nftsync.lake.run_spec import RunSpec
    from nftsync.lake.storage import Lake, Versions

#: Target of corrections for all buckets.
ALL_BUCKETS = -1
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


class Shown(msgspec.Struct):
    """Tokens that buckets showed to one part of the merge."""

    first_change: int
    parts: dict[int, StagedPart]


class MergeReport(msgspec.Struct, kw_only=True):
    """Result of merging a part of the tokens.

    Attributes:
        shown_by: bucket and sequence number of the reads that first showed the changes.
    """

    files: list[DataFile] = []
    added: int = 0
    changed: int = 0
    shown_by: set[tuple[int, int]] = msgspec.field(default_factory=set)
    contracts: list[str] = []
    corrections: str = ""
    targets: set[int] = msgspec.field(default_factory=set)


def merge_tokens(spec: RunSpec, part: int, shown: Shown) -> MergeReport:
    """Merge the tokens that buckets showed into the rows of `tokens`."""
    rows = _rows_shown(spec, shown)
    ids = rows.column("token_id").combine_chunks()
    counts = pc.value_counts(ids)
    often = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    here = [bucket for bucket in range(spec.buckets) if spec.part_of(bucket) == part]
    stored = [chosen(batch, "token_id", ids) for batch in _stored(spec, here)]
    merged_ids = pa.chunked_array([often, *(batch.column("token_id") for batch in stored)])
    to_merge = pc.is_in(ids, value_set=merged_ids.combine_chunks())
    with temporary_mirror(partial(filled, lambda _: None)) as mirror:
        connection = mirror.connection
        _take_in_seen(connection, rows.filter(to_merge))
        with mirror.transaction(spec.applied_at):
            to_mirror(connection, "tokens", stored)
        before = connection.total_changes
        report = _merge(spec, mirror)
        tables = [rows.filter(pc.invert(to_merge)).select(_STORED_COLUMNS)]
        report.added += tables[0].num_rows
        if connection.total_changes > before:
            tables.append(_table(from_mirror(connection, "tokens", 0)).select(_STORED_COLUMNS))
        report.files = list(_token_files(spec, pa.concat_tables(tables)))
        if report.changed:
            changes = _table(from_mirror(connection, "token_changes", 0))
            number = changes.schema.get_field_index("change_id")
            own = pc.add(changes.column(number), shown.first_change - 1)
            changes = changes.set_column(number, changes.schema.field(number), own)
            for bucket, batches in _by_bucket(spec, changes):
                report.files.append(spec.lake.write_file("token_changes", bucket, batches))
        named = pc.unique(tables[0].column("contract_address")).drop_null().to_pylist()
        report.contracts = [*named, *_names(connection, spec.applied_at)]
        if corrections := list(_corrections(connection)):
            report.corrections = f"corrections-{uuid4().hex}"
            spec.staged.write(report.corrections, _pack(corrections))
            report.targets = {target for target, _ in corrections}
        return report


def _rows_shown(spec: RunSpec, shown: Shown) -> pa.Table:
    tables = []
    for bucket, part in shown.parts.items():
        table = pa.ipc.open_stream(spec.staged.read_part(part)).read_all()
        source = pa.array([bucket] * table.num_rows, pa.int64())
        tables.append(table.append_column("source", source))
    return pa.concat_tables(tables)


def _stored(spec: RunSpec, buckets: Collection[int]) -> Iterator[pa.RecordBatch]:
    return spec.lake.stored("tokens", spec.start, buckets=buckets)


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches))


def _token_files(spec: RunSpec, tokens: pa.Table) -> Iterator[DataFile]:
    ids = tokens.column("token_id").combine_chunks()
    for bucket, batches in _by_bucket(spec, tokens):
        stored = _stored(spec, [bucket])
        others = (chosen(batch, "token_id", ids, others=True) for batch in stored)
        yield spec.lake.write_file("tokens", bucket, chain(others, batches))


def _by_bucket(spec: RunSpec, rows: pa.Table) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    ids = rows.column("token_id").to_pylist()
    buckets = pa.array([bucket_of(token, spec.buckets) for token in ids], pa.int64())
    for bucket in pc.unique(buckets).to_pylist():
        yield bucket, rows.filter(pc.equal(buckets, bucket)).to_batches()


def _take_in_seen(connection: sqlite3.Connection, rows: pa.Table) -> None:
    connection.execute(
        "CREATE TEMP TABLE seen (token_id TEXT, first INTEGER, sequence INTEGER, source INTEGER,"
        " row BLOB)"
    )
    connection.executemany(
        "INSERT INTO seen VALUES (?, ?, ?, ?, ?)",
        (
            (row[0], min(row[_CHANGED], sequence), sequence, source, _pack(row))
            for *row, sequence, source in rows_of(rows, rows.schema.names)
        ),
    )


def _merge(spec: RunSpec, mirror: Mirror) -> MergeReport:
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
        wallet_id="",
        sequence=sequence,
        started_at="",
        outcome="ok",
        entries=[(row[0], "1", shown)],
        volatile=[] if spec.config is None else spec.config.volatile_fields,
    )


def _corrections(connection: sqlite3.Connection) -> Iterator[tuple[int, _Row]]:
    select = TABLES["tokens"].select
    changed = "SELECT token_no FROM token_change_rows"
    for row in connection.execute(f"{select} WHERE t.token_no IN ({changed})"):
        yield ALL_BUCKETS, row
    copies: dict[str, list[tuple[int, _Row]]] = {}
    for token_id, source, packed in connection.execute("SELECT token_id, source, row FROM seen"):
        copies.setdefault(token_id, []).append((source, _unpack(packed)))
    for row in connection.execute(f"{select} WHERE t.token_no NOT IN ({changed})"):
        for source, copy in copies.get(row[0], ()):
            if _differ(row, copy):
                yield source, row


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


def _names(connection: sqlite3.Connection, at: str) -> list[str]:
    return [row[0] for row in connection.execute(_NAMED, (at,)) if row[0] is not None]


# Copies in other buckets --------------------------------------------------------------------------


class Corrections(msgspec.Struct):
    """Corrections for a bucket."""

    staged: list[str]
    written: dict[str, DataFile] = {}


def correct_bucket(spec: RunSpec, bucket: int, corrections: Corrections) -> list[DataFile]:
    """Correct a bucket's copies of tokens that differ from the merged rows."""
    lake = spec.lake

    def current(name: str) -> Iterator[pa.RecordBatch]:
        if name in corrections.written:
            return lake.read_file(corrections.written[name])
        return lake.stored(name, spec.start, buckets=[bucket])

    merged = _merged_rows(spec, bucket, corrections)
    ids, wrong = pa.array(merged, pa.string()), {}
    for batch in current("known_tokens"):
        for copy in rows_of(chosen(batch, "token_id", ids), _STORED_COLUMNS):
            if _differ(merged[copy[0]], copy):
                wrong[copy[0]] = copy
    if not wrong:
        return []
    some = pa.array(wrong, pa.string())

    def fill(connection: sqlite3.Connection) -> None:
        to_mirror(connection, "wallets", current("wallets"))
        for name in ("known_tokens", "balances"):
            rows = (chosen(batch, "token_id", some) for batch in current(name))
            to_mirror(connection, name, rows)

    with temporary_mirror(partial(filled, fill)) as mirror:
        connection = mirror.connection
        with mirror.transaction():
            for token_id, copy in wrong.items():
                _correct(connection, merged[token_id], copy)
        right = (chosen(x, "token_id", some, others=True) for x in current("known_tokens"))
        corrected = from_mirror(connection, "known_tokens", bucket)
        return [
            lake.write_file("known_tokens", bucket, chain(right, corrected)),
            lake.write_file("wallets", bucket, from_mirror(connection, "wallets", bucket)),
        ]


def _merged_rows(spec: RunSpec, bucket: int, corrections: Corrections) -> dict[str, _Row]:
    return {
        row[0]: tuple(row)
        for name in corrections.staged
        for target, row in _unpack(spec.staged.read(name))
        if target in {ALL_BUCKETS, bucket}
    }


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


# Names of contracts ------------------------------------------------------------------------------


def name_contracts(
    lake: Lake, versions: Versions, contracts: Collection[str], names: Mapping[str, str] | None
) -> DataFile | None:
    """Guess the names of contracts; return the data file of all contracts if any name changed."""
    guesses = list(_guesses(lake, versions, contracts)) if contracts else []
    with mirror_of(lake, versions, 0, ("contracts",)) as mirror:
        connection = mirror.connection
        before = connection.total_changes
        with mirror.transaction():
            store_guesses(connection, guesses)
            if names is not None:
                store_file_names(connection, names_that_differ(connection, names))
        if connection.total_changes == before:
            return None
        return lake.write_file("contracts", 0, from_mirror(connection, "contracts", 0))


def _guesses(
    lake: Lake, versions: Versions, contracts: Collection[str]
) -> Iterator[tuple[str, str, str | None]]:
    key_of = lru_cache(100_000)(contract_key)
    spelled = {key_of(address): address for address in contracts}
    samples: dict[str, list[list[Any]]] = {key: [] for key in spelled}
    keys = pa.array([*spelled], pa.string())
    columns = ("contract_address", "token_id", "name")
    for batch in lake.stored("tokens", versions, columns=columns):
        among = pc.is_in(contract_keys(batch.column("contract_address")), value_set=keys)
        for address, *token in rows_of(batch.filter(among), columns):
            if (key := key_of(address)) in samples:
                spelled[key] = min(spelled[key], address)
                samples[key].append(token)
                if len(samples[key]) == 2 * SAMPLE:
                    samples[key] = nsmallest(SAMPLE, samples[key])
    for key, address in spelled.items():
        yield key, address, guess_name([name for _, name in nsmallest(SAMPLE, samples[key])])
