"""`outbox`: what is shown of messages, and what requeue and prune change.

The rest, which it shares with `inbox`, is in `test_inbox`.
"""

import re
from itertools import product

from nftsync.store.catalog import TABLES
from nftsync.store.queues import OUTBOX
from tests.kit.inbox import LONG_AGO, body_of, message

COLUMNS = [name for name in TABLES["messages"].columns if name != "body"]
HOSTILE = "\x1b[2J[red]\u202eevil\x07\u2028"


def test_the_newest_come_first_of_a_state_or_of_all(outbox, command):
    empty = command("outbox")
    assert (empty.code, empty.out, empty.err) == (0, "", "No messages.\n")
    assert command("outbox", "--json").out == "[]\n"
    outbox.fill(60)
    done = command("outbox")
    assert re.findall(r"msg_\w+", done.out) == [message(number) for number in range(59, 9, -1)]
    assert done.err == "The newest 50 of 60 messages. Show all: --limit 0, or --json.\n"
    assert command("outbox", "list").out == done.out
    rows = command("outbox", "--json").json
    assert (len(rows), list(rows[0])) == (60, COLUMNS)
    assert rows[0] == {name: outbox.row(message(59))[name] for name in COLUMNS}
    outbox.settle(3, "dead")
    dead = command("outbox", "list", "--state", "dead", "--json").json
    assert [row["message_id"] for row in dead] == [message(3)]
    nothing = command("outbox", "--state", "failed")
    assert (nothing.code, nothing.err) == (0, "No messages are failed.\n")
    assert command("outbox", "--state", "unrouted").code == 2


def test_show_indents_the_body_until_it_is_pruned(outbox, command):
    outbox.fill(1)
    outbox.settle(0, "done", last_error=HOSTILE)
    done = command("outbox", "show", message(0).upper()).says('  "resourceType": "Wallet"', "[red]")
    assert not set(done.out) & set("\x1b\u202e\x07\u2028")
    whole = command("outbox", "show", message(0), "--json").json
    row = {name: outbox.row(message(0))[name] for name in COLUMNS}
    assert whole == {**row, "body": body_of(0).decode(), "pruned": False}
    emptied = f"Bodies emptied: 1 ({len(body_of(0)):,} bytes).\n"
    command("outbox", "prune", "--older-than", "1d").says(emptied, "VACUUM")
    command("outbox", "show", message(0)).says("pruned: emptied by `nftsync outbox prune`")
    pruned = command("outbox", "show", message(0), "--json").json
    assert pruned == {**whole, "body": None, "pruned": True}


def test_an_id_that_is_unknown_or_none_is_a_usage_error(outbox, command):
    outbox.fill(1)
    for action, name in product(("show", "requeue"), (message(9), "x\x1b[2J", "")):
        done = command("outbox", action, name).tells("is not in the outbox", "`nftsync outbox`")
        assert (done.err.count("\n"), "\x1b" in done.err) == (1, False)


def test_settled_messages_go_back_as_if_they_were_new(outbox, command):
    """But neither one that is being sent nor one whose body is gone."""
    outbox.fill(8)
    settled = {0: "failed", 1: "dead", 2: "done", 3: "done"}
    for number, state in settled.items():
        outbox.settle(number, state, last_error="no", lease_no=4)
    outbox.settle(4, "running", lease_no=5)
    outbox.settle(5, "pending", next_attempt_at="2999-01-01T00:00:00.000000Z")
    outbox.run("UPDATE messages SET body = NULL WHERE message_id = ?", message(3))
    unchanged = [outbox.row(message(number)) for number in (3, 4, 6, 7)]
    done = command("outbox", "requeue", *map(message, range(7)))
    assert (done.code, done.out) == (1, "4 requeued.\n")
    for line in (
        "1 already pending.\n",
        f"{message(3)} not requeued: its body was pruned\n",
        f"{message(4)} not requeued: it is being processed; try again in a moment\n",
    ):
        assert line in done.err
    assert [outbox.row(message(number)) for number in (3, 4, 6, 7)] == unchanged
    emptied = dict.fromkeys(("last_error", "finished_at", "lease_no"))
    for number in (0, 1, 2, 5):
        row = outbox.row(message(number))
        assert (row["state"], row["attempts"], row["body"]) == ("pending", 0, body_of(number))
        assert LONG_AGO < row["next_attempt_at"] < "2999"
        assert row | emptied == row
    outbox.settle(1, "dead")
    assert command("outbox", "requeue", "--state", "dead").out == "1 requeued.\n"
    command("outbox", "requeue", "--state", "running").tells("running messages cannot be requeued")
    command("outbox", "requeue").tells("name messages by ID, or choose a state")


def test_only_bodies_done_for_long_are_emptied(outbox, command):
    outbox.fill(len(OUTBOX.states) + 1)
    for number, state in enumerate(OUTBOX.states):
        outbox.settle(number, state, finished_at=LONG_AGO)
    outbox.settle(len(OUTBOX.states), "done", finished_at="2999-01-01T00:00:00.000000Z")
    before = [outbox.row(message(number)) for number in range(len(OUTBOX.states) + 1)]
    for count in (1, 0):
        emptied = f"Bodies emptied: {count} ("
        assert command("outbox", "prune", "--older-than", "7d").out.startswith(emptied)
    before[OUTBOX.states.index("done")]["body"] = None
    assert [outbox.row(message(number)) for number in range(len(before))] == before
    assert command("outbox", "prune").code == 2
