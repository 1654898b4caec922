"""`nftsync watch`: messages, forwarded webhooks, exit codes and mistakes in settings."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import ORGANIZATION, Inbox, body_of
from tests.kit.serve_process import SECRET, signed
from tests.watch.conftest import Watched, types

A, B = 1, 2
KEYS = [f"whsec_{base64.b64encode(bytes([number]) * 32).decode()}" for number in (1, 2)]
HOSTILE = "\x1b[2J\x07\u202eevil\n<!channel> <https://evil.example|here>\u2028" * 3


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[SandboxServer]:
    """A sandbox, whose consumers `ops` and `more` the settings name with two secrets."""
    for number, key in enumerate(KEYS):
        (tmp_path / f"secret{number}").write_text(f"{key}\n")
    with SandboxServer(lambda url: generate(wallets=1, nfts=1, image_base=url)) as server:
        yield server


def destination(server: SandboxServer, name: str) -> str:
    return (
        f'[destinations.{name}]\nkind = "webhook"\nurl = "{server.url}/sandbox/consumer/{name}"\n'
        'secret_file = ["secret0", "secret1"]\n'
    )


@pytest.fixture
def moved(watched: Watched) -> Callable[..., None]:
    """Configure a rule for a destination with a command; then make a change that it reports."""

    def make(program: str = '["true"]') -> None:
        watched.read({A: {}})
        watched.configure(watched.rule("moves", on=["received"]))
        file = Path("nftsync.toml")
        file.write_text(file.read_text().replace('["true"]', program))
        watched.watch()
        watched.read({A: {1: "1"}})

    return make


def test_the_command_prints_its_counts_and_retries_refused_messages(watched, moved, command):
    moved()
    assert command("watch") == (0, "1 new message; 1 sent, 0 refused, 0 dead.\n", "")
    moved('["false"]')
    command("watch").says("0 sent, 1 refused, 0 dead.\n", "outbox --state failed")
    assert (watched.states()[1:], watched.states("attempts")[1:]) == (["failed"], [1])
    command("watch").says("0 new messages; 0 sent, 0 refused")  # not due yet
    watched.run("UPDATE messages SET attempts = 9, next_attempt_at = created_at WHERE attempts > 0")
    command("watch").says("0 sent, 0 refused, 1 dead.\n", code=1)
    assert watched.states() == ["done", "dead"]


def test_messages_to_a_destination_that_is_down_stay_pending(watched, moved, command):
    moved('["/nowhere/notify"]')
    command("watch").says("0 sent, 0 refused, 0 dead", "messages to ops stay pending")
    assert (watched.states(), watched.states("attempts")) == (["pending"], [0])


def verified(record: Any) -> Any:
    """Return the message, which both secrets have signed."""
    first, second = (
        standardwebhooks.Webhook(key).verify(record["body"], record["headers"]) for key in KEYS
    )
    assert first == second
    return first


def test_webhooks_are_forwarded_as_they_were_stored(watched, consumers, monkeypatch):
    """Whatever else their JSON has, and with the provider's signature only on request."""
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    watched.configure(
        *(destination(consumers, name) for name in ("all", "pay")),
        '[forward.everything]\nto = ["all"]\n'
        '[forward.pay]\nto = ["pay"]\ntypes = ["PAYMENT"]\noriginal_signature = true\n',
    )
    inbox = Inbox(watched.database)
    inbox.receive(body_of(0))
    assert watched.watch() == []  # forwards start now
    odd: list[dict[str, Any]] = [
        {"type": "digest"},
        {"type": "holding.amount", "data": [1]},
        {"type": "test", "data": {"destination": "x"}},
        {"type": "wallet.stale", "data": None, "note": HOSTILE},
        {"type": 7},
    ]
    bodies = [body_of(number, **fields) for number, fields in enumerate(odd, 1)]
    bodies += [json.dumps(json.loads(body_of(7, resourceType="Payment")), indent=3).encode()]
    inbox.receive(*bodies, b"not a webhook")
    inbox.receive(body_of(8), organization=ORGANIZATION.replace("0", "1"))
    watched.watch()
    records = consumers.consumers.records("all")
    assert sorted(record["body"].encode() for record in records) == sorted(bodies)
    (header, signature), *_ = signed(bodies[-1]).items()
    assert not any(header.lower() in record["headers"] for record in records)
    (paid,) = consumers.consumers.records("pay")
    assert paid["body"].encode() == bodies[-1]
    assert paid["headers"][header.lower()] == signature
    assert all(map(verified, (*records, paid)))
    assert watched.watch() == []


def test_a_quarantined_webhook_is_forwarded_once_it_is_requeued(watched, command):
    """Requeued before or after the forward has passed it, and only once."""
    watched.configure('[forward.everything]\nto = ["ops"]\n')
    inbox = Inbox(watched.database)
    watched.watch()
    for number in (1, 3):
        other = body_of(number)
        inbox.receive(other, organization=ORGANIZATION.replace("0", "1"))
        if number == 1:
            assert watched.watch() == []
        inbox.receive(body_of(number + 1))
        command("inbox", "requeue", "--state", "quarantined").says("1 requeued.")
        command("watch").says("2 new messages")
        assert watched.states("body")[-2:] == [body_of(number + 1), other]
        command("inbox", "requeue", "--state", "quarantined")
        assert watched.watch() == []


def test_a_test_message_is_accepted_or_refused(watched, consumers, command):
    watched.configure(destination(consumers, "more"))
    for name in ("ops", "more"):
        command("watch", "send", name).says(f"Sent to {name}.\n")
    (record,) = consumers.consumers.records("more")
    message = verified(record)
    assert (message["type"], message["data"]) == ("test", {"destination": "more"})
    consumers.consumers.script({"more": 500})
    command("watch", "send", "more").tells("did not accept the test message: HTTP 500", code=1)
    assert watched.states() == []


def test_a_gone_destination_gets_nothing_until_a_test_message_succeeds(watched, consumers, command):
    watched.start(
        destination(consumers, "more"),
        watched.rule("moves", on=["received"], to=["more"]),
        watched.rule("others", on=["received"]),
    )
    consumers.consumers.script({"more": [410, 410]})
    watched.read({A: {1: "1"}})
    messages = watched.watch()
    assert types(messages) == ["holding.received", "holding.received", "destination.stopped"]
    watched.read({A: {1: "1", 2: "1"}})
    watched.watch()
    assert len(consumers.consumers.records("more")) == 1
    of_more = "SELECT state, attempts FROM messages WHERE destination = 'more'"
    assert watched.run(of_more) == [("pending", 0)] * 2
    command("status").says("nftsync watch send more")
    command("watch", "send", "more").tells("HTTP 410", code=1)
    assert watched.watch() == []
    command("watch", "send", "more").says("Sent to more.\n")
    watched.watch()
    assert watched.run(of_more) == [("done", 1)] * 2
    bodies = [json.loads(record["body"]) for record in consumers.consumers.records("more")]
    tokens = [body["data"].get("name") for body in bodies]
    assert tokens == ["Token 1", None, None, "Token 1", "Token 2"]


def test_a_preview_shows_hostile_names_on_one_line_each_and_sends_nothing(watched, command):
    watched.content = {number: {"name": f"{HOSTILE}{number}"} for number in range(1, 4)}
    watched.read({A: {}, B: {}})
    watched.run("UPDATE wallets SET label = ?", "Vault\x1b[31m\n\u202e")
    on = ["sent", "received", "metadata", "amount", "wallet_failed"]
    watched.configure(watched.rule("moves", on=on))
    watched.read({A: {1: "1", 2: "5", 3: "1"}}, {A: {2: "4"}, B: {3: "1"}})
    watched.content[2] = {"name": HOSTILE[::-1]}
    watched.read({A: {2: "4"}})
    watched.read({B: {}}, outcome="failed", error=HOSTILE)
    done = command("watch", "test", "moves").says()
    lines = done.out.splitlines()
    assert len(lines) == done.out.count("\n") == 8 + 2  # and the heading
    assert not set(done.said) & set("\x1b\x07\u202e\u2028\r")
    assert max(map(len, lines)) < 250
    short = command("watch", "test", "moves", "--limit", 2)
    assert short.out.splitlines() == lines[: 2 + 2]
    assert short.err == "2 of 8 events. Show all: --limit 0, or --json.\n"
    whole = command("watch", "test", "moves", "--limit", 0).out.splitlines()
    assert whole[:-1] == lines[:-1]  # the last is a state, as of now
    later = command("watch", "test", "moves", "--since", "0s")
    assert len(later.out.splitlines()) == 1 + 2  # states that last
    assert watched.run("SELECT * FROM watch_cursors") == watched.states() == []


RULE = '[watch.moves]\non = ["sent"]\nto = ["ops"]\n'
MISTAKES = {
    RULE.replace("ops", "opps"): ("watch.moves.to", "'opps'", "did you mean 'ops'?"),
    RULE.replace("ops", "pager"): ("'pager'", "add a table [destinations.pager]"),
    RULE.replace("sent", "sentt"): ("watch.moves.on", "'sentt'", "did you mean 'sent'? (from"),
    RULE + 'grups = ["house"]': ("'grups'", "[watch.moves]", "did you mean 'groups'?"),
    RULE + 'digest = "5 min"': ("watch.moves.digest", "90s, 15m", "'5 min'"),
    RULE + 'quiet = "22:00-07:00 Berlin"': ("watch.moves.quiet", "22:00-07:00 Europe/Berlin"),
    RULE + 'quiet = "07:00-07:00"': ("watch.moves.quiet", "22:00-07:00 Europe/Berlin"),
    RULE + "min_amount = -1": ("watch.moves.min_amount", "a whole number", "-1"),
    RULE.replace("to =", "too ="): ("'too'", "did you mean 'to'?"),
    "[watch.moves]\non = []\nto = ['ops']": ("watch.moves", "must have on"),
    "[watch.'a b']\non = ['sent']\nto = ['ops']": ("a name of letters, digits"),
    RULE + '[forward.moves]\nto = ["ops"]': ("[watch.moves]", "[forward.moves]", "the same name"),
    '[forward.all]\nto = ["opps"]': ("forward.all.to", "'opps'", "did you mean 'ops'?"),
    "[forward.all]\ntypes = ['nft']": ("forward.all", "must have to"),
    "[destinations.x]\nkind = 'webhok'": ("destinations.x.kind", "webhook", "'webhok'"),
    "[destinations.x]\nkind = 'email'": ("must have server and from and recipients",),
    RULE + "[destinations.x]\nkind = 'slack'": ("destinations.x has no url", "url_file"),
    "": ("nothing to watch",),
}


def test_a_mistake_in_the_settings_is_named_and_nothing_is_written(watched, command):
    watched.read({A: {1: "1"}})
    for text, says in MISTAKES.items():
        watched.configure(text)
        done = command("watch").tells(*([says] if isinstance(says, str) else says))
        assert done.err.count("\n") == 1, done.err
    watched.configure(RULE)
    for words in (("test", "movs"), ("send", "opps")):
        command("watch", *words).tells(words[1], "moves" if words[0] == "test" else "ops")
    assert watched.run("SELECT * FROM watch_cursors") == watched.states() == []


def test_without_a_database_none_is_made(watched, command, tmp_path):
    watched.configure(RULE)
    missing = tmp_path / "missing.db"
    for words in (("watch",), ("watch", "test", "moves")):
        assert command(*words, "-d", missing).code != 0
    command("watch", "send", "ops", "-d", missing).says("Sent to ops.")
    assert not missing.exists()
