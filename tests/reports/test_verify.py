"""`nftsync verify`: differences between the mirror and the provider, and broken rules."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import nftsync
from tests.kit.database import utc
from tests.kit.mirrored_site import Site
from tests.kit.provider import Sender, balances, entry, path_of, reply, token, wallet
from tests.kit.serve_process import query
from tests.kit.worlds import mirrored


@pytest.fixture
def verify(site, command):
    """Return the command, by default for all wallets."""

    def call(*options, of=("--all",)):
        return command("verify", "--base-url", site.server.url, *of, *options)

    return call


def test_a_correct_mirror_is_one_line_and_nothing_is_written(site, verify, command, tmp_path):
    with closing(sqlite3.connect(site.database)) as connection:
        before = list(connection.iterdump())
        done = verify()
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("4 of 4 wallets compared (20 balances): none differs; all ")
        assert done.out.count("\n") == 1
        assert list(connection.iterdump()) == before
    done = verify(of=("--sample", 2))
    done.says("2 of 4 wallets compared", "95 % confidence: less than 77.6% of all wallets differ")
    assert verify("--sample", 2).code == 2  # with --all
    assert command("verify", "--sample", 0).says().out.startswith("All ")  # without the provider
    command("verify").says("base_url", code=2)
    new = ("-d", tmp_path / "new.db")
    command("wallets", "add", wallet(1), *new)
    verify(*new).says("nothing to compare", code=1)


def tamper(site: Site, pair: tuple[str, str] | None = None) -> tuple[str, str]:
    """Change an amount in the database and in its log, which breaks no rule."""
    who, what = pair or min(mirrored(site.database))
    number = "(SELECT token_no FROM tokens WHERE token_id = ?)"
    for table, column in (("balance_rows", "amount"), ("balance_change_rows", "new_amount")):
        query(
            site.database,
            f"UPDATE {table} SET {column} = '777' WHERE token_no = {number} AND wallet_no ="
            " (SELECT wallet_no FROM wallets WHERE wallet_id = ?)",
            *(what, who),
        )
    return who, what


def test_a_difference_that_a_sync_does_not_see_is_listed_and_repaired(site, verify, command):
    who, what = tamper(site)
    command("wallets", "label", who, "Treasury")
    site.sync()  # the same bodies, so the digests hide it
    assert mirrored(site.database)[who, what] == "777"
    found = verify("--json")
    assert (found.code, found.err) == (1, "")
    (one,) = found.json["differences"]
    columns = ("wallet_id", "label", "token_id", "field", "mirror", "webhook")
    assert [one[x] for x in columns] == [who, "Treasury", what, "amount", "777", None]
    assert one["why"].startswith("none since 2")
    assert found.json["untold"] == "no receiver is set up, so only syncs bring changes"
    assert (found.json["differing"], found.json["compared"], found.json["repair"]) == (1, 4, None)
    table = verify().says(one["name"], code=1).out
    assert table.splitlines()[2].startswith("Treasury")
    assert mirrored(site.database)[who, what] == "777"
    repaired = verify("--repair", "--json").says().json
    assert (repaired["repaired"], repaired["repair"]["balances"]["changed"]) == ([who], 1)
    assert mirrored(site.database)[who, what] == one["provider"]
    assert verify().code == 0


def test_arrivals_departures_and_hostile_content_are_listed(site, verify):
    sender, receiver = site.ids[:2]
    moved, renamed = site.held(sender)[:2]
    site.world.transfer(sender, receiver, moved, "1")
    name = "\x1b[31m\u202e" + "x" * 100_000
    site.world.edit_metadata(renamed, {"name": name})
    assert not {"\x1b", "\u202e"} & {*verify().says(code=1).out}
    found = verify("--json").json
    listed = {(x["token_id"], x["field"], x["wallet_id"]): x for x in found["differences"]}
    fields = {(token_id, field): x for (token_id, field, _), x in listed.items()}
    assert listed[moved, "amount", receiver]["mirror"] is None
    assert fields[renamed, "name"]["provider"] == name
    assert verify("--repair").code == 0


STATES = ["pending", "failed", "dead", "unrouted", "done"]


def test_each_difference_says_whether_a_webhook_announced_it(site, verify, monkeypatch):
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", "a-secret-that-is-long-enough")
    by_token = {what: (who, what) for who, what in mirrored(site.database)}
    tokens = sorted(by_token)[: 1 + len(STATES)]
    for what in tokens:
        tamper(site, by_token[what])
    found = verify("--json").json
    assert sorted(one["token_id"] for one in found["differences"]) == tokens
    assert "a webhook secret is set, but no webhook ever came" in found["untold"]
    old = ("done", "2001-01-01T00:00:00.000000Z")
    insert = "INSERT INTO webhooks (resource_type, webhook_id, resource_id, state, received_at)"
    for what, came in zip(tokens, [old, *((state, utc()) for state in STATES)], strict=True):
        query(site.database, f"{insert} VALUES ('Token', ?, ?, ?, ?)", what, what, *came)
    found = verify("--json").json
    assert "6 webhooks came, the last at 2" in found["untold"]
    listed = {one["token_id"]: one for one in found["differences"]}
    assert [listed[what]["webhook"] for what in tokens] == [None, *STATES]
    assert all("a webhook announced it at 2" in listed[what]["why"] for what in tokens[1:])
    columns = "wallet_no, token_no, emptied, held, observed_at, read_at"
    pair = "SELECT wallet_no, token_no, 0, 1, '2026', '2026' FROM wallets, tokens"
    held = f"INSERT INTO removal_rows ({columns}) {pair} WHERE token_id = ?"
    query(site.database, held, tokens[0])
    found = verify("--json").json
    listed = {one["token_id"]: one for one in found["differences"]}
    assert listed[tokens[0]]["why"].startswith("a removal held for review")
    assert found["untold"] is None


PATH = path_of(1)


def answer(amount: str) -> Sender:
    """Return a list with an ETag that never changes."""
    return reply(balances(entry(token(1), amount, name="A")), etag='"stuck"')


@pytest.fixture
def one(lying, tmp_path, monkeypatch):
    """Return a provider of one mirrored wallet."""
    monkeypatch.setenv("NFTSYNC_DATABASE", str(tmp_path / "nfts.db"))
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    lying.on(PATH, answer("1"))
    nftsync.sync([wallet(1)], progress=False)
    return lying


def test_a_wallet_that_was_read_meanwhile_is_left_out_and_requests_are_unconditional(one, command):
    """An ETag that never changes hides a change from a sync, but not from `verify`."""

    def late(peer):
        nftsync.sync([wallet(1)], progress=False)
        return answer("1")(peer)

    one.on(PATH, late, answer("2"))
    done = command("verify", "--json")
    assert (done.code, done.json["read_meanwhile"], done.json["compared"]) == (0, 1, 0)
    sent = len(one.requests())
    one.on(PATH, answer("3"))
    done = command("verify", "--repair", "--json")
    assert (done.code, done.json["repaired"]) == (0, [wallet(1)])
    assert all("if-none-match" not in seen.headers for seen in one.requests()[sent:])


def test_a_comparison_opens_no_connection_for_writing(one, command, tmp_path):
    with closing(sqlite3.connect(tmp_path / "nfts.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert command("verify", "--all").code == 0


def test_a_difference_is_confirmed_by_a_second_read(one, command):
    """The first answer is a temporary error or another list; the second one counts."""
    for first in (reply(status=503), reply(balances()), answer("2")):
        one.on(PATH, first, answer("1"))
        done = command("verify", "--retries", 1, "--json")
        assert (done.code, done.json["compared"]) == (0, 1), done.out
    one.on(PATH, reply(status=404))
    command("verify").says("404", code=1)


BREAKS = {
    "replayed": "DELETE FROM balance_change_rows WHERE change_id = 3",
    "starts from the amount": "UPDATE balance_change_rows SET old_amount = '5' WHERE change_id = 3",
    "held_since": "UPDATE balance_rows SET held_since = NULL",
    "that a row names exists": "DELETE FROM tokens WHERE token_no = 2",
    "removal_rows: token_no 999": (
        "INSERT INTO removal_rows (wallet_no, token_no, emptied, held, observed_at, read_at)"
        " VALUES (0, 999, 1, 1, '2026', '2026')"
    ),
    "runs count": "UPDATE sync_runs SET balances_added = balances_added + 1",
    "observed_at never": "UPDATE balance_change_rows SET observed_at = '2999' WHERE change_id = 2",
    "is stuck": "UPDATE sync_runs SET status = 'running'",
    "under no lease": (
        "INSERT INTO webhooks (webhook_id, received_at, state, lease_no)"
        " VALUES ('w', '2026', 'running', 9)"
    ),
    "messages run under no lease": (
        "INSERT INTO messages (message_id, rule, destination, created_at, keys, state)"
        " VALUES ('m', 'r', 'd', '2026', '[]', 'running')"
    ),
    "leases have expired": "INSERT INTO leases (expires_at) VALUES ('2001')",
    "stored maximum": "UPDATE mirror_state SET greatest_sequence = 1",
    "missing from the index": "DELETE FROM tokens_fts_docsize WHERE id = 1",
    "belong to no token": "INSERT INTO tokens_fts_docsize VALUES (999, x'010101')",
    "not indexed yet": "UPDATE mirror_state SET indexed_token_no = 3",
    "two sources": "UPDATE tokens SET detailed = 1 WHERE token_no = 1",
    "integrity_check": "DELETE FROM sqlite_schema WHERE name = 'balance_rows_by_token'",
}


def test_a_broken_rule_is_named(site, command, tmp_path):
    for text, statement in BREAKS.items():
        broken = tmp_path / "broken.db"
        with (
            closing(sqlite3.connect(site.database)) as whole,
            closing(sqlite3.connect(broken)) as connection,
        ):
            whole.backup(connection)
            connection.execute(f"PRAGMA writable_schema = {'sqlite_schema' in statement}")
            connection.execute(statement)
            connection.commit()
        done = command("verify", "--sample", 0, "-d", broken, "--json")
        rules = [rule for rule in done.json["rules"] if rule["broken"]]
        assert done.code == 1
        assert any(text in rule["rule"] + str(rule["examples"]) for rule in rules), (text, rules)
    # A damaged file is not checked any further.
    assert [rule["broken"] for rule in done.json["rules"]] == [1]
    command("verify", "--sample", 0, "-d", broken).says(
        "BROKEN (1 of 1): the file is intact", code=1
    )


def test_the_rules_hold_during_writes(site, command):
    sender, receiver = site.ids[:2]

    def write():
        for _ in range(8):
            site.world.transfer(sender, receiver, site.held(sender)[0], "1")
            site.world.transfer(receiver, sender, site.held(receiver)[-1], "1")
            site.sync()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            command("verify", "--sample", 0).says("All ")
        writing.result()
