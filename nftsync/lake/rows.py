"""Schemas of a lake's tables, and conversion of rows.

A lake identifies wallets and tokens by id, a mirror by its numbers. A lake stores everything that
a mirror stores, so each bucket can become a mirror again.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nftsync.records import CONTENT_COLUMNS, INTEGER_COLUMNS
from nftsync.store.mirror import Mirror
from nftsync.store.schema import empty_store, open_store

if TYPE_CHECKING:
    from nftsync.lake.storage import Lake, Versions

#: Column of a row's bucket, in all tables except the ledger.
BUCKET = "bucket"
#: Rows per batch.
_CHUNK = 10_000

#: Columns with another name in a lake: renaming them would make existing lakes unreadable.
STORED_NAMES = {
    "sequence": "ticket",
    "changed_sequence": "changed_ticket",
    "list_sequence": "list_ticket",
    "detail_sequence": "detail_ticket",
    "greatest_sequence": "greatest_ticket",
}

_TEXT, _NUMBER, _BYTES = pa.string(), pa.int64(), pa.binary()


class Table(NamedTuple):
    """Table of a lake.

    `key` is the column of the id that selects the bucket; empty: bucket 0. Runs only add rows to a
    `log`.
    """

    columns: Mapping[str, pa.DataType]
    select: str
    insert: str
    key: str
    log: bool = False


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a wallet's or token's id, which never changes."""
    return zlib.crc32(key.encode()) % buckets


def default_buckets(wallets: int) -> int:
    """Return the number of buckets of a new lake, with room to grow."""
    return min(64, max(4, wallets // 1_000))


def _texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, _TEXT)


def _insert(table: str, columns: Iterable[str], **values: str) -> str:
    names = [*values, *columns]
    taken = ", ".join([*values.values(), *("?" for _ in columns)])
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({taken})"


_WALLET_NO = "(SELECT wallet_no FROM wallets WHERE wallet_id = ?)"
_TOKEN_NO = "(SELECT token_no FROM tokens WHERE token_id = ?)"  # noqa: S105 - a query

_WALLET = {
    **_texts("wallet_id", "label", "wallet_group"),
    "tracked": _NUMBER,
    **_texts("first_seen_at", "synced_at", "status", "error"),
    "sequence": _NUMBER,
    **_texts("etag", "body_sha256"),
    "state_id": _NUMBER,
}
_TOKEN = {
    "token_id": _TEXT,
    **{name: _NUMBER if name in INTEGER_COLUMNS else _TEXT for name in CONTENT_COLUMNS},
    **_texts("first_seen_at", "updated_at"),
    **dict.fromkeys(("sequence", "changed_sequence", "detailed"), _NUMBER),
}
#: The two sources of a token that was read by its id.
_SOURCES = {
    "list_sequence": _NUMBER,
    "list_fields": _TEXT,
    "detail_sequence": _NUMBER,
    "detail_fields": _TEXT,
}
_BALANCE = _texts("amount", "held_since", "first_seen_at", "updated_at")
_CHANGE = {
    "change_id": _NUMBER,
    **_texts("old_amount", "new_amount", "observed_at"),
    **dict.fromkeys(("baseline", "run_id"), _NUMBER),
    "webhook_id": _TEXT,
}
_TOKEN_CHANGE = {
    "change_id": _NUMBER,
    **_texts("before", "after", "observed_at"),
    "run_id": _NUMBER,
    "webhook_id": _TEXT,
}
_STATE = {
    "state_id": _NUMBER,
    **_texts("first_read_at", "last_read_at"),
    "reads": _NUMBER,
    "body_sha256": _TEXT,
    "run_id": _NUMBER,
    "observed_at": _TEXT,
}
_REMOVAL = {
    **_texts("old_amount", "new_amount"),
    **dict.fromkeys(("emptied", "held"), _NUMBER),
    "observed_at": _TEXT,
    "run_id": _NUMBER,
    **_texts("webhook_id", "read_at", "body_sha256", "new_name"),
}


def _of(prefix: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{prefix}.{name}" for name in columns)


#: Replaces the sources of a token that was read by its id.
KEEP_SOURCES = (
    "INSERT OR REPLACE INTO token_sources SELECT token_no, :list_sequence, :list_fields,"
    " :detail_sequence, :detail_fields FROM tokens"
    " WHERE token_id = :token_id AND :list_sequence IS NOT NULL"
)
_TOKEN_COLUMNS = f"{_of('t', _TOKEN)}, {_of('s', _SOURCES)}"
_TOKENS = Table(
    {**_TOKEN, **_SOURCES},
    f"SELECT {_TOKEN_COLUMNS} FROM tokens t LEFT JOIN token_sources s USING (token_no)",
    _insert("tokens", _TOKEN),
    "token_id",
)

_STATES = Table(
    {"wallet_id": _TEXT, **_STATE},
    f"SELECT w.wallet_id, {_of('s', _STATE)}"
    " FROM wallet_state_rows s JOIN wallets w USING (wallet_no)",
    _insert("wallet_state_rows", _STATE, wallet_no=_WALLET_NO),
    "wallet_id",
)


def _whole_table(table: str, columns: Mapping[str, pa.DataType], key: str = "") -> Table:
    query = f"SELECT {', '.join(columns)} FROM {table}"
    return Table(columns, query, _insert(table, columns), key)


def _of_wallets(
    table: str,
    columns: Mapping[str, pa.DataType],
    wallet_id: str = "w.wallet_id",
    wallet_no: str = _WALLET_NO,
) -> Table:
    return Table(
        {"wallet_id": _TEXT, "token_id": _TEXT, **columns},
        f"SELECT {wallet_id} AS wallet_id, t.token_id, {_of('r', columns)} FROM {table} r"
        " LEFT JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)",
        _insert(table, columns, wallet_no=wallet_no, token_no=_TOKEN_NO),
        "wallet_id",
    )


_CONTRACT = _texts("contract", "contract_address", "given_name", "file_name", "guessed_name")
_WEBHOOK = {
    **_texts("webhook_id", "organization_id", "action", "resource_type", "resource_id"),
    **_texts("created_at_utc", "changes"),
    "body": _BYTES,
    **_texts("received_at", "state"),
    "attempts": _NUMBER,
    **_texts("next_attempt_at", "last_error", "finished_at"),
    **dict.fromkeys(("deliveries", "run_id"), _NUMBER),
    "body_sha256": _TEXT,
    "webhook_no": _NUMBER,
    "look_again_at": _TEXT,
}
_RESOURCE = {**_texts("resource_type", "resource_id", "body", "fetched_at"), "sequence": _NUMBER}

#: Tables by name, each after the tables that it refers to. A bucket of wallets has the rows of
#: `wallets` to `past_states`. Its `known_tokens` are copies of the tokens that its wallets hold or
#: held, so it needs no other bucket.
TABLES: dict[str, Table] = {
    "wallets": _whole_table("wallets", _WALLET, "wallet_id"),
    "known_tokens": _TOKENS._replace(key=BUCKET),
    "balances": _of_wallets("balance_rows", _BALANCE),
    # A removal found by a token's read belongs to no wallet.
    "removals": _of_wallets(
        "removal_rows", _REMOVAL, "coalesce(w.wallet_id, '')", f"coalesce({_WALLET_NO}, 0)"
    ),
    "balance_changes": _of_wallets("balance_change_rows", _CHANGE)._replace(log=True),
    "present_states": _STATES._replace(select=f"{_STATES.select} WHERE s.state_id = w.state_id"),
    "past_states": _STATES._replace(
        select=f"{_STATES.select} WHERE s.state_id IS NOT w.state_id", log=True
    ),
    "tokens": _TOKENS,
    "token_changes": Table(
        {"token_id": _TEXT, **_TOKEN_CHANGE},
        f"SELECT t.token_id, {_of('c', _TOKEN_CHANGE)}"
        " FROM token_change_rows c JOIN tokens t USING (token_no)",
        _insert("token_change_rows", _TOKEN_CHANGE, token_no=_TOKEN_NO),
        "token_id",
        log=True,
    ),
    "contracts": _whole_table("contracts", _CONTRACT)._replace(
        columns={**_CONTRACT, "names_seen": _TEXT},  # empty, for lakes of earlier releases
        select=f"SELECT {', '.join(_CONTRACT)}, NULL AS names_seen FROM contracts",
    ),
    "webhooks": _whole_table("webhooks", _WEBHOOK),
    "resources": _whole_table("resources", _RESOURCE),
}


def schema_of(name: str) -> pa.Schema:
    """Return a table's Arrow schema: its bucket, then its columns."""
    columns = TABLES[name].columns.items()
    return pa.schema({BUCKET: pa.int32(), **{STORED_NAMES.get(x, x): of for x, of in columns}})


#: Tokens that reads showed, with the greatest sequence number of these reads.
SHOWN = pa.schema([*list(schema_of("tokens"))[1:], pa.field("shown_by", pa.int64())])
#: The rows of `SHOWN` in a mirror; `temp.shown` has the tokens and numbers.
SHOWN_ROWS = (
    f"SELECT {_TOKEN_COLUMNS}, shown.sequence FROM temp.shown"
    " JOIN tokens t USING (token_id) LEFT JOIN token_sources s USING (token_no)"
)


def from_mirror(connection: sqlite3.Connection, name: str, bucket: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of a mirror's rows for a lake's table."""
    return batches_of(
        connection, schema_of(name), f"SELECT {bucket}, * FROM ({TABLES[name].select})"
    )


def batches_of(
    connection: sqlite3.Connection, schema: pa.Schema, query: str, parameters: Sequence[Any] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a query's rows."""
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute(query, parameters)
    while rows := cursor.fetchmany(_CHUNK):
        columns = zip(*rows, strict=True)
        arrays = [pa.array(x, of.type) for x, of in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


#: Current and former tokens of wallets by bucket; removals from token reads have no wallet.
_KNOWN_TOKENS = f"""
    SELECT k.bucket, t.* FROM (
        SELECT DISTINCT bucket_of(coalesce(wallet_id, '')) AS bucket, token_id FROM (
            SELECT wallet_no, token_no FROM balance_rows
            UNION SELECT wallet_no, token_no FROM balance_change_rows
            UNION SELECT wallet_no, token_no FROM removal_rows
        ) LEFT JOIN wallets USING (wallet_no) JOIN tokens USING (token_no)
    ) k JOIN ({_TOKENS.select}) t USING (token_id)
"""


def from_database(
    connection: sqlite3.Connection, name: str, buckets: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a whole database's rows for a lake's table, in the order of buckets."""
    connection.create_function("bucket_of", 1, lambda key: bucket_of(key, buckets))
    table = TABLES[name]
    if table.key == BUCKET:
        query = _KNOWN_TOKENS
    else:
        bucket = f"bucket_of({table.key})" if table.key else "0"
        query = f"SELECT {bucket}, * FROM ({table.select})"
    return batches_of(connection, schema_of(name), f"{query} ORDER BY 1")


def to_mirror(connection: sqlite3.Connection, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Insert rows of a lake's table into a mirror that has none of them.

    Insert wallets and tokens before other rows.
    """
    table = TABLES[name]
    names = list(table.columns)
    stored = [STORED_NAMES.get(x, x) for x in names]
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK):
            some = batch.slice(start, _CHUNK)
            connection.executemany(table.insert, rows_of(some, stored[: table.insert.count("?")]))
            if "list_sequence" in names:
                place = names.index("list_sequence")
                rows = (row for row in rows_of(some, stored) if row[place] is not None)
                sources = (dict(zip(names, row, strict=True)) for row in rows)
                connection.executemany(KEEP_SOURCES, sources)


def rows_of(batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return columns of a batch as rows."""
    columns = conformed(batch, names).columns
    return zip(*(column.to_pylist() for column in columns), strict=True)


def conformed(batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> Any:
    """Return columns of a batch; earlier releases wrote fewer, which are null."""
    for name in set(names) - set(batch.schema.names):
        batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch.select(names)


def chosen(
    batch: pa.RecordBatch, column: str, ids: pa.Array, *, others: bool = False
) -> pa.RecordBatch:
    """Return a batch's rows with some ids, or all other rows."""
    among = pc.is_in(batch.column(column), value_set=ids)
    return batch.filter(pc.invert(among) if others else among)


@contextmanager
def mirror_of(
    lake: Lake,
    versions: Versions,
    bucket: int,
    names: Iterable[str],
    *,
    only: Mapping[str, str] | None = None,
) -> Iterator[Mirror]:
    """Copy a bucket, and whole tables without a key, into a temporary mirror for a block.

    Give `names` in the order of `TABLES`.
    """

    def fill(connection: sqlite3.Connection) -> None:
        for name in names:
            own = bucket if TABLES[name].key else 0
            where = (only or {}).get(name, "true")
            to_mirror(connection, name, lake.stored(name, versions, where, buckets=[own]))

    with temporary_mirror(partial(filled, fill)) as mirror:
        yield mirror


def filled(fill: Callable[[sqlite3.Connection], object], path: Path) -> None:
    """Create a database, and fill it in one transaction."""
    path.write_bytes(empty_store())
    with closing(open_store(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # temporary
        connection.execute("BEGIN")
        fill(connection)
        connection.execute("COMMIT")


@contextmanager
def temporary_mirror(create: Callable[[Path], object], at: str | None = None) -> Iterator[Mirror]:
    """Open a temporary mirror for a block."""
    with temporary_path() as path:
        create(path)
        with opened(path, at) as mirror:
            yield mirror


@contextmanager
def temporary_path() -> Iterator[Path]:
    """Yield the path of a new temporary database for a block."""
    with TemporaryDirectory(prefix="nftsync-", dir=_scratch()) as folder:
        yield Path(folder, "bucket.db")


@contextmanager
def opened(path: Path, at: str | None) -> Iterator[Mirror]:
    """Open a temporary database as a mirror for a block; `at` as in `temporary_mirror`."""
    with Mirror(path, write_gap=0.0, searchable=False, at=at) as mirror:
        mirror.connection.execute("PRAGMA synchronous = OFF")
        yield mirror


def _scratch() -> str | None:
    """Return the folder that Dask cleans up after a killed worker, or None."""
    from distributed import get_worker  # takes a second

    try:
        return get_worker().local_directory
    except ValueError:
        return None
