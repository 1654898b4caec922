"""Reads applied in any order, batch and repetition: the mirror says what the latest reads said.

The provider is a sequence of worlds, one per tick. A read at a tick sees the world of that tick.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nftsync.records import CONTENT_COLUMNS, Content, TokenRead, WalletRead
from nftsync.store.mirror import Mirror
from tests.kit.worlds import mirrored, replayed

WALLETS = [f"aaaaaaaa-0000-4000-8000-00000000000{n}" for n in range(3)]
TOKENS = [f"bbbbbbbb-0000-4000-8000-00000000000{n}" for n in range(2)]
AMOUNTS = ["1", "1", "1", "0", "0007", str(2**256 - 1)]
NAME, DESCRIPTION, EXTRA = (
    CONTENT_COLUMNS.index(name) for name in ("name", "description", "extra")
)


def content(
    name: str | None, *, description: str | None = None, extra: str | None = None
) -> Content:
    values: list[str | None] = [None] * len(CONTENT_COLUMNS)
    values[NAME], values[DESCRIPTION], values[EXTRA] = name, description, extra
    return tuple(values)


@dataclass
class World:
    """What the provider would answer at one tick."""

    held: dict[str, dict[str, str]] = field(default_factory=dict)
    names: dict[str, str | None] = field(default_factory=dict)
    details: dict[str, str | None] = field(default_factory=dict)
    detail_names: dict[str, str | None] = field(default_factory=dict)

    def listed(self, token: str) -> Content:
        return content(self.names.get(token))

    def detailed(self, token: str) -> Content:
        detail = self.details.get(token)
        extra = None if detail is None else json.dumps({"rarity": detail}, separators=(",", ":"))
        return content(self.detail_names.get(token), description=detail, extra=extra)

    def digest(self, wallet: str) -> str:
        shown = [(t, a, self.names.get(t)) for t, a in sorted(self.held.get(wallet, {}).items())]
        return hashlib.sha256(repr(shown).encode()).hexdigest()


# Few values, so that states come back: a change and its reversal is where skipping goes wrong.
held_by_one = st.fixed_dictionaries({}, optional=dict.fromkeys(TOKENS, st.sampled_from(AMOUNTS)))
full = st.just(dict.fromkeys(TOKENS, "1"))
holdings = st.fixed_dictionaries(dict.fromkeys(WALLETS, full | full | held_by_one))
names = st.fixed_dictionaries(dict.fromkeys(TOKENS, st.sampled_from(["x", "y"])))
details = st.fixed_dictionaries(dict.fromkeys(TOKENS, st.sampled_from([None, "rare"])))
detail_names = st.fixed_dictionaries(dict.fromkeys(TOKENS, st.sampled_from([None, "x", "z"])))
worlds = st.builds(World, held=holdings, names=names, details=details, detail_names=detail_names)


@dataclass
class Asked:
    """A read at a tick, and when it is applied."""

    tick: int
    wallet: str | None
    token: str
    conditional: bool
    batch: int


asks = st.builds(
    Asked,
    tick=st.integers(0, 7),
    wallet=st.sampled_from([*WALLETS, *WALLETS, *WALLETS, None]),
    token=st.sampled_from(TOKENS),
    conditional=st.sampled_from([True, True, False]),
    batch=st.integers(0, 9),
)


@cache
def template() -> Path:
    """An empty database, made once."""
    path = Path(tempfile.mkdtemp()) / "template.db"
    with Mirror(path) as mirror:
        mirror.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


class Model:
    """What the latest applied reads showed, worked out from the worlds alone."""

    def __init__(self, versions: list[World]) -> None:
        self.versions = versions
        self.wallet_tick: dict[str, int] = {}
        self.list_tick: dict[str, int] = {}
        self.detail_tick: dict[str, int] = {}
        self.world: dict[int, World] = {}

    def applied_wallet(self, wallet: str, sequence: int, world: World) -> None:
        self.world[sequence] = world
        self.wallet_tick[wallet] = sequence
        for token in world.held.get(wallet, {}):
            self.list_tick[token] = max(self.list_tick.get(token, 0), sequence)

    def applied_token(self, token: str, sequence: int, world: World) -> None:
        self.world[sequence] = world
        self.detail_tick[token] = sequence

    def balances(self) -> dict[tuple[str, str], str]:
        return {
            (wallet, token): amount
            for wallet, sequence in self.wallet_tick.items()
            for token, amount in self.world[sequence].held.get(wallet, {}).items()
        }

    def contents(self) -> dict[str, Content]:
        found = {}
        for token in {*self.list_tick, *self.detail_tick}:
            listed, detailed = self.list_tick.get(token, 0), self.detail_tick.get(token, 0)
            in_list = self.world[listed].listed(token) if listed else content(None)
            in_detail = self.world[detailed].detailed(token) if detailed else content(None)
            newer, older = (in_list, in_detail) if listed > detailed else (in_detail, in_list)
            found[token] = tuple(
                new if new is not None else old for new, old in zip(newer, older, strict=True)
            )
        return found


def make_read(
    mirror: Mirror, asked: Asked, sequence: int, world: World, known: dict[str, str | None]
) -> WalletRead | TokenRead:
    asked_at = {"sequence": sequence, "started_at": f"2026-01-01T00:00:00.{sequence:06}Z"}
    if asked.wallet is None:
        return TokenRead(
            token_id=asked.token, outcome="ok", content=world.detailed(asked.token), **asked_at
        )
    digest = world.digest(asked.wallet)
    if asked.conditional and known.get(asked.wallet) == digest:
        return WalletRead(wallet_id=asked.wallet, outcome="unchanged", digest=digest, **asked_at)
    entries = [
        (token, amount, world.listed(token))
        for token, amount in world.held.get(asked.wallet, {}).items()
    ]
    return WalletRead(
        wallet_id=asked.wallet, outcome="ok", entries=entries, digest=digest, **asked_at
    )


def check(mirror: Mirror, model: Model) -> None:
    assert mirrored(mirror.path) == replayed(mirror.path) == model.balances()
    changes = mirror.connection.execute(
        "SELECT observed_at, old_amount IS NOT new_amount FROM balance_changes ORDER BY change_id"
    ).fetchall()
    assert changes == sorted(changes)
    assert all(differs for _, differs in changes)
    columns = ", ".join(CONTENT_COLUMNS)
    stored = {
        token: tuple(values)
        for token, *values in mirror.connection.execute(f"SELECT token_id, {columns} FROM tokens")
    }
    assert stored == model.contents()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(worlds, min_size=8, max_size=8), st.lists(asks, min_size=1, max_size=24))
def test_the_read_that_started_later_wins_whatever_order_they_end_in(
    versions: list[World], asked: list[Asked]
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Mirror(Path(shutil.copy(template(), folder)), write_gap=0.0) as mirror,
    ):
        model = Model(versions)
        # Numbers grow with the ticks; conditional reads know what the mirror held when planned.
        ordered = sorted(enumerate(asked), key=lambda pair: (pair[1].tick, pair[0]))
        numbers = {index: n + 1 for n, (index, _) in enumerate(ordered)}
        batches: dict[int, list[tuple[int, Asked]]] = {}
        for index, ask in enumerate(asked):
            batches.setdefault(ask.batch, []).append((index, ask))
        for number in sorted(batches):
            known = dict(mirror.connection.execute("SELECT wallet_id, body_sha256 FROM wallets"))
            reads = {
                numbers[index]: (
                    make_read(mirror, ask, numbers[index], versions[ask.tick], known),
                    ask,
                )
                for index, ask in batches[number]
            }
            with mirror.transaction() as transaction:
                applied = transaction.apply([read for read, _ in reads.values()])
            for one in applied:
                read, ask = reads[one.read.sequence]
                if one.result == "stale":
                    continue  # all else, what was unchanged too, the mirror now says as it was read
                if isinstance(read, WalletRead):
                    model.applied_wallet(read.wallet_id, read.sequence, versions[ask.tick])
                else:
                    model.applied_token(read.token_id, read.sequence, versions[ask.tick])
            check(mirror, model)


def test_numbers_grow_in_all_processes_after_a_restart_too(tmp_path: Path) -> None:
    """Though the machine's clock begins anew then, or the file is on another machine."""
    database = tmp_path / "nftsync.db"
    with Mirror(database) as mirror:
        before = mirror.numbers.take()
        mirror.connection.execute(
            "UPDATE mirror_state SET greatest_ticket = ?, ticket_offset = ticket_offset - ?",
            (before, 10**15),
        )
    with Mirror(database) as one, Mirror(database) as other:
        taken = [each.numbers.take() for _ in range(20) for each in (one, other)]
    assert taken == sorted({before, *taken})[1:]
