"""Rules with changes that lie far apart, or with unknown names: none stops others, or for good."""

from __future__ import annotations

from datetime import timedelta

from nftsync.alerts import WatchRule
from nftsync.store.mirror import Mirror
from nftsync.times import now, shifted
from nftsync.watch.planner import Planner
from tests.kit.database import token_id, wallet_id
from tests.kit.serve_process import free_port, scraped, serving, webhook
from tests.kit.waiting import wait_until
from tests.watch.conftest import types

A, B, C, D = 1, 2, 3, 4
HOUR = timedelta(hours=1)


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


# Names that are gone -----------------------------------------------------------------------------

UNKNOWN = {
    'groups = ["hose"]': ("'hose'", "house"),
    'wallets = ["Valt"]': ("'Valt'", "Vault"),
    'wallets = ["Twin"]': ("Twin",),
    'collections = ["Oceans"]': ("'Oceans'", "Ocean"),
}


def assert_pauses(command, rule, *says):
    done = command("watch")
    assert done.code == 1
    assert all(text in done.err for text in (f"[watch.{rule}]: paused", *says)), done.err


def test_a_rule_with_an_unknown_or_ambiguous_name_pauses_alone_until_the_name_is_known(
    watched, command
):
    watched.content[1] = {"contract_address": "KT1ocean"}
    watched.read({A: {1: "1"}, B: {}, C: {}, D: {}})
    watched.run("UPDATE wallets SET label = 'Vault', wallet_group = 'house' WHERE wallet_no = 1")
    watched.run("UPDATE wallets SET label = 'Twin' WHERE wallet_no IN (3, 4)")
    assert command("collections", "label", "KT1ocean", "Ocean").code == 0
    healthy = watched.rule("all", on=["sent"])
    for number, (line, says) in enumerate(UNKNOWN.items()):
        rule = f"gone{number}"
        watched.configure(watched.rule(rule, on=["sent"]) + line + "\n" + healthy)
        before = watched.newest()
        assert_pauses(command, rule, *says)
        (told,) = watched.messages(before)
        assert (told["type"], told["data"]["state"]) == ("rule.paused", "began")
        assert told["data"]["rule"] == rule
        command("status").says(f"{rule}: paused")
        assert f"watch {rule}: " in command("check").out
        # Its changes wait; the other rule reports them, and nobody is told again.
        holder, other = (A, B) if number % 2 == 0 else (B, A)
        watched.read({holder: {}}, {other: {1: "1"}})
        before = watched.newest()
        assert_pauses(command, rule)
        assert [one["rule"] for one in watched.messages(before)] == ["all"]
        # The name exists again, here because the rule names all wallets.
        watched.configure(watched.rule(rule, on=["sent"]) + healthy)
        resumed = watched.watch()
        assert [one["rule"] for one in resumed] == [rule, "*"]
        assert resumed[-1]["data"] == {**told["data"], "state": "ended"}
    assert "paused" not in command("status").out


def test_serve_starts_with_a_rule_whose_group_is_gone(watched):
    """It receives webhooks, sends the other rules' messages, and its metrics name the rule."""
    watched.read({A: {}})
    watched.configure(watched.rule("gone", on=["received"], groups=["gone"]))
    port = free_port()
    with serving(watched.database.parent, None, "--no-replay", "--metrics-port", port):
        wait_until(lambda: scraped(port).get('nftsync_rule_paused{rule="gone"}') == 1)
        wait_until(lambda: watched.states() == ["done"])  # the message about the pause
    assert [one["type"] for one in watched.messages()] == ["rule.paused"]


def test_a_rule_whose_changes_wait_for_longer_than_its_settings_explain_is_late(watched, command):
    on = ["received"]
    watched.configure(
        watched.rule("plain", on=on)
        + watched.rule("digest", on=on, digest="2d")
        + watched.rule("night", on=on, quiet="00:00-23:59 UTC")
        + '[forward.all]\nto = ["ops"]\n'
    )
    watched.read({A: {}})
    watched.watch()
    watched.read({A: {1: "1"}})
    watched.run("UPDATE balance_change_rows SET observed_at = ?", shifted(now(), -3 * HOUR))
    status = command("status")
    assert "rules        plain: changes have waited for 3 hours" in status.out
    assert "digest" not in status.out
    assert "watch plain: changes have waited" in command("check").out
    watched.configure(watched.rule("plain", on=on))
    assert types(watched.watch()) == ["holding.received"]
    assert "have waited" not in command("status").out


def test_a_new_forward_starts_before_serve_answers_its_first_webhook(watched):
    watched.configure('[forward.all]\nto = ["ops"]\n')
    with serving(watched.database.parent, None, "--no-replay") as server:
        assert watched.run("SELECT rule FROM watch_cursors") == [("all",)]
        assert server.post(webhook("Wallet", wallet_id(A))) == 200
        wait_until(lambda: watched.states() == ["done"])
