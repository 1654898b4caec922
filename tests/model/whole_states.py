"""States that a reader may get for a past time: those after commits that left nothing half stored.

Nothing here reads the spans that the package stores: that a sync has not stored all its changes is
told by its row, and that removals of a replay wait by its removal guard.
"""

from __future__ import annotations

import random
import sqlite3
import warnings
from typing import NamedTuple

from nftsync import frames
from nftsync.errors import NftsyncWarning
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.times import now
from tests.model import simulated

State = dict[tuple[str, str], str]


class Guard(RemovalGuard):
    """A replay's guard that can be asked whether removals wait, also of a killed process."""

    def __init__(self, limits: object) -> None:
        super().__init__(limits)  # type: ignore[arg-type]
        self.run_id = 0
        self.process = simulated.MACHINE.current.process  # type: ignore[union-attr]
        self.waits = False  # as of the last commit
        simulated.MACHINE.guards.append(self)

    def apply(self, transaction: object, run_id: int, reads: object) -> list[object]:  # type: ignore[override]
        self.run_id = run_id
        return super().apply(transaction, run_id, reads)  # type: ignore[arg-type,return-value]


class Commit(NamedTuple):
    """The time of the last stored change, and the state, if it is whole."""

    at: str
    state: State | None


_OBSERVED = """
    SELECT max(at) FROM (SELECT max(observed_at) AS at FROM balance_change_rows UNION ALL
        SELECT max(observed_at) FROM token_change_rows UNION ALL
        SELECT max(observed_at) FROM wallet_state_rows)
"""
_SYNCS = """
    SELECT run_id, status IN ('ok', 'partial'), status = 'failed' AND error IS NULL, reads_all,
        first_sequence,
        tokens_added + tokens_changed + balances_added + balances_changed + balances_removed
    FROM sync_runs WHERE kind = 'sync'
"""


class WholeStates:
    """The whole states so far, and the comparison with `as_of`."""

    def __init__(self, connection: sqlite3.Connection, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self._commits: list[Commit] = []
        self._last_at = ""
        self._ended: set[int] = set()
        self.compared = self.within_runs = 0

    def note(self, process: simulated.Process, state: State) -> None:
        """Take in the state after a commit of a process."""
        for guard in simulated.MACHINE.guards:
            guard.waits = bool(guard) if guard.process is process else guard.waits
        at = self._connection.execute(_OBSERVED).fetchone()[0]
        is_partial = self._is_partial()
        if at is None:
            return
        self._last_at = at
        if is_partial and self._commits[-1:] == [Commit(at, state)]:
            at = max(at, now())  # removals wait from now on; what was stored before is whole
        self._commits.append(Commit(at, None if is_partial else state))

    def _is_partial(self) -> bool:
        query = self._connection.execute
        running = query("SELECT run_id FROM sync_runs WHERE status = 'running'").fetchall()
        waiting = {(guard.run_id,) for guard in simulated.MACHINE.guards if guard.waits}
        syncs = query(_SYNCS).fetchall()
        reads = query(
            "SELECT sequence FROM wallets WHERE tracked AND status IN ('ok', 'incomplete')"
        ).fetchall()
        oldest = min((row[0] for row in reads), default=0)
        for run_id, is_good, has_failed, reads_all, *_ in syncs:
            if run_id in self._ended or not (is_good or has_failed):
                continue
            self._ended.add(run_id)
            if is_good:  # it makes up for those before it that were cut off
                self._ended |= {
                    each[0]
                    for each in syncs
                    if each[0] < run_id and (reads_all or oldest >= each[4])
                }
        cut_off = any(changed and run_id not in self._ended for run_id, *_, changed in syncs)
        return cut_off or not waiting.isdisjoint(running)

    def compare(self) -> None:
        """Ask for a random time, mostly of late."""
        if not self._commits:
            return
        place = len(self._commits) - 1 - int(self._rng.expovariate(0.1))
        at = min(self._commits[max(0, place)].at, self._last_at)
        whole = [
            commit.state
            for commit, later in zip(self._commits, [*self._commits[1:], None], strict=True)
            if commit.at <= at
            and commit.state is not None
            and (later is None or later.at > commit.at)
        ]
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", NftsyncWarning)
            frame = frames.holdings(self._connection, as_of=at, hidden=True)
        found = dict(
            zip(
                zip(frame["wallet_id"], frame["token_id"], strict=True),
                frame["amount_text"],
                strict=True,
            )
        )
        expected = whole[-1] if whole else {}
        within = any(" is within " in str(note.message) for note in notes)
        if found != expected or within != (frame.attrs["as_of"] < at):
            raise AssertionError(f"as of {at}: {found}, and the last whole state is {expected}")
        self.compared += 1
        self.within_runs += within
