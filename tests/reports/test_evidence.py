"""What a wallet held at a time, and what the reads around it prove."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from nftsync.records import WalletRead
from nftsync.reports.evidence import Evidence, find_evidence
from nftsync.store.mirror import Mirror
from nftsync.times import format_time, now
from tests.kit.mirrored_site import Site

LONG_AGO = "2000-01-01T00:00:00.000000Z"
STRANGER = "00000000-0000-4000-8000-000000000001"


def proof(found: Evidence) -> tuple[str, str | None, str | None]:
    return found.certainty, found.confirmed_before, found.confirmed_after


def amounts(found: Evidence) -> dict[str, str]:
    return {row["token_id"]: row["amount"] for row in found.holdings}


def states_of(site: Site, wallet: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(site.database)) as connection:
        return connection.execute(
            "SELECT first_read_at, last_read_at FROM wallet_states WHERE wallet_id = ?"
            " ORDER BY state_id",
            (wallet,),
        ).fetchall()


def test_a_time_between_two_reads_of_the_same_state_is_bracketed_and_one_after_them_open(site):
    between = now()
    site.sync()
    ((first, last),) = states_of(site, site.ids[0])
    found = find_evidence(site.database, site.ids[0], between)
    assert proof(found) == ("bracketed", first, last)
    assert first <= between <= last
    assert first in found.statement
    assert last in found.statement
    assert [state["reads"] for state in found.reads] == [2]
    assert set(amounts(found)) == set(site.held(site.ids[0]))
    at_last = find_evidence(site.database, site.ids[0], last)
    assert (at_last.certainty, at_last.confirmed_after) == ("bracketed", last)
    just_after = format_time(datetime.fromisoformat(last) + timedelta(microseconds=1))
    for later in (just_after, now()):
        found = find_evidence(site.database, site.ids[0], later)
        assert proof(found) == ("open", last, None)
        assert "nothing proves the holdings after it" in found.statement


def test_a_time_between_two_states_is_a_gap_that_shows_the_earlier_one(site):
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    between = now()
    site.world.remove(wallet, token)
    site.sync()
    found = find_evidence(site.database, wallet, between)
    earlier, later = states_of(site, wallet)
    assert proof(found) == ("gap", earlier[1], later[0])
    assert "may be before or after the change" in found.statement
    assert token in amounts(found)
    assert token not in amounts(find_evidence(site.database, wallet, now()))
    assert [state["run_id"] for state in found.reads] == [1, 2]
    assert {state["run_status"] for state in found.reads} == {"ok"}
    # A read's time is its start; what it found is known from a little later on.
    assert "was under way" in find_evidence(site.database, wallet, earlier[0]).statement
    found = find_evidence(site.database, wallet, later[0])
    assert found.certainty == "gap"
    assert "under way" in found.statement


def test_before_the_first_read_all_is_unknown_and_incomplete_reads_confirm_nothing(site, command):
    command("wallets", "add", STRANGER)
    first = states_of(site, site.ids[0])[0][0]
    for wallet, at, read in ((site.ids[0], LONG_AGO, first), (STRANGER, now(), None)):
        found = find_evidence(site.database, wallet, at)
        assert proof(found) == ("unknown", None, read)
        when = f"The first was at {read}." if read else "There is still none."
        assert found.statement == f"At that time, this wallet had no read yet. {when}"
        assert found.holdings == []
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    with Mirror(site.database) as mirror, mirror.transaction() as transaction:
        read = WalletRead(
            wallet_id=wallet,
            sequence=mirror.numbers.take(),
            started_at=now(),
            outcome="incomplete",
            entries=[(token, "0012.50", None)],
            error="unknown field",
        )
        transaction.apply([read])
    found = find_evidence(site.database, wallet, now())
    assert found.certainty == "open"
    assert "1 change to these holdings came from incomplete reads" in found.statement
    assert amounts(found)[token] == "0012.50"


@pytest.mark.parametrize("at", [(), ("--at", "today")])
def test_the_command_tells_it_of_now_and_prints_one_json_object(site, command, at):
    command("wallets", "label", site.ids[0], "Treasury")
    asked = ("evidence", site.ids[0].upper(), *at)
    before = now()
    done = command(*asked, "--json").says()
    assert list(done.json) == list(Evidence.__struct_fields__)
    assert (done.json["wallet_id"], done.json["label"]) == (site.ids[0], "Treasury")
    assert before <= done.json["at"] <= now()
    assert len(done.json["holdings"]) == 5
    assert done.json["reads"][0]["run_status"] == "ok"
    told = command(*asked).out
    assert "No complete read has been stored since" in told
    moment = done.json["confirmed_before"]
    assert (moment[-1], moment in done.json["statement"], moment in told) == ("Z", True, True)
    assert f", at {moment[:19].replace('T', ' ')} UTC, found these holdings" in told
    assert all(token in told for token in site.held(site.ids[0]))
