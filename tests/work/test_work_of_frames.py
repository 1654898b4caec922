"""What frames ask of SQLite: few statements for many rows, and no more rows than they show."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from read_worlds import filled, wallet_id
from sql_work import SqlWork, counted

from nftsync import frames
from nftsync.store.database import connect_reader


def read(path: Path, wallets: int, **asked: str) -> tuple[int, SqlWork]:
    """Rows of `holdings` of a database of so many wallets, and the work."""
    database = path / f"{wallets}.db"
    if not database.exists():
        filled(database, wallets, 20).close()
    with closing(connect_reader(database)) as connection, counted(connection) as work:
        return len(frames.holdings(connection, **asked)), work


def test_holdings_takes_as_many_statements_for_many_wallets(tmp_path: Path) -> None:
    few, few_work = read(tmp_path, 100)
    many, many_work = read(tmp_path, 1_000)
    assert (few, many) == (2_000, 20_000)
    assert len(many_work.statements) == len(few_work.statements)
    assert many_work.steps < 11 * few_work.steps


def test_the_holdings_of_one_wallet_take_as_many_steps_among_many(tmp_path: Path) -> None:
    few, few_work = read(tmp_path, 100, wallet=wallet_id(50))
    many, many_work = read(tmp_path, 1_000, wallet=wallet_id(50))
    assert few == many == 20
    assert many_work.steps < 1.3 * few_work.steps + 100
