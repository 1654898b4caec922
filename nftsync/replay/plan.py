"""Plan of the reads for the objects of webhooks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain

from nftsync.provider.webhooks import Route, Routes, named_ids, path_for
from nftsync.pull.reads import ObjectTask, Task, TokenTask, WalletTask, subject_of
from nftsync.replay.jobs import Job
from nftsync.store.inbox import ObjectKey
from nftsync.store.wallets import KnownWallet, holders_of, known_tokens, wallets_by_id


def plan_reads(
    connection: sqlite3.Connection, routes: Routes, keys: Sequence[ObjectKey]
) -> dict[ObjectKey, tuple[Route | None, list[Task]]]:
    """Return each object's route, if any, and the reads to request now.

    An untracked wallet and a route to a sync need no read.
    """
    routed = {key: routes.find(key.resource_type) for key in keys}
    followed = [(key.resource_id, route) for key, route in routed.items() if route is not None]
    wallet_ids = [id_ for id_, route in followed if route.kind == "wallet"]
    token_ids = [id_ for id_, route in followed if route.kind == "token" and route.holders]
    holders = holders_of(connection, token_ids) if token_ids else {}
    wallets = wallets_by_id(connection, [*wallet_ids, *chain(*holders.values())])
    plans: dict[ObjectKey, tuple[Route | None, list[Task]]] = {}
    for key, route in routed.items():
        tasks: list[Task] = []
        if route is None or route.kind == "sync":
            pass
        elif route.kind == "wallet":
            tasks += _wallet_task(key.resource_id, wallets)
        elif route.kind == "token":
            tasks.append(TokenTask(key.resource_id))
            for wallet_id in holders.get(key.resource_id, []) if route.holders else []:
                tasks += _wallet_task(wallet_id, wallets)
        else:
            path = path_for(route, key.resource_id)
            tasks.append(ObjectTask(key.resource_type, key.resource_id, path))
        plans[key] = route, tasks
    return plans


def plan_named(
    connection: sqlite3.Connection, routes: Routes, job: Job, body: str, most_unknown: int
) -> list[Task]:
    """Plan the reads of the wallets and tokens that a job's object names in its JSON.

    Unknown ones may belong to others, so `job.named` lists them; too many are not read.
    """
    if (route := routes.find(job.key.resource_type)) is None:
        return []
    wallet_ids, token_ids = named_ids(body, route.wallets), named_ids(body, route.tokens)
    wallets = wallets_by_id(connection, wallet_ids)
    tokens = known_tokens(connection, token_ids)
    ours: list[Task] = []
    others: list[Task] = []
    for wallet_id in wallet_ids:
        (ours if wallet_id in wallets else others).extend(_wallet_task(wallet_id, wallets))
    for token_id in token_ids:
        (ours if token_id in tokens else others).append(TokenTask(token_id))
    if len(others) > most_unknown:
        job.error = (
            f"the object names {len(others):,} unknown wallets and tokens, more than"
            f" {most_unknown:,}: only the known ones were read; `nftsync wallets add` makes"
            " wallets known"
        )
        return ours
    job.named.update(map(subject_of, others))
    return [*ours, *others]


def _wallet_task(wallet_id: str, wallets: Mapping[str, KnownWallet]) -> list[Task]:
    # Unconditional: after a webhook, a 304 would be weak evidence.
    wallet = wallets.get(wallet_id)
    if wallet is None:
        return [WalletTask(wallet_id)]
    return [WalletTask(wallet_id, digest=wallet.digest)] if wallet.tracked else []
