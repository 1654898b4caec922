"""Batches of reads applied to balances: computed in memory, written in bulk.

A wallet has the digest and ETag of its last response only while the database agrees with that
response, so unchanged responses can be skipped. A changed token clears both in its other holders.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from nftsync.exact_sum import exact, is_zero
from nftsync.records import Applied, Entry, OnRemovals, Result, TokenRead, WalletRead
from nftsync.store.database import over_keys, write_rows
from nftsync.store.day_report import first_change
from nftsync.store.removals import HELD_BACK, Gone, HeldRemovals, fell, summed
from nftsync.store.tokens import Token, TokenBatch
from nftsync.store.wallets import add_unknown

_EXTEND_STATE = (
    "UPDATE wallet_state_rows SET last_read_at = max(last_read_at, ?), reads = reads + 1"
    " WHERE state_id = ?"
)


#: Amount and start of holding, by token number.
_Balances: TypeAlias = dict[int, tuple[str, str | None]]


class _Wallet(msgspec.Struct):
    no: int
    sequence: int
    digest: str | None
    state_id: int | None
    group: str | None


class _Removals:
    """The removals and gains of reads, compared with the balances and tokens before them."""

    def __init__(self, connection: sqlite3.Connection, clock: str, tokens: TokenBatch) -> None:
        self._connection = connection
        self._clock = clock
        self._tokens = tokens

    def of_tokens(self, read: WalletRead | TokenRead) -> dict[int, Gone]:
        removed = self._tokens.removed_by(read)
        return {no: Gone(emptied=names is None, names=names) for no, names in removed}

    def of_list(self, read: WalletRead, wallet_no: int, balances: _Balances) -> dict[int, Gone]:
        gone = self.of_tokens(read)
        left = dict(balances)
        for token_id, amount, _ in read.entries if left else ():
            no = self._tokens.number_of(token_id)
            before, _ = left.pop(no, (amount, None))
            if before != amount and (
                fell(before, amount) or self._fell_in_a_day(wallet_no, no, before, amount)
            ):
                gone[no] = gone.get(no, Gone())._replace(before=before, after=amount)
        if read.outcome == "ok":
            gone |= {no: Gone(before) for no, (before, _) in left.items() if not is_zero(before)}
        return gone

    def _fell_in_a_day(self, wallet_no: int, token_no: int, before: str, amount: str) -> bool:
        if (exact(amount) or 0) >= (exact(before) or 0):
            return False
        row = self._connection.execute(
            "SELECT old_amount FROM balance_change_rows WHERE wallet_no = ? AND token_no = ?"
            " AND change_id >= ? AND NOT baseline ORDER BY change_id LIMIT 1",
            (wallet_no, token_no, self._first_of_day),
        ).fetchone()
        return row is not None and fell(row[0], amount)

    @cached_property
    def _first_of_day(self) -> int:
        return first_change(self._connection, self._clock)

    def gained(self, read: WalletRead, balances: _Balances) -> dict[str, tuple[str | None, str]]:
        gained: dict[str, tuple[str | None, str]] = {}
        for token_id, amount, _ in read.entries:
            before = balances.get(self._tokens.number_of(token_id), (None,))[0]
            is_now = exact(amount)
            if before != amount and (is_now is None or is_now > (exact(before) or 0)):
                gained[token_id] = before, amount
        return gained

    def left_out(self, read: WalletRead, gone: Mapping[int, Gone]) -> WalletRead:
        entries: list[Entry] = []
        for token_id, amount, content in read.entries:
            one = gone.get(self._tokens.number_of(token_id), Gone())
            shown = None if one.emptied or one.names else content
            entries.append((token_id, one.before or amount, shown))
        return msgspec.structs.replace(read, outcome="incomplete", error=HELD_BACK, entries=entries)


class Batch:
    """Reads of different objects, applied together in the caller's write transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        observed_at: str,
        run_id: int | None,
        on_removals: OnRemovals = "apply",
        clock: str | None = None,
    ) -> None:
        self._on_removals = on_removals
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._tokens = TokenBatch(connection, observed_at, run_id)
        self._removals = _Removals(connection, clock or observed_at, self._tokens)
        self._wallets: dict[str, _Wallet] = {}
        self._balances: dict[int, _Balances] = {}
        self._on_record = HeldRemovals(connection, observed_at, run_id)
        (greatest,) = connection.execute(
            "SELECT coalesce(max(state_id), 0) FROM wallet_state_rows"
        ).fetchone()
        self._next_state_id: int = greatest + 1
        # Rows to write, in the column order of their statements.
        self._added: list[tuple[Any, ...]] = []
        self._updated: list[tuple[Any, ...]] = []
        self._removed: list[tuple[int, int]] = []
        self._balance_changes: list[tuple[Any, ...]] = []
        self._new_states: list[tuple[Any, ...]] = []
        self._same_states: list[tuple[str, int | None]] = []
        self._wallet_rows: list[tuple[Any, ...]] = []
        self._failures: list[tuple[Any, ...]] = []

    def apply(self, reads: Sequence[WalletRead | TokenRead]) -> list[Applied]:
        """Apply reads of different objects, in the order of their sequence numbers."""
        self._load(reads)
        applied = [None if read.outcome == "unchanged" else self._apply(read) for read in reads]
        self._write()
        unchanged = self._apply_unchanged(
            [r for r in reads if isinstance(r, WalletRead) and r.outcome == "unchanged"]
        )
        greatest = max((read.sequence for read in reads), default=0)
        self._connection.execute(
            "UPDATE mirror_state SET greatest_sequence = ?1 WHERE greatest_sequence < ?1",
            (greatest,),
        )
        return [next(unchanged) if result is None else result for result in applied]

    # Looking up ------------------------------------------------------------------------------

    def _load(self, reads: Sequence[WalletRead | TokenRead]) -> None:
        ids = [read.wallet_id for read in reads if isinstance(read, WalletRead)]
        self._wallets = _load_wallets(self._connection, ids, self._at)
        self._on_record.load([0, *(wallet.no for wallet in self._wallets.values())])
        token_ids: set[str] = set()
        known_wallets: list[int] = []
        for read in reads:
            if isinstance(read, TokenRead):
                token_ids.add(read.token_id)
            elif read.entries or read.outcome == "ok":
                token_ids.update([entry[0] for entry in read.entries])
                wallet = self._wallets[read.wallet_id]
                if wallet.sequence:
                    known_wallets.append(wallet.no)
        if token_ids:
            self._tokens.load(token_ids)
        if known_wallets:
            rows = over_keys(
                self._connection,
                "SELECT b.wallet_no, b.token_no, b.amount, b.held_since"
                " FROM json_each(?) k JOIN balance_rows b ON b.wallet_no = k.value",
                known_wallets,
            )
            for wallet_no, token_no, amount, held_since in rows:
                self._balances.setdefault(wallet_no, {})[token_no] = (amount, held_since)

    # Wallets ---------------------------------------------------------------------------------

    def _apply(self, read: WalletRead | TokenRead) -> Applied:
        if isinstance(read, TokenRead):
            return self._apply_token(read)
        wallet = self._wallets[read.wallet_id]
        if read.sequence <= wallet.sequence:
            return Applied(read, "stale")
        if read.outcome == "failed":
            self._failures.append((read.error, wallet.no, read.sequence))
            return Applied(read, "failed")
        asked, read = read, self._tokens.completed(read)
        balances_before = self._balances.get(wallet.no, {})
        gone = self._removals.of_list(read, wallet.no, balances_before)
        gained = self._removals.gained(read, balances_before) if gone else {}
        of = read.wallet_id, wallet.group
        removals = summed(of, gone, self._tokens.ids_of(gone), gained)
        if removals is not None and self._on_removals == "stage":
            return Applied(asked, "staged", removals=removals)
        result: Result = read.outcome
        if removals is not None and self._on_removals == "hold":
            result, read = "held", self._removals.left_out(read, gone)
        self._on_record.note(wallet.no, asked, gone, hold=result == "held")
        added, changed = len(self._tokens.new), len(self._tokens.changes)
        listed, agreed = self._tokens.see(read)
        self._tokens.note_faults(asked)
        balances = self._compare(read, wallet, listed)
        tokens = len(self._tokens.new) - added, len(self._tokens.changes) - changed
        applied = Applied(asked, result, *tokens, *balances, removals=removals)
        ok = read.outcome == "ok"
        if ok:
            self._state(read, wallet, listed, any(balances))
            wallet.digest = read.digest if agreed else None
        else:
            # The wallet's row confirms only complete lists, so the tokens' rows do.
            self._tokens.confirmed += [(read.sequence, token.no) for token in listed]
            # The digest's response was complete, and this read is not.
            wallet.digest = None
            if not applied.changed_nothing:  # the current state ends, without a successor
                wallet.state_id = None
        error = None if ok else read.error
        outcome = (read.sequence, read.started_at if ok else None, read.outcome, error)
        etag = read.etag if ok and agreed else None
        self._wallet_rows.append((*outcome, etag, wallet.digest, wallet.state_id, wallet.no))
        return applied

    def _apply_token(self, read: TokenRead) -> Applied:
        asked, read = read, self._tokens.completed(read)
        gone = self._removals.of_tokens(read)
        removals = summed(("", None), gone, self._tokens.ids_of(gone), {})
        number = self._tokens.number_of(read.token_id)
        if removals is not None and self._on_removals != "apply":
            if self._on_removals == "stage":
                return Applied(asked, "staged", removals=removals)
            self._on_record.note(0, read, gone, hold=True, token_no=number)
            return Applied(read, "held", removals=removals)
        applied = self._tokens.apply(read)
        if applied.result == "ok":
            self._on_record.note(0, read, gone, hold=False, token_no=number)
            self._tokens.note_faults(asked)
        return applied

    # Changes ---------------------------------------------------------------------------------

    def _compare(
        self, read: WalletRead, wallet: _Wallet, listed: list[Token]
    ) -> tuple[int, int, int]:
        missing = self._balances.get(wallet.no, {})
        changes = self._balance_changes
        at, no = self._at, wallet.no
        tail = (at, int(wallet.sequence == 0), self._run_id, read.webhook_id)
        first = len(changes)
        added = 0
        for token, (_, amount, _) in zip(listed, read.entries, strict=True):
            before = missing.pop(token.no, None) if missing else None
            if before is None:
                added += 1
                since = None if is_zero(amount) else at
                self._added.append((no, token.no, amount, since, at, at))
                changes.append((no, token.no, None, amount, *tail))
            elif before[0] != amount:
                since = before[1] or at
                self._updated.append((amount, None if is_zero(amount) else since, at, no, token.no))
                changes.append((no, token.no, before[0], amount, *tail))
        changed = len(changes) - first - added
        if read.outcome != "ok" or not missing:
            return added, changed, 0
        for token_no, (amount, _) in missing.items():
            self._removed.append((no, token_no))
            changes.append((no, token_no, amount, None, *tail))
            # The wallet's row no longer confirms the token's content, so the token's row does.
            self._tokens.confirmed.append((wallet.sequence, token_no))
        return added, changed, len(missing)

    def _state(self, read: WalletRead, wallet: _Wallet, listed: list[Token], moved: bool) -> None:
        """Extend the wallet's state, or start a new one if the read differs."""
        same = (
            wallet.state_id is not None
            and not moved
            and all(token.changed_sequence <= wallet.sequence for token in listed)
        )
        if same:
            self._same_states.append((read.started_at, wallet.state_id))
            return
        wallet.state_id = self._next_state_id
        self._next_state_id += 1
        began, digest = read.started_at, read.digest or ""
        state = (wallet.state_id, wallet.no, began, began, 1, digest, self._run_id, self._at)
        self._new_states.append(state)

    def _apply_unchanged(self, reads: list[WalletRead]) -> Iterator[Applied]:
        if self._tokens.stale and reads:  # this batch has removed digests since the look-up
            ids = [read.wallet_id for read in reads]
            self._wallets = _load_wallets(self._connection, ids, self._at)
        applied, confirmed = _confirm_states(self._connection, self._wallets, reads)
        self._on_record.clear(confirmed)
        return iter(applied)

    # Writing ---------------------------------------------------------------------------------

    def _write(self) -> None:
        self._tokens.write()
        rows: dict[str, Sequence[Sequence[Any]]] = {
            "INSERT INTO balance_rows": self._added,
            "UPDATE balance_rows SET amount = ?, held_since = ?, updated_at = ?"
            " WHERE wallet_no = ? AND token_no = ?": self._updated,
            "DELETE FROM balance_rows WHERE wallet_no = ? AND token_no = ?": self._removed,
            "INSERT INTO balance_change_rows (wallet_no, token_no, old_amount, new_amount,"
            " observed_at, baseline, run_id, webhook_id)": self._balance_changes,
            "INSERT INTO wallet_state_rows": self._new_states,
            _EXTEND_STATE: self._same_states,
            "UPDATE wallets SET sequence = ?, synced_at = coalesce(?, synced_at), status = ?,"
            " error = ?, etag = ?, body_sha256 = ?, state_id = ? WHERE wallet_no = ?": (
                self._wallet_rows
            ),
            "UPDATE wallets SET status = 'failed', error = ?"
            " WHERE wallet_no = ? AND sequence < ?": self._failures,
            "UPDATE wallets SET etag = NULL, body_sha256 = NULL WHERE sequence < ? AND wallet_no IN"
            " (SELECT wallet_no FROM balance_rows WHERE token_no = ?)": self._tokens.stale,
        }
        write_rows(self._connection, rows)
        self._on_record.write()


def _load_wallets(
    connection: sqlite3.Connection, wallet_ids: list[str], at: str
) -> dict[str, _Wallet]:
    """Return wallets by id; unknown ones are added."""
    if not wallet_ids:
        return {}
    add_unknown(connection, wallet_ids, at)
    rows = over_keys(
        connection,
        "SELECT w.wallet_id, w.wallet_no, w.sequence, w.body_sha256, w.state_id, w.wallet_group"
        " FROM json_each(?) k JOIN wallets w ON w.wallet_id = k.value",
        wallet_ids,
    )
    return {wallet_id: _Wallet(*row) for wallet_id, *row in rows}


def _confirm_states(
    connection: sqlite3.Connection, wallets: Mapping[str, _Wallet], reads: Sequence[WalletRead]
) -> tuple[list[Applied], list[int]]:
    """Apply reads of unchanged wallets; return the results, and the confirmed wallets' numbers."""
    applied: list[Applied] = []
    rows, states = [], []
    for read in reads:
        wallet = wallets[read.wallet_id]
        is_same = wallet.digest is not None and wallet.digest == read.digest
        if read.sequence <= wallet.sequence or not is_same:
            applied.append(Applied(read, "stale"))
            continue
        applied.append(Applied(read, "unchanged"))
        rows.append((read.sequence, read.started_at, read.etag, wallet.no))
        states.append((read.started_at, wallet.state_id))
    statements: dict[str, list[tuple[Any, ...]]] = {
        "UPDATE wallets SET sequence = ?, synced_at = ?, etag = coalesce(?, etag),"
        " status = 'ok', error = NULL WHERE wallet_no = ?": rows,
        _EXTEND_STATE: states,
    }
    write_rows(connection, statements)
    return applied, [row[-1] for row in rows]
