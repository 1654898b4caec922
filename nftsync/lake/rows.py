"""The tables of a lake, and the conversion between their rows and a mirror's.

A lake names wallets and tokens by their ids, a mirror by numbers of its own. Everything that a
mirror keeps is in the lake, what is nftsync's own included: so a bucket can be made a mirror of its
own again, and what is done with it is what is done with any.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from nftsync.records import CONTENT_COLUMNS
from nftsync.store.mirror import Mirror

if TYPE_CHECKING:
    from nftsync.lake.storage import Lake, Versions

#: The column that all tables but the ledger have beside their own: which bucket a row is in.
BUCKET = "bucket"
#: Rows that are Python objects at once.
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
_NUMBERS = {"edition_id", "total_edition"}


class Table(NamedTuple):
    """A table of a lake.

    Attributes:
        columns: their Arrow types by name, without the bucket.
        select: a query for them of a mirror, in this order.
        inserts: the statements that put a row into a mirror, with its columns as parameters.
        key: whose bucket a row is in: the column of the wallet's or the token's id. Blank: all rows
            are in the first bucket.
        log: rows are only ever added to it, by each run its own.
    """

    columns: Mapping[str, pa.DataType]
    select: str
    inserts: tuple[str, ...]
    key: str
    log: bool = False


def bucket_of(key: str, buckets: int) -> int:
    """The bucket of a wallet or token, by its id; the same on every machine and in every run."""
    return zlib.crc32(key.encode()) % buckets


def _texts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, _TEXT)


def _insert(table: str, columns: Iterable[str], **values: str) -> str:
    names = [*values, *columns]
    taken = ", ".join([*values.values(), *(f":{name}" for name in columns)])
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({taken})"


_WALLET_NO = "(SELECT wallet_no FROM wallets WHERE wallet_id = :wallet_id)"
_TOKEN_NO = "(SELECT token_no FROM tokens WHERE token_id = :token_id)"  # noqa: S105 - a query
_BY_IDS = "JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)"

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
    **{name: _NUMBER if name in _NUMBERS else _TEXT for name in CONTENT_COLUMNS},
    **_texts("first_seen_at", "updated_at"),
    **dict.fromkeys(("sequence", "changed_sequence", "detailed"), _NUMBER),
}
#: What is kept of a token's two sources, where it has been read by its id.
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


#: Puts the sources of a token, if it has been read by its id, in the place of those it had.
KEEP_SOURCES = (
    "INSERT OR REPLACE INTO token_sources SELECT token_no, :list_sequence, :list_fields,"
    " :detail_sequence, :detail_fields FROM tokens"
    " WHERE token_id = :token_id AND :list_sequence IS NOT NULL"
)
_TOKENS = Table(
    {**_TOKEN, **_SOURCES},
    f"SELECT {_of('t', _TOKEN)}, {_of('s', _SOURCES)}"
    " FROM tokens t LEFT JOIN token_sources s USING (token_no)",
    (_insert("tokens", _TOKEN), KEEP_SOURCES),
    "token_id",
)

_STATES = Table(
    {"wallet_id": _TEXT, **_STATE},
    f"SELECT w.wallet_id, {_of('s', _STATE)}"
    " FROM wallet_state_rows s JOIN wallets w USING (wallet_no)",
    (_insert("wallet_state_rows", _STATE, wallet_no=_WALLET_NO),),
    "wallet_id",
)


def _copied(table: str, columns: Mapping[str, pa.DataType]) -> Table:
    """A table that is as it is in a mirror, all in one bucket."""
    query = f"SELECT {', '.join(columns)} FROM {table}"
    return Table(columns, query, (_insert(table, columns),), "")


_CONTRACT = _texts(
    "contract", "contract_address", "given_name", "file_name", "guessed_name", "names_seen"
)
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

#: By name, what others name before what names it. A bucket is all of `wallets` to `past_states`
#: that has its wallets; its `known_tokens` are the rows of `tokens` that its wallets hold or held,
#: so that a bucket needs no other.
TABLES: dict[str, Table] = {
    "wallets": Table(
        _WALLET,
        f"SELECT {', '.join(_WALLET)} FROM wallets",
        (_insert("wallets", _WALLET),),
        "wallet_id",
    ),
    "known_tokens": _TOKENS._replace(key=BUCKET),
    "balances": Table(
        {"wallet_id": _TEXT, "token_id": _TEXT, **_BALANCE},
        f"SELECT w.wallet_id, t.token_id, {_of('b', _BALANCE)} FROM balance_rows b {_BY_IDS}",
        (_insert("balance_rows", _BALANCE, wallet_no=_WALLET_NO, token_no=_TOKEN_NO),),
        "wallet_id",
    ),
    "removals": Table(
        {"wallet_id": _TEXT, "token_id": _TEXT, **_REMOVAL},
        # A token that was read by its id stands under no wallet.
        f"SELECT coalesce(w.wallet_id, '') AS wallet_id, t.token_id, {_of('r', _REMOVAL)}"
        " FROM removal_rows r LEFT JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)",
        (
            _insert(
                "removal_rows", _REMOVAL, wallet_no=f"coalesce({_WALLET_NO}, 0)", token_no=_TOKEN_NO
            ),
        ),
        "wallet_id",
    ),
    "balance_changes": Table(
        {"wallet_id": _TEXT, "token_id": _TEXT, **_CHANGE},
        f"SELECT w.wallet_id, t.token_id, {_of('c', _CHANGE)} FROM balance_change_rows c {_BY_IDS}",
        (_insert("balance_change_rows", _CHANGE, wallet_no=_WALLET_NO, token_no=_TOKEN_NO),),
        "wallet_id",
        log=True,
    ),
    "present_states": _STATES._replace(select=f"{_STATES.select} WHERE s.state_id = w.state_id"),
    "past_states": _STATES._replace(
        select=f"{_STATES.select} WHERE s.state_id IS NOT w.state_id", log=True
    ),
    "tokens": _TOKENS,
    "token_changes": Table(
        {"token_id": _TEXT, **_TOKEN_CHANGE},
        f"SELECT t.token_id, {_of('c', _TOKEN_CHANGE)}"
        " FROM token_change_rows c JOIN tokens t USING (token_no)",
        (_insert("token_change_rows", _TOKEN_CHANGE, token_no=_TOKEN_NO),),
        "token_id",
        log=True,
    ),
    "contracts": _copied("contracts", _CONTRACT),
    "webhooks": _copied("webhooks", _WEBHOOK),
    "resources": _copied("resources", _RESOURCE),
}


def schema_of(name: str) -> pa.Schema:
    """Return the Arrow schema of a table: its bucket, then its columns, by their stored names."""
    columns = TABLES[name].columns.items()
    return pa.schema({BUCKET: pa.int32(), **{STORED_NAMES.get(x, x): of for x, of in columns}})


def from_mirror(
    connection: sqlite3.Connection, name: str, bucket: int, where: str = ""
) -> Iterator[pa.RecordBatch]:
    """A mirror's rows as rows of a lake's table, a batch at a time.

    Args:
        connection: the mirror's.
        name: the table.
        bucket: which bucket they are in.
        where: which of them, as the end of the table's query.
    """
    query = f"SELECT {bucket}, * FROM ({TABLES[name].select} {where})"
    return _batches(connection, query, schema_of(name))


def _batches(
    connection: sqlite3.Connection, query: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute(query)
    while rows := cursor.fetchmany(_CHUNK):
        columns = zip(*rows, strict=True)
        arrays = [pa.array(each, of.type) for each, of in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


#: The tokens that wallets hold or held, by bucket; removals of tokens stand under no wallet.
_KNOWN = f"""
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
    """A whole database's rows as rows of a lake's table, a batch at a time.

    Args:
        connection: the database's.
        name: the table.
        buckets: into how many the lake is divided.
    """
    connection.create_function("bucket_of", 1, lambda key: bucket_of(key, buckets))
    table = TABLES[name]
    if table.key == BUCKET:
        query = _KNOWN
    else:
        bucket = f"bucket_of({table.key})" if table.key else "0"
        query = f"SELECT {bucket}, * FROM ({table.select})"
    return _batches(connection, query, schema_of(name))


def to_mirror(connection: sqlite3.Connection, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Put rows of a lake's table into a mirror that has none of them.

    Args:
        connection: the mirror's, in a transaction; wallets and tokens come before what names them.
        name: the table.
        batches: the rows.
    """
    table = TABLES[name]
    names = list(table.columns)
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK):
            some = batch.slice(start, _CHUNK)
            # An earlier nftsync may have written fewer columns.
            columns = [
                some.column(name).to_pylist() if name in batch.schema.names else [None] * len(some)
                for name in (STORED_NAMES.get(x, x) for x in names)
            ]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            for statement in table.inserts:
                connection.executemany(statement, rows)


#: What a mirror of a bucket needs to take in reads.
BALANCES = ("wallets", "known_tokens", "balances", "removals", "present_states")


@contextmanager
def mirror_of(
    lake: Lake,
    versions: Versions,
    bucket: int,
    names: Iterable[str],
    *,
    only: Mapping[str, str] | None = None,
    greatest_sequence: int = 0,
) -> Iterator[Mirror]:
    """Make a bucket a mirror in a folder of its own, which goes with the block.

    Args:
        lake: where the bucket is.
        versions: of which version of each table; a table that is missing there has no rows.
        bucket: which.
        names: the tables to take along, in the order of `TABLES`.
        only: which rows of some of them, as a condition in SQL.
        greatest_sequence: the sequence number that those of new reads come after.
    """
    with TemporaryDirectory(prefix="nftsync-", dir=_scratch()) as folder:
        path = Path(folder, "bucket.db")
        with Mirror(path) as mirror:  # made; its numbers begin with the greatest that it knows
            connection = mirror.connection
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            for name in names:
                if name in versions:
                    where = f"{BUCKET} = {bucket} AND {(only or {}).get(name, 'true')}"
                    to_mirror(connection, name, lake.batches(name, versions[name], where))
            connection.execute("COMMIT")
            connection.execute(
                "UPDATE mirror_state SET greatest_sequence = ?", (greatest_sequence,)
            )
        with Mirror(path, write_gap=0.0, searchable=False) as mirror:
            mirror.connection.execute("PRAGMA synchronous = OFF")  # it is not there to stay
            yield mirror


def _scratch() -> str | None:
    """Where Dask clears up after workers that were killed; None: this is none of its workers."""
    from distributed import get_worker  # takes a second

    try:
        return get_worker().local_directory
    except ValueError:
        return None
