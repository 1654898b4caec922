"""Reads that go past Flask are answered as Flask answers them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from nftsync.sandbox.generator import generate
from nftsync.sandbox.service import EXTENSION, create_app

WORLD = generate(wallets=2, nfts=3)
WALLET = WORLD.wallets()[0]
TOKEN = WORLD.mint(WALLET, 1, {"name": "A"})
UNKNOWN = "99999999-9999-4999-8999-999999999999"


def apps(**figures: float) -> tuple[Flask, Flask]:
    """Two alike, but that one is answered by Flask alone: something is hooked into it."""
    quick, plain = create_app(WORLD, **figures), create_app(WORLD, **figures)  # type: ignore[arg-type]
    plain.before_request(lambda: None)
    return quick, plain


QUICK, PLAIN = apps()


def ask(app: Flask, method: str, path: str, headers: Mapping[str, str]) -> object:
    answer = app.test_client().open(path, method=method, headers=dict(headers))
    shown = sorted((name, value) for name, value in answer.headers if name != "Date")
    return answer.status, shown, answer.data


ids = st.sampled_from([WALLET, WALLET.upper(), TOKEN, UNKNOWN, "ann", f"{TOKEN}0", "☃", ""])
odd_paths = st.builds(
    "{}{}{}".format,
    st.sampled_from(["/v1/wallets/", "/v1/tokens/", "/v2/tokens/"]),
    ids,
    st.sampled_from(["", "/nft-balances", "/nft-balances/", "/nft-balances?a=b", "/x"]),
)
paths = st.sampled_from([f"/v1/wallets/{WALLET}/nft-balances", f"/v1/tokens/{TOKEN}"]) | odd_paths
etags = [str(answer and answer.etag) for answer in (WORLD.balances(WALLET), WORLD.token(TOKEN))]
tags = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", "W/", "w/", " "]),
    st.sampled_from([f'"{etag}"' for etag in etags] + [etags[0], '"x"', '""', '"a,b"', '"', "*"]),
    st.sampled_from(["", "", " "]),
)
lists = st.lists(tags, min_size=1, max_size=3).map(", ".join)
none_match = st.fixed_dictionaries({"If-None-Match": tags})
conditions = none_match | st.dictionaries(
    st.sampled_from(["If-None-Match", "If-Match", "Range", "If-Modified-Since"]), lists, max_size=2
)


@given(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]), paths, conditions)
def test_both_answer_alike(method: str, path: str, headers: dict[str, str]) -> None:
    assert ask(QUICK, method, path, headers) == ask(PLAIN, method, path, headers)
    counted = [app.extensions[EXTENSION].requests.snapshot() for app in (QUICK, PLAIN)]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("figures", [{"fail_rate": 0.5, "seed": 3}, {"rate_limit": 0.0001}])
def test_both_refuse_alike(figures: dict[str, float]) -> None:
    both = apps(**figures)
    paths = [f"/v1/wallets/{WALLET}/nft-balances", f"/v1/tokens/{UNKNOWN}"] * 10
    quick, plain = ([ask(app, "GET", path, {}) for path in paths] for app in both)
    assert quick == plain
    counted = [app.extensions[EXTENSION].requests.snapshot() for app in both]
    assert counted == [{"balances": 10, "token": 10}] * 2
