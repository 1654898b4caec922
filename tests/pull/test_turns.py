"""Whose turn it is, against a plain list of what waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nftsync.pull.turns import Turns

#: Tasks to add, a wait for what was taken last (None: it is done), a while that passes.
STEPS = st.lists(
    st.tuples(st.just("add"), st.integers(0, 3))
    | st.tuples(st.just("take"), st.none() | st.integers(0, 5))
    | st.tuples(st.just("pass"), st.integers(0, 4)),
    max_size=60,
)


@given(STEPS)
def test_what_is_due_goes_first_and_nothing_is_lost_early_or_twice(
    steps: list[tuple[str, int | None]],
) -> None:
    turns: Turns[int, list[int]] = Turns(lambda task: [task])
    now, added, done = 0, 0, 0
    fresh: list[int] = []
    waiting: list[tuple[int, int, list[int]]] = []
    for number, (what, value) in enumerate(steps):
        if what == "add":
            fresh += range(added, added + (value or 0))
            turns.add(range(added, added + (value or 0)))
            added += value or 0
        elif what == "pass":
            now += value or 0
        else:
            due = sorted((each for each in waiting if each[0] <= now), key=lambda each: each[:2])
            expected = due[0][2] if due else [fresh[0]] if fresh else None
            taken = turns.take(now)
            assert taken == expected
            if due:
                waiting.remove(due[0])
            elif fresh:
                fresh.pop(0)
            if taken is not None and value is not None:
                turns.postpone(taken, now + value)
                waiting.append((now + value, number, taken))
            done += taken is not None and value is None
        assert turns.next_due == min((each[0] for each in waiting), default=None)
    left = turns.withdraw()
    assert left == fresh
    assert len(left) + len(turns.withdraw_postponed()) + done == added
    assert (turns.take(now + 100), turns.next_due) == (None, None)
