"""Random worlds, random edits, real syncs: the mirror follows, and its history replays."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.times import now
from tests.kit.worlds import listed, mirrored, replayed

AMOUNTS = st.sampled_from(["0", "1", "2", "0007", "1.5", "", str(2**256 - 1)])
NAMES = st.sampled_from(["a", "b", "\N{ROCKET}", "\u202eabc", "nul\x00nul", ""])


class MirrorFollowsTheProvider(RuleBasedStateMachine):
    """After each sync `balances` is the world; `as_of` is the world as it was then."""

    @initialize(wallets=st.integers(1, 4))
    def start(self, wallets: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.database = self.folder / "nftsync.db"
        self.world = World(seed=1)
        self.server = SandboxServer(self.world)
        self.wallets = [self.world.add_wallet() for _ in range(wallets)]
        self.tokens: list[str] = []
        self.moments: list[tuple[str, dict[tuple[str, str], str], dict[str, Any]]] = []

    @rule(data=st.data(), amount=st.integers(1, 2**256 - 1), name=NAMES)
    def mint(self, data: st.DataObject, amount: int, name: str) -> None:
        wallet = data.draw(st.sampled_from(self.wallets))
        self.tokens.append(self.world.mint(wallet, amount, {"name": name}))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), amount=AMOUNTS)
    def set_amount(self, data: st.DataObject, amount: str) -> None:
        wallet = data.draw(st.sampled_from(self.wallets))
        self.world.set_amount(wallet, data.draw(st.sampled_from(self.tokens)), amount)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def transfer(self, data: st.DataObject) -> None:
        giver, taker = (data.draw(st.sampled_from(self.wallets)) for _ in range(2))
        token = data.draw(st.sampled_from(self.tokens))
        try:
            self.world.transfer(giver, taker, token, 1)
        except InputError:
            return  # it holds none, or no whole number of them

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        wallet = data.draw(st.sampled_from(self.wallets))
        try:
            self.world.remove(wallet, data.draw(st.sampled_from(self.tokens)))
        except InputError:
            return  # it was not listed

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), name=NAMES)
    def rename(self, data: st.DataObject, name: str) -> None:
        self.world.edit_metadata(data.draw(st.sampled_from(self.tokens)), {"name": name})

    @rule(tokens=st.booleans())
    def sync(self, tokens: bool) -> None:
        before = replayed(self.database) if self.database.exists() else {}
        result = nftsync.sync(
            self.wallets,
            base_url=self.server.url,
            database=self.database,
            tokens=tokens,
            concurrency=3,
            progress=False,
        )
        assert result.status == "ok"
        assert result.wallets.total == result.wallets.ok == len(self.wallets)
        world = listed(self.world)
        assert mirrored(self.database) == replayed(self.database) == world
        assert result.balances.added == len(world.keys() - before.keys())
        assert result.balances.removed == len(before.keys() - world.keys())
        names = frames.holdings(self.database).set_index(["wallet_id", "token_id"])["name"]
        self.moments.append((now(), world, dict(names.items())))
        time.sleep(0.000_01)

    @invariant()
    def history_is_kept(self) -> None:
        for moment, world, names in getattr(self, "moments", [])[-2:]:
            then = frames.holdings(self.database, as_of=moment)
            keys = list(zip(then["wallet_id"], then["token_id"], strict=True))
            assert dict(zip(keys, then["amount_text"], strict=True)) == world
            shown = dict(zip(keys, then["name"], strict=True))
            assert {k: str(v) for k, v in shown.items()} == {k: str(v) for k, v in names.items()}

    def teardown(self) -> None:
        if hasattr(self, "server"):
            for moment, world, _ in self.moments:
                then = frames.holdings(self.database, as_of=moment)
                keys = zip(then["wallet_id"], then["token_id"], strict=True)
                assert dict(zip(keys, then["amount_text"], strict=True)) == world
            self.server.close()
            shutil.rmtree(self.folder)


TestMirrorFollowsTheProvider = MirrorFollowsTheProvider.TestCase
TestMirrorFollowsTheProvider.settings = settings(
    max_examples=6,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
