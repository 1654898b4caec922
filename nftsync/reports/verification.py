"""Verification of the mirror."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync.errors import StoreError, SyncRunning
from nftsync.provider.config import ClientConfig
from nftsync.pull.loop import Policy, ReadLoop
from nftsync.pull.process import open_reader
from nftsync.pull.reads import WalletTask
from nftsync.records import CONTENT_COLUMNS, Applied, Content, OnRemovals, Read, WalletRead
from nftsync.store.database import is_syncing, over_keys
from nftsync.store.mirror import sequence_numbers
from nftsync.store.names import Names
from nftsync.store.rules import Rule, check_rules
from nftsync.store.schema import opened, reading
from nftsync.store.spelling import differing
from nftsync.store.tokens import RawFields, completed, compose, fields_of, listed_fields
from nftsync.terminal import interruptible, progress_bar
from nftsync.text import counted
from nftsync.times import now

#: Differences to list; further ones are only counted.
_MOST_LISTED = 10_000
#: Seconds that reads wait to be compared together.
_TIMEOUT = 0.2


class Difference(msgspec.Struct):
    """Difference between the provider and the mirror.

    `field` is `amount`, or a field of the token's content. `webhook` is the state of the newest
    webhook since `read_at` on the wallet or the token.
    """

    wallet_id: str
    label: str | None
    token_id: str
    field: str
    mirror: str | None
    provider: str | None
    read_at: str | None = None
    name: str | None = None
    wallet: str | None = None
    nft: str | None = None
    webhook: str | None = None
    why: str = ""


class Unread(msgspec.Struct):
    """Wallet without a usable response."""

    wallet_id: str
    label: str | None
    error: str


class Comparison(Policy[sqlite3.Connection]):
    """Policy that compares reads with the mirror instead of writing them, and the result.

    Attributes:
        read_meanwhile: number of wallets left out because another read was newer.
        differing: number of differences per wallet.
        passing: unread wallets whose failure may be temporary.
        reason: why the comparison ended early.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.compared = self.balances = self.read_meanwhile = 0
        self.differing: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.unread: list[Unread] = []
        self.passing: list[str] = []
        self.requests = 0
        self.reason: str | None = None

    def merge_recheck(self, wallets: Sequence[str], again: Comparison) -> None:
        names = set(wallets)
        others = [x for x in self.differences if x.wallet_id not in names]
        self.differences = [*others, *again.differences][:_MOST_LISTED]
        self.compared += again.compared - len(names.intersection(self.differing))
        self.read_meanwhile += again.read_meanwhile
        self.differing = (
            Counter({x: n for x, n in self.differing.items() if x not in names}) + again.differing
        )
        self.unread = [*(x for x in self.unread if x.wallet_id not in names), *again.unread]
        self.requests += again.requests
        self.reason = self.reason or again.reason

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN DEFERRED")
        try:
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")

    def apply(
        self, transaction: sqlite3.Connection, reads: Sequence[Read], removals: OnRemovals
    ) -> list[Applied]:
        del removals
        self.requests += sum(read.effort.requests for read in reads)
        read_wallets = [read for read in reads if isinstance(read, WalletRead)]
        rows = _wallet_rows(transaction, [read.wallet_id for read in read_wallets])
        whole: list[WalletRead] = []
        for read in read_wallets:
            wallet = rows.get(read.wallet_id)
            if wallet is None:
                raise StoreError(
                    f"wallet {read.wallet_id} has meanwhile left the database; run this again"
                )
            if read.outcome != "ok":
                self.unread.append(Unread(read.wallet_id, wallet.label, read.error or ""))
                self.passing += [read.wallet_id] * read.passing
            elif wallet.sequence > read.sequence:
                self.read_meanwhile += 1
            else:
                self.compared += 1
                whole.append(read)
        for row in (*_amounts(transaction, whole, rows, self), *_contents(transaction, whole)):
            row.label, row.read_at = rows[row.wallet_id].label, rows[row.wallet_id].read_at
            self.differing[row.wallet_id] += 1
            if len(self.differences) < _MOST_LISTED:
                self.differences.append(row)
        return [Applied(read, read.outcome) for read in reads]


def compare(
    database: Path,
    config: ClientConfig,
    wallets: Sequence[str],
    concurrency: int,
    over: Callable[[], bool],
    tell: Callable[[int], object],
) -> Comparison:
    """Read wallets unconditionally, and compare each with the mirror after the read.

    `over` returns True to stop early; `tell` gets the number of further finished wallets.
    """
    with opened(database) as connection:
        comparison = Comparison(connection)
        numbers, _ = sequence_numbers(connection)
        reader = open_reader(config, numbers, concurrency, tasks=len(wallets))
        with closing(reader):
            loop = ReadLoop(reader, comparison)
            is_over = lambda: over() or reader.reason is not None  # noqa: E731
            loop.feed(map(WalletTask, wallets), is_over, _TIMEOUT, tell)
            comparison.reason = reader.reason
    return comparison


class _WalletRow(NamedTuple):
    number: int
    label: str | None
    sequence: int
    read_at: str | None


def _wallet_rows(connection: sqlite3.Connection, wallets: Iterable[str]) -> dict[str, _WalletRow]:
    rows = over_keys(
        connection,
        "SELECT w.wallet_id, w.wallet_no, w.label, w.sequence, w.synced_at"
        " FROM json_each(?) k JOIN wallets w ON w.wallet_id = k.value",
        wallets,
    )
    return {wallet_id: _WalletRow(*row) for wallet_id, *row in rows}


def _amounts(
    connection: sqlite3.Connection,
    reads: Sequence[WalletRead],
    wallets: Mapping[str, _WalletRow],
    comparison: Comparison,
) -> Iterator[Difference]:
    rows = over_keys(
        connection,
        "SELECT b.wallet_no, t.token_id, b.amount FROM json_each(?) k"
        " JOIN balance_rows b ON b.wallet_no = k.value JOIN tokens t USING (token_no)",
        [wallets[read.wallet_id].number for read in reads],
    )
    holdings: dict[int, dict[str, str]] = {}
    for number, token_id, amount in rows:
        holdings.setdefault(number, {})[token_id] = amount
    for read in reads:
        mirrored = holdings.get(wallets[read.wallet_id].number, {})
        listed = {token_id: amount for token_id, amount, _ in read.entries}
        both = mirrored | listed
        comparison.balances += len(both)
        for token_id in both:
            mirror, provider = mirrored.get(token_id), listed.get(token_id)
            if mirror != provider:
                yield Difference(read.wallet_id, None, token_id, "amount", mirror, provider)


#: Tokens' content in lists, and the sequence number of the last read that confirmed or changed it.
_CONTENT = (
    "SELECT t.token_id, t.token_no, max(t.changed_sequence, t.sequence), s.list_fields,"
    f" {', '.join(f't.{column}' for column in CONTENT_COLUMNS)} FROM json_each(?) k"
    " JOIN tokens t ON t.token_id = k.value LEFT JOIN token_sources s USING (token_no)"
)


def _contents(connection: sqlite3.Connection, reads: Sequence[WalletRead]) -> Iterator[Difference]:
    shown: dict[str, tuple[WalletRead, Content]] = {}
    for read in reads:
        for token_id, _, content in read.entries:
            if content is not None and (
                token_id not in shown or shown[token_id][0].sequence < read.sequence
            ):
                shown[token_id] = read, content
    for token_id, number, sequence, in_lists, *columns in over_keys(connection, _CONTENT, shown):
        read, content = shown[token_id]
        if in_lists is None and tuple(columns) == content:
            continue
        mirror = fields_of(tuple(columns)) if in_lists is None else listed_fields(in_lists)
        readable = completed(content, mirror) or content
        if not differing(compose(mirror), readable, read.volatile):
            continue
        provider = fields_of(readable)
        differ = [x for x in {**mirror, **provider} if _text(mirror, x) != _text(provider, x)]
        if differ and max(sequence, _last_confirmed(connection, number)) <= read.sequence:
            for field in differ:
                texts = _text(mirror, field), _text(provider, field)
                yield Difference(read.wallet_id, None, token_id, field, *texts)


def _text(fields: RawFields, name: str) -> str | None:
    if name not in fields:
        return None
    value = msgspec.json.decode(fields[name])
    return value if isinstance(value, str) else bytes(fields[name]).decode()


def _last_confirmed(connection: sqlite3.Connection, token_no: int) -> int:
    (greatest,) = connection.execute(
        "SELECT coalesce(max(w.sequence), 0) FROM balance_rows b JOIN wallets w USING (wallet_no)"
        " WHERE b.token_no = ?",
        (token_no,),
    ).fetchone()
    return int(greatest)


#: Up to this many differing wallets are rechecked after this many seconds, because a webhook's
#: read may have been under way.
_MOST_RECHECKED, _SETTLES = 1_000, 2.0
#: Confidence of the estimate from a sample.
_CONFIDENCE = 0.95


class Verification(msgspec.Struct, kw_only=True):
    """Result of a verification, as `nftsync verify --json` prints it.

    `likely_at_most` is the greatest share that may differ if no compared wallet does. `untold`
    tells whether a webhook should have announced the differences.
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
        broken = any(rule.broken for rule in self.rules)
        return not (self.differences_total or self.unread or broken or self.error)


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
    """Check the consistency rules, and compare random tracked wallets with the provider.

    Without `config`, compares no wallet; without `sample`, all. `repair` reads wallets into the
    mirror, and returns the result. `has_receiver`: a webhook secret is set.
    """
    began = time.monotonic()
    report = Verification(database=str(database), verified_at=now())
    if repair is not None and is_syncing(database):
        raise SyncRunning(f"a sync of {database} is running; repair after it has ended")
    with interruptible() as over:
        report.rules = list(check_rules(database, report.verified_at))
        if over.is_set():
            raise KeyboardInterrupt
        if report.rules[0].broken or config is None:
            report.seconds = round(time.monotonic() - began, 3)
            return report
        with reading(database) as connection:
            wallets = _choose(connection, sample, report)
            (webhooks,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM webhooks WHERE state <> 'quarantined')"
            ).fetchone()

        def compare_wallets(wallets: Sequence[str]) -> Comparison:
            with progress_bar("wallets", len(wallets), unit="wallets", shown=progress) as bar:
                result = compare(database, config, wallets, concurrency, over.is_set, bar.update)
            if over.is_set():
                raise KeyboardInterrupt
            return result

        compared = compare_wallets(wallets)
        again = [*compared.differing, *compared.passing]
        if 0 < len(again) <= _MOST_RECHECKED and compared.reason is None:
            over.wait(_SETTLES if webhooks else 0.0)
            compared.merge_recheck(again, compare_wallets(again))
        if repair is not None and compared.differing:
            wrong = list(compared.differing)
            report.repair = repair(wrong)
            if report.repair["status"] == "interrupted":
                raise KeyboardInterrupt
            compared.merge_recheck(wrong, compare_wallets(wrong))
            report.repaired = [wallet for wallet in wrong if wallet not in compared.differing]
    _copy_results(report, compared)
    with reading(database) as connection:
        if _add_webhooks(connection, report.differences):
            report.untold = _explain_missing_webhooks(connection, has_receiver=has_receiver)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _choose(connection: sqlite3.Connection, sample: int | None, result: Verification) -> list[str]:
    query = "SELECT wallet_id, synced_at IS NULL FROM wallets WHERE tracked"
    rows = connection.execute(query).fetchall()
    wallets = [wallet_id for wallet_id, never in rows if not never]
    result.tracked, result.never_read = len(rows), len(rows) - len(wallets)
    if not wallets:
        result.error = "nothing to compare: no tracked wallet has been read yet"
    if sample is not None:
        wallets = random.sample(wallets, min(sample, len(wallets)))
    result.sampled = len(wallets)
    return wallets


def _copy_results(result: Verification, compared: Comparison) -> None:
    result.compared, result.balances = compared.compared, compared.balances
    result.read_meanwhile, result.differing = compared.read_meanwhile, len(compared.differing)
    result.differences = compared.differences
    result.differences_total = compared.differing.total()
    result.unread, result.requests = compared.unread, compared.requests
    result.error = result.error or compared.reason
    if result.compared and not result.differing and not result.repaired:
        # The share p follows from (1 - p) ** compared = 1 - _CONFIDENCE.
        everything = result.compared >= result.tracked
        likely = 0.0 if everything else 1 - (1 - _CONFIDENCE) ** (1 / result.compared)
        result.likely_at_most = round(likely, 4)


#: Advice by state of the webhook that announced a difference.
_ADVICE = {
    "pending": "and is still pending: is `nftsync serve` or `replay` running?",
    "running": "and is being processed",
    "failed": "and its read failed; nftsync will retry it",
    "dead": "and is out of attempts: `nftsync inbox requeue`",
    "unrouted": "and its type has no route: `nftsync routes suggest`",
    "quarantined": "and was quarantined: `nftsync inbox show`",
    "done": "and was processed, but the provider has changed since",
}


def _add_webhooks(connection: sqlite3.Connection, differences: Sequence[Difference]) -> bool:
    ids = {x.wallet_id for x in differences} | {x.token_id for x in differences}
    if not ids:
        return False
    unannounced = False
    query = "SELECT t.token_id, t.name FROM json_each(?) k JOIN tokens t ON t.token_id = k.value"
    names = dict(over_keys(connection, query, ids))
    rows = over_keys(
        connection,
        "SELECT resource_id, max(webhook_no), state, received_at FROM webhooks"
        " WHERE resource_id IN (SELECT value FROM json_each(?)) GROUP BY resource_id",
        ids,
    )
    query = (
        "SELECT w.wallet_id, t.token_id FROM removal_rows r JOIN tokens t USING (token_no)"
        " JOIN wallets w USING (wallet_no)"
        " WHERE held AND t.token_id IN (SELECT value FROM json_each(?))"
    )
    held_removals = set(over_keys(connection, query, ids))
    newest = {resource: (received_at, state) for resource, _, state, received_at in rows}
    wallets, nfts = Names(connection).of_wallets(ids), Names(connection).of_nfts(ids)
    for row in differences:
        row.name, row.nft = names.get(row.token_id), nfts.get(row.token_id)
        row.wallet = wallets[row.wallet_id]
        webhooks = [newest[x] for x in (row.wallet_id, row.token_id) if x in newest]
        if (row.wallet_id, row.token_id) in held_removals:
            row.why = "a removal held for review: `nftsync removals`"
            continue
        since = [x for x in webhooks if row.read_at is None or x[0] >= row.read_at]
        if since:
            received_at, row.webhook = max(since)
            row.why = f"a webhook announced it at {received_at[:19]}Z {_ADVICE[row.webhook]}"
        else:
            row.why = f"none since {row.read_at[:19]}Z" if row.read_at else "none"
            unannounced = True
    return unannounced


def _explain_missing_webhooks(connection: sqlite3.Connection, *, has_receiver: bool) -> str:
    count, last = connection.execute("SELECT count(*), max(received_at) FROM webhooks").fetchone()
    if count:
        return f"{counted(count, 'webhook')} came, the last at {last[:19]}Z; none announced these"
    if has_receiver:
        return "a webhook secret is set, but no webhook ever came: is the receiver registered?"
    return "no receiver is set up, so only syncs bring changes"
