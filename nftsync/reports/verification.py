"""Verification of the mirror: its own rules, and a sample of wallets against new reads."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync.errors import NftsyncError, StoreError, SyncRunning
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.process import Process
from nftsync.pull.reads import Pool, Read, Reader, Task, WalletTask
from nftsync.pull.run import WORTH_A_PROCESS
from nftsync.records import CONTENT_COLUMNS, Content, WalletRead
from nftsync.store.database import is_syncing, over_keys
from nftsync.store.mirror import numbers_known
from nftsync.store.rules import Rule, check_rules
from nftsync.store.schema import opened, reading
from nftsync.store.tokens import Fields, fields_of, listed_fields
from nftsync.terminal import interruptible, progress_bar
from nftsync.text import counted
from nftsync.times import now

#: Differences that are kept, to be listed; more are counted.
_MOST_KEPT = 10_000
#: List entries that are compared together, and how long they are waited for, in seconds.
_ENTRIES, _TIMEOUT = 1_000, 0.2


class Difference(msgspec.Struct):
    """Something that the provider shows otherwise than the mirror.

    Attributes:
        wallet_id: the wallet whose list shows it.
        label: its name for people.
        token_id: the token.
        name: what the mirror knows it by.
        field: `amount`, or the field of the token's content.
        mirror: what the mirror has, as text; None: nothing.
        provider: what the provider shows; None: nothing.
        read_at: when the mirror's last complete read of the wallet began.
        webhook: the state of the newest webhook that named the wallet or the token since then;
            None: there is none.
        why: whether a webhook told of it, and what to do, for a person.
    """

    wallet_id: str
    label: str | None
    token_id: str
    field: str
    mirror: str | None
    provider: str | None
    read_at: str | None = None
    name: str | None = None
    webhook: str | None = None
    why: str = ""


class Unread(msgspec.Struct):
    """A wallet that could not be compared, as no usable answer came."""

    wallet_id: str
    label: str | None
    error: str


class Comparison:
    """What the comparison of some wallets came to.

    Attributes:
        compared: the wallets that were compared.
        balances: how many of theirs either side lists.
        read_meanwhile: wallets that others have read since our read began, and so left out.
        differing: the wallets that differ, and in how many places.
        differences: these, the first of them.
        unread: wallets that could not be compared.
        passing: those of them whose reads may go well next time.
        requests: HTTP requests that it took.
        reason: why it ended early, or None.
    """

    def __init__(self) -> None:
        self.compared = self.balances = self.read_meanwhile = 0
        self.differing: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.unread: list[Unread] = []
        self.passing: list[str] = []
        self.requests = 0
        self.reason: str | None = None

    def looked_again(self, wallets: Sequence[str], again: Comparison) -> None:
        """Put what a second look at some wallets came to in place of the first."""
        names = set(wallets)
        kept = [x for x in self.differences if x.wallet_id not in names]
        self.differences = [*kept, *again.differences][:_MOST_KEPT]
        self.compared += again.compared - len(names.intersection(self.differing))
        self.read_meanwhile += again.read_meanwhile
        self.differing = (
            Counter({x: n for x, n in self.differing.items() if x not in names}) + again.differing
        )
        self.unread = [*(x for x in self.unread if x.wallet_id not in names), *again.unread]
        self.requests += again.requests
        self.reason = self.reason or again.reason


def compare(
    database: Path,
    config: ClientConfig,
    wallets: Sequence[str],
    concurrency: int,
    over: Callable[[], bool],
    tell: Callable[[int], object],
) -> Comparison:
    """Read wallets unconditionally, and compare each with the mirror as it is after the read.

    Args:
        database: the mirror; it is only read.
        config: how to read the provider.
        wallets: their ids.
        concurrency: requests at once.
        over: asked again and again whether to stop early.
        tell: called with how many more wallets are done.

    Raises:
        SettingsError: the provider cannot be read with these settings.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    found = Comparison()
    with opened(database) as connection:
        numbers, _ = numbers_known(connection)
        reader: Reader[Task, Read]
        if len(wallets) >= WORTH_A_PROCESS:
            reader = Process(config, numbers, concurrency)
        else:
            reader = Pool(config, numbers, concurrency, rule=GiveUpRule())
        tasks = map(WalletTask, wallets)
        more = True
        with closing(reader):
            while (more or not reader.idle) and not over() and found.reason is None:
                if more and (room := reader.room):
                    step = list(islice(tasks, room))
                    more = len(step) == room
                    reader.submit(step)
                reads = reader.take(_ENTRIES, timeout=_TIMEOUT)
                _look(connection, [x for x in reads if isinstance(x, WalletRead)], found)
                tell(len(reads))
                found.reason = reader.reason
    return found


class _Known(NamedTuple):
    """What the mirror knows of a wallet."""

    number: int
    label: str | None
    sequence: int
    read_at: str | None


def _look(connection: sqlite3.Connection, reads: Sequence[WalletRead], found: Comparison) -> None:
    """Compare reads with the mirror of one moment, after them."""
    found.requests += sum(read.effort.requests for read in reads)
    connection.execute("BEGIN DEFERRED")
    try:
        known = _known(connection, [read.wallet_id for read in reads])
        whole: list[WalletRead] = []
        for read in reads:
            wallet = known.get(read.wallet_id)
            if wallet is None:
                raise StoreError(f"wallet {read.wallet_id} is gone from the database")
            if read.outcome != "ok":
                found.unread.append(Unread(read.wallet_id, wallet.label, read.error or ""))
                found.passing += [read.wallet_id] * read.passing
            elif wallet.sequence > read.sequence:
                found.read_meanwhile += 1
            else:
                found.compared += 1
                whole.append(read)
        for each in (*_amounts(connection, whole, known, found), *_contents(connection, whole)):
            each.label, each.read_at = known[each.wallet_id].label, known[each.wallet_id].read_at
            found.differing[each.wallet_id] += 1
            if len(found.differences) < _MOST_KEPT:
                found.differences.append(each)
    finally:
        connection.execute("ROLLBACK")


def _known(connection: sqlite3.Connection, wallets: Iterable[str]) -> dict[str, _Known]:
    rows = over_keys(
        connection,
        "SELECT w.wallet_id, w.wallet_no, w.label, w.ticket, w.synced_at"
        " FROM json_each(?) k JOIN wallets w ON w.wallet_id = k.value",
        wallets,
    )
    return {wallet_id: _Known(*row) for wallet_id, *row in rows}


def _amounts(
    connection: sqlite3.Connection,
    reads: Sequence[WalletRead],
    known: Mapping[str, _Known],
    found: Comparison,
) -> Iterator[Difference]:
    rows = over_keys(
        connection,
        "SELECT b.wallet_no, t.token_id, b.amount FROM json_each(?) k"
        " JOIN balance_rows b ON b.wallet_no = k.value JOIN tokens t USING (token_no)",
        [known[read.wallet_id].number for read in reads],
    )
    held: dict[int, dict[str, str]] = {}
    for number, token_id, amount in rows:
        held.setdefault(number, {})[token_id] = amount
    for read in reads:
        mirrored = held.get(known[read.wallet_id].number, {})
        listed = {token_id: amount for token_id, amount, _ in read.entries}
        both = mirrored | listed
        found.balances += len(both)
        for token_id in both:
            mirror, provider = mirrored.get(token_id), listed.get(token_id)
            if mirror != provider:
                yield Difference(read.wallet_id, None, token_id, "amount", mirror, provider)


#: What lists have said of tokens, and the greatest number of a read that confirmed or changed it.
_CONTENT = (
    "SELECT t.token_id, t.token_no, max(t.changed_ticket, t.ticket), s.list_fields,"
    f" {', '.join(f't.{column}' for column in CONTENT_COLUMNS)} FROM json_each(?) k"
    " JOIN tokens t ON t.token_id = k.value LEFT JOIN token_sources s USING (token_no)"
)


def _contents(connection: sqlite3.Connection, reads: Sequence[WalletRead]) -> Iterator[Difference]:
    """What lists show of tokens otherwise than the mirror has lists showing it; each token once."""
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
        provider = fields_of(content)
        differ = [x for x in {**mirror, **provider} if _text(mirror, x) != _text(provider, x)]
        if differ and max(sequence, _read_by_others(connection, number)) <= read.sequence:
            for field in differ:
                texts = _text(mirror, field), _text(provider, field)
                yield Difference(read.wallet_id, None, token_id, field, *texts)


def _text(fields: Fields, name: str) -> str | None:
    """A field as it is shown: text as it is, all else as JSON."""
    if name not in fields:
        return None
    value = msgspec.json.decode(fields[name])
    return value if isinstance(value, str) else bytes(fields[name]).decode()


def _read_by_others(connection: sqlite3.Connection, token_no: int) -> int:
    """The greatest number of a read of a wallet that holds a token, and so vouches for it."""
    (greatest,) = connection.execute(
        "SELECT coalesce(max(w.ticket), 0) FROM balance_rows b JOIN wallets w USING (wallet_no)"
        " WHERE b.token_no = ?",
        (token_no,),
    ).fetchone()
    return int(greatest)


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

        def look(wallets: Sequence[str]) -> Comparison:
            with progress_bar("wallets", len(wallets), unit="wallets", shown=progress) as bar:
                found = compare(database, config, wallets, concurrency, over.is_set, bar.update)
            if over.is_set():
                raise Interrupted("interrupted")
            return found

        compared = look(wallets)
        again = [*compared.differing, *compared.passing]
        if 0 < len(again) <= _LOOKED_AT_AGAIN and compared.reason is None:
            over.wait(_SETTLES if webhooks else 0.0)
            compared.looked_again(again, look(again))
        if repair is not None and compared.differing:
            wrong = list(compared.differing)
            found.repair = repair(wrong)
            if found.repair["status"] == "interrupted":
                raise Interrupted("interrupted")
            compared.looked_again(wrong, look(wrong))
            found.repaired = [wallet for wallet in wrong if wallet not in compared.differing]
    _take_over(found, compared)
    with reading(database) as connection:
        if _explain(connection, found.differences):
            found.untold = _why_untold(connection, has_receiver=has_receiver)
    found.seconds = round(time.monotonic() - began, 3)
    return found


def _chosen(connection: sqlite3.Connection, sample: int | None, found: Verification) -> list[str]:
    """The wallets to compare, at random among those that are tracked and were ever read."""
    query = "SELECT wallet_no, synced_at IS NULL FROM wallets WHERE tracked"
    rows = connection.execute(query).fetchall()
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
