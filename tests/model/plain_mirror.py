"""The guarantees of the mirror as plain dictionaries.

This model has no rows, batches, look-ups or digests. It takes reads of wallets and tokens one at a
time, in the order in which they started; the database must then have the same holdings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from nftsync.records import CONTENT_COLUMNS, Content, Entry, TokenRead, WalletRead
from nftsync.store.removals import HELD_BACK
from nftsync.times import shifted
from tests.kit.held_frames import exact_amount

#: A token's content by field; each key of `extra` is a field.
Fields: TypeAlias = dict[str, Any]
#: A row of `balance_changes`: wallet, token, old, new, when, baseline, run, webhook.
Change: TypeAlias = tuple[str, str, str | None, str | None, str, int, int | None, str | None]


def fields_of(content: Content | None) -> Fields:
    """Return the fields of a record without nulls."""
    shown = dict(zip(CONTENT_COLUMNS, content or (), strict=False))
    extra = json.loads(shown.pop("extra", None) or "{}")
    return {
        **{name: value for name, value in shown.items() if value is not None},
        **{f"extra/{name}": value for name, value in extra.items()},
    }


_DAY = timedelta(hours=24)
#: The columns of a token's metadata.
_METADATA = {*CONTENT_COLUMNS[CONTENT_COLUMNS.index("name") : -1]}

#: Removals of a token: its amount before and now, whether its metadata was emptied, and its new
#: name. Without an amount before, the balance is not removed.
Gone: TypeAlias = tuple[str | None, str | None, bool, str | None]


def is_held(amount: str | None) -> bool:
    """Return whether an amount is a holding; a 0 of any length is none."""
    return amount is not None and set(amount) != {"0"}


@dataclass
class Listed:
    amount: str
    first_seen_at: str
    updated_at: str
    held_since: str | None


@dataclass
class Source:
    """A token's fields in one kind of read, and the number of the read."""

    sequence: int = 0
    fields: Fields = field(default_factory=dict)


@dataclass
class PlainToken:
    """A token: its fields in the last list with it, and in the last read by id."""

    first_seen_at: str
    updated_at: str
    listed: Source = field(default_factory=Source)
    detailed: Source = field(default_factory=Source)
    versions: int = 0
    changed_by: int = 0  # the greatest number of a read that changed it
    let_go_by: int = 0  # the greatest number of a holder when it stopped holding it

    def fields(self, listed: Source | None = None) -> Fields:
        """Each field of either; where both show it, the newer wins."""
        older, newer = sorted([listed or self.listed, self.detailed], key=lambda x: x.sequence)
        return {**older.fields, **newer.fields}


@dataclass
class PlainWallet:
    first_seen_at: str
    sequence: int = 0
    status: str = "never"
    error: str | None = None
    synced_at: str | None = None
    lines: dict[str, Listed] = field(default_factory=dict)
    complete_reads: int = 0
    found: Any = None  # state of the last complete read; None after a change
    fewest_states: int = 0
    most_states: int = 0


class PlainMirror:
    """The mirror by its rules."""

    def __init__(self) -> None:
        self.wallets: dict[str, PlainWallet] = {}
        self.tokens: dict[str, PlainToken] = {}
        self.changes: list[Change] = []
        #: Held removals by wallet and token: the amount before and now. The wallet is None for a
        #: token that was read by its id.
        self.held: dict[tuple[str | None, str], tuple[str | None, str | None]] = {}

    def apply_wallet(
        self, read: WalletRead, at: str, run_id: int | None, known: Sequence[Entry]
    ) -> str:
        """Apply a read of a wallet; return the result. `known` are entries if it is unchanged."""
        wallet = self.wallets.setdefault(read.wallet_id, PlainWallet(at))
        if read.sequence <= wallet.sequence:  # the read that started later wins
            return "stale"
        if read.outcome == "failed":
            wallet.status, wallet.error = "failed", read.error
            return "failed"
        entries = known if read.outcome == "unchanged" else read.entries
        cause = (at, int(wallet.sequence == 0), run_id, read.webhook_id)
        before = len(self.changes)
        for token_id, amount, content in entries:
            self._see(token_id, content, read.sequence, at)
            self._list(read.wallet_id, wallet, token_id, amount, cause)
        if read.outcome != "incomplete":
            for token_id in wallet.lines.keys() - {entry[0] for entry in entries}:
                old = wallet.lines.pop(token_id).amount
                token = self.tokens[token_id]
                token.let_go_by = max(token.let_go_by, wallet.sequence)
                self.changes.append((read.wallet_id, token_id, old, None, *cause))
        wallet.sequence, wallet.status, wallet.error = read.sequence, "ok", None
        if read.outcome == "incomplete":
            wallet.status, wallet.error = "incomplete", read.error
            wallet.found = None if len(self.changes) > before else wallet.found
        else:
            wallet.synced_at = read.started_at
            wallet.complete_reads += 1
        return read.outcome

    def _list(
        self, wallet_id: str, wallet: PlainWallet, token_id: str, amount: str, cause: Any
    ) -> None:
        line, at = wallet.lines.get(token_id), cause[0]
        if line is None:
            since = at if is_held(amount) else None
            wallet.lines[token_id] = Listed(amount, at, at, since)
            self.changes.append((wallet_id, token_id, None, amount, *cause))
        elif line.amount != amount:  # a repeated state adds no change
            self.changes.append((wallet_id, token_id, line.amount, amount, *cause))
            began = line.held_since if is_held(line.amount) else at
            line.amount, line.updated_at = amount, at
            line.held_since = began if is_held(amount) else None

    def _see(self, token_id: str, content: Content | None, sequence: int, at: str) -> None:
        """Apply a token of a list; only a record changes its content."""
        new = token_id not in self.tokens
        token = self.tokens.setdefault(token_id, PlainToken(at, at, changed_by=sequence))
        # One exception to "the newer wins": a list also loses against a later read of a holder that
        # did not show the token (an incomplete one, or a list without records). The next read,
        # which is never skipped, applies its content.
        holders = (x.sequence for x in self.wallets.values() if token_id in x.lines)
        if content is not None and sequence >= max(
            token.let_go_by, token.listed.sequence, *holders
        ):
            before = token.fields()
            token.listed = Source(sequence, fields_of(content))
            self._note(token, before, at, sequence, new=new)

    def apply_token(self, read: TokenRead, at: str) -> str:
        """Apply a read of a token; return the result."""
        if read.outcome == "failed":
            return "failed"
        new = read.token_id not in self.tokens
        token = self.tokens.setdefault(read.token_id, PlainToken(at, at))
        if read.sequence <= token.detailed.sequence:
            return "stale"
        before = token.fields()
        # Only such a read drops fields that only such reads show.
        token.detailed = Source(read.sequence, fields_of(read.content))
        self._note(token, before, at, read.sequence, new=new)
        return "ok"

    def _note(
        self, token: PlainToken, before: Fields, at: str, sequence: int, *, new: bool
    ) -> None:
        if token.fields() != before and not new:
            token.updated_at = at
            token.versions += 1
        if token.fields() != before or new:
            token.changed_by = max(token.changed_by, sequence)

    def gone(self, read: WalletRead | TokenRead, clock: str) -> dict[str, Gone]:
        """Return the removals of a read by token; none if it is stale."""
        if read.outcome in {"failed", "unchanged"}:
            return {}
        if isinstance(read, TokenRead):
            token = self.tokens.get(read.token_id)
            if token is None or read.sequence <= token.detailed.sequence:
                return {}
            emptied, name = self._replaced(token, token.detailed, read.content)
            return {read.token_id: (None, None, emptied, name)} if emptied or name else {}
        wallet = self.wallets.get(read.wallet_id, PlainWallet(""))
        if read.sequence <= wallet.sequence:
            return {}
        gone: dict[str, Gone] = {}
        for token_id, amount, content in read.entries:
            line, known = wallet.lines.get(token_id), self.tokens.get(token_id, PlainToken("", ""))
            emptied, name = self._replaced(known, known.listed, content)
            yesterday = self._amount_at(read.wallet_id, token_id, shifted(clock, -_DAY))
            if line and self._fell(line.amount, yesterday, amount):
                gone[token_id] = line.amount, amount, emptied, name
            elif emptied or name:
                gone[token_id] = None, None, emptied, name
        if read.outcome == "ok":
            for token_id in wallet.lines.keys() - {entry[0] for entry in read.entries}:
                if is_held(wallet.lines[token_id].amount):
                    gone[token_id] = wallet.lines[token_id].amount, None, False, None
        return gone

    def _amount_at(self, wallet_id: str, token_id: str, time: str) -> str | None:
        """Return a balance at a time, or in the wallet's first read after it."""
        for wallet, token, old, _, at, baseline, *_ in self.changes:
            if (wallet, token) == (wallet_id, token_id) and at > time and not baseline:
                return old
        line = self.wallets[wallet_id].lines.get(token_id) if wallet_id in self.wallets else None
        return line.amount if line else None

    def _fell(self, before: str, yesterday: str | None, amount: str) -> bool:
        """Return whether an amount falls below half of the last one, or of the one a day ago."""
        was, now, then = map(exact_amount, (before, amount, yesterday or ""))
        if was and (now is None or 2 * now < was):
            return True
        is_less = (now or 0) < (was or 0)
        return bool(is_less and then and 2 * (now or 0) < then)

    def _replaced(
        self, token: PlainToken, source: Source, content: Content | None
    ) -> tuple[bool, str | None]:
        """Return whether a record has no metadata, unlike the last of its source; a new name."""
        fields = fields_of(content)
        had, has = (bool(_METADATA & shown.keys()) for shown in (source.fields, fields))
        name, before = fields.get("name"), token.fields().get("name")
        is_new = name and before not in {None, name} and source.fields.get("name") != name
        return content is not None and had > has, name if is_new else None

    def less(self, read: WalletRead, gone: Mapping[str, Gone]) -> WalletRead:
        """Return the read without its removals."""
        entries: list[Entry] = []
        for token_id, amount, content in read.entries:
            before, _, emptied, name = gone.get(token_id, (None, None, False, None))
            entries.append((token_id, before or amount, None if emptied or name else content))
        return msgspec.structs.replace(read, outcome="incomplete", error=HELD_BACK, entries=entries)

    def note_held(
        self, read: WalletRead | TokenRead, gone: Mapping[str, Gone], *, hold: bool
    ) -> None:
        """Hold the removals of a read, in place of earlier ones of its subject."""
        if isinstance(read, TokenRead):
            known = self.tokens.get(read.token_id, PlainToken("", ""))
            is_stale = read.sequence <= known.detailed.sequence
            of, over = None, {read.token_id}
        else:
            is_stale = read.sequence <= self.wallets.get(read.wallet_id, PlainWallet("")).sequence
            of = read.wallet_id
            over = {token_id for wallet_id, token_id in self.held if wallet_id == of}
            over = over if read.outcome != "incomplete" else over & gone.keys()
        if is_stale or read.outcome == "failed":
            return
        for token_id in over:
            self.held.pop((of, token_id), None)
        if hold:
            self.held |= {(of, token_id): each[:2] for token_id, each in gone.items()}

    def balances(self) -> dict[tuple[str, str], Listed]:
        return {
            (wallet_id, token_id): line
            for wallet_id, wallet in self.wallets.items()
            for token_id, line in wallet.lines.items()
        }

    def would_change(self, wallet_id: str, entries: Sequence[Entry]) -> str | None:
        """Return what applying this answer again would change; it can be skipped if None."""
        lines = self.wallets[wallet_id].lines
        amounts = {token_id: line.amount for token_id, line in lines.items()}
        if amounts != {token_id: amount for token_id, amount, _ in entries}:
            return "the balances"
        for token_id, _, content in entries:
            token, latest = self.tokens[token_id], Source(1 << 62, fields_of(content))
            if content is not None and token.fields() != token.fields(latest):
                return f"the content of token {token_id}"
        return None

    def state_of(self, wallet_id: str) -> Mapping[str, Any]:
        """Return the state of a wallet, for comparison."""
        return {
            token_id: (line.amount, self.tokens[token_id].versions)
            for token_id, line in self.wallets[wallet_id].lines.items()
        }
