"""The history of states, and the order of reads of wallets and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nftsync import frames
from nftsync.errors import NftsyncWarning
from nftsync.records import (
    CONTENT_COLUMNS,
    Applied,
    Content,
    Entry,
    OnRemovals,
    TokenRead,
    WalletRead,
)
from nftsync.store.history import begin_span, end_span, last_observed
from nftsync.store.mirror import Mirror
from nftsync.store.runs import start_run
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
    shown = {"entries": list(entries), "digest": repr(entries)}
    asked = {"sequence": number, "started_at": now(), "outcome": outcome}
    return WalletRead(wallet_id=wallet, **asked, **shown)


def by_id(number: int, content: Content) -> TokenRead:
    asked = {"sequence": number, "started_at": now(), "outcome": "ok"}
    return TokenRead(token_id=T, content=content, **asked)


def unchanged(read: WalletRead) -> WalletRead:
    return msgspec.structs.replace(read, outcome="unchanged", entries=[])


def apply_all(
    mirror: Mirror, *reads: WalletRead | TokenRead, at: str | None = None, how: OnRemovals = "apply"
) -> list[Applied]:
    with mirror.transaction(at) as transaction:
        return transaction.apply(reads, removals=how)


def apply(mirror: Mirror, wallet: str, *entries: Entry, outcome: str = "ok") -> Applied:
    (applied,) = apply_all(mirror, of(wallet, mirror.numbers.take(), *entries, outcome=outcome))
    return applied


def rows(mirror: Mirror, query: str) -> list[tuple[Any, ...]]:
    return mirror.connection.execute(query).fetchall()


def test_an_incomplete_read_with_a_change_ends_the_state(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", None))
    apply(mirror, A, (T, "1", None), (U, "1", None), outcome="incomplete")
    between = now()
    apply(mirror, A, (T, "1", None), (U, "1", None))
    assert rows(mirror, "SELECT reads FROM wallet_states") == [(1,), (1,)]
    assert set(frames.holdings(mirror.path, as_of=between)["certainty"]) == {"gap"}


def test_a_change_of_a_token_in_another_wallet_ends_the_state(
    mirror: Mirror,
) -> None:
    """A's two reads are equal, but B's read between them shows another name of the token."""
    apply(mirror, A, (T, "1", named("first")))
    apply(mirror, B, (T, "1", named("second")))
    between = now()
    apply(mirror, A, (T, "1", named("first")))
    then = frames.holdings(mirror.path, wallet=A, as_of=between)
    assert then["name"].tolist() == ["second"]
    assert then["certainty"].tolist() == ["gap"]
    assert frames.holdings(mirror.path, wallet=A)["name"].tolist() == ["first"]


def test_a_token_that_left_and_came_back_is_held_since_it_came_back(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", None), (U, "1", None))
    apply(mirror, A, (U, "0", None))
    back = now()
    apply(mirror, A, (T, "1", None), (U, "1", None))
    assert rows(mirror, "SELECT min(held_since) FROM holdings") >= [(back,)]
    assert len(frames.holdings(mirror.path, as_of=back)) == 1


def test_a_given_time_is_stored_unless_it_is_before_the_last_one(
    mirror: Mirror,
) -> None:
    """So a past can be written in its order."""
    times = [f"2025-0{month}-01T06:00:00.000000Z" for month in (3, 5, 4, 6)]
    for number, at in enumerate(times):
        apply_all(mirror, of(A, mirror.numbers.take(), (T, str(number), None)), at=at)
    began = now()
    apply(mirror, A, (T, "9", None))
    *past, last = rows(mirror, "SELECT observed_at FROM balance_changes")
    assert past == [(times[0],), (times[1],), (times[1],), (times[3],)]
    assert last[0] >= began
    held = frames.holdings(mirror.path, as_of="2025-04-15T00:00:00Z")
    assert held["amount_text"].tolist() == ["0"]


def test_an_unchanged_read_is_stale_after_a_change_in_its_batch(mirror: Mirror) -> None:
    """B's list shows a new name; A's later answer shows the old one, so A is read again."""
    first = (T, "1", named("first"))
    apply(mirror, A, first)
    renamed = of(B, mirror.numbers.take(), (T, "1", named("second")))
    known = of(A, mirror.numbers.take(), first)
    applied = apply_all(mirror, renamed, unchanged(known))
    assert [each.result for each in applied] == ["ok", "stale"]


def test_a_list_with_more_content_than_the_last_one_removes_the_digests_of_others(
    mirror: Mirror,
) -> None:
    """Also if a read by id showed that content, because the next one may not."""
    apply(mirror, A, (T, "1", named("name")))
    for content in (named("name", "more"), named("name")):
        apply_all(mirror, by_id(mirror.numbers.take(), content))
        apply(mirror, B, (T, "1", named("name", "more")))
    query = "SELECT body_sha256 IS NULL FROM wallets ORDER BY wallet_id"
    assert rows(mirror, query) == [(1,), (0,)]
    apply(mirror, A, (T, "1", named("name")))
    assert rows(mirror, "SELECT description FROM tokens") == [(None,)]


def test_a_list_from_before_the_last_holding_ended_changes_no_content(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", named("old")))
    late = mirror.numbers.take()
    apply(mirror, A, (T, "2", named("old")))  # later, and the name was still the same
    apply(mirror, A)
    apply_all(mirror, of(B, late, (T, "1", named("a slip"))))
    assert rows(mirror, "SELECT name FROM tokens") == [("old",)]


def test_the_last_holder_may_have_been_read_first(mirror: Mirror) -> None:
    apply(mirror, A, (T, "1", named("old")))
    late = mirror.numbers.take()
    apply(mirror, B, (T, "1", named("new")))
    apply(mirror, B)
    apply(mirror, A)
    apply_all(mirror, of(C, late, (T, "1", named("a slip"))))
    assert rows(mirror, "SELECT name FROM tokens") == [("new",)]


def test_an_equal_list_decides_once_it_is_later_than_the_read_by_id(mirror: Mirror) -> None:
    """The mirror did not have the content of the list, because the read by id was later."""
    apply(mirror, A, (T, "1", named("of the list", "old")))
    entry = (T, "1", named("of the list", "new"))
    late = of(A, mirror.numbers.take(), entry)
    apply_all(mirror, by_id(mirror.numbers.take(), named("by id")))
    apply_all(mirror, late)
    shown = "SELECT name, description FROM tokens"
    assert rows(mirror, shown) == [("by id", "new")]
    (applied,) = apply_all(mirror, unchanged(of(A, mirror.numbers.take(), entry)))
    assert applied.result == "stale"  # so it is read again
    apply(mirror, A, entry)
    assert rows(mirror, shown) == [("of the list", "new")]


@pytest.mark.parametrize("how", ["stage", "hold"])
def test_a_late_read_of_a_token_is_stale_and_holds_no_removal(
    mirror: Mirror, how: OnRemovals
) -> None:
    late, later = (by_id(mirror.numbers.take(), named(name)) for name in (None, "a name"))
    apply_all(mirror, later)
    (applied,) = apply_all(mirror, late, how=how)
    assert applied.result == "stale"
    assert not rows(mirror, "SELECT 1 FROM removal_rows")


def test_a_late_list_adds_only_missing_content_after_a_read_by_id(
    mirror: Mirror,
) -> None:
    late = of(A, mirror.numbers.take(), (T, "1", named("of the list")))
    apply_all(mirror, by_id(mirror.numbers.take(), named(None, "of the read")))
    apply_all(mirror, late)
    shown = rows(mirror, "SELECT name, description FROM tokens")
    assert shown == [("of the list", "of the read")]


def test_sequence_numbers_grow_in_all_processes_also_after_a_restart(tmp_path: Path) -> None:
    """Also if the monotonic clock restarted, or the file was moved to another machine."""
    database = tmp_path / "nftsync.db"
    with Mirror(database) as mirror:
        before = mirror.numbers.take()
        mirror.connection.execute(
            "UPDATE mirror_state SET greatest_sequence = ?, sequence_offset = sequence_offset - ?",
            (before, 10**15),
        )
    with Mirror(database) as one, Mirror(database) as other:
        taken = [each.numbers.take() for _ in range(20) for each in (one, other)]
    assert taken == sorted({before, *taken})[1:]


def test_held_removals_hide_no_whole_state_after_the_clock_was_set_back(
    mirror: Mirror,
) -> None:
    """A change while they are held gets no time before their span."""
    last = "2090-01-01T00:00:00.000000Z"
    apply_all(mirror, of(A, mirror.numbers.take(), (T, "1", None)), at=last)
    with mirror.transaction() as transaction:
        run = start_run(transaction.connection, "replay", mirror.numbers.take(), now()).run_id
        begin_span(transaction.connection, run, transaction.observed_at, changed=False)
    assert holders(mirror, last) == {A}
    apply(mirror, B, (T, "1", None))
    within = str(last_observed(mirror.connection))
    assert within > last
    assert holders(mirror, last) == {A}
    with pytest.warns(NftsyncWarning, match="last whole state"):
        assert holders(mirror, within) == {A}
    with mirror.transaction() as transaction:
        end_span(transaction.connection, run)
    assert holders(mirror, within) == {A, B}


def holders(mirror: Mirror, at: str) -> set[str]:
    return set(frames.holdings(mirror.path, as_of=at)["wallet_id"])
