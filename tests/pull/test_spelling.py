"""Changes of metadata: another form of the same value is not a change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import SettingsError
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.spelling import differing
from tests.kit.provider import path_of, reply, token, wallet

VOLATILE = 'volatile_fields = ["lastSyncedAt", "metadata.image", "metadata.stats.views", "absent"]'

#: Signed addresses: two signatures of one object.
SIGNED = {
    "S3": ("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A&X-Amz-Date={n}&X-Amz-Expires=900"
           "&X-Amz-Security-Token={n}&X-Amz-SignedHeaders=host&X-Amz-Signature={n}"),
    "S3, version 2": "AWSAccessKeyId=A{n}&Expires={n}&x-amz-security-token={n}&Signature={n}%3D",
    "Google": "X-Goog-Algorithm=A&X-Goog-Credential=C&X-Goog-Date={n}&X-Goog-Signature={n}",
    "Google, version 2": "GoogleAccessId=a@b&Expires={n}&Signature={n}",
    "CloudFront": "Expires={n}&Signature={n}&Key-Pair-Id=K",
    "CloudFront, a policy": "Policy={n}&Signature={n}&Key-Pair-Id=K{n}",
    "Azure": "sv=2024-0{n}&st={n}&se={n}&sr=b&sp=r&spr=https&sip={n}&skoid={n}&sig={n}%3D",
    "Azure, a stored policy": "sv=2024-0{n}&si=p&sr=c&sig={n}",
}  # fmt: skip
#: Parameters of signatures, in addresses without a signature.
UNSIGNED = (
    *("Expires={n}", "sv={n}", "sig={n}", "sv=1&sig={n}", "Signature={n}", "X-Amz-Date={n}"),
    *("X-Amz-Signature=&X-Amz-Date={n}", "se={n}&sv=1", "Policy={n}&Key-Pair-Id=K"),
)


def differs(one, other, column="extra"):
    """Return whether two contents differ, which have one column."""
    contents = (tuple({column: x}.get(name) for name in CONTENT_COLUMNS) for x in (one, other))
    found = differing(*contents)
    assert found in ([], [column])
    return bool(found)


@pytest.mark.parametrize("signature", SIGNED.values(), ids=SIGNED)
def test_an_address_with_a_new_signature_is_the_same(signature):
    one, other = (f"https://b.example.com/a.png?v=1&{signature}".format(n=n) for n in (1, 2))
    changes = {"b.example": "c.example", "a.png": "b.png", "v=1": "v=2", "https:": "ipfs:"}
    changed = [other.replace(*change) for change in changes.items()]
    for column in ("image", "animation_url", "external_url", "creator_image_url"):
        assert not differs(one, other, column)
        assert not differs("https://b.example.com/a.png?v=1", other, column)
        for address in (*changed, f"{other}&more=1", f"{other}#more", f"{other} "):
            assert differs(one, address, column)
    nested = '{{"metadata":{{"media":[{{"uri":"{}"}}]}}}}'.format
    assert not differs(nested(one), nested(other))
    assert differs(nested(one), nested(other.replace("v=1", "v=2")))
    assert differs(f'{{"{one}":1}}', f'{{"{other}":1}}')  # keys


@pytest.mark.parametrize("query", UNSIGNED)
def test_parameters_without_a_signature_are_a_change(query):
    assert differs(*(f"https://example.com/a?{query}".format(n=n) for n in (1, 2)), "image")


_NUMBERS = st.decimals(
    allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
)


@given(_NUMBERS, _NUMBERS)
def test_numbers_are_equal_if_their_values_are(one, other):
    """In any form. A number never equals a text or a boolean."""
    for text in (f"{one:E}", f"{one:f}00"):
        assert not differs(f'{{"x":[{one:f}]}}', f'{{"x":[{text}]}}')
    assert differs(f'{{"x":{one:f}}}', f'{{"x":{other:f}}}') == (one != other)
    for value in (f'"{one:f}"', "true", "false", "null", "[]", "{}", f"[{one:f}]"):
        assert differs(f'{{"x":{one:f}}}', f'{{"x":{value}}}')


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (f"1e{9 * 10**20}", f"1e{9 * 10**20}", True),
        (f"1e{9 * 10**20}", f"2e{9 * 10**20}", False),
        ("1e999999999", "10e999999998", True),
        ("1e999999999", "1e999999998", False),
        ("9" * 9_999, "9" * 9_998 + "8", False),
        ("0", "-0.0", True),
    ],
    ids=lambda value: str(value)[:20],
)
def test_numbers_of_any_length_compare_quickly(one, other, equal):
    assert differs(f'{{"x":{one}}}', f'{{"x":{other}}}') == (not equal)


def show(mirror, *metadata, number=0, **record):
    """Let a wallet hold a token for each metadata, as JSON."""
    more = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in record.items())
    entries = ",".join(
        f'{{"tokenId":"{token(n)}","amount":"1","token":{{"metadata":{text}{more}}}}}'
        for n, text in enumerate(metadata)
    )
    mirror.provider.on(path_of(number), reply(f'{{"nftTokenBalances":[{entries}]}}'.encode()))


def history(mirror):
    """Return the numbers of token changes and of wallet states."""
    (row,) = mirror.query(
        "SELECT (SELECT count(*) FROM token_changes), (SELECT count(*) FROM wallet_states)"
    )
    return row


def test_forms_of_numbers_and_new_signatures_make_no_history(mirror):
    address = "https://b.s3.amazonaws.com/a.png?X-Amz-Date={n}&X-Amz-Signature={n}"
    for n, number in enumerate(("150", "150.0", "1.5e2", "15e1")):
        show(mirror, f'{{"editionId":{number},"x":{number},"image":"{address.format(n=n)}"}}')
        result = mirror.sync([wallet(0)])
        assert (result.tokens.changed, result.wallets.unchanged) == (0, int(n > 0))
        ((edition, image, more),) = mirror.query("SELECT edition_id, image, extra FROM tokens")
        assert (edition, image) == (150, address.format(n=n))
        assert json.loads(more) == {"metadata": {"x": float(number)}}
        assert number in more
    assert history(mirror) == (0, 1)
    at = frames.runs(mirror.database)["finished_at"].iloc[1]
    assert set(frames.holdings(mirror.database, as_of=at)["certainty"]) == {"bracketed"}
    show(mirror, f'{{"editionId":151,"image":"{address.format(n=9)}"}}')
    assert mirror.sync().tokens.changed == 1
    ((before, after),) = mirror.query("SELECT before, after FROM token_changes")
    assert json.loads(before) == {"edition_id": 150, "extra": '{"metadata":{"x":15e1}}'}
    assert json.loads(after) == {"edition_id": 151, "extra": None}


@pytest.mark.parametrize("by_id", [False, True])
def test_volatile_fields_are_stored_without_history(mirror, *, by_id):
    for n in range(4):
        metadata = f'{{"name":"a","image":"ipfs://{n}","stats":[{{"views":{n},"x":1}}]}}'
        for number in (0, 1):
            show(mirror, metadata, lastSyncedAt=n, number=number)
        record = f'{{"id":"{token(0)}","lastSyncedAt":{n},"metadata":{metadata}}}'
        mirror.provider.on(f"/v1/tokens/{token(0)}", reply(record.encode()))
        result = mirror.sync([wallet(0), wallet(1)], toml=VOLATILE, tokens=by_id)
        assert (result.status, result.tokens.changed) == ("ok", 0)
        stored = mirror.query("SELECT image, extra ->> '$.lastSyncedAt' FROM tokens")
        assert stored == [(f"ipfs://{n}", n)]
    assert history(mirror) == (0, 2)
    assert mirror.query("SELECT DISTINCT reads FROM wallet_states") == [(4,)]
    show(mirror, metadata.replace('"x":1', '"x":2'), lastSyncedAt=9)
    assert mirror.sync([wallet(0)], toml=VOLATILE).tokens.changed == 1
    assert mirror.sync([wallet(0)]).tokens.changed == 0


def test_volatile_names_are_never_held_for_review(mirror):
    toml = 'removal_rows = 0\nremoval_limit = 0.0\nvolatile_fields = ["metadata.name"]'
    for n in range(2):
        show(mirror, *(f'{{"name":"same {n}"}}' for _ in range(30)))
        assert mirror.sync([wallet(0)], toml=toml).status == "ok"
    assert list(frames.find(mirror.database, "same 1")["kind"])[:1] == ["token"]


@pytest.mark.parametrize("value", ['"lastSyncedAt"', "[1]", '[""]', "{}"])
def test_volatile_fields_are_a_list_of_names(mirror, value):
    with pytest.raises(SettingsError, match="volatile_fields must be a list of field names"):
        mirror.sync([wallet(0)], toml=f"volatile_fields = {value}")


def test_status_names_the_field_that_changes_in_each_sync(mirror, command):
    advice = 'volatile_fields = ["metadata.traits"]'
    for n in (0, 1, 2, 3, 3):
        show(mirror, *(f'{{"name":"{k}","traits":{{"seen":{n}}}}}' for k in range(20)))
        runs = mirror.sync([wallet(0)]).run_id
        shown = " ".join(command("status", "-d", mirror.database).out.split())
        assert (advice in shown) == (runs == 4)
