"""Periods of `statement` and `transfers`: their options, the times shown, and what counts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kit.database import Builder, at

MONTH = 31 * 86_400
#: The last time of March, in seconds after its begin.
LAST = MONTH - 0.000001


@pytest.fixture
def march(build: Builder, command: Any) -> Any:
    """An NFT that moves in the first and in the last microsecond of March, and then in April."""
    for number, group in ((1, "house"), (2, "house"), (3, None)):
        build.wallet(number, label=f"W{number}", wallet_group=group)
        build.state(number, -99, -99, -99)
    for number in range(1_200):
        build.token(number, name=f"Kite {number}")
        build.change(3, number, None, "1", -99, baseline=1)
    build.change(1, 1, None, "1", -99, baseline=1)
    for number, (giver, taker, seconds) in enumerate(((1, 2, 0), (2, 1, LAST), (1, 2, MONTH))):
        build.change(giver, 1, "1", None, seconds)
        build.change(taker, 1, None, "1", seconds)
        times = dict.fromkeys(("started_at", "finished_at"), at(seconds))
        build.insert("sync_runs", run_id=number + 1, kind="sync", status="ok", **times)
    path = build.close()
    return lambda *words: command(*words, "-d", path)


@pytest.mark.parametrize(
    "period",
    [
        "--month 2026-03",
        *(f"--from 2026-02-28 {until} 2026-03-31" for until in ("--to", "--until")),
        "--since 2026-03-01 --until 2026-03-31",
        f"--since {at(0)} --to {at(LAST)}",
    ],
)
def test_all_forms_of_a_month_have_the_same_result(march, period):
    period = period.split()
    rows = march("transfers", *period, "--json").json
    assert [row["observed_at"] for row in rows] == [at(0), at(LAST)]
    rows = march("statement", *period, "--json").json
    assert {(row["start"], row["end"]) for row in rows} == {(at(-0.000001), at(LAST))}
    columns = ("opening", "received", "sent", "closing")
    assert [rows[-1][name] for name in columns] == [1_201, 2, 2, 1_201]
    header = "From the end of 2026-02-28 to the end of 2026-03-31 (UTC), in holdings:"
    assert "23:59:59" not in march("statement", *period).says(header).said


def test_a_running_month_ends_now(one_day, march):
    today = datetime.now(UTC)
    done = march("statement", "--month", today.strftime("%Y-%m"), "--json")
    (end,) = {row["end"] for row in done.json}
    assert today.isoformat() < end < datetime.now(UTC).isoformat()
    assert march("transfers", "--month", today.strftime("%Y-%m"), "--json").json == []


@pytest.mark.parametrize("name", ["statement", "transfers"])
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--month 2026-03 --from 2026-03-01", "--month is a whole period; drop --from"),
        ("--month 2026-03 --since 7d --to 1d", "drop --since and --to"),
        ("--to 2026-03-02 --until 2026-03-03", "--to and --until both end the period; drop one"),
        ("--since 2026-03-01 --from 2026-03-01", "--from and --since both start the period; drop"),
        ("--month 2026-3", "'2026-3' is not a month; write 2026-10"),
        ("--month 2026-13", "'2026-13' is not a month; write 2026-10"),
        ("--month March", "'March' is not a month; write 2026-10"),
        ("--month 2999-01", "2999-01-01 is in the future"),
    ],
)
def test_contradicting_periods_are_usage_errors(march, name, words, text):
    march(name, *words.split()).tells(text, code=2)


def test_results_say_what_they_count(march):
    march("transfers").says(
        "3 movements: 3 between two wallets, 0 received, 0 sent. Each is one change, or two that"
    )
    march("statement", "--month", "2026-03").says(
        "count holdings that began or ended; a transfer within a row"
    )


def test_a_database_without_groups_says_how_to_get_rows(march):
    period = ("statement", "--month", "2026-03")
    done = march(*period, "--wallet", "W3").says("no group", "set groups in the wallets file")
    assert "–" not in done.out
    assert "wallets file" not in march(*period).says("no group", "house").err
    assert march(*period, "--json").json[0]["wallet_group"] is None
    assert march("statement").tells("--month", code=2)


def test_a_start_before_the_history_is_told_by_each_command(march):
    note = "The history begins at 2026-02-28 23:58:21 UTC; earlier holdings and movements"
    for words in ("transfers --since 2026-01-01", "changes --since 2026-01-01"):
        march(*words.split()).says(note)
        assert "history" not in march(words.split()[0]).said
    done = march("statement", "--from", "2026-01-01").says(note, "the period begins there")
    assert done.out.startswith("From 2026-02-28 23:58:21 to now (UTC), in holdings:")
    march("statement", "--month", "2026-01").tells("before the history, which begins at 2026-02-28")
    march("holdings", "--as-of", "2026-01-31").tells("Holdings before it are unknown", code=0)
