from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nftsync.errors import ReadError, UnusableResponse
from nftsync.provider.config import Paging
from tests.kit.provider import Peer, balances, entry, reply, token

EMPTY = balances()
ONE = balances(entry(token(1)))


def test_if_none_match_is_sent_only_for_a_stored_response(provider, make_client):
    provider.always(
        reply(EMPTY, etag='"v1"'), reply(EMPTY, etag='"v1"'), reply(status=304), reply(EMPTY)
    )
    client = make_client()
    known = client.balances()
    assert (known.entries, known.etag) == ([], '"v1"')
    assert client.balances(etag='"v1"').entries == []
    again = client.balances(etag='"v1"', known_digest=known.digest)
    assert (again.unchanged, again.entries, again.digest) == (True, [], known.digest)
    client.balances(known_digest=known.digest)
    sent = [seen.headers.get("if-none-match") for seen in provider.requests()]
    assert sent == [None, None, '"v1"', None]


def test_an_unrequested_304_fails_and_an_invalid_validator_is_dropped(provider, make_client):
    provider.always(reply(status=304))
    for known in ({}, {"etag": '"v1"'}, {"known_digest": "d"}):
        make_client().fails("304: not modified", UnusableResponse, **known)
    invalid = ("\u00e9", "", "x" * 9_000, "*", "1", "W/1", '"1', 'w/"1"', '"1", "2"', '"\x7f"')
    for etag in (*invalid, '" "'):
        provider.always(reply(EMPTY, etag=etag))
        assert make_client().balances().etag is None
        assert make_client().balances(etag=etag, known_digest="d").entries == []
    assert all("if-none-match" not in seen.headers for seen in provider.requests())


#: The field with the cursor, and the parameter for it.
PAGING = Paging(next="next", param="after")


def paged(*pages: bytes) -> Any:
    """Answer the cursor `N` with page N, and no cursor with page 0."""

    def answer(peer: Peer) -> bool:
        query = peer.seen.query
        return reply(pages[int(query.removeprefix("after=")) if query else 0])(peer)

    return answer


def test_pages_are_requested_without_condition_and_compared_by_digest(provider, make_client):
    provider.always(paged(balances(entry(token(1)), next=1), balances(entry(token(2)))))
    client = make_client(paging=PAGING)
    first = client.balances()
    assert [entry[0] for entry in first.entries] == [token(1), token(2)]
    again = client.balances(etag='"v1"', known_digest=first.digest)
    assert not first.unchanged
    assert (again.entries, again.digest, again.unchanged) == ([], first.digest, True)
    assert all("if-none-match" not in seen.headers for seen in provider.requests())
    cursor = "a+b/c=&d?#\u00e9 %20\n"  # is sent as received
    provider.always(reply(balances(next=cursor)), reply(EMPTY))
    client.balances()
    assert provider.requests()[-1].query == "after=a%2Bb%2Fc%3D%26d%3F%23%C3%A9+%2520%0A"


def test_endless_pages_fail_the_read(provider, make_client):
    """By a repeated cursor, a huge one, or too many entries."""
    numbers = iter(range(99))

    def endless(peer: Peer) -> bool:
        number = next(numbers)
        return reply(balances(entry(token(number)), next=number))(peer)

    many = "the pages together contain more than"
    for answer, message, requests in (
        (paged(balances(next=1), balances(next=2), balances(next=1)), "the cursor '1' repeats$", 3),
        (reply(balances(next="x" * 10_000)), "the cursor is too long", 1),
        (endless, many, 11),
    ):
        before = len(provider.requests())
        provider.always(answer)
        make_client(paging=PAGING, max_entries=10).fails(message, UnusableResponse)
        assert len(provider.requests()) - before == requests
    provider.always(reply(balances(entry(token(1)), entry(token(2)))))
    make_client(max_entries=1).fails("more than 1 entries")


def test_only_a_failed_page_is_requested_again(provider, make_client):
    answers = [balances(entry(token(1)), next=1), b"", balances(entry(token(2)), next=2), b"{"]
    provider.always(*map(reply, answers), reply(EMPTY))
    client = make_client(paging=PAGING)
    assert [entry[0] for entry in client.balances().entries] == [token(1), token(2)]
    queries = [seen.query for seen in provider.requests()]
    assert queries == ["", "after=1", "after=1", "after=2", "after=2"]
    assert client.last == (5, 2)


#: Headers that announce more entries than one, and headers that do not.
PARTS = {
    "link": '</v1/x?page=1>; rel=prev, </v1/x?page=3>; title="a;b"; rel="last next"',
    "content-range": "items 0-0/2",
    "x-total-count": "2",
    "x-next-page": "2",
    "x-has-more": "true",
    "x-total-pages": "2",
}
WHOLE = [
    ("link", '</v1/x?page=1>; rel="prev", </next>; rel=self'),
    ("content-range", "items 0-0/1"),
    *(("x-total-count", text) for text in ("1", "many")),
    ("x-next-page", ""),
    *(("x-has-more", text) for text in ("False", "")),
    *(("x-total-pages", text) for text in ("1", "0", "many")),
]


def test_a_header_that_announces_more_makes_a_list_incomplete(provider, make_client):
    """Also beside a known body: a wallet that outgrows a page has the same first page."""
    digest = None
    for name, value in PARTS.items():
        provider.always(reply(ONE, **{name: value}))
        assert f"the header {name.title()}: " in make_client().balances(known_digest=digest).doubt
        ignoring = make_client(ignore_fields=[name.upper()]).balances()
        assert ignoring.doubt is None
        digest = ignoring.digest
    for name, value in WHOLE:
        provider.always(reply(ONE, **{name: value}))
        assert make_client().balances().doubt is None


@pytest.mark.parametrize(
    ("first", "last", "name"),
    [
        ({"link": '</2>; rel="next"', "content-range": "x 0-0/2"}, {"x-total-count": "2"}, None),
        ({}, {"content-range": "x 1-1/2", "x-total-pages": "2"}, None),
        ({}, {"x-total-count": "3"}, "X-Total-Count"),
        ({}, {"link": "</3>; rel=next"}, "Link"),
        ({}, {"x-total-pages": "3"}, "X-Total-Pages"),
    ],
)
def test_only_headers_of_the_last_page_may_announce_more(provider, make_client, first, last, name):
    provider.always(
        reply(balances(entry(token(1)), next=1), **first),
        reply(balances(entry(token(2))), **last),
    )
    found = make_client(paging=PAGING).balances()
    assert len(found.entries) == 2
    assert (found.doubt is None) if name is None else (f"the header {name}: " in found.doubt)


@pytest.mark.parametrize("paging", [None, PAGING])
def test_a_large_response_without_a_place_costs_an_attempt(provider, make_client, paging):
    provider.always(reply(balances(*(entry(token(n)) for n in range(3)))))
    client = make_client(attempts=2, timeout=0.2, large_bytes=300, paging=paging)
    message = "too many large responses arrived at once"
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for number, thread in enumerate((one, two)):
            assert thread.submit(client.balances, number).result().entries
        assert client.fails(message, number=3).passing
        assert client.last == (2, 1)
        two.submit(client.client.release).result()
        assert len(client.balances(3).entries) == 3
        with pytest.raises(ReadError, match=message):
            two.submit(client.balances, 4).result()
        one.submit(client.client.release).result()
        assert two.submit(client.balances, 4).result().entries
