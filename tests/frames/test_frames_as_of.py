"""What was known at a time, against a plain replay."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from frames_database import Builder, at, rows_of, token_id, wallet_id
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import StoreError

WALLETS, TOKENS = (1, 2, 3), (1, 2, 3, 4)
AMOUNTS = (None, "0", "000", "1", "2", "1.5", "")
CONTENT = {
    "name": st.none() | st.text(st.characters(codec="utf-8"), max_size=3),
    "edition_id": st.none() | st.integers(-(2**63), 2**63 - 1),
    "extra": st.none() | st.just('{"metadata": {"n": 1e400, "t": "\\"\\u0000"}}'),
    "contract_address": st.none() | st.sampled_from(["a", "b"]),
}


def _zero(amount: str | None) -> bool:
    return amount is None or (amount != "" and set(amount) == {"0"})


@dataclass
class World:
    """A database in Python, with all that was ever logged."""

    clock: int = 0
    tokens: dict[int, dict[str, object]] = field(default_factory=dict)
    first_content: dict[int, dict[str, object]] = field(default_factory=dict)
    first_seen: dict[int, int] = field(default_factory=dict)
    balances: dict[tuple[int, int], str] = field(default_factory=dict)
    changes: list[tuple[int, int, int, str | None, str | None]] = field(default_factory=list)
    token_changes: list[tuple[int, int, dict[str, object], dict[str, object]]] = field(
        default_factory=list
    )
    states: list[dict[str, float]] = field(default_factory=list)

    def play(self, event: tuple) -> None:
        kind, wait, wallet, token, amount, content = event
        self.clock += wait
        if kind == "balance":
            self._see(token, content)
            old = self.balances.get((wallet, token))
            if amount != old:
                self.changes.append((self.clock, wallet, token, old, amount))
                self.balances.pop((wallet, token), None)
                if amount is not None:
                    self.balances[wallet, token] = amount
        elif kind == "token":
            self._see(token, content)
            known = self.tokens[token]
            changed = {name: value for name, value in content.items() if known[name] != value}
            if changed:
                before = {name: known[name] for name in changed}
                self.token_changes.append((self.clock, token, before, changed))
                known.update(changed)
        else:
            started = self.clock - 0.5
            own = [state for state in self.states if state["wallet"] == wallet]
            if kind == "same" and own:
                own[-1]["last"] = started
            else:
                self.states.append(
                    {"wallet": wallet, "first": started, "last": started, "stored": self.clock}
                )

    def _see(self, token: int, content: dict[str, object]) -> None:
        if token not in self.tokens:
            whole = {name: content.get(name) for name in CONTENT}
            self.tokens[token], self.first_content[token] = dict(whole), dict(whole)
            self.first_seen[token] = self.clock

    def write(self, path: Path) -> None:
        build = Builder(path)
        build.connection.execute("BEGIN")
        for wallet in WALLETS:
            build.wallet(wallet)
        for token, content in self.tokens.items():
            updated = [t for t, changed, *_ in self.token_changes if changed == token]
            latest = max(updated, default=self.first_seen[token])
            build.token(token, self.first_seen[token], updated_at=at(latest), **content)
        for seen, wallet, token, old, new in self.changes:
            build.change(wallet, token, old, new, seen)
        for (wallet, token), row in self.replayed(self.clock).items():
            build.balance(
                wallet,
                token,
                row["amount_text"],
                held_since=row["held_since"],
                updated_at=row["balance_updated_at"],
            )
        for seen, token, before, after in self.token_changes:
            build.token_change(token, json.dumps(before), json.dumps(after), seen)
        for state in self.states:
            build.state(state["wallet"], state["first"], state["last"], state["stored"])
        build.connection.execute("COMMIT")
        build.close()

    def replayed(self, then: float) -> dict[tuple[int, int], dict[str, object]]:
        rows: dict[tuple[int, int], dict[str, object]] = {}
        for seen, wallet, token, _, new in self.changes:
            if seen > then:
                continue
            old = rows.pop((wallet, token), None)
            if new is None:
                continue
            since = None
            if not _zero(new):
                was_held = old is not None and not _zero(old["amount_text"])
                since = old["held_since"] if was_held else at(seen)
            rows[wallet, token] = {
                "amount_text": new,
                "held_since": since,
                "balance_updated_at": at(seen),
            }
        return rows

    def content_at(self, then: float) -> dict[int, dict[str, object]]:
        """Forwards from the first sight, where the frames go backwards from today."""
        rows = {
            token: {**content, "updated_at": at(self.first_seen[token])}
            for token, content in self.first_content.items()
        }
        for seen, token, _, after in self.token_changes:
            if seen <= then:
                rows[token] |= {**after, "updated_at": at(seen)}
        return rows

    def confirmed(self, wallet: int, then: float) -> dict[str, object]:
        own = [state for state in self.states if state["wallet"] == wallet]
        stored = [state for state in own if state["stored"] <= then]
        before = at(stored[-1]["last"]) if stored else None
        if stored and stored[-1]["last"] >= then:
            return {
                "confirmed_before": at(stored[-1]["first"]),
                "confirmed_after": before,
                "certainty": "bracketed",
            }
        following = own[len(stored) : len(stored) + 1]
        return {
            "confirmed_before": before,
            "confirmed_after": at(following[0]["first"]) if following else None,
            "certainty": "gap" if following else "open",
        }


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["balance", "balance", "balance", "token", "read", "same"]),
        st.integers(0, 2),
        st.sampled_from(WALLETS),
        st.sampled_from(TOKENS),
        st.sampled_from(AMOUNTS),
        st.fixed_dictionaries({}, optional=CONTENT),
    ),
    max_size=16,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("as_of") / "nftsync.db"


@settings(max_examples=30, deadline=None)
@given(events=EVENTS, half_seconds=st.integers(-2, 50))
def test_as_of_is_the_replay_and_that_of_the_end_is_now(
    path: Path, events: list, half_seconds: int
) -> None:
    world = World()
    for event in events:
        world.play(event)
    world.write(path)
    then = min(half_seconds / 2, world.clock + 1)
    content = world.content_at(then)

    expected = []
    for (wallet, token), row in sorted(world.replayed(then).items()):
        about = dict(content[token])
        del about["extra"]
        around = world.confirmed(wallet, then)
        expected.append(
            {
                "wallet_id": wallet_id(wallet),
                "token_id": token_id(token),
                **row,
                "token_updated_at": about.pop("updated_at"),
                **about,
                **around,
                "wallet_synced_at": around["confirmed_before"],
            }
        )
    columns = [
        "wallet_id", "token_id", "amount_text", "held_since", "balance_updated_at",
        "token_updated_at", *(name for name in CONTENT if name != "extra"),
        "confirmed_before", "confirmed_after", "certainty", "wallet_synced_at",
    ]  # fmt: skip
    frame = frames.holdings(path, as_of=at(then))
    assert rows_of(frame, columns) == expected
    one = frames.holdings(path, wallet=wallet_id(1), as_of=at(then))
    mine = frame[frame["wallet_id"] == wallet_id(1)].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, mine)

    assert rows_of(frames.tokens(path, as_of=at(then)), ["token_id", *CONTENT, "updated_at"]) == [
        {"token_id": token_id(token), **{name: about[name] for name in [*CONTENT, "updated_at"]}}
        for token, about in sorted(content.items())
        if world.first_seen[token] <= then
    ]

    now = frames.holdings(path).drop(columns="wallet_synced_at")
    last = frames.holdings(path, as_of=at(world.clock))
    pd.testing.assert_frame_equal(last[list(now.columns)], now)
    pd.testing.assert_frame_equal(frames.tokens(path, as_of=at(world.clock)), frames.tokens(path))


@pytest.mark.parametrize(
    ("then", "before", "after", "certainty"),
    [
        (0.5, None, 1, "gap"),  # before the first read
        (1.5, None, 1, "gap"),  # read, but not yet stored
        (2, 1, 5, "bracketed"),
        (5, 1, 5, "bracketed"),
        (6, 5, 8, "gap"),
        (8.5, 5, 8, "gap"),
        (9, 8, 20, "gap"),
        (50, 20, None, "open"),
    ],
)
def test_certainty(
    build: Builder, then: float, before: float | None, after: float | None, certainty: str
) -> None:
    build.wallet(1)
    build.token(1, seen=-5)
    build.change(1, 1, None, "1", -5)
    build.state(1, 1, 5, 2)
    build.state(1, 8, 8, 9)
    build.state(1, 20, 20, 21)
    columns = ["confirmed_before", "confirmed_after", "certainty"]
    (row,) = rows_of(frames.holdings(build.path, as_of=at(then)), columns)
    assert list(row.values()) == [
        None if before is None else at(before),
        None if after is None else at(after),
        certainty,
    ]


def test_a_broken_undo_is_an_error(build: Builder) -> None:
    build.token(1)
    change = build.token_change(1, '{"name": []}', "{}", 5)
    with pytest.raises(StoreError, match=f"token change {change}"):
        frames.tokens(build.path, as_of=at(1))
