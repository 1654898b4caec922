"""Rules with changes that lie far apart, or with unknown names: none stops the others."""

from tests.kit.database import token_id, wallet_id
from tests.kit.serve_process import free_port, scraped, serving, webhook
from tests.kit.waiting import wait_until
from tests.watch.conftest import ago, plan, types

A, B, C, D = 1, 2, 3, 4


def test_a_transfer_is_reported_once_however_many_changes_are_between_its_sides(watched):
    """The changes between may be initial holdings, of which the rule reports none."""
    watched.read({A: {1: "1"}, B: {}})
    with watched.planning({"on": ["transfer"]}, most=10) as planner:
        watched.read({B: {1: "1"}}, {C: dict.fromkeys(range(100, 300), "1")}, {A: {}})
        assert plan(planner) == 1
        watched.read({A: {2: "1"}})
        assert plan(planner) == 0
    (message,) = watched.messages()
    sides = [message["data"][f"{side}_wallet_id"] for side in ("from", "to")]
    assert sides == [wallet_id(A), wallet_id(B)]


def plan_all(watched, on, most):
    """Plan with a small limit until nothing is planned, like the rounds of `serve`."""
    with watched.planning({"on": on}, most=most) as planner:
        planned = plan(planner)
        assert plan(planner) == 0
        cursor = watched.run("SELECT change_id FROM watch_cursors")[0][0]
        assert cursor == planner.newest().change_id
    return planned


def test_a_move_of_many_nfts_is_one_digest_though_its_sides_are_far_apart(watched):
    tokens, others = (dict.fromkeys(range(first, first + 15), "1") for first in (1, 21))
    watched.read({A: tokens, B: {}, C: others, D: {}})
    plan_all(watched, ["sent", "received"], 10)
    watched.read({A: {}}, {C: {}}, {B: tokens}, {D: others})
    assert plan_all(watched, ["sent", "received"], 20) == 1
    (digest,) = watched.messages()
    assert digest["counts"] == {"holding.transfer": 30}


def test_changes_of_any_distance_are_all_reported_with_the_smallest_limit(watched):
    """Parts of one change: a digest may count a transfer for each side, but no rule stops."""
    tokens = dict.fromkeys(range(1, 8), "1")
    watched.read({A: tokens, B: {}})
    on = ["sent", "received", "amount"]
    plan_all(watched, on, 1)
    watched.read({A: {}}, {B: tokens})
    assert plan_all(watched, on, 1) == 7
    assert {one["data"]["token_id"] for one in watched.messages()} == set(map(token_id, tokens))
    assert set(types(watched.messages())) == {"holding.transfer"}


def test_overlapping_transfers_without_end_delay_a_rule_by_minutes_only(watched):
    """Each plan ends between the sides of a transfer, as when transfers never stop."""
    watched.read({A: {1: "1"}, B: {}})
    with watched.planning({"on": ["sent", "received"]}) as planner:
        watched.read({A: {}})
        until = planner.newest()
        watched.read({B: {1: "1"}})
        assert planner.plan(until) == 0  # the next plan has both sides
        changes, states = ["observed_at"], ["observed_at", "first_read_at", "last_read_at"]
        for table, columns in {"balance_change_rows": changes, "wallet_state_rows": states}.items():
            years_ago = ", ".join(f"{name} = '2020' || substr({name}, 5)" for name in columns)
            watched.run(f"UPDATE {table} SET {years_ago}")
        assert [planner.plan(until), plan(planner)] == [1, 0]
    assert types(watched.messages()) == ["holding.transfer"]


UNKNOWN = {
    'groups = ["hose"]': ("'hose'", "house"),
    'wallets = ["Valt"]': ("'Valt'", "Vault"),
    'wallets = ["Twin"]': ("Twin",),
    'collections = ["Oceans"]': ("'Oceans'", "Ocean"),
}


def test_a_rule_with_an_unknown_name_pauses_alone_until_it_is_known(watched, command):
    watched.content[1] = {"contract_address": "KT1ocean"}
    watched.read({A: {1: "1"}, B: {}, C: {}, D: {}})
    watched.run("UPDATE wallets SET label = 'Vault', wallet_group = 'house' WHERE wallet_no = 1")
    watched.run("UPDATE wallets SET label = 'Twin' WHERE wallet_no IN (3, 4)")
    assert command("collections", "label", "KT1ocean", "Ocean").code == 0
    healthy = watched.rule("all", on=["sent"])
    for number, (line, says) in enumerate(UNKNOWN.items()):
        rule = f"gone{number}"
        paused = f"[watch.{rule}]: paused"
        watched.configure(watched.rule(rule, on=["sent"]), f"{line}\n", healthy)
        before = watched.newest()
        command("watch").says(paused, *says, code=1)
        (told,) = watched.messages(before)
        assert (told["type"], told["data"]["state"]) == ("rule.paused", "began")
        assert told["data"]["rule"] == rule
        command("status").says(f"{rule}: paused")
        assert f"watch {rule}: " in command("check").out
        # The other rule reports the changes; the pause has no second message.
        holder, other = (A, B) if number % 2 == 0 else (B, A)
        watched.read({holder: {}}, {other: {1: "1"}})
        before = watched.newest()
        command("watch").says(paused, code=1)
        assert [one["rule"] for one in watched.messages(before)] == ["all"]
        # The name exists again, here because the rule names all wallets.
        watched.configure(watched.rule(rule, on=["sent"]), healthy)
        resumed = watched.watch()
        assert [one["rule"] for one in resumed] == [rule, "*"]
        assert resumed[-1]["data"] == {**told["data"], "state": "ended"}
    assert "paused" not in command("status").out


def test_serve_starts_with_a_rule_whose_group_is_gone_and_with_a_new_forward(watched):
    """It receives webhooks, sends the others' messages, and its metrics name the rule.

    The forward starts before the first webhook is answered.
    """
    watched.read({A: {}})
    watched.configure(
        watched.rule("gone", on=["received"], groups=["gone"]), '[forward.all]\nto = ["ops"]\n'
    )
    port = free_port()
    with serving(watched.database.parent, None, "--no-replay", "--metrics-port", port) as server:
        assert ("all",) in watched.run("SELECT rule FROM watch_cursors")
        assert server.post(webhook("Wallet", wallet_id(A))) == 200
        wait_until(lambda: scraped(port).get('nftsync_rule_paused{rule="gone"}') == 1)
        wait_until(lambda: watched.states() == ["done", "done"])
        assert len(server.logged("the rule gone is paused")) == 1
    assert "rule.paused" in {one.get("type") for one in watched.messages()}


def test_a_rule_whose_changes_wait_for_longer_than_its_settings_explain_is_late(watched, command):
    on = ["received"]
    watched.start(
        watched.rule("plain", on=on),
        watched.rule("digest", on=on, digest="2d"),
        watched.rule("night", on=on, quiet="00:00-23:59 UTC"),
        '[forward.all]\nto = ["ops"]\n',
    )
    watched.read({A: {1: "1"}})
    watched.run("UPDATE balance_change_rows SET observed_at = ?", ago(3))
    status = command("status").says("rules        plain: changes have waited for 3 hours")
    assert "digest" not in status.out
    assert "watch plain: changes have waited" in command("check").out
    watched.configure(watched.rule("plain", on=on))
    assert types(watched.watch()) == ["holding.received"]
    assert "have waited" not in command("status").out


def test_a_digest_s_command_lists_transfers_whose_other_side_was_read_earlier(watched, command):
    tokens = dict.fromkeys(range(12), "1")
    watched.start(
        watched.rule("moves", on=["received"], wallets=[wallet_id(B)]), read={A: tokens, B: {}}
    )
    watched.read({A: {}}, {B: tokens})
    (digest,) = watched.watch()
    listed = command(*digest["command"].split()[1:], "--json").json
    assert {one["token_id"] for one in listed} == set(map(token_id, tokens))


def test_a_digest_shows_whole_events_if_the_clock_went_back(watched):
    watched.start(watched.rule("moves", on=["received"]))
    watched.read({A: dict.fromkeys(range(12), "1")})
    last = "change_id = (SELECT max(change_id) FROM balance_change_rows)"
    watched.run(f"UPDATE balance_change_rows SET observed_at = ? WHERE {last}", ago(1))
    (digest,) = watched.watch()
    assert all(one.get("token_id") for one in digest["data"])
