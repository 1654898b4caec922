"""The result of a sync, as `nftsync.sync` returns it and `sync --json` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from nftsync.store.runs import Counts, RunStatus
from nftsync.text import counted, lasting

#: How many failures Jupyter shows.
_SHOWN = 20
#: What differs between errors of one kind: where in an answer it was, and for how long to wait.
_PLACE = re.compile(r"(?<=\[)\d+(?=\])|(?<=byte )\d+|(?<=to wait )\d+")


class _Named(msgspec.Struct, frozen=True):
    """Fields by attribute and by name."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class WalletCounts(_Named, frozen=True):
    """Wallets: `total` is `ok` and `failed` together; `unchanged` is a part of `ok`."""

    total: int
    ok: int
    unchanged: int
    failed: int


class TokenCounts(_Named, frozen=True):
    """Tokens seen for the first time, and tokens whose content changed."""

    added: int
    changed: int


class BalanceCounts(_Named, frozen=True):
    """Balances newly listed, listed with another amount, and no longer listed."""

    added: int
    changed: int
    removed: int


class Failure(_Named, frozen=True, omit_defaults=True):
    """A wallet that was not read, or not wholly; with `token_id`, a token it holds."""

    wallet_id: str
    error: str
    token_id: str | None = None


def of_one_kind(failures: Iterable[Failure]) -> list[list[Failure]]:
    """Failures that say the same of wallets, or of tokens, together; the most frequent first."""
    kinds: dict[tuple[bool, str], list[Failure]] = {}
    for failure in failures:
        key = failure.token_id is None, _PLACE.sub("", failure.error)
        kinds.setdefault(key, []).append(failure)
    return sorted(kinds.values(), key=len, reverse=True)


class Resumed(_Named, frozen=True):
    """Wallets that a resumed run of a lake took over, read before it was interrupted.

    Attributes:
        wallets: how many.
        oldest_read_at: when the oldest of these reads began; None: there are none.
        oldest_age_seconds: its age when the run ended.
    """

    wallets: int
    oldest_read_at: str | None
    oldest_age_seconds: float | None


class SyncResult(_Named, frozen=True):
    """What a run came to.

    Attributes:
        run_id: its row in `sync_runs`.
        status: `ok`, `partial` (some failed or were incomplete), `failed` (all did, or the run
            had no point) or `interrupted`.
        wallets: counts of wallets.
        tokens: counts of tokens.
        balances: counts of balances.
        requests: HTTP requests, retries included.
        retries: how many of them were repeats.
        seconds: how long it took.
        failures: what was not read, and why.
        error: why the whole run stopped early, or None.
        resumed: what a resumed run of a lake took over; None: nothing was resumed.
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
        """Build the result of a run of a database or of a lake, with its status.

        Args:
            run_id: the run.
            c: its counts.
            failures: what was not read, and why.
            error: why the run stopped early; None: it did not, or it was interrupted.
            interrupted: it was stopped by Ctrl-C or SIGTERM.
            resumed: what a resumed run of a lake took over.
        """
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

    def as_dict(self) -> dict[str, Any]:
        """The value that `sync --json` prints."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("error", "resumed"):
            if value[name] is None:
                del value[name]
        return value

    def _repr_html_(self) -> str:
        """The result as Jupyter shows it: tables without colors, so that they suit any theme."""
        w, t, b = self.wallets, self.tokens, self.balances
        rows = {
            "Status": self.status if self.error is None else f"{self.status}: {self.error}",
            "Wallets": f"{w.ok:,} read, {w.unchanged:,} of them unchanged; {w.failed:,} failed",
            "Balances": f"{b.added:,} added, {b.changed:,} changed, {b.removed:,} removed",
            "Tokens": f"{t.added:,} new, {t.changed:,} changed",
            "Requests": f"{self.requests:,}, {self.retries:,} of them retries",
            "Time": f"{self.seconds:.1f} s",
        }
        page = _table(f"Sync, run {self.run_id}", rows.items())
        if not self.failures:
            return page
        shown = [
            (f.wallet_id if f.token_id is None else f"{f.wallet_id}, token {f.token_id}", f.error)
            for f in self.failures[:_SHOWN]
        ]
        if more := len(self.failures) - len(shown):
            shown.append((f"and {more:,} more", "in .failures"))
        return page + _table(f"Failures: {len(self.failures):,}", shown)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002
        """The result as IPython shows it in a terminal; not with every failure."""
        printer.text(self.summary())

    def summary(self) -> str:
        """The result in two lines for a person; a resumed run of a lake has a third."""
        w, t, b = self.wallets, self.tokens, self.balances
        failed = f", {w.failed:,} failed" if w.failed else ""
        retried = f" ({self.retries:,} repeated)" if self.retries else ""
        return (
            f"Run {self.run_id}: {self.status}. {counted(w.ok, 'wallet')} read, {w.unchanged:,} "
            f"unchanged{failed}; {counted(self.requests, 'request')}{retried} in"
            f" {self.seconds:.1f} s.\n"
            f"Balances: {b.added:,} added, {b.changed:,} changed, {b.removed:,} removed. "
            f"Tokens: {t.added:,} new, {t.changed:,} changed."
            f"{self._taken_over()}"
        )

    def _taken_over(self) -> str:
        if self.resumed is None:
            return ""
        r = self.resumed
        age = r.oldest_age_seconds
        ago = "" if age is None else f"{lasting(age, symbols=True)} ago"
        since = ago and f", the oldest {ago} ({r.oldest_read_at})"
        return f"\nResumed: {counted(r.wallets, 'wallet')} read before the interruption{since}."


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    # What JupyterLab leaves of it in a notebook that is not trusted says as much.
    left = ' style="text-align: left"'
    lines = "".join(
        f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<p><strong>{escape(title)}</strong></p><table><tbody>{lines}</tbody></table>"
