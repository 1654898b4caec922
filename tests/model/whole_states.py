"""States that a reader may get for a past time: those after commits without partial changes.

This module does not read the stored spans: a sync's row shows that its changes are incomplete, and
the removal guard of a replay shows that removals wait.
"""

from __future__ import annotations

import random
import sqlite3
import warnings
from datetime import timedelta
from typing import Any, NamedTuple

from nftsync import frames
from nftsync.errors import NftsyncWarning
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Read, Removals
from nftsync.store import history
from nftsync.times import shifted
from tests.model import simulated

State = dict[tuple[str, str], str]


class Waiting(WaitingReads):
    """Waiting reads of a replay, which can be inspected after its process is killed.

    Reads that are dropped because the process stops wait until the run has ended.
    """

    def __init__(self, limits: RemovalLimits | None) -> None:
        super().__init__(limits)
        self.run_id = 0
        self.process = simulated.MACHINE.current.process
        self.will_wait = self.waits = False  # after the next commit, and as of the last one
        simulated.MACHINE.guards.append(self)

    def add(self, read: Read, removals: Removals) -> None:
        super().add(read, removals)
        self.will_wait = True

    def take(self, entries: int) -> list[tuple[Read, Removals]]:
        taken = super().take(entries)
        self.will_wait = bool(self)
        return taken


def begin_span(connection: sqlite3.Connection, run_id: int, at: str, *, changed: bool) -> None:
    """Note the run whose reads wait."""
    process = simulated.MACHINE.current.process
    [x for x in simulated.MACHINE.guards if x.process is process][-1].run_id = run_id
    history.begin_span(connection, run_id, at, changed=changed)


class Commit(NamedTuple):
    """The visible state after a commit.

    Attributes:
        at: the time of the last stored change.
        numbers: of the last row of each log; commits with equal numbers stored no other change.
        state: the balances.
        partial: the runs that had stored only some of their changes. A run that ends without
            another change had stored all of them before.
    """

    at: str
    numbers: tuple[int, ...]
    state: State
    partial: set[int]


_OBSERVED = """
    SELECT max(at), max(change), max(token_change), max(state) FROM (
        SELECT max(observed_at) AS at, max(change_id) AS change, 0 AS token_change, 0 AS state
        FROM balance_change_rows
        UNION ALL SELECT max(observed_at), 0, max(change_id), 0 FROM token_change_rows
        UNION ALL SELECT max(observed_at), 0, 0, max(state_id) FROM wallet_state_rows)
"""
_RUNNING = "SELECT run_id FROM sync_runs WHERE status = 'running'"
_SYNCS = """
    SELECT run_id, status IN ('ok', 'partial'), status = 'failed' AND error IS NULL, reads_all,
        first_sequence,
        tokens_added + tokens_changed + balances_added + balances_changed + balances_removed
    FROM sync_runs WHERE kind = 'sync'
"""
_OLDEST = """
    SELECT coalesce(min(sequence), 0) FROM wallets
    WHERE tracked AND status IN ('ok', 'incomplete')
"""


class WholeStates:
    """The whole states so far, and the comparison with `as_of`."""

    def __init__(self, connection: sqlite3.Connection, rng: random.Random) -> None:
        self._connection = connection
        self._rng = rng
        self._commits: list[Commit] = []
        self._ended: set[int] = set()
        self._whole: dict[int, int] = {}  # how many changes of each sync are in whole states
        self.compared = self.within_runs = 0

    def note(self, process: simulated.Process, state: State) -> None:
        """Note the state after a commit of a process."""
        for guard in simulated.MACHINE.guards:
            guard.waits = guard.will_wait if guard.process is process else guard.waits
        ((at, *numbers),) = self._query(_OBSERVED)
        partial = self._partial()
        if at is None:
            return
        self._commits.append(Commit(at, tuple(numbers), state, partial))
        ended = {run for commit in self._commits[-2:] for run in commit.partial} - partial
        for commit in reversed(self._commits):
            if commit.numbers != self._commits[-1].numbers:
                break
            commit.partial.difference_update(ended)

    def _query(self, text: str) -> list[Any]:
        return self._connection.execute(text).fetchall()

    def _partial(self) -> set[int]:
        running = {run_id for (run_id,) in self._query(_RUNNING)}
        for guard in simulated.MACHINE.guards:
            if guard.waits and guard.run_id not in running:
                guard.waits = guard.will_wait = False
        waiting = {guard.run_id for guard in simulated.MACHINE.guards if guard.waits}
        syncs = self._query(_SYNCS)
        ((oldest,),) = self._query(_OLDEST)
        for run_id, is_good, has_failed, reads_all, *_ in syncs:
            if not (is_good or has_failed):
                self._ended.discard(run_id)  # it may have been resumed
            elif run_id not in self._ended:
                self._ended.add(run_id)
                self._whole |= {
                    each: changes
                    for each, *_, first, changes in syncs
                    if each == run_id  # a good one makes up for those before it that were cut off
                    or (is_good and each < run_id and (reads_all or oldest >= first))
                }
        syncing = {each for each, *_, changes in syncs if changes > self._whole.get(each, 0)}
        return syncing | waiting

    def compare(self) -> None:
        """Compare a random time, mostly a recent one."""
        if not self._commits:
            return
        place = len(self._commits) - 1 - int(self._rng.expovariate(0.1))
        later = timedelta(microseconds=self._rng.choice([0, 1]))
        at = min(shifted(self._commits[max(0, place)].at, later), self._commits[-1].at)
        last_of = {each.at: each.numbers for each in self._commits if each.at <= at}
        whole = [
            each.state
            for each in self._commits
            if last_of.get(each.at) == each.numbers and not each.partial
        ]
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", NftsyncWarning)
            frame = frames.holdings(self._connection, as_of=at, hidden=True)
        rows = frame[["wallet_id", "token_id", "amount_text"]].itertuples(index=False)
        found = {(wallet, token): amount for wallet, token, amount in rows}
        expected = whole[-1] if whole else {}
        within = any(" is within " in str(note.message) for note in notes)
        if found != expected or within != (frame.attrs["as_of"] < at):
            raise AssertionError(f"as of {at}: {found}, and the last whole state is {expected}")
        self.compared += 1
        self.within_runs += within
