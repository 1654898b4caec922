"""What the history says of first reads, and of states that come back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nftsync import frames
from nftsync.records import (
    CONTENT_COLUMNS,
    Applied,
    Content,
    Entry,
    OnRemovals,
    TokenRead,
    WalletRead,
)
from nftsync.store.mirror import Mirror
from nftsync.times import now

A, B, C = (f"aaaaaaaa-0000-4000-8000-00000000000{n}" for n in range(3))
T, U = (f"bbbbbbbb-0000-4000-8000-00000000000{n}" for n in range(2))


@pytest.fixture
def mirror(tmp_path: Path):
    with Mirror(tmp_path / "nftsync.db", write_gap=0.0) as mirror:
        yield mirror


def named(name: str | None, description: str | None = None) -> Content:
    shown = {"name": name, "description": description}
    return tuple(shown.get(column) for column in CONTENT_COLUMNS)


def of(wallet: str, number: int, *entries: Entry, outcome: str = "ok") -> WalletRead:
    return WalletRead(
        wallet_id=wallet,
        sequence=number,
        started_at=now(),
        outcome=outcome,
        entries=list(entries),
        digest=repr(entries),
    )


def apply(mirror: Mirror, wallet: str, *entries: Entry, outcome: str = "ok") -> Applied:
    read = of(wallet, mirror.numbers.take(), *entries, outcome=outcome)
    with mirror.transaction() as transaction:
        (applied,) = transaction.apply([read])
    return applied


def test_only_the_first_read_of_a_wallet_is_its_baseline(mirror: Mirror) -> None:
    """Also where reads are incomplete: what moves between two of them is news."""
    apply(mirror, A, (T, "1", None), outcome="incomplete")
    apply(mirror, A, (T, "2", None), outcome="incomplete")
    apply(mirror, A, (U, "1", None))
    rows = mirror.connection.execute(
        "SELECT token_id, old_amount, new_amount, baseline FROM balance_changes ORDER BY change_id"
    ).fetchall()
    assert rows == [(T, None, "1", 1), (T, "1", "2", 0), (U, None, "1", 0), (T, "2", None, 0)]


def test_an_incomplete_read_that_moved_something_ends_the_state(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", None))
    apply(mirror, A, (T, "1", None), (U, "1", None), outcome="incomplete")
    between = now()
    apply(mirror, A, (T, "1", None), (U, "1", None))
    states = mirror.connection.execute("SELECT reads FROM wallet_states").fetchall()
    assert states == [(1,), (1,)]
    assert set(frames.holdings(mirror.path, as_of=between)["certainty"]) == {"gap"}


def test_a_state_in_which_another_wallet_saw_a_token_differ_is_not_one_state(
    mirror: Mirror,
) -> None:
    """A's two reads show the same, but the token was renamed and named back in between."""
    apply(mirror, A, (T, "1", named("first")))
    apply(mirror, B, (T, "1", named("second")))
    between = now()
    apply(mirror, A, (T, "1", named("first")))
    then = frames.holdings(mirror.path, wallet=A, as_of=between)
    assert then["name"].tolist() == ["second"]
    assert then["certainty"].tolist() == ["gap"]
    assert frames.holdings(mirror.path, wallet=A)["name"].tolist() == ["first"]


def test_the_same_state_in_another_order_is_one_state(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", named("t")), (U, "1", named("u")))
    applied = apply(mirror, A, (U, "1", named("u")), (T, "1", named("t")))
    assert applied.changed_nothing
    assert mirror.connection.execute("SELECT reads FROM wallet_states").fetchall() == [(2,)]


def test_a_token_that_left_and_came_back_is_held_since_it_came_back(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", None), (U, "1", None))
    apply(mirror, A, (U, "0", None))
    back = now()
    apply(mirror, A, (T, "1", None), (U, "1", None))
    held_since = mirror.connection.execute("SELECT min(held_since) FROM holdings").fetchone()[0]
    assert held_since >= back
    assert len(frames.holdings(mirror.path, as_of=back)) == 1


def test_a_given_time_is_that_of_what_is_stored_and_never_less_than_the_last(
    mirror: Mirror,
) -> None:
    """So a past can be written, in its order, and nothing goes back behind it."""
    times = [f"2025-0{month}-01T06:00:00.000000Z" for month in (3, 5, 4, 6)]
    for number, at in enumerate(times):
        read = WalletRead(
            wallet_id=A,
            sequence=mirror.numbers.take(),
            started_at=at,
            outcome="ok",
            entries=[(T, str(number), None)],
            digest=str(number),
        )
        with mirror.transaction(at) as transaction:
            transaction.apply([read])
    began = now()
    apply(mirror, A, (T, "9", None))
    *past, last = mirror.connection.execute("SELECT observed_at FROM balance_changes").fetchall()
    assert past == [(times[0],), (times[1],), (times[1],), (times[3],)]
    assert last[0] >= began
    held = frames.holdings(mirror.path, as_of="2025-04-15T00:00:00Z")
    assert held["amount_text"].tolist() == ["0"]


def test_an_incomplete_read_takes_the_digest_of_the_complete_one_away(mirror: Mirror) -> None:
    """Its number is the greater, so a change of a token that it did not show would not take it."""
    apply(mirror, A, (T, "1", named("old")))
    late = mirror.numbers.take()
    apply(mirror, A, outcome="incomplete")
    with mirror.transaction() as transaction:
        transaction.apply([of(B, late, (T, "1", named("new")))])
    rows = mirror.connection.execute("SELECT body_sha256 FROM wallets WHERE wallet_id = ?", (A,))
    assert rows.fetchall() == [(None,)]


def test_unchanged_is_not_what_the_same_batch_shows_to_be_outdated(mirror: Mirror) -> None:
    """B's list has the token renamed; A's later answer is that of before, so it is named back."""
    first = (T, "1", named("first"))
    apply(mirror, A, first)
    renamed = of(B, mirror.numbers.take(), (T, "1", named("second")))
    known = of(A, mirror.numbers.take(), first)
    unchanged = msgspec.structs.replace(known, outcome="unchanged", entries=[])
    with mirror.transaction() as transaction:
        applied = transaction.apply([renamed, unchanged])
    assert [each.result for each in applied] == ["ok", "stale"]  # it is made again


def test_a_list_that_says_more_than_the_last_one_takes_the_digests_of_the_others(
    mirror: Mirror,
) -> None:
    """Also where a read by id had said as much, as the next one may not."""
    apply(mirror, A, (T, "1", named("name")))
    for content in (named("name", "more"), named("name")):
        with mirror.transaction() as transaction:
            asked = {"sequence": mirror.numbers.take(), "started_at": now(), "outcome": "ok"}
            transaction.apply([TokenRead(token_id=T, content=content, **asked)])
        apply(mirror, B, (T, "1", named("name", "more")))
    query = mirror.connection.execute
    rows = query("SELECT body_sha256 IS NULL FROM wallets ORDER BY wallet_id")
    assert rows.fetchall() == [(1,), (0,)]
    apply(mirror, A, (T, "1", named("name")))
    assert query("SELECT description FROM tokens").fetchall() == [(None,)]


def test_a_list_that_began_before_the_last_holder_let_go_has_no_say(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", named("old")))
    late = mirror.numbers.take()
    apply(mirror, A, (T, "2", named("old")))  # later, and the name was still the same
    apply(mirror, A)
    with mirror.transaction() as transaction:
        transaction.apply([of(B, late, (T, "1", named("a slip")))])
    assert mirror.connection.execute("SELECT name FROM tokens").fetchall() == [("old",)]


def test_who_lets_go_last_may_have_read_first(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", named("old")))
    late = mirror.numbers.take()
    apply(mirror, B, (T, "1", named("new")))
    apply(mirror, B)
    apply(mirror, A)
    with mirror.transaction() as transaction:
        transaction.apply([of(C, late, (T, "1", named("a slip")))])
    assert mirror.connection.execute("SELECT name FROM tokens").fetchall() == [("new",)]


def test_the_same_list_has_the_say_once_it_is_later_than_the_read_by_id(mirror: Mirror) -> None:
    """Though the mirror had not said what it says, as the read by id was the later one then."""
    apply(mirror, A, (T, "1", named("of the list", "old")))
    entry = (T, "1", named("of the list", "new"))
    late = of(A, mirror.numbers.take(), entry)
    by_id = TokenRead(
        token_id=T,
        sequence=mirror.numbers.take(),
        started_at=now(),
        outcome="ok",
        content=named("by id"),
    )
    for reads in ([by_id], [late]):
        with mirror.transaction() as transaction:
            transaction.apply(reads)
    shown = "SELECT name, description FROM tokens"
    assert mirror.connection.execute(shown).fetchall() == [("by id", "new")]
    again = of(A, mirror.numbers.take(), entry)
    unchanged = msgspec.structs.replace(again, outcome="unchanged", entries=[])
    with mirror.transaction() as transaction:
        (applied,) = transaction.apply([unchanged])
    assert applied.result == "stale"  # it is made again, and then it has the say
    apply(mirror, A, entry)
    assert mirror.connection.execute(shown).fetchall() == [("of the list", "new")]


@pytest.mark.parametrize("how", ["stage", "hold"])
def test_a_late_read_of_a_token_is_stale_whatever_it_shows_to_be_gone(
    mirror: Mirror, how: OnRemovals
) -> None:
    late, *later = (
        TokenRead(
            token_id=T,
            sequence=mirror.numbers.take(),
            started_at=now(),
            outcome="ok",
            content=named(name),
        )
        for name in (None, "a name")
    )
    with mirror.transaction() as transaction:
        transaction.apply(later)
        (applied,) = transaction.apply([late], removals=how)
    assert applied.result == "stale"
    assert not mirror.connection.execute("SELECT 1 FROM removal_rows").fetchall()


def test_a_late_list_adds_what_it_alone_shows_of_a_token_that_was_new_by_its_id(
    mirror: Mirror,
) -> None:
    late = of(A, mirror.numbers.take(), (T, "1", named("of the list")))
    by_id = TokenRead(
        token_id=T,
        sequence=mirror.numbers.take(),
        started_at=now(),
        outcome="ok",
        content=named(None, "of the read"),
    )
    for reads in ([by_id], [late]):
        with mirror.transaction() as transaction:
            transaction.apply(reads)
    shown = mirror.connection.execute("SELECT name, description FROM tokens").fetchall()
    assert shown == [("of the list", "of the read")]
