"""The evidence for a wallet's holdings at a time."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.kit.database import now
from tests.kit.mirrored_site import Site
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import Outcome

Evidence = dict[str, Any]


@pytest.fixture
def evidence(command: Callable[..., Outcome]) -> Callable[..., Evidence]:
    """Return a function that reads the evidence for a wallet at a time."""

    def read(wallet: str, at: str) -> Evidence:
        found: Evidence = command("evidence", wallet, "--at", at, "--json").says().json
        return found

    return read


def proof(found: Evidence) -> tuple[str, str | None, str | None]:
    return found["certainty"], found["confirmed_before"], found["confirmed_after"]


def amounts(found: Evidence) -> dict[str, str]:
    return {row["token_id"]: row["amount"] for row in found["holdings"]}


def states_of(site: Site, wallet: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(site.database)) as connection:
        return connection.execute(
            "SELECT first_read_at, last_read_at FROM wallet_states WHERE wallet_id = ?"
            " ORDER BY state_id",
            (wallet,),
        ).fetchall()


def test_a_time_between_two_reads_of_one_state_is_bracketed_and_a_later_one_open(site, evidence):
    between = now()
    site.sync()
    ((first, last),) = states_of(site, site.ids[0])
    found = evidence(site.ids[0], between)
    assert proof(found) == ("bracketed", first, last)
    assert first <= between <= last
    assert first in found["statement"]
    assert last in found["statement"]
    assert [state["reads"] for state in found["reads"]] == [2]
    assert set(amounts(found)) == set(site.held(site.ids[0]))
    at_last = evidence(site.ids[0], last)
    assert (at_last["certainty"], at_last["confirmed_after"]) == ("bracketed", last)
    just_after = datetime.fromisoformat(last) + timedelta(microseconds=1)
    for later in (just_after.isoformat(), now()):
        found = evidence(site.ids[0], later)
        assert proof(found) == ("open", last, None)
        assert "nothing proves the holdings after it" in found["statement"]


def test_a_time_between_two_states_is_a_gap_that_shows_the_earlier_one(site, evidence):
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    between = now()
    site.world.remove(wallet, token)
    site.sync()
    found = evidence(wallet, between)
    earlier, later = states_of(site, wallet)
    assert proof(found) == ("gap", earlier[1], later[0])
    assert "may be before or after the change" in found["statement"]
    assert token in amounts(found)
    assert token not in amounts(evidence(wallet, now()))
    assert [state["run_id"] for state in found["reads"]] == [1, 2]
    assert {state["run_status"] for state in found["reads"]} == {"ok"}
    # A read's time is its start; its result is known a little later.
    assert "was under way" in evidence(wallet, earlier[0])["statement"]
    found = evidence(wallet, later[0])
    assert found["certainty"] == "gap"
    assert "under way" in found["statement"]


def test_before_the_first_read_all_is_unknown_and_incomplete_reads_confirm_nothing(
    lying: Provider, command, evidence, monkeypatch
):
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    lying.holds(wallet(1), entry(token(1)))
    command("wallets", "add", wallet(2)).says()
    command("sync", wallet(1)).says()
    first = evidence(wallet(1), now())["confirmed_before"]
    for number, at, read in ((1, "2000-01-01", first), (2, now(), None)):
        found = evidence(wallet(number), at)
        assert proof(found) == ("unknown", None, read)
        when = f"The first was at {read}." if read else "There is still none."
        assert found["statement"] == f"At that time, this wallet had no read yet. {when}"
        assert found["holdings"] == []
    body = balances(entry(token(1), "0012.50"), next="a page that nftsync does not know")
    lying.on(f"/v1/wallets/{wallet(1)}/nft-balances", reply(body))
    command("sync", wallet(1))
    found = evidence(wallet(1), now())
    assert found["certainty"] == "open"
    assert "1 change to these holdings came from incomplete reads" in found["statement"]
    assert amounts(found) == {token(1): "0012.50"}


@pytest.mark.parametrize("at", [(), ("--at", "today")])
def test_the_command_shows_the_present_as_text_or_one_json_object(site, command, at):
    command("wallets", "label", site.ids[0], "Treasury")
    words = ("evidence", site.ids[0].upper(), *at)
    before = now()
    found = command(*words, "--json").says().json
    assert (found["wallet_id"], found["label"]) == (site.ids[0], "Treasury")
    assert before <= found["at"] <= now()
    assert len(found["holdings"]) == 5
    assert found["reads"][0]["run_status"] == "ok"
    text = command(*words).out
    assert "No complete read has been stored since" in text
    moment = found["confirmed_before"]
    assert (moment[-1], moment in found["statement"], moment in text) == ("Z", True, True)
    assert f", at {moment[:19].replace('T', ' ')} UTC, found these holdings" in text
    assert all(token in text for token in site.held(site.ids[0]))
