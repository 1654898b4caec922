"""The breaks of `breaks.txt`: each replaces code that occurs once in the package.

A block has a description, the code (`-`), its replacement (`+`), and for a break that changes no
behavior the reason (`=`). White space and the place of the code do not count.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Break(NamedTuple):
    """A replacement of code."""

    what: str
    old: str
    new: str
    reason: str

    def apply(self) -> tuple[str, str]:
        """Return the file, from the root, and its broken text; LookupError unless there is one."""
        old, new = self.old.split(), self.new.split()
        start = min(_common(old, new), len(old) - 1)
        end = min(_common(old[:start:-1], new[start:][::-1]), len(new) - start)
        before, middle, after = old[:start], old[start : len(old) - end], old[len(old) - end :]
        patterns = [r"\s+".join(map(re.escape, part)) for part in (before, middle, after)]
        code = re.compile(r"\s+".join(filter(None, [patterns[0], f"({patterns[1]})", patterns[2]])))
        places = [(file, match) for file, text in _package() for match in code.finditer(text)]
        if len(places) != 1:
            raise LookupError(f"{self.what}: the code occurs {len(places)} times: {self.old}")
        file, match = places[0]
        text = match.string
        replacement = " ".join(new[start : len(new) - end])
        return file, text[: match.start(1)] + replacement + text[match.end(1) :]


<<<<<<< HEAD
_BALANCES = "nftsync/store/balances.py"
_TOKENS = "nftsync/store/tokens.py"
_REMOVALS = "nftsync/store/removals.py"
_DAY = "nftsync/store/day_report.py"
_MIRROR = "nftsync/store/mirror.py"
_RUNS = "nftsync/store/runs.py"
_LEASES = "nftsync/store/leases.py"
_INBOX = "nftsync/store/inbox.py"
_REQUEUE = "nftsync/store/requeue.py"
_WORKER = "nftsync/replay/worker.py"
_WORK = "nftsync/replay/jobs.py"
_COMMITTER = "nftsync/receiver/committer.py"
_RUN = "nftsync/pull/run.py"
_READS = "nftsync/pull/reads.py"
_RECORDS = "nftsync/records.py"
_GUARD = "nftsync/pull/guard.py"
_MOVEMENTS = "nftsync/movements.py"
_TRANSPORT = "nftsync/provider/transport.py"

BREAKS = [
    # The mirror: wallets
    Break(
        _BALANCES,
        "an older read of a wallet is applied",
        'if read.sequence <= wallet.sequence:\n            return Applied(read, "stale")',
        'if False:\n            return Applied(read, "stale")',
    ),
    Break(
        _BALANCES,
        "an incomplete read removes",
        'if read.outcome != "ok" or not missing:',
        "if not missing:",
    ),
    Break(_BALANCES, "the same amount is a change", "elif before[0] != amount:", "else:"),
    Break(_BALANCES, "held since the last change", "since = before[1] or at", "since = at"),
    Break(
        _BALANCES,
        "what came down to 0 is still held",
        "None if is_zero(amount) else since, at, no",
        "since, at, no",
    ),
    Break(_BALANCES, "nothing is baseline", "int(wallet.sequence == 0)", "0"),
    Break(
        _BALANCES,
        "a digest where a later read had the say",
        "wallet.digest = read.digest if agreed else None",
        "wallet.digest = read.digest",
    ),
    Break(
        _BALANCES,
        "an ETag where a later read had the say",
        "read.etag if ok and agreed else None",
        "read.etag if ok else None",
    ),
    Break(
        _BALANCES,
        "unchanged, whatever it was compared with",
        "                or wallet.digest != read.digest\n",
        "",
    ),
    Break(
        _BALANCES,
        "unchanged, however old",
        "read.sequence <= wallet.sequence\n                or wallet.digest is None",
        "wallet.digest is None",
    ),
    Break(
        _BALANCES,
        "digests are not looked up anew",
        "if self._tokens.stale:  # this batch",
        "if False:  # this batch",
    ),
    Break(
        _BALANCES,
        "other holders keep their digests",
        "body_sha256 = NULL WHERE sequence < ? AND wallet_no IN",
        "body_sha256 = NULL WHERE sequence < ? AND 0 AND wallet_no IN",
    ),
    Break(
        _BALANCES,
        "who let a token go no longer vouches",
        "self._tokens.confirmed.append((wallet.sequence, token_no))",
        "pass",
    ),
    Break(
        _BALANCES,
        "a state goes on though balances moved",
        "            and not moved\n",
        "",
    ),
    Break(
        _BALANCES,
        "a state goes on though a token changed",
        "all(token.changed_sequence <= wallet.sequence for token in listed)",
        "all(True for token in seen)",
    ),
    Break(
        _BALANCES,
        "the greatest number is not kept",
        "SET greatest_sequence = ?1 WHERE greatest_sequence < ?1",
        "SET greatest_sequence = ?1 WHERE greatest_sequence < ?1 AND 0",
    ),
    Break(
        _BALANCES,
        "an incomplete read leaves the digest",
        "            wallet.digest = None\n            if not applied",
        "            if not applied",
    ),
    Break(
        _BALANCES,
        "an incomplete read counts as complete",
        "read.started_at if ok else None",
        "read.started_at",
    ),
    # The mirror: tokens
    Break(
        _TOKENS,
        "the older of two sources wins",
        "if self.list_sequence > self.detail_sequence:",
        "if self.list_sequence < self.detail_sequence:",
    ),
    Break(
        _TOKENS,
        "an older read of a token is applied",
        "if sources is not None and read.sequence <= sources.detail_sequence:",
        "if sources is not None and False:",
    ),
    Break(
        _TOKENS,
        "an older list has its say",
        "if read.sequence < self._list_sequence(token):\n                return False\n"
        "            if not self._change",
        "if False:\n                return False\n            if not self._change",
    ),
    Break(
        _TOKENS,
        "an older list has its say of a token read by id",
        "if read.sequence < self._list_sequence(token):\n                return False\n"
        "            self._keep",
        "if False:\n                return False\n            self._keep",
    ),
    Break(
        _TOKENS,
        "a list without a record has a say",
        "sequence = 0 if detailed or content is _EMPTY else read.sequence",
        "sequence = read.sequence",
    ),
    Break(
        _TOKENS,
        "who confirmed a content is forgotten",
        "self.confirmed.append((read.sequence, token.no))",
        "pass",
    ),
    Break(
        _TOKENS,
        "a read by id leaves lists' digests",
        "if any(before.get(name) != after.get(name) for name in in_list):",
        "if False:",
    ),
    Break(
        _TOKENS,
        "a list that lost leaves others' digests",
        "if not agreed:\n                self.stale",
        "if False:\n                self.stale",
    ),
    Break(
        _TOKENS,
        "confirmed by whoever was applied last",
        "SET sequence = max(sequence, ?) WHERE",
        "SET sequence = ? WHERE",
    ),
    Break(
        _TOKENS,
        "holders do not vouch",
        "return max(token.sequence, row[0] or 0)",
        "return token.sequence",
    ),
    Break(
        _TOKENS,
        "search knows old names",
        "if token.no > done:",
        "if True:",
    ),
    # The mirror: order
    Break(
        _MIRROR,
        "observed_at follows the clock back",
        'self.observed_at = max(at, last_observed(connection) or "", last_begin(connection) or "")',
        "self.observed_at = at",
    ),
    Break(
        _MIRROR,
        "numbers begin anew after a restart",
        "new = not offset or monotonic + offset <= greatest",
        "new = not offset",
    ),
    Break(
        _MIRROR,
        "reads are applied as they end",
        "sorted(reads, key=lambda read: read.sequence)",
        "list(reads)",
    ),
    Break(
        _MIRROR,
        "one batch reads an object twice",
        "        if key in part:",
        "        if False:",
    ),
    Break(
        _MIRROR,
        "an older read of an object is kept",
        "if sequence >= read.sequence:",
        "if False:",
    ),
    # Leases and runs
    Break(_LEASES, "a lost lease is renewed", "return done.rowcount == 1", "return True"),
    Break(
        _LEASES,
        "leases never expire",
        "(expires_at < ?1 OR expires_at > ?2)",
        "(expires_at > ?2)",
    ),
    Break(
        _LEASES,
        "a lease of a wrong clock lasts",
        "(expires_at < ?1 OR expires_at > ?2)",
        "(expires_at < ?1 OR ?2 IS NULL)",
    ),
    Break(
        _LEASES,
        "what was claimed is not given back",
        "coalesce(lease_no, 0) NOT IN (SELECT lease_no FROM leases)",
        "coalesce(lease_no, 0) NOT IN (SELECT lease_no FROM leases) AND 0",
    ),
    Break(
        _RUNS,
        "a failed sync has read all",
        " AND status IN ('ok', 'partial') ORDER BY started_at",
        " ORDER BY started_at",
    ),
    Break(
        _RUNS,
        "a resumed run keeps its failures",
        "    sums.wallets_failed = 0  # the resumed run reads failed wallets again\n",
        "",
    ),
    # The inbox
    Break(
        _INBOX,
        "an object that is worked on is due",
        "AND NOT EXISTS ({_RUNNING})",
        "AND {bool(_RUNNING):d}",
    ),
    Break(
        _INBOX,
        "what another works on is claimed",
        "AND coalesce(({_RUNNING} LIMIT 1), ?6) = ?6 LIMIT ?5",
        "AND {bool(_RUNNING):d} AND ?6 = ?6 LIMIT ?5",
    ),
    Break(
        _INBOX,
        "settled under another's lease",
        " AND w.lease_no = ?2 LIMIT ?3",
        " AND ?2 = ?2 LIMIT ?3",
    ),
    Break(_INBOX, "attempts never end", "if attempts + 1 >= MOST_ATTEMPTS:", "if False:"),
    Break(
        _INBOX,
        "what is given back costs an attempt",
        'int(state in {"done", "failed", "dead"})',
        "1",
    ),
    Break(
        _INBOX,
        "what is settled keeps its lease",
        "SET state = ?2, lease_no = NULL, attempts",
        "SET state = ?2, attempts",
    ),
    Break(
        _INBOX,
        "a recheck is begun once alone",
        "UPDATE webhooks SET look_again_at = ?3 WHERE webhook_no IN",
        "UPDATE webhooks SET look_again_at = nullif(?3, ?3) WHERE webhook_no IN",
    ),
    Break(
        _INBOX,
        "what a wrong clock put off waits",
        "(q.next_attempt_at > ?3 OR (q.received_at > ?2 AND q.next_attempt_at = q.received_at))",
        "(q.next_attempt_at > ?3 AND ?2 IS NULL)",
    ),
    Break(_INBOX, "a webhook is kept twice", "if digest_by_id.get(name) == digest:", "if False:"),
    Break(_INBOX, "an id may have two bodies", "elif stored is not None:", "elif False:"),
    Break(_INBOX, "a batch may hold a webhook twice", "        digest_by_id[name] = digest\n", ""),
    Break(_INBOX, "deliveries are not counted", "again[name] += 1", "again[name] = 0"),
    Break(
        _REQUEUE,
        "what left the quarantine goes back",
        " AND state = 'quarantined'\"",
        '"',
    ),
    Break(
        _REQUEUE,
        "what is worked on goes back",
        'if state in {"done", "failed", "dead", "unrouted"}]',
        'if state in {"done", "failed", "dead", "unrouted", "running"}]',
    ),
    # Replay
    Break(
        _WORK,
        "a claim goes on under another lease",
        "if under not in {None, number}:",
        "if False:",
    ),
    Break(
        _WORK,
        "a read before the claim will do",
        "since = self._mirror.numbers.take() if claims else 0",
        "since = 0",
    ),
    Break(
        _WORK,
        "what a lost lease settled is kept",
        "        self.settlements = []\n        self.guard.forget()\n",
        "        self.guard.forget()\n",
    ),
    Break(
        _WORK,
        "work goes on without a lease",
        "                self._on_lost()\n",
        "",
    ),
    Break(
        _WORKER,
        "an incomplete read is done",
        'if read.outcome in {"failed", "incomplete"}:',
        'if read.outcome in {"failed"}:',
    ),
    Break(_WORKER, "a stale read is done", "elif stale:", "elif False:"),
    Break(
        _WORKER,
        "the first of several reads is enough",
        "if job.down or not job.waits_for:",
        "if True:",
    ),
    Break(
        _WORKER,
        "a provider that is down costs attempts",
        "        if job.down:\n            self._release",
        "        if False:\n            self._release",
    ),
    Break(
        _WORKER,
        "a sync that failed is done",
        '            if wait is None:\n                self._settle(job, "done")',
        '            if True:\n                self._settle(job, "done")',
    ),
    Break(
        _WORK,
        "a read that began too early is done",
        "done = [job for job in jobs if job.since < read.sequence]",
        "done = list(jobs)",
    ),
    # Receiver
    Break(
        _COMMITTER,
        "what could not be stored is answered 200",
        'self._answer(batch, ["not stored"] * len(batch))',
        'self._answer(batch, ["stored"] * len(batch))',
    ),
    Break(
        _COMMITTER,
        "one that cannot be stored spoils all",
        "            if len(batch) > 1:\n",
        "            if False:\n",
    ),
    # Sync
    Break(
        _RUN,
        "a run that lost reads is ok",
        "if unread and not self._stopping:",
        "if False:",
    ),
    Break(
        _RUN,
        "stale reads are not made again",
        'if x.result == "stale" and not self._stopping]',
        "if False]",
    ),
    Break("nftsync/pull/result.py", "failures are no failure", "elif failures:", "elif False:"),
    Break(
        _RECORDS,
        "a read keeps the number of its first attempt",
        "        self.sequence, self.started_at = self.numbers.take(), now()",
        "        if not self.sequence:\n"
        "            self.sequence, self.started_at = self.numbers.take(), now()",
    ),
    Break(
        _TRANSPORT,
        "a read has the number of before its connection",
        "                    self._shut()\n            self._sending()\n",
        "                    self._shut()\n",
    ),
    Break(
        _READS,
        "half a list is a list",
        'outcome = "incomplete"',
        'outcome = "ok"',
    ),
    Break(
        _BALANCES,
        "what is held back is removed",
        'result, read = "held", self._less(read, gone)',
        'result = "held"',
    ),
    Break(
        _REMOVALS,
        "a read of a token clears what is held of others",
        " for number in over if token_no in {None, number}]",
        " for number in over]",
    ),
    Break(
        _TOKENS,
        "a late read of a token has removals",
        "        if by_id and read.sequence <= source.detail_sequence:\n            return None\n",
        "",
    ),
    Break(
        _TOKENS,
        "a name that is replaced is no removal",
        "if renamed and earlier[NAME] != after:",
        "if False:",
    ),
    Break(
        _BALANCES,
        "amounts are compared with the last read alone",
        "        return row is not None and fell(row[0], amount)\n",
        "        return False\n",
    ),
    Break(
        _DAY,
        "removals of all days count",
        "since, ahead = shifted(at, -DAY), shifted(at, DAY)",
        'since, ahead = "", shifted(at, DAY)',
    ),
    Break(
        _DAY,
        "a clock that was ahead counts removals for years",
        "if row is None or row[0] <= ahead:",
        "if True:",
    ),
    Break(
        _DAY,
        "an approval changes nothing for what comes later",
        "low = max(first_row(connection, feed, since, later=True), approved + 1)",
        "low = first_row(connection, feed, since, later=True)",
    ),
    Break(
        _GUARD,
        "the guard never holds",
        "return bool((removals.lost and balances) or (metadata and self.metadata))",
        "return False",
    ),
    Break(
        _GUARD,
        "gains explain nothing",
        "net[some[flow.loss].wallet, token] -= flow.amount",
        "net[some[flow.loss].wallet, token] -= 0",
    ),
    Break(
        _GUARD,
        "what was gained need not stay",
        "net[some[flow.gain].wallet, token] += flow.amount",
        "net[some[flow.gain].wallet, token] += 0",
    ),
    Break(
        _DAY,
        "what came within the day dilutes",
        'for numbers, condition in ((listed, "tracked"), (ended, "TRUE")):',
        'for numbers, condition in ((listed, "tracked"),):',
    ),
    Break(
        _GUARD,
        "new wallets hide a loss of the others",
        "    for some in (parts, [(group, is_new) for group, is_new in parts if not is_new]):",
        "    for some in (parts,):",
    ),
    Break(
        _GUARD,
        "new wallets are guarded only once they are a day old",
        "    for some in (parts, [(group, is_new) for group, is_new in parts if not is_new]):",
        "    for some in ([(group, is_new) for group, is_new in parts if not is_new],):",
    ),
    Break(
        _GUARD,
        "first reads are no gains",
        "chain(stored, waiting, first_reads)",
        "chain(stored, waiting)",
    ),
    Break(
        _GUARD,
        "one name for all tokens is no removal",
        "emptied |= names.keys()",
        "pass",
    ),
    Break(
        _GUARD,
        "one name for all tokens is one although they always had it",
        " and 2 * len(set(names.values())) > len(names)",
        "",
    ),
    Break(
        _MOVEMENTS,
        "a gain explains losses again and again",
        "                left[other] -= amount\n",
        "",
    ),
    Break(
        _MOVEMENTS,
        "a wallet's own gain explains its loss",
        "if amount and movements[other].wallet != movement.wallet:",
        "if amount:",
    ),
    Break(
        _MOVEMENTS,
        "a gain of any time explains a loss",
        "first = 0 if begins is None else bisect_right(others, begins, key=end)",
        "first = 0",
    ),
    Break(
        "nftsync/pull/run.py",
        "a run that goes on passes failures over",
        'if wallet.sequence < run.first_sequence or wallet.status != "ok":',
        "if wallet.sequence < run.first_sequence:",
    ),
    Break(
        "nftsync/store/wallets.py",
        "some wallets count as all",
        "return len(numbers) >= count and set(numbers)",
        "return True or set(numbers)",
    ),
]
=======
def _common(words: list[str], others: list[str]) -> int:
    """Return the number of equal words at the start."""
    pairs = zip(words, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

>>>>>>> 46de2a3 (Breaks are found wherever their code moves, and one that crashes by a missing name detects nothing)

@cache
def _package() -> list[tuple[str, str]]:
    files = sorted((ROOT / "nftsync").rglob("*.py"))
    return [(str(file.relative_to(ROOT)), file.read_text()) for file in files]


def read_breaks() -> list[Break]:
    blocks = Path(__file__).with_suffix(".txt").read_text().strip().split("\n\n")
    breaks = []
    for what, *lines in (block.splitlines() for block in blocks):
        parts = dict.fromkeys("-+=", "")
        for line in lines:
            parts[line[0]] = line[2:]
        breaks.append(Break(what, *parts.values()))
    return breaks
