"""docs/use/ask_chain.py against a node's double, and against a real EVM."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nftsync
from nftsync import frames
from nftsync.list_files import ListFile
from tests.docs import evm
from tests.docs.evm import HEX, Reverted, serve
from tests.docs.pages import ROOT
from tests.kit.provider import Provider, Sender, entry, head, raw, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, run_command

# Of the EVM's packages, on Python 3.14.
pytestmark = pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction':DeprecationWarning")

KEY = "dGhlIGtleSBvZiBhIG5vZGU"
COLUMNS = dict.fromkeys(("wallet", "contract", "blockchain_token_id", "amount", "as_of"), ())
ART, PASSES, SILENT, ABSENT, BURNT = 0xA1, 0xA2, 0xA3, 0xA4, 0xA5
ALICE, BOB, STRANGER = 0xB1, 0xB2, 0xB3
#: More than fit into one batch.
NEVER_MINTED = range(1000, 1120)
#: The owners of ERC-721 tokens, and the amounts of ERC-1155 by holder and token.
OWNERS = {7: ALICE, 8: BOB, 9: STRANGER}
AMOUNTS = {(ALICE, 255): 2**256 - 1, (BOB, 255): 3}


def fake_node(method: str, params: list[Any]) -> Any:
    """Answer as a node; SILENT uses up its gas, and ABSENT has no code."""
    if method == "eth_chainId":
        return "0x1"
    if method == "eth_getBlockByNumber":
        return {"number": "0x10", "hash": f"0x{'ab' * 32}", "timestamp": "0x6553f100"}
    to = int(params[0] if method == "eth_getCode" else params[0]["to"], 16)
    if method == "eth_getCode" or to == ABSENT:
        return "0x" if to == ABSENT else "0x60"
    function, data = params[0]["data"][:10], params[0]["data"][10:]
    words = [int(data[start : start + 64], 16) for start in range(0, len(data), 64)]
    result = {
        (ART, evm.SUPPORTS): words[0] >> 224 == 0x80AC58CD,
        (BURNT, evm.SUPPORTS): words[0] >> 224 == 0x80AC58CD,
        (ART, evm.OWNER_OF): OWNERS.get(words[0]),
        (PASSES, evm.SUPPORTS): words[0] >> 224 == 0xD9B67A26,
        (PASSES, evm.BALANCE_OF): AMOUNTS.get((words[0], words[-1]), 0),
    }.get((to, function))
    if result is None and to != SILENT:
        raise Reverted
    return None if result is None else f"0x{int(result):064x}"


@pytest.fixture
def ask(lying: Provider, tmp_path: Path) -> Callable[..., Outcome]:
    """Run the script for two wallets and all tokens of the fake node."""
    tokens = [(ART, "7"), *((ART, str(number)) for number in NEVER_MINTED), (ART, "8")]
    tokens += [(ART, "9"), (BURNT, "1"), (PASSES, "0xff"), (PASSES, "4")]
    lines = [f"{HEX(contract)},{number},a name" for contract, number in tokens]
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "tokens.csv").write_text(
        "\n".join(["contract,blockchain_token_id,name", *lines, ""])
    )
    wallets = tmp_path / "wallets.csv"
    wallets.write_text(f"wallet;address\n#1 Vault;{HEX(ALICE)}\nBob;{HEX(BOB)}\n", "utf-8-sig")

    def run(*words: object, url: str | None = None) -> Outcome:
        script = [sys.executable, ROOT / "docs" / "use" / "ask_chain.py"]
        variables = {"ETH_RPC_URL": f"{lying.url}/v3/{KEY}" if url is None else url}
        ran = subprocess.run(
            [*map(str, [*script, *(words or (wallets, "books"))])],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Outcome(ran.returncode, ran.stdout, ran.stderr)

    return run


def rows_of(ran: Outcome) -> list[tuple[str, ...]]:
    """Return the rows of a list as nftsync reads lists."""
    file = ListFile("list", "list.csv", ran.out)
    return [tuple(cells.values()) for _, cells in file.table(COLUMNS, keys=2)]


AT = "2023-11-14T22:13:20Z"
LIST = [
    ("#1 Vault", HEX(ART), "7", "1", AT),
    ("#1 Vault", HEX(PASSES), "0xff", str(2**256 - 1), AT),
    ("Bob", HEX(ART), "8", "1", AT),
    ("Bob", HEX(PASSES), "0xff", "3", AT),
]


def shuffled(replies: Any) -> Any:
    return random.Random(1).sample(replies, len(replies)) if isinstance(replies, list) else replies


def refused(replies: Any) -> Any:
    error = {"id": None, "error": {"code": -32600, "message": "no batches"}}
    return error if isinstance(replies, list) else replies


def shortened(replies: Any) -> Any:
    """Leave out the second reply of a batch, and give an error for the third."""
    if isinstance(replies, list) and len(replies) > 2:
        return [
            replies[0],
            {"id": 2, "error": {"code": -32000, "message": "try again"}},
            *replies[3:],
        ]
    return replies


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([serve(fake_node)], id="in batches"),
        pytest.param([serve(fake_node, shuffled)], id="in another order"),
        pytest.param([serve(fake_node, refused)], id="not in batches"),
        pytest.param([serve(fake_node, shortened)], id="with failed calls, which succeed alone"),
        pytest.param(
            [reply(b"busy", 503), raw(head()), serve(fake_node)], id="after failed requests"
        ),
    ],
)
def test_a_node_that_answers_gives_the_same_list(answers: list[Sender], lying, ask):
    lying.always(*answers)
    ran = ask().says(f"chain 1, block 16, hash 0x{'ab' * 32}, {AT}")
    assert rows_of(ran) == LIST
    for contract, numbers in ((ART, NEVER_MINTED), (BURNT, [1])):
        tokens = ", ".join(map(str, numbers))
        assert f"# {HEX(contract)}: does not exist (burned or never minted): {tokens}\n" in ran.out


def test_contracts_without_an_answer_are_named_and_their_amounts_unknown(lying, ask, tmp_path):
    with (tmp_path / "books" / "tokens.csv").open("a") as file:
        file.write(f"{HEX(SILENT)},1,\n{HEX(ABSENT)},2,\n{HEX(ABSENT)},3,\nKT1abc,4,\n")
    lying.always(serve(fake_node))
    ran = ask().says(
        f'# {HEX(SILENT)}: "no result": 1\n',
        f"# {HEX(ABSENT)}: no code at this address: 2, 3\n",
        "# the export: no address and id: 'KT1abc 4'\n",
        code=1,
    )
    rows, silent = rows_of(ran), [(ABSENT, "2"), (ABSENT, "3"), (SILENT, "1")]
    unknown = [(HEX(contract), number, "unknown", AT) for contract, number in silent]
    assert sorted(rows) == sorted([*LIST, *unknown])


def test_a_block_that_is_replaced_during_the_run_is_an_error(lying, ask):
    def reorganized(method: str, params: list[Any]) -> Any:
        result = fake_node(method, params)
        return {**result, "hash": "0xcd"} if params[:1] == ["0x10"] else result

    lying.always(serve(reorganized))
    ask().tells("another block of this number", code=1)


def test_wallets_on_one_address_are_only_compared_together(lying, ask, tmp_path):
    lying.always(serve(fake_node))
    with (tmp_path / "wallets.csv").open("a") as file:
        file.write(f"Carol;{HEX(BOB)}\n")
    ask().tells("Bob and Carol share an address; see --together", code=1)
    ran = ask("wallets.csv", "books", "--together")
    assert '"wallet"' not in ran.out
    assert rows_of(ran) == [
        (HEX(ART), "7", "1", AT),
        (HEX(ART), "8", "1", AT),
        (HEX(PASSES), "0xff", str(2**256 + 2), AT),
    ]


def denied(replies: Any) -> Any:
    return {"id": 0, "error": {"code": -32000, "message": f"no project {KEY} \x1b[2J\n"}}


@pytest.mark.parametrize(
    ("words", "url", "answer"),
    [
        pytest.param((), None, serve(fake_node, denied), id="an error that names the key"),
        pytest.param((), None, reply(b"no", 401), id="an HTTP error"),
        pytest.param((), f"https://user:{KEY}@localhost", None, id="an unusable URL"),
        pytest.param((), f"{KEY}", None, id="no URL"),
        pytest.param(("wallets.csv", f"https://a/{KEY}"), None, None, id="in place of the export"),
        pytest.param(("wallets.csv", "books", f"https://a/{KEY}"), None, None, id="as an argument"),
    ],
)
def test_no_message_shows_the_key_of_the_node(words, url, answer, lying, ask):
    lying.always(*[answer] * (answer is not None))
    ran = ask(*words, url=url)
    assert (ran.code in {1, 2}, ran.out, "Traceback" in ran.err) == (True, "", False)
    assert ran.err
    assert KEY not in ran.err
    assert "\x1b" not in ran.err


MINTS, OLD, EDITIONS = 0xC1, 0xC2, 0xC3
#: Wallets of the database by the addresses that the auditor knows.
HOLDERS = {0xB1: wallet(1), 0xB2: wallet(2), 0xB3: wallet(3), 0xB4: wallet(4)}
#: Holders and amounts on the chain that differ from the provider's: ours, strangers, and ERC-1155.
WRONG = {12: (0xB3, 1), 13: (0xB1, 1), 15: (0xEE, 1), 16: (0xEE, 1), 14: (0xB3, 9)}
BURNED = 30


class Audit(NamedTuple):
    """A database, the list of the chain, and the holdings on the chain."""

    database: Path
    listed: Outcome
    on_chain: dict[tuple[str, ...], str]


@pytest.fixture
def audit(lying: Provider, ask: Callable[..., Outcome], tmp_path: Path) -> Audit:
    """200 tokens of three contracts: five have another owner on the chain, and one is burned.

    Of two more tokens, one contract has no code, and one reverts every call.
    """
    pytest.importorskip("eth_tester", reason="the EVM of eth-tester is missing")
    held: dict[int, list[dict[str, Any]]] = {holder: [] for holder in HOLDERS}
    storage: dict[int, dict[int, int]] = {MINTS: {}, OLD: {}, EDITIONS: {}}
    on_chain: dict[tuple[str, ...], str] = {}
    for number in range(1, 203):
        contract = {201: SILENT, 202: ABSENT}.get(number, (MINTS, OLD, EDITIONS)[number % 3])
        holder, amount = 0xB1 + number % 4, number if contract == EDITIONS else 1
        fields = {"contractAddress": HEX(contract), "blockchainTokenId": str(number)}
        held[holder].append(entry(token(number), str(amount), **fields))
        if number != BURNED and contract in storage:
            holder, amount = WRONG.get(number, (holder, amount))
            editions = {evm.slot(holder, number): amount}
            storage[contract] |= editions if contract == EDITIONS else {number: holder}
            if holder in HOLDERS:
                on_chain[HOLDERS[holder], HEX(contract), str(number)] = str(amount)
    for holder, entries in held.items():
        lying.holds(HOLDERS[holder], *entries)
    database = tmp_path / "nftsync.db"
    nftsync.sync([*HOLDERS.values()], base_url=lying.url, database=database, progress=False)
    run_command("export", "audited", "--format", "csv", "-d", database).says()
    kinds = {MINTS: evm.ERC_721, OLD: evm.ERC_721_BEFORE_165, EDITIONS: evm.ERC_1155, SILENT: {}}
    lying.always(serve(evm.chain({x: (kind, storage.get(x, {})) for x, kind in kinds.items()})))
    lines = [f"{wallet_id},{HEX(holder)}" for holder, wallet_id in HOLDERS.items()]
    (tmp_path / "audited.csv").write_text("\n".join(["wallet,address", *lines]))
    return Audit(database, ask("audited.csv", "audited", "--block", "latest"), on_chain)


def test_the_list_has_the_holdings_of_a_real_chain(audit):
    ran = audit.listed.says("# chain 1337, block 1, hash 0x", code=1)
    rows = rows_of(ran)
    assert {row[:3]: row[3] for row in rows if "unknown" not in row} == audit.on_chain
    unknown = {row[:3] for row in rows if "unknown" in row}
    assert unknown == {(HEX(SILENT), "201", "unknown"), (HEX(ABSENT), "202", "unknown")}
    comments = [line.rpartition(": ") for line in ran.out.splitlines() if line.startswith("# 0x")]
    assert {line[2:44]: tokens for line, _, tokens in comments} == {
        HEX(MINTS): str(BURNED),
        HEX(SILENT): "201",
        HEX(ABSENT): "202",
    }


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--help",), 0, "nftsync export books --format csv"),
        (("wallets.csv",), 2, "the following arguments are required: EXPORT"),
        (("nowhere.csv", "books"), 1, "with wallet and address: 'No such file or directory'"),
        (("books/tokens.csv", "books"), 1, "with wallet and address: 'wallet'"),
        (("wallets.csv", "nowhere"), 1, "with contract and blockchain_token_id: 'No such file"),
        (("wallets.csv", "books", "--block", "7"), 1, "no such block: "),
    ],
)
def test_wrong_usage_is_one_message(words, code, message, lying, ask):
    lying.always(
        serve(lambda method, params: None if params[:1] == ["0x7"] else fake_node(method, params))
    )
    ask(*words).says(message, code=code)


@pytest.mark.filterwarnings("ignore:.*last read before:nftsync.NftsyncWarning")
def test_compare_names_exactly_the_five_and_the_burned_token(audit):
    Path("list.csv").write_text(audit.listed.out)
    with pytest.warns(nftsync.NftsyncWarning, match="left out: 2 tokens with an unknown amount"):
        rows = frames.compare(audit.database, "list.csv")
    differing = rows[rows["verdict"] != "agrees"]
    columns = zip(differing["wallet_id"], differing["token_id"], differing["verdict"], strict=True)
    of = {token(number): number for number in range(1, 203)}
    verdicts = {(wallet_id, of[token_id]): verdict for wallet_id, token_id, verdict in columns}
    assert verdicts == {
        (wallet(1), 12): "only_here",
        (wallet(3), 12): "only_there",
        (wallet(2), 13): "only_here",
        (wallet(1), 13): "only_there",
        (wallet(4), 15): "only_here",
        (wallet(1), 16): "only_here",
        (wallet(3), 14): "amount_differs",
        (wallet(3), BURNED): "only_here",
    }
    assert len(rows) == 200 + 2
