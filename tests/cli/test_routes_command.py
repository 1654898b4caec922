"""`routes` and `routes suggest`: the routes in force, and TOML that works as it is."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import Route
from nftsync.reports.suggestions import Fields, Suggestion, Suggestions, as_toml
from nftsync.settings import load
from tests.kit.inbox import Inbox, body_of, webhook
from tests.kit.provider import token, uuid, wallet

BUILT_IN = {"Token", "Nft", "Wallet"}

OBJECT = """
[routes.Transaction]
path = "/v1/transactions/{resourceId}"
kind = "object"
wallets = ["fromWalletId"]
"""


@pytest.fixture
def known(inbox: Inbox) -> Inbox:
    """An inbox where two wallets and a token are known."""
    inbox.knows(wallets=[wallet(1), wallet(2)], tokens=[token(1)])
    return inbox


def receive(inbox: Inbox, resource_type: str, *ids: str, **fields: Any) -> None:
    first = len(inbox.states())
    for number, each in enumerate(ids, start=first):
        inbox.receive(body_of(number, resourceType=resource_type, resourceId=each, **fields))


def test_the_routes_in_force_are_listed(command, tmp_path):
    (tmp_path / "nftsync.toml").write_text(
        OBJECT + '[routes.Token]\nholders = true\n[routes."*"]\nkind = "sync"\n'
        'at_most_every = "90m"\n'
    )
    rows = {row["type"]: row for row in command("routes", "--json").json}
    assert rows.keys() == {*BUILT_IN, "Transaction", "*"}
    assert rows["Token"] == {
        "type": "Token",
        "kind": "token",
        "path": "/v1/tokens/{resourceId}",
        "holders": True,
        "wallets": [],
        "tokens": [],
        "at_most_every": None,
        "source": "nftsync.toml",
    }
    assert rows["Wallet"]["source"] == "built in"
    assert rows["*"]["at_most_every"] == "90m"
    assert rows["Transaction"]["wallets"] == ["fromWalletId"]
    table = command("routes").says("/v1/wallets/{resourceId}/nft-balances")
    assert (table.err, table) == ("", command("routes", "list"))
    assert command("routes", "list", "--json").json == list(rows.values())


def test_known_ids_of_a_type_become_a_route_or_a_comment(known, command):
    receive(known, "Custody Account", wallet(1).upper(), wallet(2), uuid(9))
    receive(known, "Collectible", token(1), token(1))
    receive(known, "Wallet", wallet(1))
    changes = {"to": {"walletId": wallet(1).upper()}, "items": [{"tokenId": token(1)}, "x"]}
    receive(known, "Transaction", uuid(1), uuid(2), changes=changes)
    done = command("routes", "suggest")
    assert done.code == 0
    assert tomllib.loads(done.out) == {
        "routes": {"Custody Account": {"kind": "wallet"}, "Collectible": {"kind": "token"}}
    }
    counts = "3 webhooks stored, on 3 objects; known wallets among them: 2."
    assert f'"Custody Account": {counts}' in done.out
    assert "inbox requeue --state unrouted" in done.err
    comment = done.out[done.out.index("# [routes.Transaction]") :]
    block = [line[2:] for line in comment.splitlines() if line[2:3] in set("[pkwt")]
    (route,) = tomllib.loads("\n".join(block))["routes"].values()
    assert [*route.values()][:2] == ["/FILL/THIS/IN/{resourceId}", "object"]
    assert (route["wallets"], route["tokens"]) == (["to.walletId"], ["items.tokenId"])


def test_fields_that_a_route_leaves_out_are_added_to_it(known, command, tmp_path):
    (tmp_path / "nftsync.toml").write_text(OBJECT)
    receive(known, "Transaction", uuid(1))
    known.keeps("Transaction", uuid(1), {"fromWalletId": wallet(1), "a": {"b": [wallet(1)]}})
    known.keeps("Transaction", uuid(2), {"a": {"b": [None, wallet(1)]}, "t": token(1)})
    done = command("routes", "suggest")
    whole = OBJECT.replace('Id"]', 'Id", "a.b"]\ntokens = ["t"]')
    assert tomllib.loads(done.out) == tomllib.loads(whole)
    assert '"a.b" (2), "fromWalletId" (1)' in done.out
    (tmp_path / "nftsync.toml").write_text(done.out)
    command("routes", "suggest").tells("Nothing to suggest", code=0)


def test_a_route_for_any_other_type_makes_way_for_a_better_one_only(known, command, tmp_path):
    """Neither a type named like it nor the quarantine suggests any."""
    (tmp_path / "nftsync.toml").write_text('[routes."*"]\nkind = "sync"\n')
    receive(known, "Custody", wallet(1))
    receive(known, "Payment", uuid(1))
    receive(known, "*", wallet(1))
    known.receive(body_of(30, resourceType="Other", resourceId="x"))
    assert known.states()[-1] == "quarantined"
    update = "UPDATE webhooks SET resource_type = 'Other', resource_id = ?"
    known.run(f"{update} WHERE state = 'quarantined'", wallet(1))
    out = command("routes", "suggest").out
    assert tomllib.loads(out) == {"routes": {"Custody": {"kind": "wallet"}}}
    assert "Payment" not in out


def test_hostile_bodies_and_fields_break_nothing(known, command):
    receive(known, "Custody", *map(uuid, range(6)))
    strange = {'"]\n#': wallet(1), "a b": wallet(1), "x.y": wallet(1), wallet(1): wallet(1)}
    texts = [
        *("[" * 100_000, "{", "9" * 5_000, '{"a": ' + "9" * 5_000 + "}", "null"),
        json.dumps({"e\x1b": {"\u202e": wallet(1)}, **strange}),
    ]
    for number, text in enumerate(texts):
        known.run("UPDATE webhooks SET changes = ? WHERE webhook_id = ?", *(text, webhook(number)))
    done = command("routes", "suggest")
    assert (done.code, tomllib.loads(done.out)) == (0, {})
    assert not set(done.out) & set("\x1b\u202e")
    assert wallet(1) not in done.out
    assert r'wallets = ["e\u001b.\u202e"]' in done.out


# Only the letters that a key or a string can have in a database: no surrogates.
_TYPE = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda x: x != "*")
_FIELD = st.from_regex(r"[^.\s]{1,8}(\.[^.\s]{1,8})?", fullmatch=True)
_FOUND = st.lists(st.tuples(_FIELD, st.integers(1, 9)), max_size=3)
_FIELDS = st.builds(Fields, st.integers(0, 20_000), _FOUND, _FOUND)
_FEW = st.integers(0, 9)
_ROUTE = st.none() | st.just(Route(path="/v1/t/{resourceId}", kind="object", wallets=["a.b"]))
_SUGGESTION = st.builds(Suggestion, _TYPE, _FEW, _FEW, _FEW, _FEW, _FIELDS, _FIELDS, _ROUTE)


@settings(max_examples=15)
@given(
    st.lists(_SUGGESTION, unique_by=lambda each: each.resource_type, max_size=4),
    st.none() | st.just(10_000),
)
@example([Suggestion("]\nkind = 1\x1b[2J\u202e'\"\\", 1, 1, 1, 0, Fields(), Fields(), None)], None)
def test_suggestions_are_a_settings_file(tmp_path_factory, suggestions, sample):
    """Each suggestion that is not a comment is a route of its type, and the settings take it."""
    suggestions = [each for each in suggestions if each.resource_type not in BUILT_IN]
    text = as_toml(Suggestions(suggestions, sample, 3))
    assert not set(text) & set("\x1b\u202e")
    file = tmp_path_factory.mktemp("toml") / "nftsync.toml"
    file.write_text(text, encoding="utf-8")
    routes = load(config=file, environ={}).routes
    assert set(routes) == {
        each.resource_type for each in suggestions if each.route or each.wallets or each.tokens
    }
    marked = [line for line in text.splitlines() if line.startswith("# [routes.")]
    assert len(marked) + len(routes) == len(suggestions)
