"""Contracts come with their tokens, and their names from whoever knows best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nftsync.errors import InputError
from nftsync.pull.plan import name_collections
from nftsync.records import CONTENT_COLUMNS, Content, TokenRead
from nftsync.store.contracts import label_contract
from nftsync.store.mirror import Mirror

CATS, DOGS = "0x" + "Ca" * 20, "0x" + "d0" * 20


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with Mirror(tmp_path / "nftsync.db", write_gap=0) as opened:
        yield opened


def content(address: str | None, name: str | None) -> Content:
    given = {"contract_address": address, "name": name}
    return tuple(given.get(column) for column in CONTENT_COLUMNS)


def read(mirror: Mirror, tokens: dict[int, tuple[str | None, str | None]]) -> None:
    """Let each token be read by its id."""
    with mirror.transaction() as transaction:
        transaction.apply(
            [
                TokenRead(
                    token_id=f"0a9b1c2d-0000-4000-8000-{number:012}",
                    sequence=mirror.numbers.take(),
                    started_at="2026-01-31T00:00:00.000000Z",
                    outcome="ok",
                    content=content(*about),
                )
                for number, about in tokens.items()
            ]
        )


def contracts(mirror: Mirror) -> list[tuple[str, str, str | None, str | None]]:
    query = "SELECT contract, contract_address, name, name_source FROM contracts"
    return mirror.connection.execute(query).fetchall()


def cats(numbers: range, name: str = "Cool Cat", address: str = CATS) -> dict[int, tuple[str, str]]:
    return {number: (address, f"{name} #{number}") for number in numbers}


def test_a_name_is_guessed_as_tokens_come_and_change(mirror: Mirror) -> None:
    key = CATS.lower()
    read(mirror, {100: (DOGS, None), 101: (None, "Stray"), **cats(range(1, 4))})
    mirror.index_tokens()
    assert contracts(mirror) == [(DOGS, DOGS, None, None), (key, CATS, None, None)]
    read(mirror, cats(range(4, 8), address=key))
    mirror.index_tokens()
    assert contracts(mirror)[1] == (key, CATS, "Cool Cat", "guessed")
    read(mirror, cats(range(1, 8), "Cold Cat"))
    assert contracts(mirror)[1] == (key, CATS, "Cold Cat", "guessed")
    # Two went elsewhere, of which five tokens are not left.
    read(mirror, cats(range(1, 4), "Cold Cat", DOGS))
    assert contracts(mirror)[1] == (key, CATS, None, None)


def test_the_first_200_tokens_of_a_contract_name_it(mirror: Mirror) -> None:
    key = CATS.lower()
    read(mirror, cats(range(160), "Box"))
    mirror.index_tokens()
    read(mirror, cats(range(160, 1_000)))
    mirror.index_tokens()
    assert contracts(mirror) == [(key, CATS, "Box", "guessed")]
    read(mirror, cats(range(201, 999), "Dull Dog"))
    assert contracts(mirror) == [(key, CATS, "Box", "guessed")]
    read(mirror, cats(range(1)))
    assert contracts(mirror) == [(key, CATS, None, None)]
    read(mirror, cats(range(160)))
    assert contracts(mirror) == [(key, CATS, "Cool Cat", "guessed")]


def test_given_goes_before_file_before_guessed_and_what_goes_leaves_the_next(
    mirror: Mirror,
) -> None:
    key = CATS.lower()
    connection = mirror.connection

    def named() -> tuple[str | None, str | None]:
        return {row[0]: row[2:] for row in contracts(mirror)}[key]

    name_collections(mirror, {key.upper().replace("X", "x"): "From the file", DOGS: "Dogs"})
    assert named() == ("From the file", "file")
    read(mirror, cats(range(6)))
    mirror.index_tokens()
    assert contracts(mirror)[0] == (key, CATS, "From the file", "file")
    assert contracts(mirror)[1] == (DOGS, DOGS, "Dogs", "file")
    label_contract(connection, CATS, "Mine")
    assert named() == ("Mine", "given")
    name_collections(mirror, {key: "Newer"})
    assert named() == ("Mine", "given")
    assert contracts(mirror)[1] == (DOGS, DOGS, None, None)
    label_contract(connection, key, "")
    assert named() == ("Newer", "file")
    before = connection.total_changes
    name_collections(mirror, {key: "Newer"})
    assert connection.total_changes == before
    name_collections(mirror, {})
    assert named() == ("Cool Cat", "guessed")


def test_an_unknown_contract_gets_no_name_but_near_ones(mirror: Mirror) -> None:
    read(mirror, cats(range(6)))
    mirror.index_tokens()
    with pytest.raises(InputError, match=f"; similar: '{CATS}'; to list c"):
        label_contract(mirror.connection, CATS[:-1] + "b", "Cats")
    unknown = "unknown collection or contract 'Cats'; to list collections: `nftsync collections`"
    with pytest.raises(InputError, match=unknown):
        label_contract(mirror.connection, "Cats", "Cats")
