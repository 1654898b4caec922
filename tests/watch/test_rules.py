"""Changes that rules report, in messages and digests."""

import json
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nftsync import frames
from nftsync.alerts import Quiet
from tests.kit.database import token_id, wallet_id
from tests.watch.conftest import OPS, plan, types

A, B, C = 1, 2, 3
EMOJI = "\U0001f600" * 100_000


def of(messages: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return each message's type and some of its data."""
    return [(message["type"], *map(message["data"].get, names)) for message in messages]


def by_rule(messages: list[dict[str, Any]], *names: str) -> dict[str, list[Any]]:
    """Return the types of each rule's messages, sorted, without their first word, and some data."""
    found: dict[str, list[Any]] = {}
    for message in messages:
        kind = message["type"].partition(".")[2]
        more = [message["data"][name] for name in names]
        found.setdefault(message["rule"], []).append((kind, *more) if more else kind)
    return {rule: sorted(kinds) for rule, kinds in found.items()}


def test_each_kind_reports_its_changes_with_the_data_of_transfers(watched, command):
    kinds = ("transfer", "received", "sent", "amount", "metadata")
    watched.start(
        *(watched.rule(kind, on=[kind]) for kind in kinds),
        watched.rule("movements", on=["sent", "received"]),
        watched.rule("first", on=["received"], baseline=True),
        read={A: {1: "1", 2: "5"}},
    )
    watched.read({B: {9: "1"}, C: {}})
    (initial,) = watched.watch()
    assert initial["rule"] == "first"
    assert of([initial], "wallet_id", "token_id", "old_amount", "new_amount") == [
        ("holding.received", wallet_id(B), token_id(9), None, "1")
    ]
    watched.content[9] = {"name": "Renamed"}
    watched.read({A: {2: "3"}, B: {1: "1", 9: "1"}, C: {7: "4"}})
    messages = watched.watch()
    assert by_rule(messages) == {
        "transfer": ["transfer"],
        "received": ["received", "transfer"],
        "sent": ["sent", "transfer"],
        "amount": ["amount"],
        "metadata": ["metadata"],
        "movements": ["received", "sent", "transfer"],
        "first": ["received", "transfer"],
    }
    listed = command("transfers", "--json").json
    told = [message["data"] for message in messages if message["rule"] == "movements"]
    assert sorted(told, key=json.dumps) == sorted(listed, key=json.dumps)
    data = {message["rule"]: message["data"] for message in messages}
    assert (data["amount"]["old_amount"], data["amount"]["new_amount"]) == ("5", "3")
    assert data["metadata"]["before"] == {"name": "Token 9"}
    assert data["metadata"]["after"] == {"name": "Renamed"}
    assert watched.watch() == []
    assert len(set(watched.states("message_id"))) == len(watched.states())
    assert set(watched.states()) == {"done"}


def test_texts_name_nfts_without_a_name_and_wallets_of_one_label(watched, command):
    watched.configure(watched.rule("all", on=["transfer", "amount", "metadata"]))
    about = {"name": None, "contract_address": "0x" + "cd" * 20, "blockchain_token_id": "7"}
    watched.content |= {1: about, 2: about | {"blockchain_token_id": "8"}}
    watched.read({A: {1: "2", 2: "5"}}, {B: {}})
    watched.run("UPDATE wallets SET label = 'Treasury'")
    watched.watch()
    watched.content[2] = watched.content[2] | {"description": "new"}
    watched.read({A: {2: "3"}, B: {1: "2"}})
    a, b = frames.wallets(watched.database)["wallet"]
    assert a.startswith("Treasury ")
    command("watch", "test", "all").says(
        f"{a} sent 2 of 0xcdcd…cdcd #7 to {b}",
        f"{a}: amount of 0xcdcd…cdcd #8: 5 to 3",
        "Metadata of 0xcdcd…cdcd #8 changed: description",
    )


def test_a_movement_is_no_changed_amount_as_well(watched):
    watched.start(
        watched.rule("both", on=["sent", "received", "amount"]),
        read={A: {1: "5", 2: "1.5"}, B: {1: "1"}},
    )
    watched.read({A: {1: "4", 2: "2.5"}, B: {1: "2"}})
    assert of(watched.watch(), "token_id") == [
        ("holding.transfer", token_id(1)),
        ("holding.amount", token_id(2)),
    ]


def test_filters_are_wallets_groups_collections_and_amounts(watched):
    watched.content = {
        token: {"contract_address": f"0x{token % 2}{'aB' * 19}c"} for token in range(1, 9)
    }
    watched.read({A: {1: "9", 2: "9", 3: "1"}, B: {4: "1"}, C: {}})
    watched.run("UPDATE wallets SET label = 'Vault' WHERE wallet_no = 1")
    watched.run("UPDATE wallets SET wallet_group = iif(wallet_no = 3, 'shop', 'house')")
    both = ["sent", "received"]
    odd, even = (f"0X{number}{'AB' * 19}C" for number in (1, 0))
    watched.configure(
        watched.rule("vault", on=both, wallets=["Vault"]),
        watched.rule("shop", on=both, groups=["shop"]),
        watched.rule("nobody", on=both, groups=["shop"], wallets=["Vault"]),
        watched.rule("transfers", on=["transfer"], groups=["shop"]),
        watched.rule("odd", on=both, contracts=[odd.lower()]),
        watched.rule("collections", on=both, collections=[even.lower(), odd.lower()]),
        watched.rule("large", on=both, min_amount=5),
        watched.rule("amounts", on=["amount"], min_amount=5),
    )
    watched.watch()
    watched.read({A: {1: "4", 2: "8"}, B: {3: "1"}, C: {1: "5"}})
    one, two, three, four = map(token_id, range(1, 5))
    everything = [("sent", two), ("sent", four), ("transfer", one), ("transfer", three)]
    assert by_rule(watched.watch(), "token_id") == {
        "vault": [("sent", two), ("transfer", one), ("transfer", three)],
        "shop": [("transfer", one)],
        "transfers": [("transfer", one)],
        "odd": [("transfer", one), ("transfer", three)],
        "collections": everything,
        "large": [("transfer", one)],
        "amounts": [("amount", one)],
    }


def test_hidden_tokens_and_initial_holdings_are_reported_on_request_only(watched, command):
    on = ["sent", "received", "amount", "metadata"]
    watched.configure(
        watched.rule("plain", on=on),
        watched.rule("hidden", on=on, hidden=True),
        watched.rule("first", on=["received"], baseline=True),
        watched.rule("all", on=["received"], baseline=True, hidden=True),
    )
    watched.read({A: {1: "1", 2: "1", 4: "1"}})
    command("hide", token_id(1)).says()
    assert watched.watch() == []
    watched.content[1] = {"name": "Free money"}
    watched.read({A: {}, B: {1: "1"}, C: {3: "1"}})
    assert by_rule(watched.watch()) == {
        "plain": ["sent", "sent"],
        "hidden": ["metadata", "sent", "sent", "sent"],
        "first": ["received"],
        "all": ["received", "received"],
    }


def test_the_other_side_of_a_transfer_may_be_read_later(watched, command):
    """First one side is known; then a message has both, as `transfers` has."""
    watched.start(watched.rule("moves", on=["sent", "received"]), read={A: {1: "1"}, B: {}})
    watched.read({A: {}})
    sides = ("from_wallet_id", "to_wallet_id")
    assert of(watched.watch(), *sides) == [("holding.sent", wallet_id(A), None)]
    watched.read({B: {1: "1"}})
    (message,) = watched.watch()
    assert of([message], *sides) == [("holding.transfer", wallet_id(A), wallet_id(B))]
    assert [message["data"]] == command("transfers", "--json").json


def test_digests_count_a_transfer_once_when_its_sides_are_planned_one_by_one(watched):
    """As in `serve`, where the second side is often stored before the first is reported."""
    tokens = dict.fromkeys(range(1, 9), "1")
    watched.read({A: tokens, B: {}, C: {20: "1"}})
    with watched.planning({"on": ["sent", "received"]}) as planner:
        watched.read({C: {}}, {A: {}})
        first = planner.newest()
        watched.read({B: tokens})
        assert [planner.plan(first), plan(planner)] == [1, 1]
    alone, digest = watched.messages()
    assert of([alone], "from_wallet_id", "to_wallet_id") == [("holding.sent", wallet_id(C), None)]
    assert digest["counts"] == {"holding.transfer": len(tokens)}


def test_up_to_five_messages_come_alone_and_more_as_a_digest_for_each_destination(watched, command):
    rule = watched.rule("moves", on=["received"], to=["ops", "more"])
    watched.start(OPS.replace("ops", "more"), rule)
    watched.read({A: dict.fromkeys(range(5), "1")})
    assert types(watched.watch()) == ["holding.received"] * 10
    watched.content = {token: {"name": f"{EMOJI}{token}"} for token in range(11, 21)}
    watched.read({A: dict.fromkeys(range(11), "1")})
    six, other = watched.watch()
    assert (six["type"], six["total"], six["counts"]) == ("digest", 6, {"holding.received": 6})
    assert types(six["data"]) == ["holding.received"] * 6
    assert six == other
    watched.read({A: dict.fromkeys(range(3_000), "1")})
    many, other = watched.watch()
    assert (many["total"], len(many["data"]), many == other) == (2_989, 10, True)
    assert max(watched.run("SELECT length(body) FROM messages"))[0] < 20_000
    assert all(len(one["name"]) <= 120 for one in many["data"])
    # The digest's command lists its events.
    listed = command(*many["command"].split()[1:], "--json").json
    assert {one["token_id"] for one in many["data"]} < {one["token_id"] for one in listed}
    assert len(listed) == 2_989


def test_a_single_message_is_short_whatever_the_metadata_is(watched):
    watched.configure(watched.rule("names", on=["metadata"]))
    watched.content[1] = {"name": EMOJI}
    watched.read({A: {1: "1"}})
    watched.watch()
    deep = {str(number): [{"name": "\U0001f600" * 200}] for number in range(50)}
    watched.content[1] = {"name": "\u202e", "extra": json.dumps({"metadata": deep})}
    watched.read({A: {1: "1"}})
    assert types(watched.watch()) == ["token.metadata"]
    assert max(watched.run("SELECT length(body) FROM messages"))[0] < 20_000


def test_new_rules_start_now_or_where_they_are_told_to(watched):
    watched.read({A: {}}, {A: {1: "1"}})
    watched.configure(watched.rule("new", on=["received"]))
    assert watched.watch() == []
    watched.configure(*(watched.rule(name, on=["received"]) for name in ("old", "new")))
    assert by_rule(watched.watch("--since", "1d")) == {"old": ["received"]}
    assert watched.watch("--since", "1d") == []


def at_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "moment", "until"),
    [
        ("22:00-07:00 UTC", "01-31T22:00", "02-01T07:00"),
        ("22:00-07:00 Asia/Kolkata", "01-31T16:30", "02-01T01:30"),
        # Summer time begins on 29 March, when 02:00 to 03:00 is left out, and ends on 25 October.
        ("22:00-07:00 Europe/Berlin", "03-28T22:00", "03-29T05:00"),
        ("22:00-07:00 Europe/Berlin", "10-24T21:00", "10-25T06:00"),
        ("01:00-02:30 Europe/Berlin", "03-29T00:30", "03-29T01:00"),
        ("01:00-03:00 Europe/Berlin", "03-29T00:30", "03-29T01:00"),
        ("02:30-04:00 Europe/Berlin", "03-29T01:10", "03-29T02:00"),
        ("01:00-02:30 Europe/Berlin", "10-25T00:15", "10-25T00:30"),
        ("01:00-02:30 Europe/Berlin", "10-25T01:15", "10-25T01:30"),
        # Midnight is left out in Cairo, and half an hour on Lord Howe Island.
        ("22:00-00:30 Africa/Cairo", "04-23T21:00", "04-23T22:00"),
        ("23:00-02:15 Australia/Lord_Howe", "10-03T15:00", "10-03T15:30"),
    ],
)
def test_quiet_hours_end_on_the_clock_of_their_zone(hours, moment, until):
    span, _, zone = hours.partition(" ")
    quiet = Quiet(*map(time.fromisoformat, span.split("-")), zone)
    assert quiet.until(at_utc(f"2026-{moment}")) == at_utc(f"2026-{until}")


CLOCKS = st.times().map(lambda x: x.replace(second=0, microsecond=0))
ZONES = ["UTC", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "America/Sao_Paulo"]


@given(
    CLOCKS,
    CLOCKS,
    st.integers(0, 365 * 86_400).map(lambda x: at_utc("2026-01-01") + timedelta(seconds=x)),
    st.sampled_from(ZONES),
)
@example(time(1), time(2, 30), at_utc("2026-03-29T00:30"), "Europe/Berlin")
@example(time(1), time(2, 30), at_utc("2026-03-29T01:10"), "Europe/Berlin")
@example(time(1), time(2, 30), at_utc("2026-10-25T00:45"), "Europe/Berlin")
@example(time(12), time(13), at_utc("2026-01-31T13:00"), "UTC")
@example(time(12), time(0), at_utc("2026-01-31T23:59"), "UTC")
def test_quiet_hours_last_up_to_their_end_and_no_longer(start, end, moment, zone):
    assume(start != end)
    hours = Quiet(start, end, zone)
    until, clock = hours.until(moment), moment.astimezone(ZoneInfo(zone)).time()
    inside = [start <= clock, clock < end]
    assert (until is not None) == (all(inside) if start < end else any(inside))
    if until is not None:
        assert moment < until <= moment + timedelta(hours=25)
        assert hours.until(until) is None
        assert hours.until(until - timedelta(seconds=1)) == until
