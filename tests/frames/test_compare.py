"""Comparison with a second list."""

import re
from collections import Counter
from operator import itemgetter

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from nftsync.sandbox.second_list import second_list
from nftsync.sandbox.world import Holding, World
from nftsync.text import short_id
from tests.kit.database import Builder, at, rows_of, token_id, wallet_id

ADDRESS = "0x" + "aB" * 20
GREATEST = 2**256 - 1
NEW = "3f0e8d54-0000-4000-8000-00000000000a"
AMOUNTS = st.sampled_from([1, 2, 7, GREATEST])
HOLDINGS = st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 3)), AMOUNTS)
#: Spellings of a wallet and of a token, by their numbers; 3 and 4 are unknown.
WALLETS = (
    wallet_id,
    lambda n: wallet_id(n).upper(),
    lambda n: f"Vault {n}",
    lambda n: f"vAULT {n}",
)
TOKENS = (
    lambda n: {"token_id": token_id(n)},
    lambda n: {"token_id": token_id(n).upper(), "contract": "not his"},
    lambda n: {"contract": ADDRESS.upper(), "blockchain_token_id": hex(GREATEST - n)},
    lambda n: {"contract_address": ADDRESS, "token_id": f"00{GREATEST - n}"},
    lambda n: {"contract": "harbours", "blockchain_token_id": str(GREATEST - n)},
)
VERDICT_COLUMNS = ("verdict", "amount", "other_amount")
VERDICT = itemgetter(*VERDICT_COLUMNS)
COLUMNS = ["wallet", "contract", "contract_address", "token_id", "blockchain_token_id", "amount"]


def holders(build, holdings, wallets=2, tokens=3):
    """Vaults that hold some tokens of the collection Harbours."""
    for number in range(1, wallets + 1):
        build.wallet(number, label=f"Vault {number}", synced_at=at(0))
    for number in range(1, tokens + 1):
        chain = str(GREATEST - number)
        build.token(number, contract_address=ADDRESS, blockchain_token_id=chain)
    build.insert(
        "contracts", contract=ADDRESS.lower(), contract_address=ADDRESS, given_name="Harbours"
    )
    for (wallet, token), amount in holdings.items():
        build.balance(wallet, token, str(amount))
        build.change(wallet, token, None, str(amount), 0, baseline=1)


def expected(wallet, token, amount, other):
    if amount == other:
        return "agrees"
    if wallet > 2 or token > 3:
        return "unknown_wallet" if wallet > 2 else "unknown_token"
    return "only_there" if not amount else "amount_differs" if other else "only_here"


@settings(max_examples=60)
@given(data=st.data(), holdings=HOLDINGS, as_file=st.booleans())
def test_each_holding_of_either_side_has_one_verdict_in_whatever_spelling(
    data, holdings, as_file, tmp_path
):
    rows = st.tuples(st.integers(1, 3), st.integers(1, 4), AMOUNTS | st.just(0))
    rows = data.draw(st.lists(rows))
    with_wallets = bool(rows) and data.draw(st.booleans())
    written, listed, held = [], Counter(), Counter()
    for wallet, token, amount in rows:
        names = data.draw(st.sampled_from(TOKENS if token < 4 else TOKENS[:1]))(token)
        if with_wallets:
            names["wallet"] = data.draw(st.sampled_from(WALLETS if wallet < 3 else WALLETS[:1]))(
                wallet
            )
        written.append({**names, "amount": str(amount)})
        listed[wallet if with_wallets else 0, token] += amount
    for (wallet, token), amount in holdings.items():
        held[wallet if with_wallets else 0, token] += amount
    table = pd.DataFrame(written, columns=COLUMNS, dtype=object)
    if as_file:
        table.to_csv(tmp_path / "list.csv", index=False, sep=";", encoding="utf-16")
        table = tmp_path / "list.csv"
    build = Builder(tmp_path / "nftsync.db")
    holders(build, holdings)
    frame = frames.compare(build.close(), table)
    keys = held.keys() | listed.keys()
    assert Counter(VERDICT(row) for row in rows_of(frame, [*VERDICT_COLUMNS])) == Counter(
        (expected(*key, held[key], listed[key]), held[key] or None, listed.get(key)) for key in keys
    )


def test_names_of_what_the_database_lacks_are_those_of_the_list(build):
    holders(build, {(1, 1): 3})
    rows = [
        {"wallet": NEW.upper(), "token_id": token_id(1)},
        {"wallet": "Annex", "contract": "KT1", "blockchain_token_id": "0x10", "amount": 4.0},
        {"wallet": "Vault 1", "token_id": NEW},
    ]
    frame = frames.compare(build.path, pd.DataFrame(rows))
    columns = ["wallet", "nft", "collection", "amount", "other_amount", "verdict", "line"]
    assert rows_of(frame, columns) == [
        dict(zip(columns, row, strict=True))
        for row in [
            (
                "Vault 1",
                f"Harbours #{short_id(str(GREATEST - 1))}",
                "Harbours",
                3,
                None,
                "only_here",
                None,
            ),
            ("Vault 1", short_id(NEW), None, None, 1, "unknown_token", 2),
            (
                NEW.upper(),
                f"Harbours #{short_id(str(GREATEST - 1))}",
                "Harbours",
                None,
                1,
                "unknown_wallet",
                0,
            ),
            ("Annex", "KT1 #16", "KT1", None, 4, "unknown_wallet", 1),
        ]
    ]
    assert frame["wallet_id"].tolist()[2] == NEW
    told = frames.explain("compare")
    assert list(frame) == told["column"].tolist()
    for kind, types in zip(frame.dtypes, told["type"], strict=True):
        assert str(kind) in types.split(" or ")
    only = frames.compare(build.path, pd.DataFrame(rows), wallet="Vault 2")
    assert only.empty


def test_changes_after_the_time_of_the_list_put_a_holding_in_motion(build):
    holders(build, {(1, 1): 3, (2, 2): 1, (2, 3): 9})
    build.balance(1, 2, "1", 50)
    build.change(1, 2, None, "1", 50)
    build.state(1, 0, 0, 0)
    build.connection.execute("UPDATE wallets SET synced_at = ? WHERE wallet_no = 1", (at(60),))
    rows = [("Vault 1", 1, 2), ("Vault 1", 2, 1), ("Vault 2", 2, 1)]
    rows = [{"wallet": name, "token_id": token_id(no), "amount": n} for name, no, n in rows]
    stale = "1 wallet with differences was last read before .+; sync, and compare again"
    for table, time in (
        (pd.DataFrame(rows), at(40)),
        (pd.DataFrame(rows).assign(as_of=at(40)), None),
    ):
        with pytest.warns(nftsync.NftsyncWarning, match=stale):
            frame = frames.compare(build.path, table, time)
        assert frame.attrs["at"] == at(40)
        assert frame["verdict"].tolist() == ["amount_differs", "in_motion", "agrees", "only_here"]
    later = frames.compare(build.path, table, at(55), wallet="Vault 1")
    assert later["verdict"].tolist() == ["amount_differs", "agrees"]
    together = frames.compare(build.path, table.drop(columns="wallet"), wallet="Vault 1")
    assert together["verdict"].tolist() == ["amount_differs", "in_motion"]


HEAD = "wallet,token_id,amount\n"
UNUSABLE = [
    ("wallet,amount\nx,1\n", "token_id or contract_address or contract is missing"),
    *(
        (
            f'{HEAD}Vault 1,{NEW},"{amount}"\n',
            f"line 2: the amount '{re.escape(amount[:60])}'.* is not a whole",
        )
        for amount in ("1,5", "1.5", "-1", "1e3", "one", "１", "9" * 101)
    ),
    (f"{HEAD}Vault 1,12,1\n", "line 2: the token_id '12' is not a UUID"),
    (f"{HEAD}Vault 1,,1\n", "line 2: names no token; give token_id, or contract and"),
    (f"{HEAD}Vault 1,{NEW},1\n,{NEW},1\n", "line 3 has no wallet; fill it in"),
    (f"{HEAD}Twin,{NEW},1\n", "2 wallets are called 'Twin'; name one by its id"),
    (f"token_id,as_of\n{NEW},2026-03-01\n{NEW},2026-03-02\n", "has 2 times in the column as_of"),
    (f"token_id,as_of\n{NEW},soon\n", "'soon' is not"),
]


@pytest.mark.parametrize(("text", "says"), UNUSABLE)
def test_an_unusable_list_is_refused_with_its_line(build, tmp_path, text, says):
    holders(build, {}, wallets=0)
    build.wallet(1, label="Twin")
    build.wallet(2, label="Twin")
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        frames.compare(build.path, tmp_path / "list.csv")


def test_a_sandbox_list_has_exactly_the_mistakes_that_it_names(site, command, tmp_path):
    lines = [*second_list(site.world, 10)]
    mistakes = {tuple(line[2:].split()) for line in lines if line.startswith("#")}
    (tmp_path / "list.csv").write_text("\n".join(lines))
    done = command("compare", "list.csv")
    done.says(
        "16 of 26 holdings agree with list.csv; 10 differ: amount differs (2), only here (2), only",
        code=1,
    )
    shown = command("compare", "list.csv", "--json")
    got = {(x["verdict"], x["wallet_id"], x["token_id"]) for x in shown.json["differences"]}
    assert (shown.code, got, shown.json["counts"]["agrees"]) == (1, mistakes, 16)
    command("export", "all", "--format", "csv").says()
    command("compare", "all/holdings.csv").says("20 of 20 holdings agree with all/holdings.csv.\n")
    with pytest.raises(InputError, match="21 mistakes need as many holdings; there are 20"):
        [*second_list(site.world, 21)]
    lonely = World()
    lonely.add_wallet(
        NEW.upper(),
        holdings=[Holding(token_id(n), amount) for n, amount in enumerate(["1", "2", "3", "x"])],
    )
    with pytest.raises(InputError, match="holds all tokens; make more wallets"):
        [*second_list(lonely, 3)]
