"""The command `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import one_line, print_json, say, unreadable_shown, wallet_name
from nftsync.text import counted, lasting, short_id, toml_string
from nftsync.times import age_seconds, now, utc_times

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.alerts import Forward, WatchRule
    from nftsync.records import NewField
    from nftsync.reports.status import Status
    from nftsync.settings import Settings
    from nftsync.store.freshness import StalestWallet

#: Limit of new fields: a provider may send random names.
_SHOWN_FIELDS = 3


@click.command()
@options.with_settings("database")
@options.duration(
    "--max-age",
    "Exit with 1 if a tracked wallet was not read within this time (6h, 7d), or was never read.",
)
@options.json("Print the status as JSON.")
def status(settings: Settings, *, max_age: timedelta | None, as_json: bool) -> int:
    """Show counts, freshness, the last runs and the backlog.

    \b
    Examples:
      nftsync status
      nftsync status --json
      nftsync status --max-age 6h || alert "wallets are stale"
    """
    from nftsync.reports.status import read_status

    at = now()
    rules: list[WatchRule | Forward] = [*settings.watch.values(), *settings.forward.values()]
    report, stalest = read_status(settings.database, at, rules)
    if as_json:
        print_json(report)
    else:
        _show(report, stalest, at)
        if report.warning is not None:
            say(f"nftsync: {utc_times(report.warning)}")
    if stalest is None or max_age is None:
        return 0
    if stalest.age_s is not None and stalest.age_s <= max_age.total_seconds():
        return 0
    read = "never read" if stalest.age_s is None else f"last read {_ago(stalest.age_s)}"
    say(f"nftsync: stale: wallet {wallet_name(stalest.wallet_id, stalest.label)} was {read}")
    return 1


def _show(report: Status, stalest: StalestWallet | None, at: str) -> None:
    from nftsync.store.checkpoints import LONG_LOG, log_bytes

    freshness = f"least recently read: {_ago(stalest.age_s)}" if stalest else "none tracked"
    backlog = _by_state(report.inbox)
    if report.oldest_pending_age_s is not None:
        backlog += f"; oldest pending: {_ago(report.oldest_pending_age_s)}"
    backlog += "; reasons: nftsync inbox --state quarantined" * ("quarantined" in report.inbox)
    balances = f"{report.balances:,}"
    if report.unusable_amounts:
        balances += (
            f"; sums leave out {report.unusable_amounts:,} with an amount that is not 1 to 100"
            " digits (list: frames.quality)"
        )
    lines = {
        "nftsync": report.version,
        "database": report.database,
        "wallets": f"{_by_state(report.wallets)}; {freshness}",
        "tokens": f"{report.tokens:,}",
        "balances": balances,
        "changes": f"{report.changes:,}",
        "last sync": _run(report.last_sync, at),
        "last replay": _run(report.last_replay, at),
        "inbox": backlog,
    }
    if report.outbox:
        lines["outbox"] = _by_state(report.outbox)
        if report.oldest_message_age_s is not None:
            lines["outbox"] += f"; oldest unsent: {_ago(report.oldest_message_age_s)}"
    lines["stopped"] = "; ".join(
        f"{name}: {reason}; to restart it: nftsync watch send {name}"
        for name, reason in report.stopped_destinations.items()
    )
    lines["rules"] = "; ".join(f"{name}: {why}" for name, why in report.rule_problems.items())
    if report.unreadable:
        lines["unreadable"] = unreadable_shown(report.unreadable)
    if report.new_fields:
        lines["new fields"] = _new_fields(report.new_fields)
    if report.always_changing is not None:
        lines["history"] = (
            f"nearly all tokens changed in each of the last 3 syncs, mostly in their field"
            f" {report.always_changing}. To store it without history:"
            f" volatile_fields = [{toml_string(report.always_changing)}]"
        )
    if report.removals_held.since is not None:
        lines["removals"] = f"{report.removals_held} held for review: nftsync removals"
    if (size := log_bytes(Path(report.database))) >= LONG_LOG:
        lines["log"] = f"{size:,} bytes, because a program reads an old state; stop that program"
    for name, text in lines.items():
        if text:
            click.echo(f"{name:<13}{one_line(text)}")


def _new_fields(fields: Sequence[NewField]) -> str:
    texts = [
        f"{one.news}, first in {short_id(one.example_id)} on {one.first_seen_at[:10]}"
        for one in fields[:_SHOWN_FIELDS]
    ]
    more = len(fields) - len(texts)
    return "; ".join(texts) + f"; {more:,} more in the table new_fields" * (more > 0)


def _by_state(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items()) or "none"


def _run(run: Mapping[str, Any] | None, at: str) -> str:
    if run is None:
        return "never"
    text = f"{run['status']}, {_ago(age_seconds(run['started_at'], at))} (run "
    more = f", {run['wallets_failed']:,} incomplete or failed" if run["wallets_failed"] else ""
    text += f"{run['run_id']}: {counted(run['wallets_ok'], 'wallet')} ok{more})"
    return text if run["error"] is None else f"{text}: {run['error']}"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{lasting(seconds, symbols=True)} ago"
