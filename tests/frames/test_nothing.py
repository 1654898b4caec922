"""No rows where nothing was held, and where nobody knows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import nftsync
from nftsync import frames
from tests.kit.database import Builder, at, wallet_id


@pytest.fixture
def known(build: Builder) -> Builder:
    """One wallet sold what it held, one was never read, one was read in part."""
    build.wallet(1, label="Vault")
    build.wallet(2, label="Desk")
    build.wallet(3)
    build.token(1, contract_address="0x" + "aB" * 20)
    build.state(1, 10, 30, 10)
    build.change(1, 1, None, "1", 10, baseline=1)
    build.change(1, 1, "1", None, 20)
    build.change(3, 1, None, "0", 25)
    return build


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"as_of": at(5)}, f"no data at {at(5)}: the first .* from {at(10)}. Holdings before"),
        ({"as_of": at(15), "wallet": wallet_id(3)}, f"on wallet {wallet_id(3)} at .* {at(25)}"),
        ({"wallet": "desk"}, "no data on wallet Desk yet: no read has been stored"),
        ({"wallet": wallet_id(9)}, f"no data on wallet {wallet_id(9)}; list .* `nftsync wallets`"),
        ({"wallet": [wallet_id(8), wallet_id(9)]}, "no data on 2 wallets;"),
        ({"contract": "0x" + "12" * 20}, "no known token has the contract '0x1212"),
    ],
)
def test_what_nobody_knows_is_a_warning(known: Builder, asked: dict[str, Any], said: str) -> None:
    with pytest.warns(nftsync.NftsyncWarning, match=said) as told:
        assert frames.holdings(known.path, **asked).empty
    assert told[0].filename == __file__
    assert len(str(told[0].message)) < 300


def test_what_was_not_held_is_none(known: Builder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for asked in (
            *({}, {"as_of": at(20)}, {"wallet": "Vault"}, {"wallet": []}),
            *({"contract": "0X" + "AB" * 20}, {"wallet": [wallet_id(1), wallet_id(9)]}),
        ):
            assert frames.holdings(known.path, **asked).empty
    empty = Builder(known.path.with_name("empty.db")).close()
    with pytest.warns(nftsync.NftsyncWarning, match="no data yet"):
        frames.holdings(empty)
