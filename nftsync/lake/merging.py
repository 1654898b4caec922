"""The last steps of a run: each token that several buckets saw becomes one row.

A token has its row in one bucket of `tokens`, by its id, whoever holds it: what each bucket's reads
showed of it is brought there, and the newer wins. Where that is not what a bucket knows, the bucket
is told, and its wallets that hold the token are read whole the next time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.lake.applying import Seen
from nftsync.lake.order import EVERYBODY, REPORT, Order, Report, hand_over, report_of
from nftsync.lake.rows import (
    BUCKET,
    KEEP_SOURCES,
    TABLES,
    from_mirror,
    mirror_of,
    schema_of,
    to_mirror,
)
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.contracts import count_names, merge_names, names_that_differ, store_file_names
from nftsync.store.mirror import Mirror
from nftsync.store.tokens import TokenBatch, compose, listed_fields

#: The target of what is said of contracts, by their tokens' names.
NAMES = -2
_AT_ONCE = 1_000

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
_COLUMNS = list(TABLES["tokens"].columns)
_STORED_COLUMNS = schema_of("tokens").names[1:]
_CONTENT = slice(_COLUMNS.index(CONTENT_COLUMNS[0]), _COLUMNS.index(CONTENT_COLUMNS[-1]) + 1)
_LIST_FIELDS = _COLUMNS.index("list_fields")
_FIRST_SEEN, _CHANGED = _COLUMNS.index("first_seen_at"), _COLUMNS.index("changed_sequence")
#: Sequence numbers are a bucket's own matter as long as it knows the right content.
_SEQUENCES = {_COLUMNS.index(name) for name in ("sequence", "changed_sequence")}
_Row: TypeAlias = tuple[Any, ...]


class MergeReport(Report, kw_only=True):
    """What merging a bucket of tokens came to.

    Attributes:
        added: how many were new.
        changed: how many changed.
        shown_by: the reads that showed the changes first, each by its bucket and sequence number.
    """

    added: int = 0
    changed: int = 0
    shown_by: set[tuple[int, int]] = msgspec.field(default_factory=set)


def merge_tokens(order: Order, bucket: int) -> MergeReport:
    """Bring what was seen of a bucket's tokens into their rows, unless that has been done.

    Raises:
        Overtaken: another run's worker has written the bucket.
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("merge", bucket)
    if (done := report_of(lake, commit, MergeReport)) is not None:
        return done
    with mirror_of(lake, {}, bucket, ()) as mirror:
        connection = mirror.connection
        known = pa.array(_take_in_seen(order, bucket, mirror), pa.string())
        version, here = order.start["tokens"], f"{BUCKET} = {bucket}"
        with mirror.transaction(order.applied_at):
            some = (_chosen(x, known) for x in lake.batches("tokens", version, here))
            to_mirror(connection, "tokens", some)
        before = connection.total_changes
        report = _merge(order, mirror)
        if connection.total_changes > before:
            rest = (_chosen(x, known, others=True) for x in lake.batches("tokens", version, here))
            lake.replace("tokens", chain(rest, from_mirror(connection, "tokens", bucket)), commit)
        if report.changed:
            connection.execute(
                "UPDATE token_change_rows SET change_id = -(change_id + ?)",
                (order.first_token_change[bucket] - 1,),
            )
            connection.execute("UPDATE token_change_rows SET change_id = -change_id")
            lake.append("token_changes", from_mirror(connection, "token_changes", bucket), commit)
        told = chain(_corrections(connection), _names(connection, order.applied_at))
        return hand_over(lake, commit, told, report)


def _chosen(batch: pa.RecordBatch, ids: pa.Array, *, others: bool = False) -> pa.RecordBatch:
    """The rows of some tokens, or of all others."""
    among = pc.is_in(batch.column("token_id"), value_set=ids)
    return batch.filter(pc.invert(among) if others else among)


def _take_in_seen(order: Order, bucket: int, mirror: Mirror) -> list[str]:
    """Put what was seen beside the tokens; the ids of those."""
    connection = mirror.connection
    connection.execute(
        "CREATE TEMP TABLE seen (token_id TEXT, first INTEGER, sequence INTEGER, source INTEGER,"
        " row BLOB)"
    )
    for source, number, packed in order.lake.staged(order.run_id, "apply", target=bucket):
        if number != REPORT:
            connection.executemany(
                "INSERT INTO seen VALUES (?, ?, ?, ?, ?)",
                [
                    (row[0], min(row[_CHANGED], sequence), sequence, source, _pack(row))
                    for row, sequence in _unpack(packed, type=list[Seen])
                ],
            )
    return [row[0] for row in connection.execute("SELECT DISTINCT token_id FROM seen")]


def _merge(order: Order, mirror: Mirror) -> MergeReport:
    """Let the tokens be what was seen of them, the newest last.

    A bucket saw the same from the first read of this run that changed it to the last.
    """
    report = MergeReport()
    connection = mirror.connection
    rows = connection.execute(
        "SELECT sequence, source, row FROM seen UNION ALL"
        " SELECT first, source, row FROM seen WHERE first > ? AND first < sequence ORDER BY 1, 2",
        (order.greatest_sequence,),
    )
    first: dict[str, tuple[int, int]] = {}
    while some := rows.fetchmany(_AT_ONCE):
        seen = []
        for sequence, source, packed in some:
            row = _unpack(packed)
            seen.append((sequence, row))
            if row[_CHANGED] > order.greatest_sequence and row[_FIRST_SEEN] < order.applied_at:
                by = row[_CHANGED], source
                first[row[0]] = min(by, first.get(row[0], by))
        with mirror.transaction(order.applied_at):
            tokens = TokenBatch(connection, order.applied_at, order.run_id)
            tokens.load({row[0] for _, row in seen})
            for sequence, row in seen:
                tokens.see(_read_of(order, row, sequence))
            tokens.write()
        report.added += len(tokens.new)
        report.changed += len(tokens.changes)
    report.shown_by = {(source, sequence) for sequence, source in first.values()}
    return report


def _read_of(order: Order, row: Sequence[Any], sequence: int) -> WalletRead:
    """What a list said of one token."""
    content = tuple(row[_CONTENT])
    if row[_LIST_FIELDS] is not None:
        content = compose(listed_fields(row[_LIST_FIELDS]))
    # Of a token that it never showed anything of, a list may just name the id.
    emptied = row[_FIRST_SEEN] < order.applied_at and row[_CHANGED] > order.greatest_sequence
    shown = content if emptied or any(value is not None for value in content) else None
    return WalletRead(
        wallet_id="", sequence=sequence, started_at="", outcome="ok", entries=[(row[0], "1", shown)]
    )


def _corrections(connection: sqlite3.Connection) -> Iterator[tuple[int, int, bytes]]:
    """The rows of tokens that are other than a bucket knows them, for that bucket or all."""
    select = TABLES["tokens"].select
    changed = f"{select} WHERE t.token_no IN (SELECT token_no FROM token_change_rows)"
    for row in connection.execute(changed):
        yield EVERYBODY, 0, _pack(row)
    beside = select.replace(
        " FROM tokens t", ", seen.source, seen.row FROM temp.seen JOIN tokens t USING (token_id)"
    )
    for *row, source, packed in connection.execute(
        f"{beside} WHERE t.token_no NOT IN (SELECT token_no FROM token_change_rows)"
    ):
        if _differ(row, _unpack(packed)):
            yield source, 0, _pack(row)


def _differ(row: Sequence[Any], known: Sequence[Any]) -> bool:
    return any(value != known[place] for place, value in enumerate(row) if place not in _SEQUENCES)


def _names(connection: sqlite3.Connection, at: str) -> Iterator[tuple[int, int, bytes]]:
    """What new and changed tokens say of how their contracts are called."""
    count_names(
        connection,
        connection.execute(
            "SELECT contract_address, name FROM tokens WHERE first_seen_at = ? ORDER BY token_no",
            (at,),
        ),
    )
    for row in connection.execute("SELECT contract, contract_address, names_seen FROM contracts"):
        yield NAMES, 0, _pack(row)
    renamed = connection.execute(
        "SELECT contract_address, name, before FROM token_change_rows JOIN tokens USING (token_no)"
        " WHERE first_seen_at < ?",
        (at,),
    )
    for address, name, before in renamed:
        was = {"contract_address": address, "name": name, **msgspec.json.decode(before)}
        if (was["contract_address"], was["name"]) != (address, name):
            yield NAMES, 1, _pack(((address, name), (was["contract_address"], was["name"])))


def spread_tokens(order: Order, bucket: int) -> None:
    """Let a bucket know its tokens as they are, where it knows otherwise.

    Raises:
        Overtaken: another run's worker has written the bucket.
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("spread", bucket)
    version, here = order.base["known_tokens"], f"{BUCKET} = {bucket}"
    known_ids = {row[0] for row in lake.rows("known_tokens", version, here, ("token_id",))}
    told: dict[str, _Row] = {}
    for target in (EVERYBODY, bucket):
        for _, number, packed in lake.staged(order.run_id, "merge", target=target):
            if number != REPORT and (row := _unpack(packed))[0] in known_ids:
                told[row[0]] = tuple(row)
    if not told:
        return
    ids = pa.array(told, pa.string())
    wrong: dict[str, _Row] = {}
    for each in lake.batches("known_tokens", version, here, _STORED_COLUMNS):
        batch = _chosen(each, ids)
        for known in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if _differ(told[known[0]], known):
                wrong[known[0]] = known
    if not wrong:
        return
    with mirror_of(lake, order.base, bucket, ("wallets", "known_tokens", "balances")) as mirror:
        with mirror.transaction():
            for token_id, known in wrong.items():
                _correct(mirror.connection, told[token_id], known)
        lake.replace("known_tokens", from_mirror(mirror.connection, "known_tokens", bucket), commit)
        lake.replace("wallets", from_mirror(mirror.connection, "wallets", bucket), commit)


def _correct(connection: sqlite3.Connection, row: _Row, known: _Row) -> None:
    columns = dict(zip(_COLUMNS, row, strict=True))
    other = row[_CONTENT] != known[_CONTENT]
    taken = [
        *CONTENT_COLUMNS,
        "first_seen_at",
        "updated_at",
        "detailed",
        *(("sequence", "changed_sequence") if other else ()),
    ]
    assignments = ", ".join(f"{name} = :{name}" for name in taken)
    connection.execute(f"UPDATE tokens SET {assignments} WHERE token_id = :token_id", columns)
    connection.execute(KEEP_SOURCES, columns)
    if other:  # their digests are of answers that showed it otherwise
        connection.execute(
            "UPDATE wallets SET etag = NULL, body_sha256 = NULL WHERE sequence < :changed_sequence"
            " AND wallet_no IN (SELECT wallet_no FROM balance_rows JOIN tokens USING (token_no)"
            " WHERE token_id = :token_id)",
            columns,
        )


def name_contracts(order: Order, names: Mapping[str, str] | None) -> None:
    """Bring the names of contracts along with those of the tokens that are new or changed.

    Args:
        order: the run.
        names: what the collections file calls contracts; None leaves that as it is.

    Raises:
        Overtaken: another run's worker has written them.
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("name", 0)
    partial: list[_Row] = []
    renamed: list[tuple[_Row, _Row]] = []
    for _, number, packed in lake.staged(order.run_id, "merge", target=NAMES):
        (renamed if number else partial).append(_unpack(packed))
    with mirror_of(lake, order.start, 0, ("contracts",)) as mirror:
        connection = mirror.connection
        before = connection.total_changes
        with mirror.transaction():
            merge_names(connection, partial)
            if renamed:
                count_names(connection, *zip(*renamed, strict=True))
            if names is not None:
                store_file_names(connection, names_that_differ(connection, names))
        if connection.total_changes > before:
            lake.replace("contracts", from_mirror(connection, "contracts", 0), commit)
