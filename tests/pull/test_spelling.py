"""Another spelling of the same content is not a change, and no change is hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import SettingsError
from nftsync.pull.result import SyncResult
from nftsync.records import CONTENT_COLUMNS
from nftsync.reports.status import read_status
from nftsync.store.spelling import differing
from nftsync.times import now
from tests.kit.provider import Provider, reply, token, wallet
from tests.pull.runs import path_of

Sync = Callable[..., SyncResult]
DATABASE = Path("data/nftsync.db")
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
#: Parameters that belong to signatures, but there is none.
UNSIGNED = (
    *("Expires={n}", "sv={n}", "sig={n}", "sv=1&sig={n}", "Signature={n}", "X-Amz-Date={n}"),
    *("X-Amz-Signature=&X-Amz-Date={n}", "se={n}&sv=1", "Policy={n}&Key-Pair-Id=K"),
)


def content(**columns: Any) -> tuple[Any, ...]:
    return tuple(columns.get(name) for name in CONTENT_COLUMNS)


def extra(text: str) -> tuple[Any, ...]:
    return content(extra=text)


@pytest.mark.parametrize("signature", SIGNED.values(), ids=SIGNED)
def test_an_address_signed_anew_is_the_same(signature: str) -> None:
    one, other = (f"https://b.example.com/a.png?v=1&{signature}".format(n=n) for n in (1, 2))
    plain = "https://b.example.com/a.png?v=1"
    for column in ("image", "animation_url", "external_url", "creator_image_url"):
        assert differing(content(**{column: one}), content(**{column: other})) == []
        assert differing(content(**{column: plain}), content(**{column: other})) == []
        for changed in (
            other.replace("b.example", "c.example"),
            other.replace("a.png", "b.png"),
            other.replace("v=1", "v=2"),
            f"{other}&more=1",
            f"{other}#more",
            other.replace("https:", "ipfs:"),
            f"{other} ",
        ):
            assert differing(content(**{column: one}), content(**{column: changed})) == [column]
    nested = '{{"metadata":{{"media":[{{"uri":"{}"}}]}}}}'.format
    assert differing(extra(nested(one)), extra(nested(other))) == []
    assert differing(extra(nested(one)), extra(nested(other.replace("v=1", "v=2")))) == ["extra"]
    key = '{{"{}":1}}'.format
    assert differing(extra(key(one)), extra(key(other))) == ["extra"]


@pytest.mark.parametrize("query", UNSIGNED)
def test_parameters_without_a_signature_are_a_change(query: str) -> None:
    one, other = (f"https://example.com/a?{query}".format(n=n) for n in (1, 2))
    assert differing(content(image=one), content(image=other)) == ["image"]


_NUMBERS = st.decimals(
    allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
)


@given(_NUMBERS, _NUMBERS)
def test_numbers_are_equal_if_their_values_are(one: Any, other: Any) -> None:
    """Whatever their spelling; and numbers never equal texts or truth values."""
    texts = [f"{one:f}", f"{one:E}", f"{one:f}00"]
    for text in texts:
        assert differing(extra(f'{{"x":[{texts[0]}]}}'), extra(f'{{"x":[{text}]}}')) == []
    same = differing(extra(f'{{"x":{one:f}}}'), extra(f'{{"x":{other:f}}}')) == []
    assert same == (one == other)
    for value in (f'"{one:f}"', "true", "false", "null", "[]", "{}", f"[{one:f}]"):
        assert differing(extra(f'{{"x":{one:f}}}'), extra(f'{{"x":{value}}}')) == ["extra"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
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
def test_numbers_of_any_length_compare_quickly(one: str, other: str, *, same: bool) -> None:
    assert (differing(extra(f'{{"x":{one}}}'), extra(f'{{"x":{other}}}')) == []) == same


# Whole syncs ------------------------------------------------------------------------------------


def holds(lying: Provider, *metadata: str, number: int = 0, **record: Any) -> None:
    """Let wallets hold the same tokens, with metadata as JSON texts."""
    more = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in record.items())
    entries = ",".join(
        f'{{"tokenId":"{token(n)}","amount":"1","token":{{"metadata":{text}{more}}}}}'
        for n, text in enumerate(metadata)
    )
    lying.on(path_of(number), reply(f'{{"nftTokenBalances":[{entries}]}}'.encode()))


def history(query: Any) -> tuple[int, int]:
    """The numbers of changes of tokens, and of states of wallets."""
    (row,) = query(
        "SELECT (SELECT count(*) FROM token_changes), (SELECT count(*) FROM wallet_states)"
    )
    return row


def test_numbers_and_signatures_make_no_history(lying: Provider, sync: Sync, query: Any) -> None:
    address = "https://b.s3.amazonaws.com/a.png?X-Amz-Date={n}&X-Amz-Signature={n}"
    spellings = ("150", "150.0", "1.5e2", "15e1")
    for n, number in enumerate(spellings):
        holds(lying, f'{{"editionId":{number},"x":{number},"image":"{address.format(n=n)}"}}')
        result = sync([wallet(0)])
        assert (result.tokens.changed, result.wallets.unchanged) == (0, int(n > 0))
        ((edition, image, more),) = query("SELECT edition_id, image, extra FROM tokens")
        assert (edition, image) == (150, address.format(n=n))
        assert json.loads(more) == {"metadata": {"x": float(number)}}
        assert number in more
    assert history(query) == (0, 1)
    certainty = frames.holdings(DATABASE, as_of=frames.runs(DATABASE)["finished_at"].iloc[1])
    assert set(certainty["certainty"]) == {"bracketed"}
    holds(lying, f'{{"editionId":151,"image":"{address.format(n=9)}"}}')
    assert sync().tokens.changed == 1
    ((before, after),) = query("SELECT before, after FROM token_changes")
    assert json.loads(before) == {"edition_id": 150, "extra": '{"metadata":{"x":15e1}}'}
    assert json.loads(after) == {"edition_id": 151, "extra": None}


@pytest.mark.parametrize("by_id", [False, True])
def test_volatile_fields_are_stored_without_history(
    lying: Provider, sync: Sync, query: Any, *, by_id: bool
) -> None:
    for n in range(4):
        metadata = f'{{"name":"a","image":"ipfs://{n}","stats":[{{"views":{n},"x":1}}]}}'
        holds(lying, metadata, lastSyncedAt=n)
        holds(lying, metadata, lastSyncedAt=n, number=1)
        record = f'{{"id":"{token(0)}","lastSyncedAt":{n},"metadata":{metadata}}}'
        lying.on(f"/v1/tokens/{token(0)}", reply(record.encode()))
        result = sync([wallet(0), wallet(1)], toml=VOLATILE, tokens=by_id)
        assert (result.status, result.tokens.changed) == ("ok", 0)
        ((image, synced),) = query("SELECT image, extra ->> '$.lastSyncedAt' FROM tokens")
        assert (image, synced) == (f"ipfs://{n}", n)
    assert history(query) == (0, 2)
    assert query("SELECT DISTINCT reads FROM wallet_states") == [(4,)]
    changed = metadata.replace('"x":1', '"x":2')
    holds(lying, changed, lastSyncedAt=9)
    assert sync([wallet(0)], toml=VOLATILE).tokens.changed == 1
    assert sync([wallet(0)], toml="").tokens.changed == 0


def test_names_that_are_volatile_are_never_held_for_review(lying: Provider, sync: Sync) -> None:
    toml = 'removal_rows = 0\nremoval_limit = 0.0\nvolatile_fields = ["metadata.name"]'
    for n in range(2):
        holds(lying, *(f'{{"name":"same {n}"}}' for _ in range(30)))
        assert sync([wallet(0)], toml=toml).status == "ok"
    assert list(frames.find(DATABASE, "same 1")["kind"])[:1] == ["token"]


@pytest.mark.parametrize("value", ['"lastSyncedAt"', "[1]", '[""]', "{}"])
def test_volatile_fields_are_a_list_of_names(sync: Sync, value: str) -> None:
    with pytest.raises(SettingsError, match="volatile_fields must be a list of field names"):
        sync([wallet(0)], toml=f"volatile_fields = {value}")


def test_status_names_the_field_that_changes_in_each_sync(lying: Provider, sync: Sync) -> None:
    for n in range(4):
        holds(lying, *(f'{{"name":"{k}","traits":{{"seen":{n}}}}}' for k in range(20)))
        sync([wallet(0)])
        field = read_status(DATABASE, now())[0].always_changing
        assert field == ("metadata.traits" if n == 3 else None)
    command = [sys.executable, "-m", "nftsync", "status", "-d", str(DATABASE)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'volatile_fields = ["metadata.traits"]' in " ".join(shown.split())
    sync([wallet(0)])
    assert read_status(DATABASE, now())[0].always_changing is None


def test_presigned_images_do_not_grow_the_database(lying: Provider, sync: Sync) -> None:
    sizes = []
    for n in range(6):
        signed = f"https://b.s3.amazonaws.com/%d.png?X-Amz-Date={n}&X-Amz-Signature={n:064}"
        holds(lying, *(json.dumps({"name": f"n{k}", "image": signed % k}) for k in range(1_000)))
        assert sync([wallet(0)]).status == "ok"
        sizes.append(DATABASE.stat().st_size)
    assert sizes[-1] <= sizes[1] * 1.01
