"""Fresh reads of wallets, compared with what the mirror says after them; nothing is written."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from nftsync.errors import StoreError
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.process import Process
from nftsync.pull.reads import Pool, Read, Reader, Task, WalletTask
from nftsync.pull.run import WORTH_A_PROCESS
from nftsync.records import CONTENT_COLUMNS, Content, WalletRead
from nftsync.store.database import over_keys
from nftsync.store.mirror import numbers_known
from nftsync.store.schema import opened
from nftsync.store.tokens import Fields, fields_of, listed_fields

#: Differences that are kept, to be listed; more are counted.
_MOST_KEPT = 10_000
#: List entries that are compared together, and how long they are waited for, in seconds.
_ENTRIES, _TIMEOUT = 1_000, 0.2


class Difference(msgspec.Struct, kw_only=True):
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
    read_at: str | None
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

    def differs(self, found: Difference) -> None:
        """Count a difference, and keep it if it is among the first."""
        self.differing[found.wallet_id] += 1
        if len(self.differences) < _MOST_KEPT:
            self.differences.append(found)

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
    *,
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
            read, token_id, field, mirror, provider = each
            wallet = known[read.wallet_id]
            found.differs(
                Difference(
                    wallet_id=read.wallet_id,
                    label=wallet.label,
                    token_id=token_id,
                    field=field,
                    mirror=mirror,
                    provider=provider,
                    read_at=wallet.read_at,
                )
            )
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


#: Whose list, which token, which field, what the mirror has and what the provider shows.
_Found: TypeAlias = tuple[WalletRead, str, str, str | None, str | None]


def _amounts(
    connection: sqlite3.Connection,
    reads: Sequence[WalletRead],
    known: Mapping[str, _Known],
    found: Comparison,
) -> Iterator[_Found]:
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
                yield read, token_id, "amount", mirror, provider


#: What lists have said of tokens, and the greatest number of a read that confirmed or changed it.
_CONTENT = (
    "SELECT t.token_id, t.token_no, max(t.changed_ticket, t.ticket), s.list_fields,"
    f" {', '.join(f't.{column}' for column in CONTENT_COLUMNS)} FROM json_each(?) k"
    " JOIN tokens t ON t.token_id = k.value LEFT JOIN token_sources s USING (token_no)"
)


def _contents(connection: sqlite3.Connection, reads: Sequence[WalletRead]) -> Iterator[_Found]:
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
                yield read, token_id, field, _text(mirror, field), _text(provider, field)


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
