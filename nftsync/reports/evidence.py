"""Evidence of a wallet's holdings at a time: the reads before and after it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.store.catalog import AS_OF_COLUMNS, TABLES
from nftsync.store.database import named_rows
from nftsync.store.filters import Filters
from nftsync.store.history import known_time
from nftsync.store.schema import reading
from nftsync.store.wallets import ids_in

#: `bracketed`: the same state was read before and after. `gap`: what was read next differed.
#: `open`: it was not read since. `unknown`: no complete read had been stored by then.
Certainty: TypeAlias = Literal["bracketed", "gap", "open", "unknown"]

#: What is listed of each holding: what concerns the wallet is said once, beside them.
_HOLDING_COLUMNS = tuple(
    name
    for name in TABLES["holdings"].columns
    if not name.startswith("wallet_") and name not in AS_OF_COLUMNS
)


class Evidence(msgspec.Struct, kw_only=True):
    """What a wallet held at a time, and the proof.

    Attributes:
        wallet_id: the wallet.
        label: its name for people.
        at: the time, in the stored form.
        certainty: see `Certainty`.
        confirmed_before: the last read known to have found this by then.
        confirmed_after: the next read known, whether it found the same or not.
        statement: what is and what is not proven, for a person.
        holdings: what it listed, with the metadata known then; times in the stored form.
        reads: the state known then, if there was one, and the next, if there is one: the columns
            of `wallet_states`, and how the run went that found it first.
    """

    wallet_id: str
    label: str | None
    at: str
    certainty: Certainty
    confirmed_before: str | None
    confirmed_after: str | None
    statement: str
    holdings: list[dict[str, Any]]
    reads: list[dict[str, Any]]


def find_evidence(path: Path | str, wallet: str, at: str) -> Evidence:
    """Find what a wallet held at a time and how that is known.

    Args:
        path: the database.
        wallet: its id or its label.
        at: the time, in the stored form.

    Raises:
        InputError: no such wallet is known, or several are called so; or the time is still to come.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    import numpy as np  # which is slow to import, and so is pandas

    from nftsync.columnar.balances import read_confirmations
    from nftsync.columnar.columns import records_of, time_texts
    from nftsync.columnar.holdings import read_holdings
    from nftsync.columnar.source import reading as reading_columns

    with reading(path) as connection:
        (wallet_id,) = ids_in(connection, wallet)
        query = "SELECT wallet_no, label FROM wallets WHERE wallet_id = ?"
        known_as = connection.execute(query, (wallet_id,)).fetchone()
        if known_as is None:
            raise InputError(
                f"wallet {wallet_id} is not known here; `nftsync wallets` lists those that are,"
                f" `nftsync sync {wallet_id}` reads it from now on"
            )
        number, label = known_as
        at = known_time(connection, at)
        known, reads, unproven = _states_around(connection, number, at)
        with reading_columns(connection) as source:
            holdings = read_holdings(source, Filters(wallet_ids=[wallet_id]), as_of=at)
            around = read_confirmations(source, at, np.array([number]), everything=False)
    (before,), (after,) = time_texts(around.before), time_texts(around.after)
    certainty: Certainty = around.certainty[0].as_py() if known else "unknown"
    return Evidence(
        wallet_id=wallet_id,
        label=label,
        at=at,
        certainty=certainty,
        confirmed_before=before,
        confirmed_after=after,
        statement=_statement(certainty, at, before, after, unproven),
        holdings=records_of(holdings, _HOLDING_COLUMNS),
        reads=reads,
    )


_STATES = """
    SELECT s.first_read_at, s.last_read_at, s.reads, s.body_sha256, s.run_id,
        r.started_at AS run_started_at, r.finished_at AS run_finished_at, r.status AS run_status
    FROM wallet_state_rows s LEFT JOIN sync_runs r USING (run_id)
    WHERE s.wallet_no = ? AND s.state_id >= ? ORDER BY s.state_id LIMIT ?"""


def _states_around(
    connection: sqlite3.Connection, number: int, at: str
) -> tuple[bool, list[dict[str, Any]], int]:
    """Whether a state was stored by a time, that and the wallet's next one, and the changes since.

    The changes are those by the time that came after the state: a complete read would have stored
    one of its own.
    """
    then = connection.execute(
        "SELECT state_id, observed_at FROM wallet_state_rows WHERE wallet_no = ?"
        " AND observed_at <= ? ORDER BY state_id DESC LIMIT 1",
        (number, at),
    ).fetchone()
    state_id, stored_at = then or (-1, "")
    reads = named_rows(connection.execute(_STATES, (number, state_id, 2 if then else 1)))
    (changes,) = connection.execute(
        "SELECT count(*) FROM balance_change_rows WHERE wallet_no = ? AND observed_at <= ?"
        " AND observed_at > ?",
        (number, at, stored_at),
    ).fetchone()
    return then is not None, reads, int(changes)


def _statement(
    certainty: Certainty, at: str, before: str | None, after: str | None, unproven: int
) -> str:
    """What is and what is not proven, in sentences for a person."""
    if certainty == "bracketed":
        return (
            f"The wallet was read at {before} and again at {after}, and both reads and all between"
            " found the same: these holdings. Not proven: that nothing left and came back between"
            " two reads."
        )
    # Changes are known from the moment they are stored, a little after their read began.
    under_way = after is not None and after <= at
    if certainty == "gap":
        what = (
            f"The last read known by then, at {before}, found these holdings; the next one on"
            f" record, at {after}, found another state. "
        )
        what += (
            "That read was under way at this time and not yet stored, so the wallet may have held"
            " what it found already."
            if under_way
            else "The wallet, or metadata of its tokens, changed at an unknown time between the"
            " two, so it is not proven on which side of that change this time lies."
        )
    elif certainty == "open":
        what = (
            f"The last read by then, at {before}, found these holdings. No complete read has been"
            " stored since, so nothing proves what the wallet held afterwards."
        )
    elif under_way:
        what = f"No read of this wallet was known by then; the first, at {after}, was under way."
    else:
        kind = "complete read" if unproven else "read"
        first = "there is none yet" if after is None else f"the first was at {after}"
        what = f"No {kind} of this wallet had been made by then; {first}."
    if unproven:
        what += (
            f" Of the changes behind these holdings {unproven:,} came from incomplete reads after"
            " that, which prove what they showed but not that it was all."
        )
    return what
