"""World files are read, or refused with a line."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.sandbox.world import World

WALLET = "11111111-1111-4111-8111-aaaaaaaaaaaa"
TOKEN = "33333333-3333-4333-8333-cccccccccccc"
ENTRY = {"tokenId": TOKEN, "amount": "1"}

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
    return json.dumps({"walletId": WALLET, "nftTokenBalances": entries} | changes)


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
        body = json.loads(loaded.balances_body(wallet) or b"null")
        assert body == {"nftTokenBalances": held}


@settings(max_examples=60)
@given(cut=st.integers(0, 200), put=st.binary(max_size=30))
def test_any_other_content_is_read_or_refused_in_one_line(tmp_path, cut, put):
    path = tmp_path / "world.jsonl"
    path.write_bytes(line().encode()[:cut] + put + line().encode()[cut:])
    said = str(path)
    try:
        world = World.load(path)
        for wallet in world.wallets():
            json.loads(world.balances_body(wallet) or b"null")
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
        (line(walletId=WALLET.upper()), f"wallet {WALLET} already exists"),
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
