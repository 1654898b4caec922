"""The sandbox's world: answers and edits."""

import json

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nftsync.errors import InputError
from nftsync.sandbox.world import MAX_AMOUNT, Holding, World

ANN = "11111111-1111-4111-8111-aaaaaaaaaaaa"
BEN = "22222222-2222-4222-8222-bbbbbbbbbbbb"
TOKEN = "33333333-3333-4333-8333-cccccccccccc"
OTHER = "44444444-4444-4444-8444-dddddddddddd"
RECORD = (
    '{"id":"' + TOKEN + '","tokenId": 115792089237316195423570985008687907853269984665640564039457,'
    '"rate":1.10,"metadata":{"name":"A","editionId":0},"odd":[null,{}]}'
)


def make(amount: str = "5", record: str | None = RECORD) -> World:
    raw = msgspec.UNSET if record is None else msgspec.Raw(record.encode())
    world = World(seed=1)
    world.add_wallet(ANN, [Holding(TOKEN, amount, raw)])
    world.add_wallet(BEN)
    return world


def amounts(world: World, wallet: str) -> dict[str, str]:
    body = json.loads(world.balances_body(wallet) or b"null")
    return {entry["tokenId"]: entry["amount"] for entry in body["nftTokenBalances"]}


def test_records_and_amounts_are_answered_to_the_character_and_ids_as_first_written():
    world = make(amount="0012")
    expected = f'{{"nftTokenBalances":[{{"tokenId":"{TOKEN}","amount":"0012","token":{RECORD}}}]}}'
    assert world.balances_body(ANN) == expected.encode()
    assert world.token_body(TOKEN.upper()) == RECORD.encode()
    upper = World()
    upper.add_wallet(ANN.upper(), [Holding(TOKEN.upper(), "1", msgspec.Raw(b"{}"))])
    assert upper.wallets() == [ANN.upper()]
    assert TOKEN.upper().encode() in (upper.balances_body(ANN) or b"")
    assert upper.token_body(TOKEN) == b"{}"


def test_a_refused_edit_says_why_in_one_line_and_changes_nothing():
    world, untouched = make(), make()
    odd = "66666666-6666-4666-8666-ffffffffffff"
    for each in (world, untouched):
        each.add_wallet(OTHER, [Holding(odd, "5.0")])
    for edit, message in (
        (lambda: world.transfer(TOKEN, BEN, TOKEN, 1), f"wallet {TOKEN} does not exist"),
        (lambda: world.transfer(ANN, BEN, OTHER, 1), f"token {OTHER} does not exist"),
        (lambda: world.transfer(BEN, ANN, TOKEN, 1), "does not hold 1 of token"),
        (lambda: world.transfer(ANN, ANN, TOKEN, 6), "does not hold 6 of token"),
        (lambda: world.transfer(OTHER, BEN, odd, 1), "does not hold 1 of token"),
        (lambda: world.transfer(ANN, BEN, TOKEN, 0), "from 1 to 2"),
        (lambda: world.transfer(ANN, BEN, TOKEN, "1.0"), "from 1 to 2"),
        (lambda: world.transfer(ANN, BEN, TOKEN, 2**256), "from 1 to 2"),
        (lambda: world.transfer("x\ny", BEN, TOKEN, 1), "is not a wallet id"),
        (lambda: world.mint(TOKEN, 1, {}), f"wallet {TOKEN} does not exist"),
        (lambda: world.edit_metadata(OTHER, {}), f"token {OTHER} does not exist"),
        (lambda: world.set_amount(ANN, OTHER, "1"), f"token {OTHER} does not exist"),
        (lambda: world.remove(BEN, TOKEN), "does not hold token"),
        (lambda: world.add_wallet(ANN.upper()), "wallet .* already exists"),
        (lambda: world.add_wallet("ann"), "'ann' is not a wallet id"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            edit()
        assert "\n" not in str(caught.value)
    assert world.wallets() == untouched.wallets()
    for wallet in untouched.wallets():
        assert world.balances_body(wallet) == untouched.balances_body(wallet)
    assert world.token_body(TOKEN) == untouched.token_body(TOKEN)


def test_changed_metadata_shows_with_every_holder_and_leaves_the_rest_of_the_record():
    world = make()
    world.transfer(ANN, BEN, TOKEN, 1)
    world.edit_metadata(TOKEN, {"name": "B", "editionId": 2**300})
    expected = RECORD.replace(
        '{"name":"A","editionId":0}', f'{{"name":"B","editionId":{2**300}}}'
    ).replace(": 115", ":115")
    assert (world.token_body(TOKEN) or b"").decode() == expected
    for wallet in (ANN, BEN):
        assert expected in (world.balances_body(wallet) or b"").decode()
    for record in (None, "null"):  # shows in the token's own read alone
        world = make(record=record)
        before = world.balances_body(ANN)
        assert world.token_body(TOKEN) is None
        world.edit_metadata(TOKEN, {"name": "B"})
        assert json.loads(world.token_body(TOKEN) or b"")["metadata"] == {"name": "B"}
        assert world.balances_body(ANN) == before


class Trade(RuleBasedStateMachine):
    """Edits in any order, compared with a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.model: dict[str, dict[str, int]] = {self.world.add_wallet(): {} for _ in range(3)}
        self.supply: dict[str, int] = {}

    @rule(which=st.integers(0, 2), amount=st.integers(1, MAX_AMOUNT))
    def mint(self, which: int, amount: int) -> None:
        wallet = list(self.model)[which]
        token = self.world.mint(wallet, amount, {})
        self.model[wallet][token] = self.supply[token] = amount

    @precondition(lambda self: self.supply)
    @rule(data=st.data(), giver=st.integers(0, 2), getter=st.integers(0, 2))
    def transfer(self, data: st.DataObject, giver: int, getter: int) -> None:
        source, target = list(self.model)[giver], list(self.model)[getter]
        token = data.draw(st.sampled_from(list(self.supply)))
        held = self.model[source].get(token, 0)
        amount = data.draw(st.one_of(st.just(max(held, 1)), st.integers(1, held + 1)))
        if amount > held:
            with pytest.raises(InputError):
                self.world.transfer(source, target, token, amount)
            return
        self.world.transfer(source, target, token, amount)
        self.model[source][token] -= amount
        self.model[target][token] = self.model[target].get(token, 0) + amount
        for held_by in self.model.values():
            if held_by.get(token) == 0:
                del held_by[token]

    @invariant()
    def lists_are_what_the_edits_led_to_and_totals_are_conserved(self) -> None:
        total = dict.fromkeys(self.supply, 0)
        for wallet, expected in self.model.items():
            listed = amounts(self.world, wallet)
            assert listed == {token: str(amount) for token, amount in expected.items()}
            for token, amount in listed.items():
                total[token] += int(amount)
        assert total == self.supply


TestTrade = Trade.TestCase
TestTrade.settings = settings(max_examples=20, stateful_step_count=15)
