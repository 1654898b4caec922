"""The share of a mirror that a faulty provider removes: 100 wallets with ten NFTs each.

    make attacks
    python -m tests.nightly.attacks [--only TEXT] [NFTSYNC]

Each scenario begins with a complete database; the provider then answers 200 to every request.
NFTSYNC is the command to test, by default the one of this environment. The last rows are no faults:
owners transfer or burn NFTs, and no removal may be held for review.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.commands import post_all, query, serving, webhook

WALLETS, EACH = 100, 10
ALL = WALLETS * EACH
#: The wallets, and added ones.
_IDS = [f"0000000a-0000-4000-8000-{number:012x}" for number in range(4 * WALLETS)]
#: An amount for many halvings.
_MUCH = 10**9


def _of_token(token: int, amount: str = "4", name: str | None = "") -> Any:
    """Return an entry of a list; by default, each token has its own name."""
    token_id = f"0000000b-0000-4000-8000-{token:012x}"
    metadata = {} if name is None else {"name": name or f"Name {token}"}
    record = {"id": token_id, "contractAddress": "0xc0", "metadata": metadata}
    return {"tokenId": token_id, "amount": amount, "token": record}


def _listed(number: int, places: int = EACH, **of: Any) -> list[Any]:
    return [_of_token(number * EACH + place, **of) for place in range(places)]


def _editions(number: int, amount: str = "5", airdropped: int = 0) -> list[Any]:
    """Return ten of twenty tokens that all wallets share, and the airdropped ones."""
    tokens = [(number + 2 * place) % 20 for place in range(EACH)]
    return [_of_token(token, amount) for token in [*tokens, *range(ALL, ALL + airdropped)]]


@dataclass
class Liar:
    """The provider, and the command that reads it."""

    command: str
    folder: Path
    lists: list[list[Any]]
    url: str = ""

    @property
    def database(self) -> Path:
        return self.folder / "mirror.db"

    def run(self, *arguments: str) -> int:
        return subprocess.run(
            [self.command, *arguments, "-d", "mirror.db"],
            cwd=self.folder,
            env=os.environ | {"NFTSYNC_BASE_URL": self.url},
            capture_output=True,
        ).returncode

    def post(self, numbers: range) -> None:
        """Store a webhook for each of some wallets."""
        python = str(Path(self.command).with_name("python"))
        with serving(self.url, self.database, "--no-replay", python=python) as url:
            post_all(url, [webhook("Wallet", _IDS[number]) for number in numbers])

    def lost(self, what: str) -> float:
        """Return the removed share of the first holdings, of their amounts or names."""
        sql = (
            "SELECT count(*) FROM holdings WHERE amount GLOB '*[1-9]*'"
            " AND amount NOT GLOB '*[^0-9]*'"
            f" AND token_id < '{_of_token(ALL)['tokenId']}'"
        )
        if what == "names":
            sql = "SELECT count(*) FROM tokens WHERE name LIKE 'Name %'"
        elif what == "amounts":
            sql = f"SELECT sum(CAST(amount AS REAL)) / {_MUCH} FROM holdings"
        return max(0.0, 1 - (query(self.database, sql)[0][0] or 0) / ALL)

    @property
    def held(self) -> int:
        """Removals held for review."""
        return int(query(self.database, "SELECT count(*) FROM removal_rows WHERE held")[0][0])


def _for_all(change: Callable[[int], list[Any]], share: float = 1.0) -> Callable[[Liar], None]:
    def attack(liar: Liar) -> None:
        for number in random.Random(1).sample(range(WALLETS), round(share * WALLETS)):
            liar.lists[number] = change(number)
        liar.run("sync")

    return attack


def _in_turn(*changes: Callable[[int], list[Any]]) -> Callable[[Liar], None]:
    """Change all lists several times, each time before a sync."""

    def attack(liar: Liar) -> None:
        for change in changes:
            _for_all(change)(liar)

    return attack


def _nothing(_: int) -> list[Any]:
    return []


def _growing(liar: Liar) -> None:
    for run in range(1, 7):
        for number in range(15 * run):
            liar.lists[number] = []
        liar.run("sync")


def _named(liar: Liar) -> None:
    liar.lists = [[] for _ in range(WALLETS)]
    for start in range(0, WALLETS, 19):
        liar.run("sync", *_IDS[start : min(start + 19, WALLETS)])


def _flapping(share: float, times: int) -> Callable[[Liar], None]:
    """Empty and restore other wallets each time; then empty all."""

    def attack(liar: Liar) -> None:
        truth = list(liar.lists)
        some = round(share * WALLETS)
        for turn in range(times):
            for number in range(turn * some, (turn + 1) * some):
                liar.lists[number % WALLETS] = []
            liar.run("sync")
            liar.lists = list(truth)
            liar.run("sync")
        _for_all(_nothing)(liar)

    return attack


def _halving(liar: Liar) -> None:
    amount = _MUCH
    for _ in range(12):
        amount = amount * 51 // 100
        for number in range(WALLETS):
            liar.lists[number] = _listed(number, amount=str(amount))
        liar.run("sync")


def _webhooks(at_once: int) -> Callable[[Liar], None]:
    def attack(liar: Liar) -> None:
        for start in range(0, WALLETS, at_once):
            for number in range(start, start + at_once):
                liar.lists[number] = _listed(number, 1)
            liar.post(range(start, start + at_once))
            liar.run("replay")

    return attack


def _onboarded(share: float) -> Callable[[Liar], None]:
    """Read 300 added wallets, then empty some of the others."""

    def attack(liar: Liar) -> None:
        liar.run("sync", "--allow-removals")  # the stored holdings now count as old
        liar.lists += [_listed(number) for number in range(WALLETS, 4 * WALLETS)]
        liar.run("wallets", "add", *_IDS[WALLETS:])
        liar.run("sync")
        _for_all(_nothing, share)(liar)

    return attack


def _minted(liar: Liar) -> None:
    """Fill added, empty wallets with as many NFTs as the others have, then empty all."""
    liar.run("sync", "--allow-removals")  # the stored holdings now count as old
    liar.lists += [[] for _ in range(WALLETS)]
    liar.run("wallets", "add", *_IDS[WALLETS : 2 * WALLETS])
    liar.run("sync")
    liar.lists[WALLETS:] = [_listed(number) for number in range(WALLETS, 2 * WALLETS)]
    liar.run("sync")
    liar.lists = [[] for _ in liar.lists]
    liar.run("sync")


def _grown(number: int) -> list[Any]:
    return _editions(number, "6")


def _airdrop(tokens: int) -> Callable[[int], list[Any]]:
    return lambda number: _editions(number, airdropped=tokens)


def _much(number: int) -> list[Any]:
    return _listed(number, amount=str(_MUCH))


def _bad(number: int) -> list[Any]:
    return _editions(number, ("1e18", "0x10", "-5")[number % 3])


# No faults ---------------------------------------------------------------------------------------


def _sell_all(liar: Liar) -> None:
    liar.lists[0] = []
    liar.run("sync")


def _sweep(liar: Liar) -> None:
    """Transfer all NFTs to one wallet that is added afterwards."""
    swept = [entry for entries in liar.lists for entry in entries]
    liar.lists = [*([] for _ in range(WALLETS)), swept]
    liar.run("wallets", "add", _IDS[WALLETS])
    liar.run("sync")


def _migrate(runs: int) -> Callable[[Liar], None]:
    """Transfer each wallet's NFTs to a wallet that is added afterwards, in some runs."""

    def attack(liar: Liar) -> None:
        liar.lists += [[] for _ in range(WALLETS)]
        some = WALLETS // runs
        for start in range(0, WALLETS, some):
            for number in range(start, start + some):
                liar.lists[WALLETS + number], liar.lists[number] = liar.lists[number], []
            liar.run("wallets", "add", *_IDS[WALLETS + start : WALLETS + start + some])
            liar.run("sync")

    return attack


def _migrate_by_webhooks(*, old_first: bool) -> Callable[[Liar], None]:
    """Do the same, with a webhook for each of the two wallets."""

    def attack(liar: Liar) -> None:
        liar.lists += [[] for _ in range(WALLETS)]
        for start in range(0, WALLETS, 10):
            old = range(start, start + 10)
            for number in old:
                liar.lists[WALLETS + number], liar.lists[number] = liar.lists[number], []
            new = range(WALLETS + start, WALLETS + start + 10)
            for numbers in (old, new) if old_first else (new, old):
                liar.post(numbers)
                liar.run("replay")

    return attack


@dataclass
class Attack:
    """A scenario after the first sync.

    `what` may be removed: `holdings`, `names` or `amounts`. `before` is the first list of each
    wallet. If it is no fault, no removal may be held for review.
    """

    run: Callable[[Liar], None]
    what: str = "holdings"
    before: Callable[[int], list[Any]] = _listed
    is_fault: bool = True


ATTACKS: dict[str, Attack] = {
    "empty lists for all": Attack(_for_all(_nothing)),
    "empty lists for all, 19 wallets a run": Attack(_named),
    "empty lists for 60 %": Attack(_for_all(_nothing, 0.6)),
    "empty lists for 15 % more in each of six runs": Attack(_growing),
    "lists lose 90 % of their entries": Attack(_for_all(lambda number: _listed(number, 1))),
    "lists are replaced by one other token": Attack(
        _for_all(lambda number: [_of_token(ALL + number)])
    ),
    'each amount becomes "0"': Attack(_for_all(lambda number: _listed(number, amount="0"))),
    "metadata emptied for all (names)": Attack(
        _for_all(lambda number: _listed(number, name=None)), "names"
    ),
    'all tokens are named "Not found" (names)': Attack(
        _for_all(lambda number: _listed(number, name="Not found")), "names"
    ),
    "webhooks alone, lists cut to a tenth, all at once": Attack(_webhooks(WALLETS)),
    "webhooks alone, lists cut to a tenth, ten at a time": Attack(_webhooks(10)),
    "editions of several holders, then empty lists": Attack(_for_all(_nothing), before=_editions),
    "editions of several holders, empty lists for 60 %": Attack(
        _for_all(_nothing, 0.6), before=_editions
    ),
    "40 % empty and back, three times, then all empty": Attack(_flapping(0.4, 3)),
    "the same with editions": Attack(_flapping(0.4, 3), before=_editions),
    "45 % empty and back, twice, then all empty": Attack(_flapping(0.45, 2), before=_editions),
    "airdrop of 3 editions to all, then empty lists": Attack(
        _in_turn(_airdrop(3), _nothing), before=_editions
    ),
    "airdrop of 10 editions to all, then empty lists": Attack(
        _in_turn(_airdrop(10), _nothing), before=_editions
    ),
    "all amounts grow from 5 to 6, then empty lists": Attack(
        _in_turn(_grown, _nothing), before=_editions
    ),
    'all amounts grow, then become "1e18", "0x10", "-5"': Attack(
        _in_turn(_grown, _bad), before=_editions
    ),
    "300 new wallets, equally large, then empty lists for the 100": Attack(_onboarded(1.0)),
    "300 new wallets, equally large, empty lists for 60 %": Attack(_onboarded(0.6)),
    "100 new wallets, first empty, get ten NFTs each, then all empty": Attack(_minted),
    "all amounts fall to 51 %, in each of 12 runs (amounts)": Attack(_halving, "amounts", _much),
    "one wallet sells everything": Attack(_sell_all, is_fault=False),
    "an airdrop of 10 editions is burned by all": Attack(
        _in_turn(_airdrop(10), _editions), before=_editions, is_fault=False
    ),
    "a sweep of everything into a new wallet": Attack(_sweep, is_fault=False),
    "a migration to new wallets in one run": Attack(_migrate(1), is_fault=False),
    "a migration to new wallets in four runs": Attack(_migrate(4), is_fault=False),
    "a migration of editions in four runs": Attack(_migrate(4), before=_editions, is_fault=False),
    "a migration announced by webhooks, old wallets first": Attack(
        _migrate_by_webhooks(old_first=True), is_fault=False
    ),
    "a migration announced by webhooks, new wallets first": Attack(
        _migrate_by_webhooks(old_first=False), is_fault=False
    ),
}


@contextmanager
def _lying(command: str, attack: Attack) -> Iterator[Liar]:
    with tempfile.TemporaryDirectory() as name:
        liar = Liar(command, Path(name), [attack.before(number) for number in range(WALLETS)])

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                number = int(self.path.split("/")[3][-12:], 16)
                body = json.dumps({"nftTokenBalances": liar.lists[number]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            liar.url = f"http://127.0.0.1:{server.server_port}"
            (liar.folder / "wallets.txt").write_text("\n".join(_IDS[:WALLETS]))
            if liar.run("sync", "--wallets-file", "wallets.txt"):
                raise SystemExit(f"{command} cannot sync")
            yield liar
            server.shutdown()


def main() -> None:
    """Print the removed share, and the number of removals held for review, of each scenario."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", metavar="NFTSYNC")
    parser.add_argument("--only", default="", help="scenarios whose name contains this text")
    options = parser.parse_args()
    command = options.command or str(Path(sys.executable).with_name("nftsync"))
    for name, attack in ATTACKS.items():
        if options.only not in name:
            continue
        began = time.monotonic()
        with _lying(command, attack) as liar:
            attack.run(liar)
            lost, held = liar.lost(attack.what), liar.held
        kind, seconds = "fault" if attack.is_fault else "legit", time.monotonic() - began
        print(f"{kind}  {name:<64}{lost:>5.0%}{held:>6} held  ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
