"""Answers that are whole and well-formed and still not the truth: what is made of each."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nftsync.errors import ReadError
from nftsync.provider.client import Client, finish
from nftsync.provider.config import ClientConfig, Paging
from nftsync.pull.result import SyncResult
from nftsync.records import Effort
from nftsync.times import format_time
from tests.kit.provider import (
    Peer,
    Provider,
    Sender,
    balances,
    entry,
    head,
    raw,
    reply,
    token,
    wallet,
)
from tests.kit.worlds import mirrored
from tests.pull.runs import path_of, run

Sync = Callable[..., SyncResult]
Held = Callable[[], dict[str, dict[str, str]]]


PATH = path_of(1)
TWO = balances(entry(token(1)), entry(token(2)))
ONE = balances(entry(token(1)))
BOTH = {wallet(1): {token(1): "1", token(2): "1"}}
PAGES = Paging(next="next", param="c")
PAGING = '[paging]\nnext = "next"\nparam = "c"\n'


def hours_later(database: Path, hours: float) -> None:
    """Let the wallet have been read so long ago."""
    at = format_time(datetime.now(UTC) - timedelta(hours=hours))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE wallets SET synced_at = ?", (at,))


# Validators that say nothing --------------------------------------------------------------------


def frozen(body: Callable[[], bytes], etag: str) -> Sender:
    """Always the same validator, and 304 whenever it comes back."""

    def answer(peer: Peer) -> bool:
        known = "if-none-match" in peer.seen.headers
        return (reply(status=304, etag=etag) if known else reply(body(), etag=etag))(peer)

    return answer


@pytest.mark.parametrize("etag", ['"1"', 'W/"1"'])
def test_a_validator_that_stays_the_same_freezes_a_wallet_for_a_day_at_most(
    lying: Provider, sync: Sync, held: Held, tmp_path: Path, etag: str
) -> None:
    body = TWO
    lying.on(PATH, frozen(lambda: body, etag))
    sync([wallet(1)])
    body = ONE
    assert sync().wallets.unchanged == 1
    hours_later(tmp_path / "data/nftsync.db", 24)
    result = sync()
    assert (result.balances.removed, held()) == (1, {wallet(1): {token(1): "1"}})
    sent = [seen.headers.get("if-none-match") for seen in lying.requests()]
    assert sent == [None, etag, None]


@pytest.mark.parametrize("etag", ["*", "", "1", "W/1", '"1', 'w/"1"', '"1", "2"', '"\x7f"', '" "'])
def test_what_is_no_entity_tag_is_never_sent_back(
    lying: Provider, sync: Sync, tmp_path: Path, etag: str
) -> None:
    lying.on(PATH, frozen(lambda: TWO, etag))
    sync([wallet(1)])
    # An older nftsync may have kept it.
    with closing(sqlite3.connect(tmp_path / "data/nftsync.db")) as connection, connection:
        assert connection.execute("SELECT etag FROM wallets").fetchall() == [(None,)]
        connection.execute("UPDATE wallets SET etag = ?", (etag,))
    sync()
    assert [seen.headers.get("if-none-match") for seen in lying.requests()] == [None, None]


# A part of a list -------------------------------------------------------------------------------

PARTS = {
    "link": '</v1/x?page=1>; rel=prev, </v1/x?page=3>; title="a;b"; rel="last next"',
    "content-range": "items 0-0/2",
    "x-total-count": "2",
    "x-next-page": "2",
    "x-has-more": "true",
    "x-total-pages": "2",
}
WHOLE = [
    {"link": '</v1/x?page=1>; rel="prev", </next>; rel=self'},
    {"content-range": "items 0-0/1"},
    {"x-total-count": "1"},
    {"x-total-count": "many"},
    {"x-next-page": ""},
    {"x-has-more": "False"},
    {"x-has-more": ""},
    {"x-total-pages": "1"},
    {"x-total-pages": "0"},
    {"x-total-pages": "many"},
]


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def test_a_206_fails_the_read(lying: Provider, sync: Sync, held: Held) -> None:
    lying.on(PATH, reply(TWO), reply(ONE, 206, content_range="items 0-0/2"))
    sync([wallet(1)])
    result = sync()
    assert (result.status, result.balances.removed, held()) == ("failed", 0, BOTH)
    assert "206: only a part of the object" in result.failures[0].error


@pytest.mark.parametrize("header", PARTS)
def test_a_header_that_tells_of_more_makes_the_read_incomplete_until_it_is_known(
    lying: Provider, sync: Sync, held: Held, header: str
) -> None:
    lying.on(PATH, reply(TWO), reply(ONE, **named({header: PARTS[header]})))
    sync([wallet(1)])
    for _ in range(2):
        result = sync()
        assert (result.status, result.balances.removed, held()) == ("failed", 0, BOTH)
        assert f"the header {header.title()}: " in result.failures[0].error
        assert "List it in ignore_fields, or set [paging]" in result.failures[0].error
    result = sync(toml=f'ignore_fields = ["{header.upper()}"]\n')
    assert (result.status, result.balances.removed) == ("ok", 1)


def test_the_same_body_counts_as_a_part_once_a_header_tells_of_more(
    lying: Provider, sync: Sync
) -> None:
    """A wallet that grows beyond a page shows the same first page."""
    lying.on(PATH, reply(TWO), reply(TWO, link='</2>; rel="next"'), reply(TWO))
    assert [sync([wallet(1)]).status for _ in range(3)] == ["ok", "failed", "ok"]


def test_headers_that_tell_of_no_more_are_no_matter(lying: Provider, sync: Sync) -> None:
    lying.on(PATH, *(reply(ONE, **named(headers)) for headers in WHOLE))
    assert [sync([wallet(1)]).status for _ in WHOLE] == ["ok"] * len(WHOLE)


def test_with_paging_only_the_last_page_may_tell_of_no_more(
    lying: Provider, sync: Sync, held: Held
) -> None:
    first = balances(entry(token(1)), next="two")
    good = {"x-total-count": "2", "content-range": "x 1-1/2", "x-total-pages": "2"}
    lying.on(
        PATH,
        reply(first, link='</2>; rel="next"', **named({**good, "content-range": "x 0-0/2"})),
        reply(balances(entry(token(2))), **named(good)),
        reply(first),
        reply(balances(), x_total_count="2"),
        reply(first),
        reply(balances(), link="</3>; rel=next"),
        reply(first),
        reply(balances(), x_total_pages="3"),
    )
    assert sync([wallet(1)], toml=PAGING).status == "ok"
    for name in ("X-Total-Count", "Link", "X-Total-Pages"):
        result = sync(toml=PAGING)
        assert f"the header {name}: " in result.failures[0].error
        assert held() == BOTH


REPEATED = {
    "nftTokenBalances": TWO[:-1] + b', "nftTokenBalances": []}',
    "tokenId": TWO.replace(b'"amount"', b'"tokenId": "%s", "amount"' % token(3).encode(), 1),
    "amount": TWO.replace(b'"amount"', b'"amount": "5", "amount"', 1),
}


@pytest.mark.parametrize("key", REPEATED)
@pytest.mark.parametrize("toml", ["", PAGING, 'ignore_fields = ["x"]\n'])
def test_a_key_that_stands_twice_fails_the_read(
    lying: Provider, sync: Sync, held: Held, key: str, toml: str
) -> None:
    body = REPEATED[key] if "x" not in toml else REPEATED[key][:-1] + b', "x": 1}'
    lying.on(PATH, reply(TWO), reply(body))
    sync([wallet(1)])
    result = sync(toml=toml.replace('"next"', '"cursor"'))
    assert (result.status, held()) == ("failed", BOTH)
    assert f"the key {key!r} appears twice" in result.failures[0].error


def test_a_text_may_quote_the_keys(lying: Provider, sync: Sync, held: Held) -> None:
    text = '{"nftTokenBalances": [{"tokenId": "amount"}]}' + '"amount"'
    lying.on(PATH, reply(balances(entry(token(1), metadata={"name": text}, other={"amount": 1}))))
    assert sync([wallet(1)]).status == "ok"
    assert held() == {wallet(1): {token(1): "1"}}


# Too much ---------------------------------------------------------------------------------------


def endless_pages(entries: int) -> Sender:
    """Pages without end, each with other tokens."""
    count = 0

    def answer(peer: Peer) -> bool:
        nonlocal count
        count += 1
        listed = [entry(token(count * entries + n), x="y" * 900) for n in range(entries)]
        return reply(balances(*listed, next=str(count)))(peer)

    return answer


def test_a_wallet_whose_pages_never_end_fails_before_it_fills_the_memory(
    lying: Provider, database: Path
) -> None:
    lying.on(PATH, endless_pages(200))
    result = run(lying, database, [1], paging=PAGES, max_entries=2_000)
    assert (result.status, mirrored(database)) == ("failed", {})
    assert result.failures[0].error.startswith("the pages together contain more than ")
    assert len(lying.requests()) == 11


def test_one_answer_with_too_many_entries_is_not_decoded(lying: Provider, database: Path) -> None:
    lying.on(PATH, reply(TWO))
    assert "more than 1 entries" in run(lying, database, [1], max_entries=1).failures[0].error


@pytest.mark.parametrize("paging", [None, PAGES])
def test_large_answers_wait_for_each_other_and_all_come(
    lying: Provider, database: Path, paging: Paging | None
) -> None:
    for number in range(40):
        body = balances(*(entry(token(3 * number + n)) for n in range(3)))
        start = head(f"content-length: {len(body)}") + body[:-1]
        slow = raw(start, body[-1:], pause=0.02, then="keep")
        lying.on(path_of(number), slow)
    result = run(lying, database, range(40), paging=paging, large_bytes=300)
    assert (result.status, len(mirrored(database))) == ("ok", 40 * 3)
    assert result.requests == len(lying.requests()) == 40


@pytest.mark.parametrize("paging", [None, PAGES])
def test_a_large_answer_that_finds_no_place_costs_an_attempt(
    lying: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    paging: Paging | None,
) -> None:
    monkeypatch.setattr("nftsync.provider.transport._LONGEST_WAIT_FOR_A_PLACE", 0.05)
    body = balances(*(entry(token(n)) for n in range(3)))
    lying.always(reply(body))
    config = ClientConfig(
        base_url=lying.url, attempts=2, first_wait=0.01, large_bytes=300, paging=paging
    )
    with Client(config) as client, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for number, thread in enumerate((one, two)):
            assert thread.submit(finish, client.balances(wallet(number), Effort())).result().entries
        effort = Effort()
        with pytest.raises(ReadError, match="too many large responses arrived at once") as raised:
            finish(client.balances(wallet(3), effort))
        assert (effort.requests, effort.retries, raised.value.passing) == (2, 1, True)
        two.submit(client.release).result()
        assert len(finish(client.balances(wallet(3), Effort())).entries) == 3
        with pytest.raises(ReadError, match="too many large responses"):
            two.submit(finish, client.balances(wallet(4), Effort())).result()
        one.submit(client.release).result()
        assert two.submit(finish, client.balances(wallet(4), Effort())).result().entries


# Tokens and packing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "good"),
    [
        (b'{"error": "not found"}', False),
        (b'{"error": "not found", "id": null, "metadata": null}', False),
        (b'{"id": "%s"}' % token(2).encode(), False),
        (b'{"metadata": {"name": "A"}}', True),
        (b'{"id": "%s"}' % token(1).encode(), True),
    ],
)
def test_a_token_is_what_shows_its_id_or_metadata(
    lying: Provider, sync: Sync, query: Any, body: bytes, good: bool
) -> None:
    lying.on(PATH, reply(ONE))
    lying.on(f"/v1/tokens/{token(1)}", reply(body))
    assert sync([wallet(1)], tokens=True).status == ("ok" if good else "partial")
    assert query("SELECT extra FROM tokens") == [(None,)]


def test_gzip_may_have_several_members(lying: Provider, sync: Sync, held: Held) -> None:
    parts = [gzip.compress(TWO[start : start + 30]) for start in range(0, len(TWO), 30)]
    whole = reply(b"".join([*parts, gzip.compress(b"")]), content_encoding="gzip")
    cut = reply(b"".join(parts)[:-5], content_encoding="gzip")
    behind = reply(b"".join(parts) + b"junk", content_encoding="gzip")
    lying.on(PATH, whole, cut, behind)
    assert sync([wallet(1)]).status == "ok"
    assert held() == BOTH
    assert "the compressed body is cut short" in sync().failures[0].error
    assert "cannot be decompressed" in sync().failures[0].error
