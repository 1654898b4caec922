"""Transfers in the demo's year, against the transfers that its provider made."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from nftsync import frames
from nftsync.demo.provider import begin_provider, create
from nftsync.demo.year import play_year
from nftsync.sandbox.world import World


class Moved(NamedTuple):
    giver: str
    taker: str
    token: str
    amount: int


class Recorded:
    """A world that notes its transfers, and how many lists were read before each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reads = 0
        self.moved: list[tuple[int, Moved]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def balances_body(self, wallet_id: str) -> bytes | None:
        self._reads += 1
        return self._world.balances_body(wallet_id)

    def transfer(self, giver: str, taker: str, token: str, amount: int) -> None:
        self._world.transfer(giver, taker, token, amount)
        self.moved.append((self._reads, Moved(giver, taker, token, amount)))

    def between_reads(self) -> set[Moved]:
        """All transfers, and those in two steps or more of which no read has shown the middle."""
        whole = {moved for _, moved in self.moved}
        for place, (reads, first) in enumerate(self.moved):
            holder = first.taker
            for later, moved in self.moved[place + 1 :]:
                passed_on = (later, *moved[2:]) == (reads, *first[2:]) and moved.giver == holder
                if passed_on:
                    holder = moved.taker
                    whole.add(first._replace(taker=holder))
        return whole


def test_all_that_is_named_has_happened_and_is_in_the_change_feed(tmp_path: Path) -> None:
    database = tmp_path / "demo.db"
    create(database)
    with begin_provider(database, port=0) as provider:
        world: Any = Recorded(provider.world)
        play_year(world, provider.url, database, until=datetime.now(UTC))
    truth = world.between_reads()
    feed = frames.changes(database)
    feed = feed[~feed["baseline"]]
    sizes = feed["new_amount"].fillna(0) - feed["old_amount"].fillna(0)
    changes = Counter(zip(feed["wallet_id"], feed["token_id"], sizes, strict=True))
    for start in ("30d", "90d", "365d"):
        frame = frames.transfers(database, start)
        named = frame[frame["kind"] == "transfer"]
        assert len(named) > len(frame) / 2
        for row in named.itertuples():
            moved = Moved(row.from_wallet_id, row.to_wallet_id, row.token_id, row.amount)
            assert moved in truth
            assert changes[moved.giver, moved.token, -moved.amount]
            assert changes[moved.taker, moved.token, moved.amount]
    assert len(named) > len(world.moved) / 2
