"""The guarantees for readers, checked after each commit."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit.worlds import mirrored
from tests.model.provider_world import World
from tests.model.simulated import Machine, Process
from tests.model.whole_states import State, WholeStates

_SETTLED = {"done", "failed", "dead", "unrouted", "quarantined"}
#: The next states of a webhook; only the owner of a lease may set them.
_NEXT = {
    "pending": {"running", "quarantined"},
    "failed": {"running", "pending", "quarantined"},
    "running": {*_SETTLED, "pending"},
}
_LOGS = {
    "balance_change_rows": "change_id",
    "token_change_rows": "change_id",
    "wallet_state_rows": "state_id",
}


class Broken(AssertionError):
    """A rule is broken."""


def hold(condition: object, rule: str) -> None:
    if not condition:
        raise Broken(rule)


def is_as(lines: dict[str, str], told: dict[str, str]) -> bool:
    """Return whether balances equal an answer after approval.

    An unlisted `0` is not a removal: the next read drops it.
    """
    return lines == dict.fromkeys((each for each in lines if lines[each] == "0"), "0") | told


def lines_of(state: State, wallet: str) -> dict[str, str]:
    return {token: amount for (of, token), amount in state.items() if of == wallet}


class Rules:
    """The state after the last commit, and the rules for the next."""

    def __init__(self, database: Path, machine: Machine, world: World) -> None:
        self._database = database
        self._connection = sqlite3.connect(database, isolation_level=None)
        self.query, self.close = self._connection.execute, self._connection.close
        self._machine = machine
        self._world = world
        self._state: State = {}
        self._change_id = 0
        self._sequences: dict[str, int] = {}
        self._webhooks: dict[str, Any] = {}
        #: The boot before each webhook came, and the next number of a read.
        self._numbers: dict[str, tuple[float, int]] = {}
        self._leases: set[int] = set()
        self._owners: dict[int, Process] = {}
        self.commits = self.commits_while_held = 0
        self.states = WholeStates(self._connection, random.Random(machine.rng.random()))

    def check(self, process: Process) -> None:
        """Check a commit of a process."""
        self.commits += 1
        rows = self.query("SELECT wallet_id, token_id, amount FROM balances")
        state = {row[:2]: row[2] for row in rows.fetchall()}
        self._replay(state)
        for table, key in _LOGS.items():
            times = self.query(f"SELECT observed_at FROM {table} ORDER BY {key}").fetchall()
            hold(times == sorted(times), f"{table} has times that decrease")
        self._check_wallets(state, accepting=process.name == "accept")
        self._check_queue(process)
        self._state = state
        self.states.note(process, state)
        if self.commits % 20 == 0:
            self.states.compare()

    def _replay(self, state: State) -> None:
        """Check that the new changes result in the balances."""
        replayed = dict(self._state)
        rows = self.query(
            "SELECT wallet_id, token_id, old_amount, new_amount, change_id FROM balance_changes"
            " WHERE change_id > ? ORDER BY change_id",
            (self._change_id,),
        )
        for *key, old, new, self._change_id in rows.fetchall():
            hold(replayed.pop(tuple(key), None) == old != new, f"{key} changed from {old} to {new}")
            if new is not None:
                replayed[tuple(key)] = new
        hold(state == replayed, f"balances are {state}, and changes result in {replayed}")

    def _check_wallets(self, state: State, *, accepting: bool) -> None:
        """Check that a wallet equals the applied read that started last, completely.

        A wallet with held removals is incomplete after a complete answer, and equals the answer
        after approval.
        """
        held_back = dict(
            self.query(
                "SELECT w.wallet_id, min(b.amount IS NOT NULL) FROM removal_rows r"
                " JOIN wallets w USING (wallet_no)"
                " LEFT JOIN balance_rows b USING (wallet_no, token_no) WHERE r.held GROUP BY 1"
            )
        )
        hold(all(held_back.values()), f"wallets lack held removals: {held_back}")
        self.commits_while_held += bool(held_back)
        answers = self._world.answers
        rows = self.query("SELECT wallet_id, sequence, status, body_sha256, etag FROM wallets")
        for wallet, sequence, status, digest, etag in rows.fetchall():
            was, self._sequences[wallet] = self._sequences.get(wallet, 0), sequence
            lines, old = lines_of(state, wallet), lines_of(self._state, wallet)
            hold(sequence >= was, f"an older read was applied to wallet {wallet}")
            hold(digest is not None or etag is None, f"an ETag of nothing, wallet {wallet}")
            if sequence == was:
                hold(lines == old, f"wallet {wallet} changed without a read")
                continue
            if accepting and (answer := answers.get((wallet, was))):
                approved = is_as(lines, answer.lines) or not answer.is_complete
                hold(approved, f"wallet {wallet}: {lines} after approval, read {answer}")
                answers[wallet, sequence] = answer._replace(is_complete=False)
                continue
            answer = answers.get((wallet, sequence))
            if answer is None:
                raise Broken(f"no read was answered like wallet {wallet}")
            if answer.is_complete and status != "incomplete":
                hold(lines == answer.lines, f"wallet {wallet}: {lines}, read {answer}, had {old}")
                continue
            excused = not answer.is_complete or wallet in held_back
            hold(excused, f"wallet {wallet} is incomplete after {answer}")
            later = any(
                each.is_complete
                for (of, number), each in answers.items()
                if of == wallet and was < number < sequence
            )
            hold(later or old.keys() <= lines.keys(), f"an incomplete read removed of {old}")
            kept = old if wallet in held_back else {}  # for it, an amount may have fallen
            for token, amount in answer.lines.items():
                is_shown = lines.get(token) in {amount, kept.get(token, amount)}
                hold(is_shown, f"wallet {wallet}: {lines} lacks {answer}")

    def check_end(self) -> None:
        """Check that the mirror equals the provider, and is consistent."""
        held = {(w, t): a for w, lines in self._world.held.items() for t, a in lines.items()}
        found = mirrored(self._database)
        hold(found == held, f"the mirror has {found}, the provider {held}")
        names = dict(self.query("SELECT token_id, name FROM tokens").fetchall())
        shown = {token: self._world.names[token] for _, token in held}
        hold(shown.items() <= names.items(), f"names are {names}, and should be {shown}")
        for rule in check_rules(self._database, now()):
            hold(not rule.broken, f"{rule}")

    def _check_queue(self, process: Process) -> None:
        leases = {row[0] for row in self.query("SELECT lease_no FROM leases")}
        for lease in leases - self._leases:
            hold(lease > max(self._owners, default=0), "the number of a lease was given twice")
            self._owners[lease] = process
        rows = self.query(
            "SELECT webhook_id, state, lease_no, attempts, deliveries, resource_type, resource_id,"
            " finished_at, next_attempt_at FROM webhooks"
        ).fetchall()
        found = {row[0]: row for row in rows}
        missing = {*self._webhooks, *self._world.acknowledged} - found.keys()
        hold(not missing, f"acknowledged, and not there: {missing}")
        working: dict[tuple[str, str], set[int]] = {}
        for name, row in found.items():
            if row[1] == "running":
                working.setdefault(row[5:7], set()).add(row[2])
            if row != self._webhooks.get(name):
                self._check_webhook(process, leases, self._webhooks.get(name), row)
        for key, held in working.items():
            hold(len(held) == 1, f"two leases at work on {key}: {held}")
        self._webhooks, self._leases = found, leases

    def _check_webhook(self, process: Process, leases: set[int], before: Any, row: Any) -> None:
        name, state, lease, attempts, deliveries, _, _, finished, due = row
        waits = state in {"pending", "failed", "running"}
        hold((finished is None) == waits and (due is not None) == waits, f"{row}: when?")
        hold((lease is not None) == (state == "running"), f"{row}: whose?")
        answered = self._world.acknowledged[name]
        hold(deliveries >= answered, f"{row}: answered {answered} times")
        if before is None:
            hold(state == "pending" and attempts == 0 and deliveries >= 1, f"{row} came so")
            ((offset,),) = self.query("SELECT sequence_offset FROM mirror_state")
            number = int((self._machine.now - self._machine.boots) * 1e9) + int(offset)
            self._numbers[name] = self._machine.boots, number
            return
        hold(attempts - before[3] in {0, 1}, f"{row}: attempts before {before[3]}")
        if state == before[1]:
            hold(lease == before[2], f"{name} went from one lease to another: {before}, {row}")
            return
        hold(state in _NEXT.get(before[1], set()), f"{name} went from {before[1]} to {state}")
        if state == "running":
            hold(self._owners.get(lease) is process, f"{name}: claimed under another's lease")
        elif before[1] == "running":
            owner = self._owners[before[2]] is process and before[2] in self._leases
            released = state == "pending" and before[2] not in leases
            hold(owner or released, f"{name} was settled by one whose lease is gone: {row}")
        if state == "done":
            self._check_done(row)

    def _check_done(self, row: Any) -> None:
        """Check that a webhook is done only after a later read of its object."""
        name, kind, object_id = row[0], *row[5:7]
        boot, number = self._numbers[name]
        if boot != self._machine.boots:
            return  # reads before and after it have nothing to do with each other
        query = {
            "Wallet": "SELECT sequence FROM wallets WHERE wallet_id = ?",
            "Token": "SELECT s.detail_sequence FROM token_sources s JOIN tokens USING (token_no)"
            " WHERE token_id = ?",
        }.get(kind)
        if query is not None:
            read = self.query(query, (object_id,)).fetchone()
            is_later = read is not None and read[0] > number
            hold(is_later, f"{row} is done: its last read is {read}, and it came before {number}")
        if kind == "Wallet":
            answers = self._world.answers.items()
            told = (
                x.is_complete for (of, began), x in answers if of == object_id and began > number
            )
            hold(any(told), f"{row} is done, and no read of it was complete")
