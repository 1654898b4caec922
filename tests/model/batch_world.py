"""The provider of the batches: a few wallets and tokens whose changes may be undone."""

from __future__ import annotations

import copy
import json
import random

from nftsync.records import CONTENT_COLUMNS, Content, Entry
from tests.kit.provider import token, wallet

WALLETS = [wallet(number) for number in range(5)]
TOKENS = [token(number) for number in range(7)]
AMOUNTS = ["0", "1", "1", "2", "000", "007", "1.5", "", str(2**256 - 1)]


def content(**fields: str | None) -> Content:
    extra = {key: value for key, value in fields.items() if key not in CONTENT_COLUMNS and value}
    values: list[str | None] = [fields.get(column) for column in CONTENT_COLUMNS[:-1]]
    return (*values, json.dumps(extra, sort_keys=True, separators=(",", ":")) if extra else None)


class World:
    """The provider's state, of few values, so that states repeat."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: Either lists may be incomplete or without records, or lists and reads of tokens may
        #: contradict each other; with both, an incomplete list counts as complete.
        self.is_whole = rng.random() < 0.5
        self.held: dict[str, dict[str, str]] = {each: {} for each in WALLETS}
        self.shown: dict[str, dict[str, str | None]] = {each: {"name": "x"} for each in TOKENS}
        self.detail: dict[str, dict[str, str | None]] = {each: {} for each in TOKENS}
        #: Tokens without a record in lists.
        self.bare = set[str]() if self.is_whole else set(rng.sample(TOKENS, rng.randint(0, 2)))
        for _ in range(12):
            self.change_balance()
        self.before = copy.deepcopy((self.held, self.shown, self.detail))

    def change(self) -> None:
        """Change the world, or undo the last change, which a wrong skip would miss first."""
        now = copy.deepcopy((self.held, self.shown, self.detail))
        if self.rng.random() < 0.25:
            self.held, self.shown, self.detail = self.before
        else:
            self.rng.choice([self.change_balance] * 3 + [self.change_token] * 2 + [self.empty])()
        self.before = now

    def change_balance(self) -> None:
        lines = self.held[self.rng.choice(WALLETS)]
        token_id = self.rng.choice(TOKENS)
        if token_id in lines and self.rng.random() < 0.4:
            del lines[token_id]
        else:
            lines[token_id] = self.rng.choice(AMOUNTS)

    def change_token(self) -> None:
        token_id = self.rng.choice(TOKENS)
        name = self.rng.choice(["name", "description", "rarity", "contract_address"])
        fields = self.shown if name in {"name", "rarity"} else self.detail
        if self.is_whole:
            fields = self.rng.choice([self.shown, self.detail])
        fields[token_id][name] = self.rng.choice([None, "x", "y"])

    def empty(self) -> None:
        if self.rng.random() < 0.2:
            self.held[self.rng.choice(WALLETS)].clear()

    def entries(self, wallet_id: str) -> list[Entry]:
        return [
            (token_id, amount, None if token_id in self.bare else content(**self.shown[token_id]))
            for token_id, amount in self.held[wallet_id].items()
        ]

    def detailed(self, token_id: str) -> Content:
        return content(**self.detail[token_id])
