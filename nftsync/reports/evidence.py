"""Evidence of a wallet's holdings at a past time."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.store.catalog import TABLES
from nftsync.store.database import named_rows
from nftsync.store.filters import Filters
from nftsync.store.history import known_time, whole_time
from nftsync.store.schema import reading
from nftsync.store.wallets import ids_in
from nftsync.text import counted

#: `bracketed`: reads before and after found the same state. `gap`: the next read found another.
#: `open`: no read since. `unknown`: no complete read stored by then.
Certainty: TypeAlias = Literal["bracketed", "gap", "open", "unknown"]

#: Columns of a holding, without the wallet's.
_HOLDING_COLUMNS = [
    *(name for name in TABLES["holdings"].columns if not name.startswith("wallet_")),
    "nft",
]


class Evidence(msgspec.Struct, kw_only=True):
    """Holdings of a wallet at a past time, and the proof.

    `confirmed_before` is the last read known then, `confirmed_after` the next. `reads` has the
    states that they found: the columns of `wallet_states`, and the run of each.
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
    import numpy as np  # slow to import, like pandas

    from nftsync.columnar.balances import read_confirmations
    from nftsync.columnar.columns import records_of, time_texts
    from nftsync.columnar.holdings import read_holdings
    from nftsync.columnar.source import reading as reading_columns

    with reading(path) as connection:
        (wallet_id,) = ids_in(connection, wallet)
        query = "SELECT wallet_no, label FROM wallets WHERE wallet_id = ?"
        row = connection.execute(query, (wallet_id,)).fetchone()
        if row is None:
            raise InputError(
                f"wallet {wallet_id} is unknown; `nftsync wallets` lists the known wallets, and"
                f" `nftsync sync {wallet_id}` starts reading this one"
            )
        number, label = row
        at = whole_time(connection, known_time(connection, at))
        has_state, reads, unproven = _states_around(connection, number, at)
        with reading_columns(connection) as source:
            holdings = read_holdings(source, Filters(wallet_ids=[wallet_id]), as_of=at)
            around = read_confirmations(source, at, np.array([number]), everything=False)
    (before,), (after,) = time_texts(around.before), time_texts(around.after)
    certainty: Certainty = around.certainty[0].as_py() if has_state else "unknown"
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
    if certainty == "bracketed":
        return (
            f"The wallet was read at {before} and again at {after}. Both reads, and all reads"
            " between them, found these holdings. This does not rule out that an NFT left and came"
            " back between two reads."
        )
    # A change is stored a little after its read began.
    under_way = after is not None and after <= at
    if certainty == "gap":
        text = (
            f"The last read stored by then, at {before}, found these holdings. The next read, at"
            f" {after}, found another state. "
        )
        text += (
            "That read was under way at this time and not yet stored, so the wallet may already"
            " have been in that state."
            if under_way
            else "The wallet, or metadata of its tokens, changed at an unknown time between the"
            " two reads, so the change may have come before or after this time."
        )
    elif certainty == "open":
        text = (
            f"The last read by then, at {before}, found these holdings. No complete read has been"
            " stored since, so nothing proves the holdings after it."
        )
    elif under_way:
        text = f"No read of this wallet was stored by then. The first, at {after}, was under way."
    else:
        kind = "complete read" if unproven else "read"
        first = "There is still none" if after is None else f"The first was at {after}"
        text = f"At that time, this wallet had no {kind} yet. {first}."
    if unproven:
        text += (
            f" Later, {counted(unproven, 'change')} to these holdings came from incomplete reads,"
            " which prove the NFTs that they showed, but not that they showed all."
        )
    return text
