import json
import re
import tomllib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.errors import InputError, SettingsError
from nftsync.provider.webhooks import Route, merge_routes, named_ids, path_for
from nftsync.text import toml_key

ID = "ABCDEF01-2345-6789-abcd-ef0123456789"
TOKEN_PATH = "/v1/tokens/{resourceId}"
WALLET_PATH = "/v1/wallets/{resourceId}/nft-balances"
OBJECT_PATH = "/v1/transactions/{resourceId}"
MINUTE = timedelta(minutes=1)


OBJECT = Route(kind="object", path=OBJECT_PATH)
TOKEN = Route(kind="token", path=TOKEN_PATH)
WALLET = Route(kind="wallet", path=WALLET_PATH)
SYNC = Route(kind="sync")
HOLDERS = Route(kind="token", path=TOKEN_PATH, holders=True)


@pytest.mark.parametrize(
    ("configured", "found"),
    [
        ({}, {"Token": TOKEN, "Nft": TOKEN, "Wallet": WALLET}),
        ({"Token": Route(holders=True), "Wallet": Route(path=WALLET_PATH)},
         {"Token": HOLDERS, "Nft": TOKEN}),
        ({"Token": SYNC, "Nft": OBJECT, "Asset": Route(kind="token")},
         {"Token": SYNC, "Nft": OBJECT, "Asset": TOKEN, "Wallet": WALLET}),
    ],
    ids=["built in", "options", "another kind"],
)  # fmt: skip
def test_configured_routes_replace_built_in_ones(configured, found):
    """The star applies to every type without a route."""
    routes = merge_routes(configured)
    assert {name: routes.find(name) for name in found} == found
    others = ("Transaction", "token", "TOKEN", "", "*", "Token ")
    assert not any(routes.find(name) for name in others)
    for any_other in (Route(kind="sync", at_most_every=MINUTE), OBJECT):
        routes = merge_routes({**configured, "*": any_other})
        assert {name: routes.find(name) for name in found} == found
        assert [routes.find(name) for name in others] == [any_other] * len(others)


routes = st.builds(
    Route,
    path=st.none() | st.sampled_from([TOKEN_PATH, WALLET_PATH, OBJECT_PATH, "/x"]),
    kind=st.none() | st.sampled_from(["token", "wallet", "object", "sync"]),
    holders=st.booleans(),
    wallets=st.lists(st.just("w"), max_size=1),
    tokens=st.lists(st.just("t"), max_size=1),
    at_most_every=st.none() | st.just(MINUTE),
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["Token", "Wallet", "*", "A"]) | st.text(), routes))
def test_any_routes_are_complete_or_refused_in_one_line(configured):
    try:
        complete = merge_routes(configured)
    except SettingsError as error:
        refusal = str(error)
    else:
        refusal = "routes."
        for name in {*configured, "Token", "Nft", "Wallet"}:
            route = complete.find(name)
            assert route is not None
            if route.kind == "sync":
                assert (route.path, route.holders, route.wallets) == (None, False, [])
            else:
                assert path_for(route, ID).count(ID.lower()) == 1
    assert len(refusal.splitlines()) == 1
    assert refusal.startswith("routes.")


def test_a_path_gets_the_id_in_lower_case_and_is_encoded():
    route = Route(kind="object", path="/v1/things/{resourceId}/of/{resourceId}?full=1&x=%20")
    low = ID.lower()
    assert path_for(route, ID) == f"/v1/things/{low}/of/{low}?full=1&x=%20"
    route = Route(kind="object", path="/v1/gr\u00fc\u00dfe/\x00\x7f{resourceId}")
    assert path_for(route, ID) == f"/v1/gr%C3%BC%C3%9Fe/%00%7F{low}"
    for wrong in ("", "../admin", "a%2fb", f"{ID}\r\nX: y", f"{ID}\n", f"{ID}/..", ID[:-1]):
        with pytest.raises(InputError, match="is not a resource id"):
            path_for(route, wrong)


@settings(max_examples=50)
@given(st.text(), st.text() | st.just(ID))
def test_any_path_and_id_give_an_encoded_path_or_a_refusal(around, resource_id):
    route = Route(kind="object", path=f"/{around}/{{resourceId}}")
    try:
        path = path_for(route, resource_id)
    except InputError:
        assert resource_id != ID
        return
    assert re.fullmatch(r"/[!-~]*", path)
    assert path.endswith(f"/{ID.lower()}")


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8")) | st.text('ab-_"\\\n\u2028 .]'))
def test_a_types_name_is_quoted_as_toml_reads_it(name):
    line = f"[routes.{toml_key(name)}]"
    assert len(line.splitlines()) == 1
    assert tomllib.loads(line) == {"routes": {name: {}}}


def numbered(number: int) -> str:
    return f"0000000A-0000-4000-8000-{number:012d}"


def low(*numbers: int) -> list[str]:
    return [numbered(number).lower() for number in numbers]


def test_other_values_than_uuids_and_objects_are_ignored():
    for value in (None, True, 5, 1.5, {}, {"x": 1}, [], "", "x", numbered(1)[:-1],
                  numbered(1) + "\n", f"{numbered(1)},{numbered(2)}"):  # fmt: skip
        body = json.dumps({"a": value, "b": numbered(7)})
        assert named_ids(body, ["a", "missing", "a.b.c", "b", "b.c", ""]) == low(7)
    for body in (b"", b"{", b"[1", b"\xff\xfe\x00", b"[" * 200_000, b'{"a":' * 200_000, "null"):
        assert named_ids(body, ["a"]) == []
    odd = f'"n": {"9" * 5_000}, "m": NaN, "s": "\\ud800", "f": 1e999'
    assert named_ids(f'{{{odd}, "id": "{numbered(1)}"}}', ["id", "n", "s"]) == low(1)


names = st.sampled_from(["a", "b", "a.b", "b.a", "a.a", "a.b.a"])
some_ids = st.integers(0, 3).map(numbered)
bodies = st.recursive(
    some_ids | st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
)


def plainly(value: Any, steps: list[str]) -> list[str]:
    """The definition, as a recursion."""
    if isinstance(value, list):
        return [found for element in value for found in plainly(element, steps)]
    if steps:
        inner = value.get(steps[0], []) if isinstance(value, dict) else []
        return plainly(inner, steps[1:])
    is_id = isinstance(value, str) and re.fullmatch("[0-9A-Fa-f-]{36}", value)
    return [value.lower()] if is_id else []


@settings(max_examples=50)
@given(bodies, st.lists(names, max_size=4))
def test_the_ids_match_the_definition(body, fields):
    expected = [found for field in fields for found in plainly(body, field.split("."))]
    assert named_ids(json.dumps(body), fields) == list(dict.fromkeys(expected))
