"""What the mirror promises, as plain dictionaries: the rules a reader may rely on, and no more.

It knows nothing of rows, batches, look-ups or digests. A list of a wallet and a read of a single
token are told to it one at a time, in the order in which they started; what it then says is held
is what the database must say.
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

#: A token's content by field; of `extra` each key by itself.
Fields: TypeAlias = dict[str, Any]
#: A row of `balance_changes`: wallet, token, old, new, when, baseline, run, webhook.
Change: TypeAlias = tuple[str, str, str | None, str | None, str, int, int | None, str | None]


def fields_of(content: Content | None) -> Fields:
    """The fields that a record shows; a null counts as not shown."""
    shown = dict(zip(CONTENT_COLUMNS, content or (), strict=False))
    extra = json.loads(shown.pop("extra", None) or "{}")
    return {
        **{name: value for name, value in shown.items() if value is not None},
        **{f"extra/{name}": value for name, value in extra.items()},
    }


_DAY = timedelta(hours=24)
#: The fields in which a token's metadata is.
_METADATA = {*CONTENT_COLUMNS[CONTENT_COLUMNS.index("name") : -1]}

#: What is removed of a token: its amount before and now, whether its metadata was emptied, and the
#: name that replaces another one. Without an amount before it is not the balance that is removed.
Gone: TypeAlias = tuple[str | None, str | None, bool, str | None]


def number_of(amount: str) -> int | None:
    """The number that an amount is, if it is one."""
    return int(amount) if amount.isascii() and amount.isdigit() else None


def is_held(amount: str | None) -> bool:
    """An amount of 0, however many digits it has, is listed but no holding."""
    return amount is not None and set(amount) != {"0"}


@dataclass
class Listed:
    """A wallet's line."""

    amount: str
    first_seen_at: str
    updated_at: str
    held_since: str | None


@dataclass
class Source:
    """What one kind of read says of a token, and which read said it."""

    sequence: int = 0
    fields: Fields = field(default_factory=dict)


@dataclass
class PlainToken:
    """A token: what the last list that showed it says, and what the last read of it says."""

    first_seen_at: str
    updated_at: str
    listed: Source = field(default_factory=Source)
    detailed: Source = field(default_factory=Source)
    versions: int = 0
    changed_by: int = 0  # the greatest number of a read that changed it
    let_go_by: int = 0  # the greatest number that a holder had when it let go of it

    def fields(self, listed: Source | None = None) -> Fields:
        """Each field of either; where both show it, the newer wins."""
        older, newer = sorted([listed or self.listed, self.detailed], key=lambda x: x.sequence)
        return {**older.fields, **newer.fields}


@dataclass
class PlainWallet:
    """A wallet."""

    first_seen_at: str
    sequence: int = 0
    status: str = "never"
    error: str | None = None
    synced_at: str | None = None
    lines: dict[str, Listed] = field(default_factory=dict)
    complete_reads: int = 0
    found: Any = None  # what the last complete read found; None once that is over
    fewest_states: int = 0
    most_states: int = 0


class PlainMirror:
    """The mirror by its rules."""

    def __init__(self) -> None:
        self.wallets: dict[str, PlainWallet] = {}
        self.tokens: dict[str, PlainToken] = {}
        self.changes: list[Change] = []
        #: What is held back, by wallet and token: the amount before and now. Of a token that was
        #: read by its id there is no wallet.
        self.held: dict[tuple[str | None, str], tuple[str | None, str | None]] = {}

    # Wallets -------------------------------------------------------------------------------------

    def apply_wallet(
        self, read: WalletRead, at: str, run_id: int | None, known: Sequence[Entry]
    ) -> str:
        """Take in a read of a wallet; say what becomes of it.

        `known` is what an `unchanged` answer said when it was sent whole.
        """
        wallet = self.wallets.setdefault(read.wallet_id, PlainWallet(at))
        # Of two reads of the same thing the one that started later wins.
        if read.sequence <= wallet.sequence:
            return "stale"
        # A failed read removes nothing, and nothing is known from it.
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
        wallet.sequence = read.sequence
        wallet.status = "incomplete" if read.outcome == "incomplete" else "ok"
        wallet.error = read.error if read.outcome == "incomplete" else None
        if read.outcome == "incomplete":
            if len(self.changes) > before:
                wallet.found = None
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
        elif line.amount != amount:  # reading the same state twice adds no change
            self.changes.append((wallet_id, token_id, line.amount, amount, *cause))
            began = line.held_since if is_held(line.amount) else at
            line.amount, line.updated_at = amount, at
            line.held_since = began if is_held(amount) else None

    # Tokens --------------------------------------------------------------------------------------

    def _see(self, token_id: str, content: Content | None, sequence: int, at: str) -> None:
        """A list shows a token; without a record it has no say in what the token is."""
        new = token_id not in self.tokens
        token = self.tokens.setdefault(token_id, PlainToken(at, at, changed_by=sequence))
        # One exception to "the newer wins", which costs time and no truth: a list also loses
        # against a later read of a holder that did not show the token (an incomplete one, or a
        # list without records). What it says comes with the next read, which no skip hides.
        vouched = max(
            (x.sequence for x in self.wallets.values() if token_id in x.lines),
            default=0,
        )
        vouched = max(vouched, token.let_go_by)
        if content is not None and sequence >= max(vouched, token.listed.sequence):
            before = token.fields()
            token.listed = Source(sequence, fields_of(content))
            self._note(token, before, at, sequence, new=new)

    def apply_token(self, read: TokenRead, at: str) -> str:
        """Take in a read of a single token; say what becomes of it."""
        if read.outcome == "failed":
            return "failed"
        new = read.token_id not in self.tokens
        token = self.tokens.setdefault(read.token_id, PlainToken(at, at))
        if read.sequence <= token.detailed.sequence:
            return "stale"
        before = token.fields()
        # What only such a read shows stays until such a read drops it: this one may.
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

    # What is gone --------------------------------------------------------------------------------

    def gone(self, read: WalletRead | TokenRead, clock: str) -> dict[str, Gone]:
        """What a read removes, by token; nothing, where a later one has been applied."""
        if read.outcome in {"failed", "unchanged"}:
            return {}
        if isinstance(read, TokenRead):
            token = self.tokens.get(read.token_id)
            if token is None or read.sequence <= token.detailed.sequence:
                return {}
            emptied = self._is_emptied(token.detailed, read.content)
            name = self._new_name(token, token.detailed, read.content)
            return {read.token_id: (None, None, emptied, name)} if emptied or name else {}
        wallet = self.wallets.get(read.wallet_id, PlainWallet(""))
        if read.sequence <= wallet.sequence:
            return {}
        gone: dict[str, Gone] = {}
        for token_id, amount, content in read.entries:
            line, known = wallet.lines.get(token_id), self.tokens.get(token_id, PlainToken("", ""))
            emptied = self._is_emptied(known.listed, content)
            name = self._new_name(known, known.listed, content)
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
        """The amount of a balance at a time, or what the wallet's first read showed after it."""
        for wallet, token, old, _, at, baseline, *_ in self.changes:
            if (wallet, token) == (wallet_id, token_id) and at > time and not baseline:
                return old
        line = self.wallets[wallet_id].lines.get(token_id) if wallet_id in self.wallets else None
        return line.amount if line else None

    def _fell(self, before: str, yesterday: str | None, amount: str) -> bool:
        """An amount falls below half of what it is, or it falls and is below half of a day ago."""
        was, now, then = number_of(before), number_of(amount), number_of(yesterday or "")
        if was and (now is None or 2 * now < was):
            return True
        is_less = (now or 0) < (was or 0)
        return bool(is_less and then and 2 * (now or 0) < then)

    def _new_name(self, token: PlainToken, source: Source, content: Content | None) -> str | None:
        """The name that a record shows in place of another one."""
        name = fields_of(content).get("name")
        before = token.fields().get("name")
        is_new = name is not None and before not in {None, name}
        return name if is_new and source.fields.get("name") != name else None

    def _is_emptied(self, source: Source, content: Content | None) -> bool:
        """A source that had metadata shows a record without any."""
        shown = fields_of(content).keys()
        return content is not None and bool(_METADATA & source.fields.keys()) > bool(
            _METADATA & shown
        )

    def less(self, read: WalletRead, gone: Mapping[str, Gone]) -> WalletRead:
        """The read without its removals."""
        entries: list[Entry] = []
        for token_id, amount, content in read.entries:
            before, _, emptied, name = gone.get(token_id, (None, None, False, None))
            entries.append((token_id, before or amount, None if emptied or name else content))
        return msgspec.structs.replace(read, outcome="incomplete", error=HELD_BACK, entries=entries)

    def note_held(
        self, read: WalletRead | TokenRead, gone: Mapping[str, Gone], *, hold: bool
    ) -> None:
        """What of a read is held back; the rest of what it is about no longer is."""
        if read.outcome == "failed":
            return
        if isinstance(read, TokenRead):
            known = self.tokens.get(read.token_id)
            if known is not None and read.sequence <= known.detailed.sequence:
                return
            of, over = None, {read.token_id}
        else:
            wallet = self.wallets.get(read.wallet_id)
            if wallet is not None and read.sequence <= wallet.sequence:
                return
            of = read.wallet_id
            over = {token_id for wallet_id, token_id in self.held if wallet_id == of}
            over = over if read.outcome != "incomplete" else over & gone.keys()
        for token_id in over:
            self.held.pop((of, token_id), None)
        if hold:
            self.held |= {(of, token_id): each[:2] for token_id, each in gone.items()}

    # What a reader asks for ----------------------------------------------------------------------

    def balances(self) -> dict[tuple[str, str], Listed]:
        return {
            (wallet_id, token_id): line
            for wallet_id, wallet in self.wallets.items()
            for token_id, line in wallet.lines.items()
        }

    def would_change(self, wallet_id: str, entries: Sequence[Entry]) -> str | None:
        """What reading this answer once more would change: skipping it is sound if nothing."""
        lines = self.wallets[wallet_id].lines
        if {token_id: line.amount for token_id, line in lines.items()} != {
            token_id: amount for token_id, amount, _ in entries
        }:
            return "the balances"
        latest = 1 << 62
        for token_id, _, content in entries:
            token = self.tokens[token_id]
            if content is not None and token.fields() != token.fields(
                Source(latest, fields_of(content))
            ):
                return f"the content of token {token_id}"
        return None

    def state_of(self, wallet_id: str) -> Mapping[str, Any]:
        """What tells one state of a wallet from another."""
        return {
            token_id: (line.amount, self.tokens[token_id].versions)
            for token_id, line in self.wallets[wallet_id].lines.items()
        }
