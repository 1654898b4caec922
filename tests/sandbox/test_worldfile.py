"""The sandbox's world: generated or read from a file, its answers and edits."""

import gzip
import hashlib
import json
import unicodedata
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nftsync.errors import InputError
from nftsync.sandbox.generator import draw, generate
from nftsync.sandbox.world import MAX_AMOUNT, Holding, World

ANN = "11111111-1111-4111-8111-aaaaaaaaaaaa"
BEN = "22222222-2222-4222-8222-bbbbbbbbbbbb"
TOKEN = "33333333-3333-4333-8333-cccccccccccc"
OTHER = "44444444-4444-4444-8444-dddddddddddd"
RECORD = (
    '{"id":"' + TOKEN + '","tokenId": 115792089237316195423570985008687907853269984665640564039457,'
    '"rate":1.10,"metadata":{"name":"A","editionId":0},"odd":[null,{}]}'
)
ENTRY = {"tokenId": TOKEN, "amount": "1"}


def listed(world: World, wallet: str) -> list[dict[str, Any]]:
    """The entries of a wallet's list."""
    found: list[dict[str, Any]] = json.loads(world.balances_body(wallet) or b"")["nftTokenBalances"]
    return found


def test_the_same_seed_makes_the_same_bytes_in_every_process():
    world = generate(wallets=9, nfts=12, seed=5)
    bodies = b"".join(world.balances_body(wallet) or b"" for wallet in world.wallets())
    assert hashlib.sha256(bodies).hexdigest()[:16] == "40e4855ca32a3cc3"


@settings(max_examples=15)
@given(wallets=st.integers(0, 8), nfts=st.integers(0, 20), seed=st.integers())
def test_each_wallet_lists_exactly_as_many_tokens_as_asked(wallets, nfts, seed):
    world = generate(wallets=wallets, nfts=nfts, seed=seed)
    assert len(world.wallets()) == wallets
    for wallet in world.wallets():
        tokens = [entry["tokenId"] for entry in listed(world, wallet)]
        assert len(tokens) == len(set(tokens)) == nfts
        for token in tokens:
            assert json.loads(world.token_body(token) or b"null")["id"] == token


def test_a_default_world_has_what_makes_the_field_hard():
    base = "http://localhost:1"
    world = generate(image_base=base)
    entries = [entry for wallet in world.wallets() for entry in listed(world, wallet)]
    tokens = {entry["tokenId"]: entry["token"] for entry in entries}
    shown = [token["metadata"] for token in tokens.values() if token.get("metadata")]
    names = "".join(metadata["name"] for metadata in shown)
    addresses = {token["contractAddress"] for token in tokens.values()}
    holders = Counter(entry["tokenId"] for entry in entries)
    held: Counter[str] = Counter()
    for entry in entries:
        held[entry["tokenId"]] += int(entry["amount"])

    assert any(int(entry["amount"]) > 1 for entry in entries)
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


def make(amount: str = "5", record: str | None = RECORD) -> World:
    raw = msgspec.UNSET if record is None else msgspec.Raw(record.encode())
    world = World(seed=1)
    world.add_wallet(ANN, [Holding(TOKEN, amount, raw)])
    world.add_wallet(BEN)
    return world


def test_records_and_amounts_are_answered_to_the_character_and_ids_as_first_written():
    world = make(amount="0012")
    expected = f'{{"nftTokenBalances":[{{"tokenId":"{TOKEN}","amount":"0012","token":{RECORD}}}]}}'
    assert world.balances_body(ANN) == expected.encode()
    assert world.token_body(TOKEN.upper()) == RECORD.encode()
    upper = World()
    upper.add_wallet(ANN.upper(), [Holding(TOKEN.upper(), "1", msgspec.Raw(b"{}"))])
    assert upper.wallets() == [ANN.upper()]
    assert TOKEN.upper().encode() in (upper.balances_body(ANN) or b"")
    assert upper.token_body(TOKEN) == b"{}"


def test_a_refused_edit_says_why_in_one_line_and_changes_nothing():
    world, untouched = make(), make()
    odd = "66666666-6666-4666-8666-ffffffffffff"
    for each in (world, untouched):
        each.add_wallet(OTHER, [Holding(odd, "5.0")])
    for edit, message in (
        (lambda: world.transfer(TOKEN, BEN, TOKEN, 1), f"wallet {TOKEN} does not exist"),
        (lambda: world.transfer(ANN, BEN, OTHER, 1), f"token {OTHER} does not exist"),
        (lambda: world.transfer(BEN, ANN, TOKEN, 1), "does not hold 1 of token"),
        (lambda: world.transfer(ANN, ANN, TOKEN, 6), "does not hold 6 of token"),
        (lambda: world.transfer(OTHER, BEN, odd, 1), "does not hold 1 of token"),
        (lambda: world.transfer(ANN, BEN, TOKEN, 0), "from 1 to 2"),
        (lambda: world.transfer(ANN, BEN, TOKEN, "1.0"), "from 1 to 2"),
        (lambda: world.transfer(ANN, BEN, TOKEN, 2**256), "from 1 to 2"),
        (lambda: world.transfer("x\ny", BEN, TOKEN, 1), "is not a wallet id"),
        (lambda: world.mint(TOKEN, 1, {}), f"wallet {TOKEN} does not exist"),
        (lambda: world.edit_metadata(OTHER, {}), f"token {OTHER} does not exist"),
        (lambda: world.set_amount(ANN, OTHER, "1"), f"token {OTHER} does not exist"),
        (lambda: world.remove(BEN, TOKEN), "does not hold token"),
        (lambda: world.add_wallet(ANN.upper()), "wallet .* already exists"),
        (lambda: world.add_wallet("ann"), "'ann' is not a wallet id"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            edit()
        assert "\n" not in str(caught.value)
    assert world.wallets() == untouched.wallets()
    for wallet in untouched.wallets():
        assert world.balances_body(wallet) == untouched.balances_body(wallet)
    assert world.token_body(TOKEN) == untouched.token_body(TOKEN)


def test_changed_metadata_shows_with_every_holder_and_leaves_the_rest_of_the_record():
    world = make()
    world.transfer(ANN, BEN, TOKEN, 1)
    world.edit_metadata(TOKEN, {"name": "B", "editionId": 2**300})
    expected = RECORD.replace(
        '{"name":"A","editionId":0}', f'{{"name":"B","editionId":{2**300}}}'
    ).replace(": 115", ":115")
    assert (world.token_body(TOKEN) or b"").decode() == expected
    for wallet in (ANN, BEN):
        assert expected in (world.balances_body(wallet) or b"").decode()
    for record in (None, "null"):  # shows in the token's own read alone
        world = make(record=record)
        before = world.balances_body(ANN)
        assert world.token_body(TOKEN) is None
        world.edit_metadata(TOKEN, {"name": "B"})
        assert json.loads(world.token_body(TOKEN) or b"")["metadata"] == {"name": "B"}
        assert world.balances_body(ANN) == before


class Trade(RuleBasedStateMachine):
    """Edits in any order, compared with a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.model: dict[str, dict[str, int]] = {self.world.add_wallet(): {} for _ in range(3)}
        self.supply: dict[str, int] = {}

    @rule(which=st.integers(0, 2), amount=st.integers(1, MAX_AMOUNT))
    def mint(self, which: int, amount: int) -> None:
        wallet = list(self.model)[which]
        token = self.world.mint(wallet, amount, {})
        self.model[wallet][token] = self.supply[token] = amount

    @precondition(lambda self: self.supply)
    @rule(data=st.data(), giver=st.integers(0, 2), getter=st.integers(0, 2))
    def transfer(self, data: st.DataObject, giver: int, getter: int) -> None:
        source, target = list(self.model)[giver], list(self.model)[getter]
        token = data.draw(st.sampled_from(list(self.supply)))
        held = self.model[source].get(token, 0)
        amount = data.draw(st.one_of(st.just(max(held, 1)), st.integers(1, held + 1)))
        if amount > held:
            with pytest.raises(InputError):
                self.world.transfer(source, target, token, amount)
            return
        self.world.transfer(source, target, token, amount)
        self.model[source][token] -= amount
        self.model[target][token] = self.model[target].get(token, 0) + amount
        for held_by in self.model.values():
            if held_by.get(token) == 0:
                del held_by[token]

    @invariant()
    def lists_are_what_the_edits_led_to_and_totals_are_conserved(self) -> None:
        total = Counter[str]()
        for wallet, expected in self.model.items():
            found = {each["tokenId"]: each["amount"] for each in listed(self.world, wallet)}
            assert found == {token: str(amount) for token, amount in expected.items()}
            total.update({token: int(amount) for token, amount in found.items()})
        assert total == self.supply


TestTrade = Trade.TestCase
TestTrade.settings = settings(max_examples=20, stateful_step_count=15)


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"[]{}\\'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
entries = st.fixed_dictionaries(
    {"tokenId": st.uuids().map(str), "amount": texts},
    optional={"token": st.none() | st.dictionaries(texts, values, max_size=3)},
)
worlds = st.dictionaries(
    st.uuids().map(str),
    st.lists(entries, max_size=3, unique_by=lambda entry: entry["tokenId"]),
    max_size=3,
)


def line(**changes: object) -> str:
    entries = [ENTRY | {"token": {"id": TOKEN}}]
    return json.dumps({"walletId": ANN, "nftTokenBalances": entries} | changes)


@settings(max_examples=50)
@given(world=worlds, packed=st.booleans(), escaped=st.booleans())
def test_every_wallet_is_answered_as_its_line_has_it(tmp_path, world, packed, escaped):
    lines = [
        json.dumps({"owner": 1, "walletId": wallet, "nftTokenBalances": held}, ensure_ascii=escaped)
        for wallet, held in world.items()
    ]
    content = "".join(text + "\n" for text in lines).encode()
    # The name must not decide whether it is gzip.
    path = tmp_path / ("world.jsonl" if packed else "world.jsonl.gz")
    path.write_bytes(gzip.compress(content) if packed else content)
    loaded = World.load(path)
    assert loaded.wallets() == list(world)
    for wallet, held in world.items():
        assert listed(loaded, wallet) == held


@settings(max_examples=60)
@given(cut=st.integers(0, 200), put=st.binary(max_size=30))
def test_any_other_content_is_read_or_refused_in_one_line(tmp_path, cut, put):
    path = tmp_path / "world.jsonl"
    path.write_bytes(line().encode()[:cut] + put + line().encode()[cut:])
    said = str(path)
    try:
        world = World.load(path)
        for wallet in world.wallets():
            listed(world, wallet)
    except InputError as error:
        said = str(error)
    assert str(path) in said
    assert "\n" not in said


def test_a_bad_line_is_named_by_file_and_number_and_a_bad_file_by_its_name(tmp_path):
    path = tmp_path / "world.jsonl"
    other = line(walletId=TOKEN)
    for bad, message in (
        ("{", "truncated"),
        (line(nftTokenBalances=None), r"got `null` - at `\$.nftTokenBalances`"),
        (line(walletId=ANN.upper()), f"wallet {ANN} already exists"),
        (line(walletId=TOKEN, nftTokenBalances=[ENTRY | {"tokenId": "t"}]), "not a token id"),
        (line(walletId=TOKEN, nftTokenBalances=[ENTRY] * 2), "twice"),
        (line(walletId=TOKEN, nftTokenBalances=[ENTRY | {"token": 1}]), "is not a JSON object"),
        (other[:-1] + ',"x":NaN}', "malformed"),
        (other[:-1] + ',"x":' + "[" * 200 + "]" * 200 + "}", "nested more than 200"),
        ('{"walletId":"\xff"}', "can't decode byte"),
    ):
        path.write_bytes(line().encode() + b"\n\n" + bad.encode("latin-1") + b"\n")
        with pytest.raises(InputError, match=message) as caught:
            World.load(path)
        assert str(caught.value).startswith(f"{path}, line 3: ")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress((line() + "\n").encode())[:-9])
    for path in (cut, tmp_path / "gone.jsonl", tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*: "):
            World.load(path)


def test_a_token_shown_by_one_wallet_alone_can_still_be_read_by_its_id(tmp_path):
    path = tmp_path / "world.jsonl"
    path.write_text(line(walletId=TOKEN, nftTokenBalances=[ENTRY]) + "\n" + line())
    assert World.load(path).token_body(TOKEN.upper()) == f'{{"id": "{TOKEN}"}}'.encode()
