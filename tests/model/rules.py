"""The guarantees for readers, checked after each commit."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.model.provider_world import World
from tests.model.simulated import Machine, Process
from tests.model.whole_states import WholeStates

_SETTLED = {"done", "failed", "dead", "unrouted", "quarantined"}
#: The next states of a webhook; only the owner of a lease may set them.
_NEXT = {
    "pending": {"running", "quarantined"},
    "failed": {"running", "pending", "quarantined"},
    "running": {*_SETTLED, "pending"},
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


class Rules:
    """The state after the last commit, and the rules for the next."""

    def __init__(self, database: Path, machine: Machine, world: World) -> None:
        self._database = database
        self._connection = sqlite3.connect(database, isolation_level=None)
        self._machine = machine
        self._world = world
        self._change_id = 0
        self._last: dict[str, tuple[int, str]] = {}
        self._observed_at = ""
        self._lines: dict[str, dict[str, str]] = {}
        self._sequences: dict[str, int] = {}
        self._webhooks: dict[str, Any] = {}
        self._numbers: dict[
            str, tuple[float, int]
        ] = {}  # of webhooks: reads from here on began after it came
        self._leases: set[int] = set()
        self._owners: dict[int, Process] = {}
        self.commits = self.commits_while_held = 0
        self.states = WholeStates(self._connection, random.Random(machine.rng.random()))

    def close(self) -> None:
        self._connection.close()

    def check(self, process: Process) -> None:
        """Check a commit of a process."""
        self.commits += 1
        query = self._connection.execute
        query("BEGIN")
        try:
            before = {wallet: dict(lines) for wallet, lines in self._lines.items()}
            removed = self._replay()
            self._times()
            self._wallets(before, removed, accepting=process.name == "accept")
            self._leases_and_webhooks(process)
            self.states.note(
                process,
                {
                    (wallet, token): x
                    for wallet in self._lines
                    for token, x in self._lines[wallet].items()
                },
            )
            if self.commits % 20 == 0:
                self.states.compare()
        finally:
            query("COMMIT")

    # The mirror ----------------------------------------------------------------------------------

    def _replay(self) -> dict[str, set[str]]:
        """Check that `balance_changes` result in `balances`; return the removals."""
        rows = self._connection.execute(
            "SELECT change_id, wallet_id, token_id, old_amount, new_amount, observed_at"
            " FROM balance_changes WHERE change_id > ? ORDER BY change_id",
            (self._change_id,),
        )
        removed: dict[str, set[str]] = {}
        for number, wallet, token, old, new, observed_at in rows:
            lines = self._lines.setdefault(wallet, {})
            hold(lines.get(token) == old, f"change {number} says {old} was held: {lines}")
            hold(old != new, f"change {number} changes nothing")
            hold(observed_at >= self._observed_at, f"change {number} is from before the last one")
            self._observed_at, self._change_id = observed_at, number
            if new is None:
                del lines[token]
                removed.setdefault(wallet, set()).add(token)
            else:
                lines[token] = new
        rows = self._connection.execute("SELECT wallet_id, token_id, amount FROM balances")
        found: dict[str, dict[str, str]] = {}
        for wallet, token, amount in rows:
            found.setdefault(wallet, {})[token] = amount
        held = {wallet: lines for wallet, lines in self._lines.items() if lines}
        hold(found == held, f"balances are {found}, and changes come to {held}")
        return removed

    def _times(self) -> None:
        """Check that `observed_at` never decreases."""
        for table, key in (("token_change_rows", "change_id"), ("wallet_state_rows", "state_id")):
            number, last = self._last.get(table, (0, ""))
            rows = self._connection.execute(
                f"SELECT {key}, observed_at FROM {table} WHERE {key} > ? ORDER BY {key}", (number,)
            )
            for number, observed_at in rows:
                hold(observed_at >= last, f"{table} {number} is from before the last one")
                last = observed_at
                self._last[table] = number, last

    def _wallets(
        self, before: dict[str, dict[str, str]], removed: dict[str, set[str]], *, accepting: bool
    ) -> None:
        """Check that a wallet equals the applied read that started last, completely.

        A wallet with held removals is incomplete after a complete answer, and equals the answer
        after approval.
        """
        rows = self._connection.execute(
            "SELECT wallet_id, sequence, status, body_sha256, etag FROM wallets"
        )
        held_back = set()
        for wallet, is_there in self._connection.execute(
            "SELECT w.wallet_id, b.amount IS NOT NULL FROM removal_rows r JOIN wallets w USING"
            " (wallet_no) LEFT JOIN balance_rows b USING (wallet_no, token_no) WHERE r.held"
        ).fetchall():
            hold(is_there, f"wallet {wallet} lacks a held removal")
            held_back.add(wallet)
        self.commits_while_held += bool(held_back)
        for wallet, sequence, status, digest, etag in rows:
            was = self._sequences.get(wallet, 0)
            lines, old = self._lines.get(wallet, {}), before.get(wallet, {})
            hold(sequence >= was, f"an older read was applied to wallet {wallet}")
            hold(digest is not None or etag is None, f"an ETag of nothing, wallet {wallet}")
            self._sequences[wallet] = sequence
            if sequence == was:
                hold(lines == old, f"wallet {wallet} changed without a read")
                continue
            if accepting and (answer := self._world.answers.get((wallet, was))):
                hold(
                    is_as(lines, answer.lines) or not answer.is_complete,
                    f"wallet {wallet}: {lines} after approval, read {answer}",
                )
                self._world.answers[wallet, sequence] = answer._replace(is_complete=False)
                continue
            answer = self._world.answers.get((wallet, sequence))
            hold(answer is not None, f"no read was answered like wallet {wallet}")
            assert answer is not None
            if answer.is_complete and status != "incomplete":
                hold(lines == answer.lines, f"wallet {wallet}: {lines}, read {answer}, had {old}")
                continue
            shown = answer.lines.items()
            hold(
                not answer.is_complete or wallet in held_back,
                f"wallet {wallet} is incomplete after {answer}",
            )
            later = [
                each.is_complete
                for (of, number), each in self._world.answers.items()
                if of == wallet and was < number < sequence
            ]
            hold(
                wallet not in removed or any(later),
                f"an incomplete read of wallet {wallet} removed {removed}",
            )
            kept = old if wallet in held_back else {}  # for it, an amount may have fallen
            hold(
                all(lines.get(each) in {amount, kept.get(each, amount)} for each, amount in shown),
                f"wallet {wallet} lacks {answer}",
            )

    def check_end(self) -> None:
        """Check that the mirror equals the provider, and is consistent."""
        query = self._connection.execute
        found = query("SELECT wallet_id, token_id, amount FROM balances").fetchall()
        held = [(w, t, a) for w, lines in self._world.held.items() for t, a in lines.items()]
        hold(sorted(found) == sorted(held), f"the mirror has {found}, the provider {held}")
        names = dict(query("SELECT token_id, name FROM tokens").fetchall())
        shown = {token for lines in self._world.held.values() for token in lines}
        hold(
            all(names[each] == self._world.names[each] for each in shown),
            f"names are {names}, and should be {self._world.names}",
        )
        for rule in check_rules(self._database, now()):
            hold(not rule.broken, f"{rule}")

    # The inbox -----------------------------------------------------------------------------------

    def _leases_and_webhooks(self, process: Process) -> None:
        query = self._connection.execute
        leases = {row[0] for row in query("SELECT lease_no FROM leases")}
        for lease in leases - self._leases:
            hold(lease > max(self._owners, default=0), "the number of a lease was given twice")
            self._owners[lease] = process
        rows = query(
            "SELECT webhook_id, state, lease_no, attempts, deliveries, resource_type, resource_id,"
            " finished_at, next_attempt_at FROM webhooks"
        ).fetchall()
        found = {row[0]: row for row in rows}
        hold(self._webhooks.keys() <= found.keys(), "a webhook has vanished")
        missing = self._world.acknowledged.keys() - found.keys()
        hold(not missing, f"acknowledged, and not there: {missing}")
        working: dict[tuple[str, str], set[int]] = {}
        for name, row in found.items():
            if row[1] == "running":
                working.setdefault(row[5:7], set()).add(row[2])
            if row != self._webhooks.get(name):
                self._webhook(process, self._webhooks.get(name), row)
        for key, held in working.items():
            hold(len(held) == 1, f"two leases at work on {key}: {held}")
        self._webhooks, self._leases = found, leases

    def _webhook(self, process: Process, before: Any, row: Any) -> None:
        name, state, lease, attempts, deliveries, _, _, finished, due = row
        waits = state in {"pending", "failed", "running"}
        hold((finished is None) == waits and (due is not None) == waits, f"{row}: when?")
        hold((lease is not None) == (state == "running"), f"{row}: whose?")
        answered = self._world.acknowledged[name]
        hold(deliveries >= answered, f"{row}: answered {answered} times")
        if before is None:
            hold(state == "pending" and attempts == 0 and deliveries >= 1, f"{row} came so")
            self._numbers[name] = self._machine.boots, self._number()
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
            released = state == "pending" and not self._is_live(before[2])
            hold(owner or released, f"{name} was settled by one whose lease is gone: {row}")
        if state == "done":
            self._was_read(row)

    def _is_live(self, lease: int) -> bool:
        query = "SELECT 1 FROM leases WHERE lease_no = ?"
        return self._connection.execute(query, (lease,)).fetchone() is not None

    def _was_read(self, row: Any) -> None:
        """Check that a webhook is done only after a later read of its object."""
        query = {
            "Wallet": "SELECT sequence FROM wallets WHERE wallet_id = ?",
            "Token": "SELECT s.detail_sequence FROM token_sources s JOIN tokens USING (token_no)"
            " WHERE token_id = ?",
        }.get(row[5])
        boot, number = self._numbers[row[0]]
        if boot != self._machine.boots:
            return  # reads before and after it have nothing to do with each other
        if query is not None:
            read = self._connection.execute(query, (row[6],)).fetchone()
            hold(
                read is not None and read[0] > number,
                f"{row} is done, and the last read of it ({read}) began before it came ({number})",
            )
        if row[5] == "Wallet":
            told = (
                each.is_complete
                for (of, began), each in self._world.answers.items()
                if of == row[6] and began > number
            )
            hold(any(told), f"{row} is done, and no read of it was complete")

    def _number(self) -> int:
        """Return the next number of a read."""
        (offset,) = self._connection.execute("SELECT sequence_offset FROM mirror_state").fetchone()
        return int((self._machine.now - self._machine.boots) * 1e9) + int(offset)
