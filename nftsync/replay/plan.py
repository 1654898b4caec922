"""From an object with webhooks to the reads that follow (provider's document, Events, point 8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nftsync.reads import AnyTask, ObjectTask, Task, TokenTask, WalletTask
from nftsync.routes import Route, Routes, named_ids, path_for
from nftsync.store.inbox_queue import ObjectKey
from nftsync.store.registry import holders_of, known_tokens, wallets_by_id

__all__ = ["Follow", "follow_object", "plan_reads"]


class Follow(NamedTuple):
    """What follows on webhooks of an object.

    Attributes:
        route: how objects of its type are followed; None: nobody has said.
        tasks: the reads to make now; none for an untracked wallet, or where a sync is asked for.
    """

    route: Route | None
    tasks: list[AnyTask]


def plan_reads(
    connection: sqlite3.Connection, routes: Routes, keys: Sequence[ObjectKey]
) -> dict[ObjectKey, Follow]:
    """Work out the reads for objects.

    Args:
        connection: any connection.
        routes: how types are followed.
        keys: the objects.
    """
    found = {key: routes.find(key.resource_type) for key in keys}
    ids = {"wallet": [], "token": []}  # type: dict[str, list[str]]
    for key, route in found.items():
        if route is not None and route.kind == "wallet":
            ids["wallet"].append(key.resource_id)
        elif route is not None and route.kind == "token" and route.holders:
            ids["token"].append(key.resource_id)
    holders = holders_of(connection, ids["token"]) if ids["token"] else {}
    wallets = _wallet_tasks(
        connection, [*ids["wallet"], *(wallet for held in holders.values() for wallet in held)]
    )
    follows = {}
    for key, route in found.items():
        tasks: list[AnyTask] = []
        if route is None or route.kind == "sync":
            pass
        elif route.kind == "wallet":
            tasks += wallets.get(key.resource_id, [])
        elif route.kind == "token":
            tasks.append(TokenTask(key.resource_id))
            for wallet_id in holders.get(key.resource_id, []) if route.holders else []:
                tasks += wallets[wallet_id]
        else:
            path = path_for(route, key.resource_id)
            tasks.append(ObjectTask(key.resource_type, key.resource_id, path))
        follows[key] = Follow(route, tasks)
    return follows


def follow_object(
    connection: sqlite3.Connection, route: Route, body: str
) -> tuple[list[Task], list[Task]]:
    """The wallets and tokens that an object names, as reads to make next.

    Args:
        connection: any connection.
        route: its route, whose `wallets` and `tokens` say where ids are.
        body: the object, as JSON.

    Returns:
        Reads of what the mirror knows, and reads of what it does not: those may be anyone's.
    """
    named = named_ids(body, route.wallets)
    known_wallets = wallets_by_id(connection, named)
    wallets = _wallet_tasks(connection, named)
    token_ids = named_ids(body, route.tokens)
    known = known_tokens(connection, token_ids)
    ours: list[Task] = []
    others: list[Task] = []
    for wallet_id in named:
        (ours if wallet_id in known_wallets else others).extend(wallets[wallet_id])
    for token_id in token_ids:
        (ours if token_id in known else others).append(TokenTask(token_id))
    return ours, others


def _wallet_tasks(
    connection: sqlite3.Connection, wallet_ids: Iterable[str]
) -> dict[str, list[Task]]:
    """A read of each wallet, with what is known of its last answer; none of an untracked one."""
    wanted = list(dict.fromkeys(wallet_ids))
    if not wanted:
        return {}
    known = wallets_by_id(connection, wanted)
    tasks: dict[str, list[Task]] = {}
    for wallet_id in wanted:
        wallet = known.get(wallet_id)
        if wallet is None:
            tasks[wallet_id] = [WalletTask(wallet_id)]
        elif wallet.tracked:
            tasks[wallet_id] = [WalletTask(wallet_id, wallet.etag, wallet.digest)]
        else:
            tasks[wallet_id] = []
    return tasks
