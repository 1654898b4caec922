"""`inbox` and `outbox`: lists, single rows, requeue and prune, also beside a receiver."""

import base64
import contextlib
import hashlib
import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.cli.queues import print_row, row_as_json
from nftsync.provider.webhooks import Unusable, Webhook, read_webhook
from nftsync.store import STATES
from nftsync.store.catalog import TABLES
from nftsync.store.database import connect_writer
from nftsync.store.mirror import Mirror
from nftsync.store.queues import INBOX
from nftsync.store.requeue import numbers_of_ids, requeue
from tests.kit.inbox import (
    LONG_AGO,
    ORGANIZATION,
    Inbox,
    Outbox,
    body_of,
    message,
    quarantine_id,
    webhook,
)
from tests.kit.provider import token, uuid, wallet
from tests.kit.worlds import Outcome

KINDS = pytest.mark.parametrize("kind", [Inbox, Outbox])
HOSTILE = "\x1b[2J[red]\u202eevil\x07\u2028"


def columns_of(queue: Inbox | Outbox) -> list[str]:
    return [name for name in TABLES[queue.queue.table].columns if name != "body"]


@KINDS
def test_the_newest_come_first_of_a_state_or_of_all(kind, tmp_path, command):
    (tmp_path / "data").mkdir()
    queue = kind(tmp_path / "data" / "nftsync.db")
    name, rows_name = queue.queue.command, "webhooks" if kind is Inbox else "messages"
    assert command(name) == (0, "", f"No {rows_name}.\n")
    assert command(name, "--json").out == "[]\n"
    queue.fill(1_203)  # more than are read at once
    done = command(name)
    newest = [queue.name(number) for number in range(1_202, 1_152, -1)]
    assert re.findall(r"0000000e-\S+|msg_\w+", done.out) == newest
    assert done.err == f"The newest 50 of 1,203 {rows_name}. Show all: --limit 0, or --json.\n"
    assert command(name, "list").out == done.out
    everything = command(name, "--limit", 0)
    assert (everything.out.count(newest[0][:9]), everything.err) == (1_203, "")
    rows = command(name, "--json").json
    assert [[*row] for row in rows] == [columns_of(queue)] * 1_203
    assert rows[0] == {column: queue.row(newest[0])[column] for column in rows[0]}
    assert len(command(name, "--json", "--limit", 7).json) == 7
    for number in (1, 3):
        queue.settle(number, "dead")
    for words in ([name], [name, "list"]):
        dead = command(*words, "--state", "dead", "--json").json
        assert [row[queue.queue.key] for row in dead] == [queue.name(3), queue.name(1)]
    command(name, "--state", "dead", "--limit", 1).says(f"The newest 1 of 2 {rows_name}.")
    assert command(name, "--state", "failed") == (0, "", f"No {rows_name} are failed.\n")
    assert command(name, "--state", "gone").code == 2


def test_flags_stand_before_or_after_a_subcommand(inbox, command, tmp_path):
    inbox.fill(1)
    other = Inbox(tmp_path / "other.db")
    (tmp_path / "other.toml").write_text('database = "other.db"')
    assert command("inbox", "list", "--json").json[0]["webhook_id"] == webhook(0)
    flags: list[tuple[object, ...]] = [("-d", other.database), ("--config", "other.toml")]
    for before, after in [*product(flags, [(), *flags]), *product([()], flags)]:
        assert command("inbox", *before, "list", *after, "--json").json == []
    command("inbox", "--state", "dead", "requeue", webhook(0)).says("after the subcommand", code=2)


def assert_harmless(done: Outcome) -> None:
    assert not set(done.says("[red]").out) & set("\x1b\u202e\x07\u2028")


def test_show_shows_the_body_and_what_it_caused(inbox, command):
    inbox.fill(2)
    hostile = dict.fromkeys(("action", "created_at_utc", "changes", "last_error"), HOSTILE)
    inbox.settle(0, "done", run_id=7, look_again_at=LONG_AGO, **hostile)
    inbox.knows(wallets=[wallet(1)], tokens=[token(1)])
    inbox.run(
        "INSERT INTO balance_change_rows (change_id, wallet_no, token_no, observed_at, baseline,"
        " webhook_id) SELECT value, 1, 1, '', 0, ? FROM json_each(?)",
        *(webhook(0), json.dumps([*range(12)])),
    )
    inbox.run("INSERT INTO token_change_rows VALUES (1, 1, '{}', '{}', '', 7, ?)", webhook(0))
    assert_harmless(command("inbox"))
    done = command("inbox", "show", webhook(0).upper())
    assert_harmless(done.says('"resourceType": "Wallet"', "and 2 more. Show all: --json"))
    whole = command("inbox", "show", webhook(0), "--json").json
    row, ids = inbox.row(webhook(0)), {"wallet_id": wallet(1), "token_id": token(1)}
    assert whole == {name: row[name] for name in (*columns_of(inbox), "body_sha256")} | {
        "look_again_at": LONG_AGO,
        "balance_changes": [{"change_id": number, **ids} for number in range(12)],
        "token_changes": [{"change_id": 1, "token_id": token(1)}],
        "body": body_of(0).decode(),
        "pruned": False,
    }
    assert command("inbox", "show", webhook(1), "--json").json["balance_changes"] == []
    command("inbox", "prune", "--older-than", "1d")
    command("inbox", "show", webhook(0)).says("pruned")
    pruned = command("inbox", "show", webhook(0), "--json").json
    assert pruned == {**whole, "body": None, "pruned": True}
    inbox.settle(1, "dead", body=HOSTILE.encode())
    assert_harmless(command("inbox", "show", webhook(1)))


def test_show_indents_the_body_of_a_message_until_it_is_pruned(outbox, command):
    outbox.fill(1)
    outbox.settle(0, "done", last_error=HOSTILE)
    done = command("outbox", "show", message(0).upper())
    assert_harmless(done.says('  "resourceType": "Wallet"'))
    whole = command("outbox", "show", message(0), "--json").json
    row = outbox.row(message(0)) | {"body": body_of(0).decode(), "pruned": False}
    assert whole == {name: row[name] for name in (*whole, "body", "pruned")}
    command("outbox", "prune", "--older-than", "1d").says("Bodies emptied: 1 ", "VACUUM")
    command("outbox", "show", message(0)).says("pruned: emptied by `nftsync outbox prune`")


def test_an_id_that_is_unknown_or_none_is_a_usage_error(inbox, command):
    ids = (webhook(9), "q-" + "0" * 64, "q-12", "x\x1b[2J", "")
    names = [*product(["inbox"], ids), *product(["outbox"], [message(9), *ids[3:]])]
    for (queue, name), action in product(names, ("show", "requeue")):
        done = command(queue, action, name).tells()
        assert (done.err.count("\n"), "\x1b" in done.err) == (1, False)


@settings(max_examples=30)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.text(max_size=60))
@example(b"[" * 100_000 + b"]" * 100_000, "")
def test_whatever_the_body_is_it_can_be_shown_and_got_back(body, text):
    """JSON has the whole body; tables have no control characters."""
    for content in (body, json.dumps({text: text}, ensure_ascii=False).encode()):
        whole = row_as_json({"action": text}, content)
        if whole["body"] is None:
            assert base64.b64decode(whole["body_base64"]) == content
        else:
            assert whole["body"].encode() == content
        json.dumps(whole)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            print_row(INBOX, {"action": text}, content)
        assert not set(printed.getvalue()) & {*map(chr, range(10)), *map(chr, range(11, 32))}


def is_afresh(row: dict[str, Any]) -> bool:
    emptied = ("last_error", "finished_at", "lease_no", "look_again_at")
    assert {row.get(name) for name in emptied} == {None}
    return (row["state"], row["attempts"]) == ("pending", 0) and row["next_attempt_at"] > LONG_AGO


@KINDS
def test_requeued_rows_have_fresh_attempts_and_others_a_reason(kind, tmp_path, command):
    queue = kind(tmp_path / "queue.db")
    queue.fill(4)
    queue.settle(0, "dead", last_error="no")
    queue.settle(1, "running", lease_no=5)
    queue.settle(3, "pending", next_attempt_at="2999-01-01T00:00:00.000000Z")
    names = [queue.name(number) for number in range(4)]
    running, pending = queue.row(names[1]), queue.row(names[2])
    call = (queue.queue.command, "requeue", "-d", queue.database)
    done = command(*call, *names, names[0].upper())
    done.says(f"{names[1]} not requeued: it is being processed", "1 already pending.\n", code=1)
    assert done.out == "2 requeued.\n"
    assert is_afresh(queue.row(names[0]))
    assert [queue.row(names[1]), queue.row(names[2])] == [running, pending]
    assert queue.row(names[3])["next_attempt_at"] < "2999"  # it is due at once
    if kind is Outbox:
        queue.settle(0, "done", body=None)
        command(*call, names[0]).says(f"{names[0]} not requeued: its body was pruned", code=1)
    states = queue.states()
    for words, said in (
        ((names[2], kind.name(9)), "nothing was changed"),
        ((), "by ID, or choose a state"),
        ((names[2], "--state", "dead"), "by ID, or choose a state"),
        (("--state", "running"), "cannot be requeued"),
    ):
        command(*call, *words).tells(said)
    assert queue.states() == states


def test_a_quarantined_webhook_is_requeued_once_its_body_is_readable(inbox, command, monkeypatch):
    """As when the organization was wrongly configured: its columns are filled in, its id stays."""
    body = body_of(1, changes={"amount": 1}, resourceId=uuid(5).upper())
    inbox.receive(body, organization=uuid(2, 0xC))
    name = quarantine_id(body)
    monkeypatch.setenv("NFTSYNC_ORGANIZATION_ID", uuid(2, 0xC))
    unusable = f"{name} not requeued: still unusable: it is for another organization"
    assert command("inbox", "requeue", name).says(unusable, code=1).out == "0 requeued.\n"
    assert inbox.states() == ["quarantined"]
    monkeypatch.setenv("NFTSYNC_ORGANIZATION_ID", ORGANIZATION)
    assert command("inbox", "requeue", name.upper()) == (0, "1 requeued.\n", "")
    row = inbox.row(name)
    assert is_afresh(row)
    columns = ("organization_id", "resource_id", "resource_type", "action", "changes", "body")
    expected = [ORGANIZATION, uuid(5), "Wallet", "create", '{"amount": 1}', body]
    assert [row[column] for column in columns] == expected
    assert row["created_at_utc"] == "2026-01-01T00:00:00.1234567+00:00"


def test_webhooks_that_an_earlier_version_quarantined_are_requeued(inbox, command):
    """As it needed fields that the read does not need."""
    body = body_of(1, id=None, createdAtUtc=None, organizationId=7)
    inbox.receive(body)
    digest = hashlib.sha256(body).hexdigest()
    assert command("inbox", "show", digest.upper(), "--json").json["webhook_id"] == digest
    stored = inbox.row(digest)
    emptied = "state = 'quarantined', resource_type = NULL, resource_id = NULL"
    inbox.run(f"UPDATE webhooks SET webhook_id = 'q-' || webhook_id, {emptied}")
    assert command("inbox", "requeue", "--state", "quarantined").out == "1 requeued.\n"
    again = inbox.row(f"q-{digest}")
    changed = ("webhook_id", "next_attempt_at", "webhook_no")
    assert is_afresh(again)
    assert {**again, **{name: stored[name] for name in changed}} == stored


def test_usable_webhooks_of_a_quarantine_are_requeued(inbox, command):
    good = [body_of(number, resourceType="x" * 200) for number in range(50)]
    bad = [b"[" * number for number in range(1, 26)]
    inbox.receive(*good, organization=uuid(2, 0xC))
    inbox.receive(*bad)
    done = command("inbox", "requeue", "--state", "quarantined")
    assert done.says("5 more not requeued.", code=1).out == "50 requeued.\n"
    assert done.err.count(" not requeued: still unusable: ") == 20
    assert sorted(inbox.states()) == ["pending"] * 50 + ["quarantined"] * 25


def test_a_webhook_that_was_claimed_meanwhile_is_not_requeued(inbox):
    """Else it would be claimed twice."""
    inbox.receive(body_of(1), organization=uuid(2, 0xC))
    name = quarantine_id(body_of(1))

    def read(body: bytes) -> Webhook | Unusable:
        inbox.run("UPDATE webhooks SET state = 'running', lease_no = 5, finished_at = NULL")
        return read_webhook(body, None)

    with Mirror(inbox.database) as mirror:
        done = list(requeue(mirror, INBOX, numbers_of_ids(mirror.connection, INBOX, [name]), read))
    assert sum(step.put_back for step in done) == 0
    assert (inbox.row(name)["state"], inbox.row(name)["lease_no"]) == ("running", 5)


def test_requeue_and_prune_work_beside_a_receiver(inbox, command):
    """Every webhook that comes meanwhile is stored, and each command does its whole work."""
    inbox.fill(1_500)
    inbox.run("UPDATE webhooks SET state = 'done', finished_at = ?", LONG_AGO)
    ended = threading.Event()
    insert = "INSERT INTO webhooks (webhook_id, received_at, state) VALUES (?, ?, 'dead')"

    def receive() -> int:
        stored = 0
        with closing(connect_writer(inbox.database)) as writer:
            while not (stored and ended.wait(0.001)):
                writer.execute("BEGIN IMMEDIATE")
                writer.execute(insert, (uuid(stored, 0xD), LONG_AGO))
                writer.execute("COMMIT")
                stored += 1
        return stored

    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(receive)
        try:
            pruned = command("inbox", "prune", "--older-than", "1d")
            requeued = command("inbox", "requeue", "--state", "done")
        finally:
            ended.set()
    assert pruned.out.startswith("Bodies emptied: 1,500 (")
    assert requeued.out == "1,500 requeued.\n"
    assert inbox.states().count("dead") == receiving.result()


def test_only_bodies_done_for_long_are_emptied(inbox, command):
    inbox.fill(len(STATES) + 1)
    for number, state in enumerate(STATES):
        inbox.settle(number, state, finished_at=LONG_AGO)
    inbox.settle(len(STATES), "done", finished_at="2999-01-01T00:00:00.000000Z")
    rows = [inbox.row(webhook(number)) for number in range(len(STATES) + 1)]
    prune = ("inbox", "prune", "--older-than")
    for state, more in (("done", ()), ("quarantined", ("--state", "quarantined"))):
        old = STATES.index(state)
        emptied = f"Bodies emptied: 1 ({len(body_of(old)):,} bytes).\n"
        command(*prune, "7d", *more).says(emptied, "VACUUM")
        rows[old]["body"] = None
        assert [inbox.row(row["webhook_id"]) for row in rows] == rows
    assert "its body was pruned" in command("inbox", "requeue", webhook(old)).err
    assert command(*prune, "7d") == (0, "Bodies emptied: 0 (0 bytes).\n", "")
    old = STATES.index("done")
    inbox.receive(body_of(old))  # a repeated webhook is a duplicate, also without its body
    row = inbox.row(webhook(old))
    assert (row["state"], row["deliveries"], row["body"]) == ("done", 2, None)
    assert [command(*words).code for words in ((*prune, "lately"), prune[:2])] == [2, 2]


@settings(max_examples=8)
@given(data=st.data(), kind=st.sampled_from([Inbox, Outbox]))
def test_any_calls_in_any_order_agree_with_a_model(command, tmp_path_factory, data, kind):
    """The model: settled ones become pending, running ones stay, done ones lose their bodies.

    A message without a body stays, too.
    """
    queue = kind.queue
    states = data.draw(st.lists(st.sampled_from(queue.states), min_size=6, max_size=6))
    idle = [state for state in queue.states if state != "running"]
    some = st.frozensets(st.integers(0, 5), min_size=1)
    calls = data.draw(st.lists(st.sampled_from(["prune", *idle]) | some, max_size=5))
    inbox = kind(tmp_path_factory.mktemp("model") / "inbox.db")
    inbox.fill(len(states))
    for number, state in enumerate(states):
        inbox.settle(number, state, finished_at=LONG_AGO)
    model, bodies = list(states), [True] * len(states)
    for call in calls:
        if call == "prune":
            command(queue.command, "prune", "--older-than", "1d", "-d", inbox.database)
            bodies = [has and state != "done" for has, state in zip(bodies, model, strict=True)]
            continue
        if isinstance(call, str):
            words = ["--state", call]
            call = {number for number, state in enumerate(model) if state == call}
        else:
            words = [kind.name(number) for number in call]
        done = command(queue.command, "requeue", *words, "-d", inbox.database)
        stay = {n for n in call if model[n] == "running" or (kind is Outbox and not bodies[n])}
        assert done.code == int(bool(stay))
        for number in call - stay:
            model[number] = "pending"
    assert inbox.states() == model
    stored = inbox.run(f"SELECT body FROM {queue.table} ORDER BY {queue.key}")
    assert [body is not None for (body,) in stored] == bodies
    assert inbox.run("PRAGMA integrity_check") == [("ok",)]
