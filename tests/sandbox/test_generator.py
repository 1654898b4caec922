"""Made-up worlds and their pictures."""

import hashlib
import json
import unicodedata
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.sandbox.generator import draw, generate
from nftsync.sandbox.world import World


def bodies(world: World) -> list[bytes]:
    return [world.balances_body(wallet) or b"" for wallet in world.wallets()]


def entries(world: World) -> list[dict[str, Any]]:
    return [entry for body in bodies(world) for entry in json.loads(body)["nftTokenBalances"]]


def test_the_same_seed_makes_the_same_bytes_in_every_process():
    made = hashlib.sha256(b"".join(bodies(generate(wallets=9, nfts=12, seed=5)))).hexdigest()
    assert made[:16] == "40e4855ca32a3cc3"


@settings(max_examples=15)
@given(wallets=st.integers(0, 8), nfts=st.integers(0, 20), seed=st.integers())
def test_each_wallet_lists_exactly_as_many_tokens_as_asked(wallets, nfts, seed):
    world = generate(wallets=wallets, nfts=nfts, seed=seed)
    assert len(world.wallets()) == wallets
    for body in bodies(world):
        listed = [entry["tokenId"] for entry in json.loads(body)["nftTokenBalances"]]
        assert len(listed) == len(set(listed)) == nfts
        for token in listed:
            assert json.loads(world.token_body(token) or b"null")["id"] == token


def test_a_default_world_has_what_makes_the_field_hard():
    base = "http://localhost:1"
    listed = entries(generate(image_base=base))
    tokens = {entry["tokenId"]: entry["token"] for entry in listed}
    shown = [token["metadata"] for token in tokens.values() if token.get("metadata")]
    names = "".join(metadata["name"] for metadata in shown)
    addresses = {token["contractAddress"] for token in tokens.values()}
    holders = Counter(entry["tokenId"] for entry in listed)
    held: Counter[str] = Counter()
    for entry in listed:
        held[entry["tokenId"]] += int(entry["amount"])

    assert any(int(entry["amount"]) > 1 for entry in listed)
    assert max(holders.values()) > 1 == min(holders.values())
    assert any(int(token["blockchainTokenId"]) > 2**63 for token in tokens.values())
    assert len({address.lower() for address in addresses}) < len(addresses)
    assert any(token.get("metadata") == {} for token in tokens.values())
    assert any("metadata" not in token for token in tokens.values())
    assert {0} <= {metadata.get("editionId") for metadata in shown}
    assert {0} <= {metadata.get("totalEdition") for metadata in shown}
    assert any(unicodedata.category(letter) == "So" for letter in names)
    assert any(unicodedata.bidirectional(letter) == "AL" for letter in names)
    for token_id, token in tokens.items():
        metadata = token.get("metadata") or {"image": f"{base}/sandbox/images/{token_id}.svg"}
        assert metadata["image"] == f"{base}/sandbox/images/{token_id}.svg"
        if metadata.get("totalEdition") and not metadata["editionId"]:
            assert held[token_id] <= metadata["totalEdition"]


@settings(max_examples=20)
@given(token=st.uuids().map(str))
def test_a_picture_is_plain_svg_that_only_the_id_decides(token):
    picture = draw(token)
    assert picture == draw(token.upper())
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()}
    assert tags <= {"svg", "rect", "circle"}
