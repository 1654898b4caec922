"""The content of a token after reads in another order than that of their sequence numbers."""

from __future__ import annotations

import pytest

from nftsync.records import CONTENT_COLUMNS, Content, TokenRead, WalletRead
from nftsync.store.mirror import Mirror

AT = "2026-01-31T00:00:00.000000Z"


def content(name: str | None, description: str | None = None) -> Content:
    shown = {"name": name, "description": description}
    return tuple(map(shown.get, CONTENT_COLUMNS))


def listed(
    wallet: str, number: int, *shown: str | None, amount: str = "1", outcome: str = "ok"
) -> WalletRead:
    entries = [("t", amount, content(*shown))] if shown else []
    asked = {"wallet_id": wallet, "sequence": number, "started_at": AT, "digest": repr(entries)}
    return WalletRead(**asked, outcome=outcome, entries=entries if outcome == "ok" else [])


def unchanged(wallet: str, number: int, *shown: str | None) -> WalletRead:
    return listed(wallet, number, *shown, outcome="unchanged")


def by_id(number: int, *shown: str | None) -> TokenRead:
    asked = {"token_id": "t", "sequence": number, "started_at": AT, "outcome": "ok"}
    return TokenRead(**asked, content=content(*shown))


CASES = {
    "an unchanged list is stale after a change in its batch": (
        [
            [listed("a", 1, "old")],
            [listed("b", 2, "new"), unchanged("a", 3, "old")],
        ],
        ["ok", "ok", "stale"],
        ("new", None),
    ),
    "a list with more content removes the digests of others, also if a read by id showed it": (
        [
            [listed("a", 1, "name")],
            [by_id(2, "name", "more")],
            [listed("b", 3, "name", "more")],
            [by_id(4, "name")],
            [listed("b", 5, "name", "more")],
            [unchanged("a", 6, "name")],
            [unchanged("b", 7, "name", "more")],
            [listed("a", 8, "name")],
        ],
        ["ok", "ok", "ok", "ok", "ok", "stale", "unchanged", "ok"],
        ("name", None),
    ),
    "a list from before the last holding ended changes nothing": (
        [
            [listed("a", 1, "old")],
            [listed("a", 3, "old", amount="2")],  # later, and the name was still the same
            [listed("a", 4)],
            [listed("b", 2, "a slip")],
        ],
        ["ok"] * 4,
        ("old", None),
    ),
    "the last holder may have been read first": (
        [
            [listed("a", 1, "old")],
            [listed("b", 3, "new")],
            [listed("b", 4)],
            [listed("a", 5)],
            [listed("c", 2, "a slip")],
        ],
        ["ok"] * 5,
        ("new", None),
    ),
    "a list decides once it is later than the read by id": (
        [
            [listed("a", 1, "of the list", "old")],
            [by_id(3, "by id")],
            [listed("a", 2, "of the list", "new")],
            [unchanged("a", 4, "of the list", "new")],  # so it is read again
            [listed("a", 5, "of the list", "new")],
        ],
        ["ok", "ok", "ok", "stale", "ok"],
        ("of the list", "new"),
    ),
    "a late list adds only missing content": (
        [[by_id(2, None, "of the read")], [listed("a", 1, "of the list")]],
        ["ok", "ok"],
        ("of the list", "of the read"),
    ),
}


@pytest.mark.parametrize(("batches", "results", "shown"), CASES.values(), ids=CASES)
def test_the_read_that_started_last_decides(tmp_path, batches, results, shown):
    with Mirror(tmp_path / "nftsync.db", write_gap=0) as mirror:
        applied = []
        for reads in batches:
            with mirror.transaction() as transaction:
                applied += transaction.apply(reads)
        assert [one.result for one in applied] == results
        rows = mirror.connection.execute("SELECT name, description FROM tokens")
        assert rows.fetchall() == [shown]


@pytest.mark.parametrize("how", ["stage", "hold"])
def test_a_late_read_of_a_token_is_stale_and_holds_no_removal(tmp_path, how):
    with Mirror(tmp_path / "nftsync.db", write_gap=0) as mirror:
        with mirror.transaction() as transaction:
            transaction.apply([by_id(2, "a name")])
            (late,) = transaction.apply([by_id(1, None)], removals=how)
        assert late.result == "stale"
        assert not mirror.connection.execute("SELECT 1 FROM removal_rows").fetchall()
