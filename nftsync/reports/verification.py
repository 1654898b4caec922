"""The mirror verified: its own rules, and a sample of its wallets against fresh reads."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync.errors import NftsyncError, SyncRunning
from nftsync.provider.config import ClientConfig
from nftsync.reports.comparison import Comparison, Difference, Unread, compare
from nftsync.store.database import is_syncing, over_keys
from nftsync.store.rules import Rule, check_rules
from nftsync.store.schema import reading
from nftsync.terminal import interruptible, progress_bar
from nftsync.text import counted
from nftsync.times import now

#: Wallets that differ are looked at once more, if they are no more than this, after so many
#: seconds: a webhook's read may have been under way.
_LOOKED_AT_AGAIN, _SETTLES = 1_000, 2.0
#: How sure what a sample says of all is.
_SURE = 0.95


class Interrupted(NftsyncError):
    """The verification was stopped."""


class Verification(msgspec.Struct, kw_only=True):
    """What `nftsync verify --json` prints.

    Attributes:
        database: the file.
        verified_at: when it began.
        tracked: wallets that are tracked.
        never_read: those of them of which no complete read is known: not compared.
        sampled: wallets that were to be compared.
        compared: those that were.
        read_meanwhile: those that a sync or a webhook's read has read since ours began.
        differing: those that differ.
        balances: balances that were compared.
        likely_at_most: where none differs, the share of all wallets that may, with 95 % certainty.
        differences: in what they differ, the first 10,000.
        differences_total: how many there are.
        untold: whether a webhook should have told of those of which none did, for a person.
        unread: wallets that could not be read.
        rules: the mirror's own rules.
        error: why it could not go on.
        repair: what reading the differing wallets once more came to, as `sync --json` has it.
        repaired: the wallets that differed and no longer do.
        requests: HTTP requests of the comparison.
        seconds: how long it took.
    """

    database: str
    verified_at: str
    tracked: int = 0
    never_read: int = 0
    sampled: int = 0
    compared: int = 0
    read_meanwhile: int = 0
    differing: int = 0
    balances: int = 0
    likely_at_most: float | None = None
    differences: list[Difference] = []
    differences_total: int = 0
    untold: str | None = None
    unread: list[Unread] = []
    rules: list[Rule] = []
    error: str | None = None
    repair: dict[str, Any] | None = None
    repaired: list[str] = []
    requests: int = 0
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Nothing differs, no rule is broken, and all that was to be compared was."""
        broken = any(rule.broken for rule in self.rules)
        return not (self.differences_total or self.unread or broken or self.error)


class _Reads(NamedTuple):
    """How wallets are read afresh."""

    database: Path
    config: ClientConfig
    concurrency: int
    over: threading.Event
    progress: bool | None

    def compare(self, wallets: Sequence[str]) -> Comparison:
        with progress_bar("wallets", len(wallets), unit="wallets", shown=self.progress) as bar:
            found = compare(
                self.database,
                self.config,
                wallets,
                concurrency=self.concurrency,
                over=self.over.is_set,
                tell=bar.update,
            )
        if self.over.is_set():
            raise Interrupted("interrupted")
        return found


def verify(
    database: Path,
    config: ClientConfig | None,
    *,
    sample: int | None,
    concurrency: int = 16,
    has_receiver: bool = False,
    repair: Callable[[Sequence[str]], dict[str, Any]] | None = None,
    progress: bool | None = None,
) -> Verification:
    """Check the mirror's own rules, and compare a sample of its wallets with the provider.

    Every tracked wallet is as likely as any other to be in the sample: only so does what it shows
    hold for all, with a certainty that can be told.

    Args:
        database: the mirror; only `repair` writes it.
        config: how to read the provider; None: no wallet is compared.
        sample: how many wallets; None: all.
        concurrency: requests at once.
        has_receiver: webhooks are expected.
        repair: reads wallets into the mirror; returns what that came to.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        Interrupted: after Ctrl-C.
        SyncRunning: a sync is running, and something may have to be repaired.
        NftsyncError: the database cannot be read, or the provider not with these settings.
    """
    began = time.monotonic()
    found = Verification(database=str(database), verified_at=now())
    if repair is not None and is_syncing(database):
        raise SyncRunning(f"a sync of {database} is running, and repairs would have to wait for it")
    with interruptible() as over:
        found.rules = list(check_rules(database, found.verified_at))
        if over.is_set():
            raise Interrupted("interrupted")
        if found.rules[0].broken or config is None:
            found.seconds = round(time.monotonic() - began, 3)
            return found
        with reading(database) as connection:
            wallets = _chosen(connection, sample, found)
            (webhooks,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM webhooks WHERE state <> 'quarantined')"
            ).fetchone()
        reads = _Reads(database, config, concurrency, over, progress)
        compared = reads.compare(wallets)
        again = [*compared.differing, *compared.passing]
        if 0 < len(again) <= _LOOKED_AT_AGAIN and compared.reason is None:
            over.wait(_SETTLES if webhooks else 0.0)
            compared.looked_again(again, reads.compare(again))
        if repair is not None and compared.differing:
            wrong = list(compared.differing)
            found.repair = repair(wrong)
            if found.repair["status"] == "interrupted":
                raise Interrupted("interrupted")
            compared.looked_again(wrong, reads.compare(wrong))
            found.repaired = [wallet for wallet in wrong if wallet not in compared.differing]
    _take_over(found, compared)
    with reading(database) as connection:
        if _explain(connection, found.differences):
            found.untold = _why_untold(connection, has_receiver=has_receiver)
    found.seconds = round(time.monotonic() - began, 3)
    return found


def _chosen(connection: sqlite3.Connection, sample: int | None, found: Verification) -> list[str]:
    """The wallets to compare, at random among those that are tracked and were ever read."""
    rows = connection.execute(
        "SELECT wallet_no, synced_at IS NULL FROM wallets WHERE tracked"
    ).fetchall()
    numbers = [number for number, never in rows if not never]
    found.tracked, found.never_read = len(rows), len(rows) - len(numbers)
    if not numbers:
        found.error = "no tracked wallet has ever been read: there is nothing to compare"
    if sample is not None:
        numbers = random.sample(numbers, min(sample, len(numbers)))
    found.sampled = len(numbers)
    query = "SELECT w.wallet_id FROM json_each(?) k JOIN wallets w ON w.wallet_no = k.value"
    return [wallet_id for (wallet_id,) in over_keys(connection, query, numbers)]


def _take_over(found: Verification, compared: Comparison) -> None:
    found.compared, found.balances = compared.compared, compared.balances
    found.read_meanwhile, found.differing = compared.read_meanwhile, len(compared.differing)
    found.differences = compared.differences
    found.differences_total = compared.differing.total()
    found.unread, found.requests = compared.unread, compared.requests
    found.error = found.error or compared.reason
    if found.compared and not found.differing and not found.repaired:
        # What share p of all would have shown itself: (1 - p) ** compared = 1 - _SURE.
        everything = found.compared >= found.tracked
        likely = 0.0 if everything else 1 - (1 - _SURE) ** (1 / found.compared)
        found.likely_at_most = round(likely, 4)


#: What to do about a webhook that has told of a difference, by its state.
_TOLD = {
    "pending": "and is still pending: is `nftsync serve` or `replay` running?",
    "running": "and is being worked on",
    "failed": "and its read failed; it will be tried again",
    "dead": "and its attempts are used up: `nftsync inbox requeue`",
    "unrouted": "and its type has no route: `nftsync routes suggest`",
    "quarantined": "and was quarantined: `nftsync inbox show`",
    "done": "and was worked off, and the provider shows something else by now",
}


def _explain(connection: sqlite3.Connection, differences: Sequence[Difference]) -> bool:
    """Say of each its token's name and which webhook told of it; return if of any none did."""
    ids = {x.wallet_id for x in differences} | {x.token_id for x in differences}
    if not ids:
        return False
    any_untold = False
    named = over_keys(
        connection,
        "SELECT t.token_id, t.name FROM json_each(?) k JOIN tokens t ON t.token_id = k.value",
        ids,
    )
    names = dict(named)
    rows = over_keys(
        connection,
        "SELECT resource_id, max(webhook_no), state, received_at FROM webhooks"
        " WHERE resource_id IN (SELECT value FROM json_each(?)) GROUP BY resource_id",
        ids,
    )
    held = over_keys(
        connection,
        "SELECT w.wallet_id, t.token_id FROM removal_rows r JOIN tokens t USING (token_no)"
        " JOIN wallets w USING (wallet_no)"
        " WHERE held AND t.token_id IN (SELECT value FROM json_each(?))",
        ids,
    )
    held_back = set(held)
    newest = {resource: (received_at, state) for resource, _, state, received_at in rows}
    for each in differences:
        each.name = names.get(each.token_id)
        told = [newest[x] for x in (each.wallet_id, each.token_id) if x in newest]
        if (each.wallet_id, each.token_id) in held_back:
            each.why = "a removal held for review: `nftsync removals`"
            continue
        since = [x for x in told if each.read_at is None or x[0] >= each.read_at]
        if since:
            received_at, each.webhook = max(since)
            each.why = f"a webhook told of it at {received_at[:19]}Z {_TOLD[each.webhook]}"
        else:
            each.why = f"none since {each.read_at[:19]}Z" if each.read_at else "none"
            any_untold = True
    return any_untold


def _why_untold(connection: sqlite3.Connection, *, has_receiver: bool) -> str:
    """Whether webhooks were to be expected."""
    count, last = connection.execute("SELECT count(*), max(received_at) FROM webhooks").fetchone()
    if count:
        return f"{counted(count, 'webhook')} came, the last at {last[:19]}Z, but none told of it"
    if has_receiver:
        return "no webhook ever came, though a webhook secret is set: is the receiver registered?"
    return "no receiver is set up: only a sync brings what changes"
