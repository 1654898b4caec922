"""A random mix of edits, webhooks that go wrong, syncs, replays and kills ends in the truth."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import merge_routes
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay.config import ReplayConfig
from nftsync.replay.worker import replay_once
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.serve import ServeConfig, run_service
from nftsync.store.schema import open_store
from nftsync.times import now
from tests.kit.serve_process import SECRET, assert_settled, configure, query, serving, states
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored, replayed

ARRIVING = [None, "duplicate", "reorder", {"delay": 0.05}, "corrupt", "old_secret"]
FAULTS = st.lists(st.sampled_from(ARRIVING * 3 + ["drop"]), max_size=3)
SILENT = st.sampled_from([False] * 8 + [True])
#: As no transfer makes them; None: it is no longer listed.
AMOUNTS = st.sampled_from([None, "0", "0007", "1.5", "", str(2**256 - 1)])
NAMES = st.sampled_from(["a", "b", "\N{ROCKET}", "\u202eabc", "nul\x00nul", ""])
KILLS = 1


class TheMirrorEndsInTheTruth(RuleBasedStateMachine):
    """After a full sync, or once all webhooks of all edits came, the mirror is the provider."""

    @initialize(tokens=st.integers(0, 3), synced=st.booleans())
    def start(self, tokens: int, synced: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.database = self.folder / "nftsync.db"
        # Eight attempts take about two seconds; what then has not come is lost.
        self.provider = SandboxServer(
            lambda url: generate(wallets=3, nfts=tokens, seed=1, image_base=url), time_scale=2e-5
        )
        self.wallets = self.provider.world.wallets()
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        configure(self.provider, f"http://127.0.0.1:{self.port}/webhooks")
        self.stack = ExitStack()
        self.broken = threading.Event()
        self.follows = False
        self.kills = 0
        #: Webhooks that had been lost by the last full sync; None: there was none.
        self.made_good: set[str] | None = None
        self.edited_in_silence = False
        self.moments: list[tuple[str, dict[tuple[str, str], str], dict[Any, str]]] = []
        if synced:
            self.sync(tokens=False)
            self.restart(replays=True)

    # Edits -----------------------------------------------------------------------------------

    @rule(data=st.data(), faults=FAULTS, name=NAMES, silent=SILENT)
    def mint(self, data: st.DataObject, faults: list[Any], name: str, silent: bool) -> None:
        wallet = data.draw(st.sampled_from(self.wallets))
        self._editor(silent, faults).mint(wallet, 3, {"name": name})

    @rule(data=st.data(), faults=FAULTS, amount=st.integers(1, 3), silent=SILENT)
    def transfer(self, data: st.DataObject, faults: list[Any], amount: int, silent: bool) -> None:
        held = sorted(listed(self.provider.world))
        if not held:
            return
        giver, token = data.draw(st.sampled_from(held))
        taker = data.draw(st.sampled_from(self.wallets))
        try:
            self._editor(silent, faults).transfer(giver, taker, token, amount)
        except InputError:
            return  # it holds fewer

    @rule(data=st.data(), faults=FAULTS, name=NAMES, silent=SILENT)
    def rename(self, data: st.DataObject, faults: list[Any], name: str, silent: bool) -> None:
        held = sorted({token for _, token in listed(self.provider.world)})
        if held:
            token = data.draw(st.sampled_from(held))
            self._editor(silent, faults).edit_metadata(token, {"name": name})

    @rule(data=st.data(), amount=AMOUNTS, rarely=SILENT)
    def list_otherwise(self, data: st.DataObject, amount: str | None, rarely: bool) -> None:
        """Change what a wallet lists; nobody is told."""
        held = sorted(listed(self.provider.world))
        if held and rarely:
            wallet, token = data.draw(st.sampled_from(held))
            world = self._editor(silent=True, faults=[])
            if amount is None:
                world.remove(wallet, token)
            else:
                world.set_amount(wallet, token, amount)

    def _editor(self, silent: bool, faults: list[Any]) -> Any:
        if silent:
            self.edited_in_silence = True
            return self.provider.world
        self.provider.sandbox.script.extend(faults)
        return self.provider.sandbox

    # What reads ------------------------------------------------------------------------------

    @rule(replays=st.booleans())
    def restart(self, replays: bool) -> None:
        """Start the receiver anew, with or without a replay beside it."""
        self.stop()
        config = ServeConfig(
            database=self.database,
            secrets=[SECRET],
            port=self.port,
            replay=self._replay_config() if replays else None,
        )
        server = self.stack.enter_context(run_service(config, self.broken.set))
        self.stack.callback(server.failures.raise_first)
        self.follows = replays

    @rule()
    def stop(self) -> None:
        self.stack.close()
        self.follows = False

    @rule()
    def replay(self) -> None:
        result = replay_once(
            self.database, self._replay_config(), threading.Event(), progress=False
        )
        assert result.error is None
        assert result.failed == result.dead == result.unrouted == result.quarantined == 0

    @rule(data=st.data(), pause=st.floats(0, 0.1))
    @precondition(lambda self: self.kills < KILLS)
    def kill(self, data: st.DataObject, pause: float) -> None:
        """Receive and replay in a process, with work under way, and kill that."""
        self.stop()
        self.kills += 1
        with serving(self.folder, self.provider.url, port=self.port) as server:
            for _ in range(3):
                self.mint(data, [], "killed", silent=False)
            time.sleep(pause)
            server.kill()
        with closing(open_store(self.database)) as connection:  # as if 20 s had passed
            connection.execute("UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'")

    @rule(tokens=st.booleans())
    def sync(self, tokens: bool) -> None:
        lost = self._lost()
        result = nftsync.sync(
            self.wallets,
            base_url=self.provider.url,
            database=self.database,
            tokens=tokens,
            concurrency=3,
            progress=False,
        )
        assert result.status == "ok"
        self.made_good, self.edited_in_silence = lost, False
        self._note_that_it_is_the_truth()

    @rule()
    def settle(self) -> None:
        """Once all webhooks came and were worked off, the mirror is right without a sync."""
        if not self.follows:
            self.restart(replays=True)
        for _ in range(20):
            self.provider.sandbox.emit("nft", "Wallet", self.wallets[0], "update")
            if self._all_came(0.2):
                break
        wait_until(lambda: self._all_came(0))
        wait_until(lambda: set(states(self.database).values()) <= {"done"})
        missed = self.made_good is None or self.edited_in_silence or self._lost() - self.made_good
        if not missed:
            self._note_that_it_is_the_truth()

    def _all_came(self, within: float) -> bool:
        until = time.monotonic() + within
        while any(x["state"] == "pending" for x in self.provider.sandbox.deliveries()):
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def _lost(self) -> set[str]:
        found = self.provider.sandbox.deliveries()
        return {str(x["id"]) for x in found if x["state"] in {"dropped", "failed"}}

    def _replay_config(self) -> ReplayConfig:
        client = ClientConfig(base_url=self.provider.url)
        access = access_to(client, at_once=4)

        def run_sync(stopped: threading.Event) -> SyncResult:
            return sync_wallets(
                self.database, client, SyncRequest(), access=access, stopped=stopped
            )

        return ReplayConfig(
            client=client, access=access, routes=merge_routes({}), run_sync=run_sync
        )

    def _note_that_it_is_the_truth(self) -> None:
        world = listed(self.provider.world)
        assert mirrored(self.database) == replayed(self.database) == world
        self.moments.append((now(), world, self._names()))
        time.sleep(0.000_01)

    def _names(self, as_of: str | None = None) -> dict[Any, str]:
        held = frames.holdings(self.database, as_of=as_of)
        keys = zip(held["wallet_id"], held["token_id"], strict=True)
        return {key: str(name) for key, name in zip(keys, held["name"], strict=True)}

    # The end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "provider"):
            return
        try:
            self._end()
        finally:
            self.stack.close()
            self.provider.close()
            shutil.rmtree(self.folder)

    def _end(self) -> None:
        self.settle()
        self.stop()
        assert not self.broken.is_set()
        self.sync(tokens=False)
        changes = query(self.database, "SELECT count(*) FROM balance_changes")
        self.replay()
        assert set(states(self.database).values()) <= {"done"}
        assert query(self.database, "SELECT count(*) FROM balance_changes") == changes
        assert mirrored(self.database) == listed(self.provider.world)
        assert_settled(self.database)
        for moment, world, names in self.moments:
            then = frames.holdings(self.database, as_of=moment)
            keys = zip(then["wallet_id"], then["token_id"], strict=True)
            assert dict(zip(keys, then["amount_text"], strict=True)) == world
            assert self._names(moment) == names


TestTheMirrorEndsInTheTruth = TheMirrorEndsInTheTruth.TestCase
TestTheMirrorEndsInTheTruth.settings = settings(
    max_examples=4,
    stateful_step_count=16,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
