"""JSONTestSuite: valid JSON is read and kept, invalid JSON is refused or reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync import NftsyncError
from nftsync.provider.webhooks import Unusable, read_webhook
from nftsync.provider.wire import check_object
from nftsync.sandbox.world import World
from tests.foreign.suites import read_suite
from tests.kit.provider import Provider, path_of, reply, token, wallet
from tests.kit.serve_process import query, webhook

CASES = {name.removesuffix(".json"): case for name, case in read_suite("json_test_suite").items()}
NUMBERS = {name: number for number, name in enumerate(CASES)}
#: Control characters within texts, which nftsync reads although JSON wants them escaped.
RAW_CONTROLS = {f"n_string_unescaped_{name}" for name in ("ctrl_char", "newline", "tab")}
#: Repeated keys, which JSON allows: nftsync reports the field, as no value is certain.
REPEATED = {"y_object_duplicated_key", "y_object_duplicated_key_and_value"}


def plain(text: str | bytes) -> Any:
    return json.loads(text, parse_int=str, parse_float=str)


def test_the_suite_is_whole() -> None:
    kinds = [name[0] for name in CASES]
    assert {kind: kinds.count(kind) for kind in kinds} == {"i": 35, "n": 188, "y": 95}


@pytest.mark.parametrize("by_id", [False, True], ids=["lists", "tokens"])
def test_a_sync_keeps_valid_values_and_reports_others(
    lying: Provider, tmp_path: Path, *, by_id: bool
) -> None:
    """Each wallet holds one token, with a case as a field that nftsync does not know."""
    for name, number in NUMBERS.items():
        record = b'{"id":"%s","metadata":{"x":%s}}' % (token(number).encode(), CASES[name])
        lying.on(f"/v1/tokens/{token(number)}", reply(record))
        listed = b'{"nftTokenBalances":[{"tokenId":"%s","amount":"1","token":%s}]}'
        body = listed % (token(number).encode(), b"null" if by_id else record)
        lying.on(path_of(number), reply(body))
    database = tmp_path / "nftsync.db"
    result = nftsync.sync(
        [wallet(number) for number in NUMBERS.values()],
        base_url=lying.url,
        database=database,
        tokens=by_id,
        retries=1,
        progress=False,
    )
    failures = {failure.token_id if by_id else failure.wallet_id for failure in result.failures}
    reported = {part.token_id for part in result.unreadable}
    stored = dict(query(database, "SELECT token_id, extra FROM tokens"))
    id_of = token if by_id else wallet
    for name, number in NUMBERS.items():
        if id_of(number) in failures:
            assert name[0] in "ni", name
        elif token(number) in reported:
            assert name[0] in "ni" or name in REPEATED, name
        else:
            assert name[0] in "yi" or name in RAW_CONTROLS, name
            if name[0] == "y":
                value = plain(stored[token(number)])["metadata"]["x"]
                assert value == plain(CASES[name]), name


def test_a_body_without_a_list_of_balances_fails_its_wallet(
    lying: Provider, tmp_path: Path
) -> None:
    for name, number in NUMBERS.items():
        lying.on(path_of(number), reply(CASES[name]))
    result = nftsync.sync(
        [wallet(number) for number in NUMBERS.values()],
        base_url=lying.url,
        database=tmp_path / "nftsync.db",
        retries=1,
        progress=False,
    )
    assert {failure.wallet_id for failure in result.failures} == {*map(wallet, NUMBERS.values())}
    assert [failure.error for failure in result.failures if "\n" in failure.error] == []


def in_an_object(case: bytes, _: Path) -> Any:
    fields = plain(check_object(b'{"x":%s}' % case))
    if "x" not in fields:
        raise NftsyncError
    return fields["x"]


def in_a_webhook(case: bytes, _: Path) -> Any:
    body = webhook("Wallet", wallet(1), changes="HERE").replace(b'"HERE"', case)
    read = read_webhook(body, None)
    if isinstance(read, Unusable) or (read.changes is None and case.strip() != b"null"):
        raise NftsyncError
    return plain(read.changes or "null")


def in_a_world_file(case: bytes, folder: Path) -> Any:
    line = b'{"walletId":"%s","nftTokenBalances":[{"tokenId":"%s","amount":"1","token":{"x":%s}}]}'
    file = folder / "world.jsonl"
    file.write_bytes(line % (wallet(1).encode(), token(1).encode(), case))
    return plain(World.load(file).token_body(token(1)) or b"")["x"]


#: Valid values of several lines: a world file has one line for each wallet.
LINES = {
    "y_array_with_1_and_newline",
    "y_number_double_close_to_zero",
    "y_object_with_newlines",
    "y_structure_trailing_newline",
}


@pytest.mark.parametrize(
    ("read", "refused", "kept"),
    [
        (in_an_object, set(), RAW_CONTROLS),
        (in_a_webhook, set(), set()),
        (in_a_world_file, LINES, set()),
    ],
    ids=["objects", "webhooks", "world files"],
)
def test_a_reader_returns_valid_values_and_refuses_others(
    tmp_path: Path, read: Callable[[bytes, Path], Any], refused: set[str], kept: set[str]
) -> None:
    for name, case in CASES.items():
        try:
            value = read(case, tmp_path)
        except NftsyncError:
            assert name[0] in "ni" or name in refused, name
        else:
            assert name[0] in "yi" or name in kept, name
            assert name[0] != "y" or value == plain(case), name
