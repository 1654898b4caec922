"""Explanations for an empty holdings frame."""

from __future__ import annotations

import json

from nftsync.frames._columns import Moment, shown, stored_time
from nftsync.frames._source import IN_JSON, Parameters, Source
from nftsync.store.filters import Filters, is_contract
from nftsync.text import counted

_FIRST = """
    SELECT min(at) FROM (
        SELECT * FROM (SELECT observed_at AS at FROM wallet_state_rows {which}
            ORDER BY state_id LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT observed_at FROM balance_change_rows {which}
            ORDER BY change_id LIMIT 1))
"""


def why_nothing(source: Source, filters: Filters, as_of: Moment | None) -> str | None:
    """Return what is not known about holdings of which there are no rows.

    Args:
        source: where to read.
        filters: the wallets and the contract that were asked for.
        as_of: the time that was asked for; None is now.

    Returns:
        A sentence that says what is not known; None: it is known that nothing was held.
    """
    which, whose = "", ""
    parameters: Parameters = ()
    ids = filters.wallet_ids
    if ids is not None:
        if not ids:
            return None
        parameters = (json.dumps(ids),)
        query = f"SELECT wallet_id, label FROM wallets WHERE wallet_id {IN_JSON}"
        known = list(source.rows(query, parameters))
        named = [label or wallet_id for wallet_id, label in known] or ids
        whose = f" of wallet {named[0]}" if len(ids) == 1 else f" of {counted(len(ids), 'wallet')}"
        if not known:
            one = ids[0] if len(ids) == 1 else "ID..."
            return (
                f"nothing is known{whose}; `nftsync wallets` lists those that are known,"
                f" `nftsync sync {one}` reads others"
            )
        which = f"WHERE wallet_no IN (SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON})"
    first = next(source.rows(_FIRST.format(which=which), parameters * 2))[0]
    if first is None:
        return f"nothing is known{whose} yet: no read has been stored; `nftsync sync` makes one"
    moment = None if as_of is None else stored_time(source, as_of, "end")
    if moment is not None and moment < first:
        return (
            f"nothing is known{whose} of {moment}: the first read that was stored is of {first},"
            " so there may have been holdings; ask for a time from then on"
        )
    if (contract := filters.contract) is not None:
        query = f"SELECT 1 FROM tokens WHERE {is_contract(contract)} LIMIT 1"
        if not any(source.rows(query, (contract,))):
            return (
                f"no token that is known is of contract {shown(contract)};"
                " `nftsync collections` lists those that are known"
            )
    return None
