"""The result of a sync."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any, Literal

import msgspec

from nftsync.store.faults import Unreadable
from nftsync.store.runs import Counts, RunStatus
from nftsync.text import counted, lasting

#: Failures that Jupyter shows.
_MAX_SHOWN = 20
#: Differences between errors of one group: the place in a response, and seconds to wait.
_DETAILS = re.compile(r"(?<=\[)\d+(?=\])|(?<=byte )\d+|(?<=to wait )\d+")


class _Named(msgspec.Struct, frozen=True):
    def __getitem__(self, name: str) -> Any:
        return msgspec.structs.asdict(self)[name]


class WalletCounts(_Named, frozen=True):
    """Counts of wallets: `total` is `ok` + `failed`; `unchanged` is a part of `ok`."""

    total: int
    ok: int
    unchanged: int
    failed: int


class TokenCounts(_Named, frozen=True):
    """Counts of new tokens, and of tokens whose content changed."""

    added: int
    changed: int


class BalanceCounts(_Named, frozen=True):
    """Counts of balances newly listed, with another amount, and no longer listed."""

    added: int
    changed: int
    removed: int


class Failure(_Named, frozen=True, omit_defaults=True):
    """A wallet whose read failed or was incomplete; with `token_id`, one of its tokens."""

    wallet_id: str
    error: str
    token_id: str | None = None
    # The default is None for a failed read: omit_defaults compares it by identity.
    status: Literal["incomplete"] | None = None


def grouped_failures(failures: Iterable[Failure]) -> list[list[Failure]]:
    """Group failures with the same error, apart from places and times; largest first."""
    groups: dict[tuple[bool, str], list[Failure]] = {}
    for failure in failures:
        key = failure.token_id is None, _DETAILS.sub("", failure.error)
        groups.setdefault(key, []).append(failure)
    return sorted(groups.values(), key=len, reverse=True)


class Resumed(_Named, frozen=True):
    """Wallets taken over by a resumed run of a lake, with start and age of their oldest read."""

    wallets: int
    oldest_read_at: str | None
    oldest_age_seconds: float | None

    def __str__(self) -> str:
        age = self.oldest_age_seconds
        ago = age is not None and f"{lasting(age, symbols=True)} ago ({self.oldest_read_at})"
        oldest = f", the oldest {ago}" if ago else ""
        return f"\nResumed: {counted(self.wallets, 'wallet')} read before the interruption{oldest}."


class SyncResult(_Named, frozen=True, omit_defaults=True):
    """Result of a run.

    Attributes:
        run_id: its row in `sync_runs`.
        status: `ok`, `partial` (some wallets failed or were incomplete), `failed` (all did, or the
            run stopped early) or `interrupted`.
        requests: HTTP requests, including retries.
        failures: failed and incomplete reads.
        error: why the run stopped early, or None.
        resumed: wallets taken over by a resumed run of a lake, or None.
        unreadable: unreadable parts of the database's tokens, whose known values stay.
    """

    run_id: int
    status: RunStatus
    wallets: WalletCounts
    tokens: TokenCounts
    balances: BalanceCounts
    requests: int
    retries: int
    seconds: float
    failures: list[Failure]
    error: str | None = None
    resumed: Resumed | None = None
    unreadable: list[Unreadable] = []

    @classmethod
    def of(
        cls,
        run_id: int,
        c: Counts,
        failures: list[Failure],
        error: str | None,
        *,
        interrupted: bool = False,
        resumed: Resumed | None = None,
    ) -> SyncResult:
        """Build the result of a run; `error` means that it stopped early."""
        status: RunStatus = "ok"
        if error is not None:
            status = "failed"
        elif interrupted:
            status = "interrupted"
        elif c.wallets_failed and not c.wallets_ok:
            status = "failed"
        elif failures:
            status = "partial"
        return cls(
            run_id,
            status,
            WalletCounts(
                c.wallets_ok + c.wallets_failed, c.wallets_ok, c.wallets_unchanged, c.wallets_failed
            ),
            TokenCounts(c.tokens_added, c.tokens_changed),
            BalanceCounts(c.balances_added, c.balances_changed, c.balances_removed),
            c.requests,
            c.retries,
            c.seconds,
            failures,
            error,
            resumed,
        )

    @property
    def problem(self) -> str | None:
        """One line on why the run did not end `ok`, or None."""
        error = self.error or next((failure.error for failure in self.failures), "")
        line = f"{self.summary().splitlines()[0]} {error}".rstrip()
        return None if self.status == "ok" else line

    def as_dict(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    def _repr_html_(self) -> str:
        """Return tables for Jupyter, without colors, which suits any theme."""
        w, t, b = self.wallets, self.tokens, self.balances
        rows = {
            "Status": self.status if self.error is None else f"{self.status}: {self.error}",
            "Wallets": f"{w.ok:,} read ({w.unchanged:,} unchanged){self._not_read()}",
            "Balances": f"{b.added:,} added, {b.changed:,} changed, {b.removed:,} removed",
            "Tokens": f"{t.added:,} new, {t.changed:,} changed",
            "Requests": f"{self.requests:,} (retries: {self.retries:,})",
            "Time": f"{self.seconds:.1f} s",
        }
        page = _table(f"Sync, run {self.run_id}", rows.items())
        if not self.failures:
            return page
        failure_rows = [
            (f.wallet_id if f.token_id is None else f"{f.wallet_id}, token {f.token_id}", f.error)
            for f in self.failures[:_MAX_SHOWN]
        ]
        if more := len(self.failures) - len(failure_rows):
            failure_rows.append((f"and {more:,} more", "in .failures"))
        return page + _table(f"Failures: {len(self.failures):,}", failure_rows)

    def _not_read(self) -> str:
        incomplete = sum(x.status == "incomplete" and x.token_id is None for x in self.failures)
        numbers = {"incomplete": incomplete, "failed": self.wallets.failed - incomplete}
        return "".join(f", {number:,} {status}" for status, number in numbers.items() if number)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002
        printer.text(self.summary())

    def summary(self) -> str:
        """Return a summary of two lines; a resumed run of a lake has a third."""
        w, t, b = self.wallets, self.tokens, self.balances
        unchanged = f" ({w.unchanged:,} unchanged)" if w.unchanged else ""
        retries = f" (retries: {self.retries:,})" if self.retries else ""
        return (
            f"Run {self.run_id}: {self.status}. {counted(w.ok, 'wallet')} read{unchanged}"
            f"{self._not_read()}; {counted(self.requests, 'request')}{retries} in"
            f" {self.seconds:.1f} s.\n"
            f"Balances: {b.added:,} added, {b.changed:,} changed, {b.removed:,} removed. "
            f"Tokens: {t.added:,} new, {t.changed:,} changed."
            f"{'' if self.resumed is None else self.resumed}"
        )


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    # Legible also in untrusted notebooks, where JupyterLab removes styles.
    left = ' style="text-align: left"'
    lines = "".join(
        f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<p><strong>{escape(title)}</strong></p><table><tbody>{lines}</tbody></table>"
