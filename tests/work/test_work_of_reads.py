"""What the mirror does for a read is bounded, and does not grow with the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from read_worlds import NAMED, entries, filled, found, found_again, token_id, with_field
from sql_work import SqlWork, counted

from nftsync.records import TokenRead, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now

EACH = 20


@pytest.fixture
def mirror(tmp_path: Path):
    """A mirror of 200 wallets with 20 NFTs each."""
    with filled(tmp_path / "nftsync.db", 200, EACH) as mirror:
        yield mirror


def applying(mirror: Mirror, reads: Sequence[WalletRead | TokenRead]) -> SqlWork:
    with counted(mirror.connection) as work, mirror.transaction() as transaction:
        transaction.apply(reads)
    return work


def test_a_first_read_takes_a_few_statements_a_wallet_however_much_it_holds(tmp_path: Path) -> None:
    """One registers the wallet and one writes its row; NFTs go in by the hundred."""
    for each, name in ((20, "small.db"), (60, "large.db")):
        with Mirror(tmp_path / name, air=0.0) as mirror:
            reads = [found(mirror, number, entries(number, each)) for number in range(100)]
            work = applying(mirror, reads)
        assert len(work.statements) < 4 * 100 + 0.02 * 100 * each


def test_an_unchanged_read_writes_two_rows_with_two_statements(mirror: Mirror) -> None:
    """The wallet's times, and how long its state has lasted."""
    few = applying(mirror, [found_again(mirror, n, entries(n, EACH)) for n in range(10)])
    many = applying(mirror, [found_again(mirror, n, entries(n, EACH)) for n in range(10, 110)])
    assert many.rows - few.rows == 2 * 90
    assert len(many.statements) - len(few.statements) == 2 * 90


def test_the_same_list_in_another_form_adds_no_rows(mirror: Mirror) -> None:
    tables = "balance_rows", "balance_change_rows", "token_change_rows", "wallet_state_rows"

    def sizes() -> list[int]:
        return [
            mirror.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables
        ]

    before = sizes()
    other = [found(mirror, number, entries(number, EACH)[::-1]) for number in range(100)]
    work = applying(mirror, other)
    assert sizes() == before
    assert work.rows <= 2 * 100 + 5


def test_a_changed_amount_writes_its_own_rows_alone(mirror: Mirror) -> None:
    """Balance, change, state and wallet, for each wallet; the other 19 NFTs cost no write."""

    def reads(numbers: range, amount: str) -> list[WalletRead]:
        return [
            found(mirror, n, [*entries(n, EACH, amount)[:1], *entries(n, EACH)[1:]])
            for n in numbers
        ]

    few, many = applying(mirror, reads(range(10), "2")), applying(mirror, reads(range(100), "3"))
    assert (many.rows - few.rows) / 90 == pytest.approx(4, abs=0.1)
    assert (len(many.statements) - len(few.statements)) / 90 < 4.1


@pytest.mark.parametrize("kind", ["changed", "unchanged", "new", "renamed"])
def test_a_read_of_one_wallet_takes_as_many_steps_in_a_large_database(
    tmp_path: Path, kind: str
) -> None:
    def steps(wallets: int) -> int:
        with filled(tmp_path / f"{wallets}.db", wallets, EACH) as mirror:
            number = wallets if kind == "new" else wallets // 2
            listed = entries(number, EACH)
            if kind == "unchanged":
                return applying(mirror, [found_again(mirror, number, listed)]).steps
            other = entries(number, EACH, "2")[:1]
            if kind == "renamed":
                other = entries(number, EACH, content=with_field("name", "another"))[:1]
            return applying(mirror, [found(mirror, number, [*other, *listed[1:]])]).steps

    small, large = steps(100), steps(2_000)
    assert small > 0
    assert large < 1.3 * small + 100


def test_a_detail_read_of_a_known_token_writes_when_it_was_alone(mirror: Mirror) -> None:
    def reads(numbers: range) -> list[TokenRead]:
        return [
            TokenRead(
                token_id=token_id(number),
                ticket=mirror.tickets.take(),
                started_at=now(),
                outcome="ok",
                content=NAMED,
            )
            for number in numbers
        ]

    applying(mirror, reads(range(110)))
    few, many = applying(mirror, reads(range(10))), applying(mirror, reads(range(110)))
    assert (many.rows - few.rows, len(many.statements) - len(few.statements)) == (100, 100)


def test_indexing_new_tokens_takes_about_as_many_steps_in_a_large_database(tmp_path: Path) -> None:
    def steps(wallets: int) -> int:
        with filled(tmp_path / f"{wallets}.db", wallets, EACH) as mirror:
            mirror.index_tokens()
            applying(mirror, [found(mirror, wallets, entries(wallets, EACH))])
            with counted(mirror.connection) as work:
                mirror.index_tokens()
            return work.steps

    small, large = steps(50), steps(1_000)
    assert 0 < large < 2 * small + 1_000


def test_the_text_index_is_left_alone_where_no_text_changes(mirror: Mirror) -> None:
    mirror.index_tokens()
    other = entries(1, EACH, content=with_field("image", "https://x.example/1.png"))
    work = applying(mirror, [found(mirror, 1, other)])
    assert any("token_change_rows" in statement for statement in work.statements)
    assert not any("tokens_fts" in statement for statement in work.statements)


def test_small_commits_stay_in_the_log(tmp_path: Path) -> None:
    """What moves them into the database is a checkpoint of some thousand pages at once."""
    path = tmp_path / "nftsync.db"
    with filled(path, 20, EACH) as mirror:
        before = path.stat()
        with counted(mirror.connection) as work:
            for number in range(20):
                with mirror.transaction() as transaction:
                    transaction.apply([found(mirror, number, entries(number, EACH, "2"))])
        after = path.stat()
    assert work.transactions == 20
    assert not any("checkpoint" in statement for statement in work.statements)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
