"""Rules with changes that lie far apart, or with unknown names: none stops others, or for good."""

from __future__ import annotations

from nftsync.alerts import WatchRule
from nftsync.store.mirror import Mirror
from nftsync.watch.planner import Planner
from tests.kit.database import token_id, wallet_id
from tests.watch.conftest import types

A, B, C, D = 1, 2, 3, 4


def test_a_transfer_is_reported_once_however_many_changes_are_between_its_sides(watched):
    """The changes between may be initial holdings, of which the rule reports none."""
    rule = WatchRule(name="moves", on=["transfer"], to=["ops"])
    watched.read({A: {1: "1"}, B: {}})
    with Mirror(watched.database, write_gap=0.0) as mirror:
        planner = Planner(mirror, [rule], [], most=10)
        watched.apply(mirror, {B: {1: "1"}})
        watched.apply(mirror, {C: dict.fromkeys(range(100, 300), "1")})
        watched.apply(mirror, {A: {}})
        assert planner.plan(planner.newest()) == 1
        watched.apply(mirror, {A: {2: "1"}})
        assert planner.plan(planner.newest()) == 0
    (message,) = watched.messages()
    assert message["data"]["from_wallet_id"] == wallet_id(A)
    assert message["data"]["to_wallet_id"] == wallet_id(B)


def plan_all(watched, rule, most):
    """Plan with a small limit until nothing is planned, like the rounds of `serve`."""
    with Mirror(watched.database, write_gap=0.0) as mirror:
        planner = Planner(mirror, [rule], [], most=most)
        planned = planner.plan(planner.newest())
        assert planner.plan(planner.newest()) == 0
        cursor = "SELECT change_id FROM watch_cursors WHERE rule = ?"
        assert watched.run(cursor, rule.name)[0][0] == planner.newest().change_id
    return planned


def test_a_move_of_many_nfts_is_one_digest_though_its_sides_are_far_apart(watched):
    tokens = dict.fromkeys(range(1, 16), "1")
    others = dict.fromkeys(range(21, 36), "1")
    watched.read({A: tokens, B: {}, C: others, D: {}})
    rule = WatchRule(name="moves", on=["sent", "received"], to=["ops"])
    plan_all(watched, rule, 10)
    watched.read({A: {}}, {C: {}}, {B: tokens}, {D: others})
    assert plan_all(watched, rule, 20) == 1
    (digest,) = watched.messages()
    assert digest["counts"] == {"holding.transfer": 30}


def test_changes_of_any_distance_are_all_reported_with_the_smallest_limit(watched):
    """Parts of one change: a digest may count a transfer for each side, but no rule stops."""
    tokens = dict.fromkeys(range(1, 8), "1")
    watched.read({A: tokens, B: {}})
    rule = WatchRule(name="moves", on=["sent", "received", "amount"], to=["ops"])
    plan_all(watched, rule, 1)
    watched.read({A: {}}, {B: tokens})
    assert plan_all(watched, rule, 1) == 7
    assert {one["data"]["token_id"] for one in watched.messages()} == set(map(token_id, tokens))
    assert set(types(watched.messages())) == {"holding.transfer"}


def test_overlapping_transfers_without_end_delay_a_rule_by_minutes_only(watched):
    """Each plan ends between the sides of a transfer, as when transfers never stop."""
    watched.read({A: {1: "1"}, B: {}})
    rule = WatchRule(name="moves", on=["sent", "received"], to=["ops"])
    with Mirror(watched.database, write_gap=0.0) as mirror:
        planner = Planner(mirror, [rule], [])
        watched.apply(mirror, {A: {}})
        until = planner.newest()
        watched.apply(mirror, {B: {1: "1"}})
        assert planner.plan(until) == 0  # the next plan has both sides
        changes, states = ["observed_at"], ["observed_at", "first_read_at", "last_read_at"]
        for table, columns in {"balance_change_rows": changes, "wallet_state_rows": states}.items():
            years_ago = ", ".join(f"{name} = '2020' || substr({name}, 5)" for name in columns)
            watched.run(f"UPDATE {table} SET {years_ago}")
        assert planner.plan(until) == 1
        assert planner.plan(planner.newest()) == 0
    (message,) = watched.messages()
    assert message["type"] == "holding.transfer"
