"""Histories for tests of measures over time: random reads, applied by the real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import format_time
from tests.kit.database import begun, token_id, wallet_id
from tests.kit.serve_process import query

WALLETS, TOKENS = (1, 2, 3, 4), (1, 2, 3)
AMOUNTS = ("0", "00", "1", "01", "2", "3", "1.5", "", str(2**256 - 1), str(2**256 - 2))
_SENTINEL = 99


def moment(seconds: float) -> str:
    return format_time(datetime(2090, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))


class Read(NamedTuple):
    wait: int
    wallet: int
    amounts: dict[int, str]
    whole: bool
    content: dict[str, str | int | None] | None = None
    started: float = 0


READS = st.lists(
    st.builds(
        Read,
        wait=st.sampled_from([0, 0, 1, 2]),
        wallet=st.sampled_from(WALLETS),
        amounts=st.dictionaries(st.sampled_from(TOKENS), st.sampled_from(AMOUNTS)),
        whole=st.sampled_from([True, True, True, False]),
        started=st.just(0),
        content=st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["", "a", "b\u202e"]),
                "edition_id": st.sampled_from([0, -(2**63), 2**63 - 1]),
                "contract_address": st.sampled_from(["a", "b"]),
                "extra": st.just('{"metadata": {"n": 1e400, "t": "\\"\\u0000"}}'),
            },
        ),
    ),
    max_size=14,
)


class Change(NamedTuple):
    wallet: str
    token: str
    old: str | None
    new: str | None
    at: str
    baseline: bool


class Histories:
    """A database whose history is replaced by each `play`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.db"

    def play(self, reads: Sequence[Read]) -> int:
        """Replace the database; return the time at the end, in seconds."""
        begun(self.path)
        clock = reads[0].wait if reads else 0
        with Mirror(self.path, write_gap=0.0) as mirror:
            self._apply(mirror, Read(0, _SENTINEL, {}, True), clock)
            # Every queried time is in the past.
            mirror.connection.execute(
                "INSERT INTO sync_runs (kind, status, started_at, finished_at)"
                " VALUES ('sync', 'ok', ?1, ?1)",
                (moment(999),),
            )
            for place, read in enumerate(reads):
                clock += read.wait if place else 0
                self._apply(mirror, read, clock)
        return clock

    def _apply(self, mirror: Mirror, read: Read, clock: float) -> None:
        content = read.content
        if content is not None:
            content = tuple(map(content.get, CONTENT_COLUMNS))
        entries = [(token_id(t), amount, content) for t, amount in read.amounts.items()]
        applied = WalletRead(
            wallet_id=wallet_id(read.wallet),
            sequence=mirror.numbers.take(),
            started_at=moment(read.started),
            outcome="ok" if read.whole else "incomplete",
            entries=entries,
            digest=repr((read.amounts, content)),
        )
        with mirror.transaction(moment(clock)) as transaction:
            transaction.apply([applied])

    def label(self, labels: dict[str, str]) -> None:
        for wallet, label in labels.items():
            query(self.path, "UPDATE wallets SET label = ? WHERE wallet_id = ?", label, wallet)

    def log(self) -> Iterator[Change]:
        rows = query(
            self.path,
            "SELECT wallet_id, token_id, old_amount, new_amount, observed_at, baseline"
            " FROM balance_changes ORDER BY change_id",
        )
        return (Change(*row[:5], bool(row[5])) for row in rows)

    def begin(self) -> str:
        states = "SELECT observed_at FROM wallet_state_rows"
        changes = "SELECT observed_at FROM balance_change_rows"
        times = f"SELECT min(observed_at) FROM ({states} UNION ALL {changes})"
        return str(query(self.path, times)[0][0])

    def held(self, until: str) -> dict[tuple[str, str], int | str]:
        """Return the holdings at a time, by wallet and token; amounts as of `size`."""
        log = (each for each in self.log() if each.at <= until)
        held = {(each.wallet, each.token): size(each.new) for each in log}
        return {key: amount for key, amount in held.items() if amount != 0}


def size(amount: str | None) -> int | str:
    """Return an amount as a number, or as text if it is not a whole number."""
    if amount is None:
        return 0
    if amount.isascii() and amount.isdigit() and len(amount) <= 100:
        return int(amount)
    return amount if amount.strip("0") or not amount else 0


def sums(
    held: dict[tuple[str, str], int | str], group_of: Callable[[str, str], Any]
) -> dict[Any, tuple[int, int, int]]:
    """Return the holdings, the amount and the unknown amounts of each group."""
    found: dict[Any, tuple[int, int, int]] = {}
    for (wallet, token), amount in held.items():
        count, total, unknown = found.get(key := group_of(wallet, token), (0, 0, 0))
        known = amount if isinstance(amount, int) else 0
        found[key] = count + 1, total + known, unknown + isinstance(amount, str)
    return found
