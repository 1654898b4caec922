"""How much a provider with a fault can remove: a hundred wallets with ten NFTs each.

    python -m benchmarks.attacks [--only TEXT] [NFTSYNC]

Each attack begins with a complete database, and answers 200 to everything. NFTSYNC is the command
to attack, by default the one beside this Python; another checkout's shows how it was before. The
last rows are no faults: owners move or burn what they hold, and nothing may be held for review.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

WALLETS, EACH = 100, 10
ALL = WALLETS * EACH
_SECRET = "the secret of the attack"
#: The wallets, and new ones.
_IDS = [f"0000000a-0000-4000-8000-{number:012x}" for number in range(4 * WALLETS)]
#: An amount that can be halved often.
_MUCH = 10**9


def _of_token(token: int, amount: str = "4", name: str | None = "") -> Any:
    """An entry of a list; each token has a name of its own, unless another one is given."""
    token_id = f"0000000b-0000-4000-8000-{token:012x}"
    metadata = {} if name is None else {"name": name or f"Name {token}"}
    record = {"id": token_id, "contractAddress": "0xc0", "metadata": metadata}
    return {"tokenId": token_id, "amount": amount, "token": record}


def _listed(number: int, places: int = EACH, **of: Any) -> list[Any]:
    return [_of_token(number * EACH + place, **of) for place in range(places)]


def _editions(number: int, amount: str = "5", airdropped: int = 0) -> list[Any]:
    """Ten of twenty tokens that all wallets share, and further ones."""
    tokens = [(number + 2 * place) % 20 for place in range(EACH)]
    return [_of_token(token, amount) for token in [*tokens, *range(ALL, ALL + airdropped)]]


@dataclass
class Liar:
    """The provider, and the command that reads it."""

    command: str
    folder: Path
    lists: list[list[Any]]
    url: str = ""

    def run(self, *arguments: str) -> int:
        return subprocess.run(
            [self.command, *arguments, "-d", "mirror.db"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
        ).returncode

    @property
    def _environment(self) -> dict[str, str]:
        more = {"NFTSYNC_BASE_URL": self.url, "NFTSYNC_WEBHOOK_SECRET": _SECRET}
        return os.environ | more

    def post(self, numbers: range) -> None:
        """Have a receiver take a webhook for each of some wallets."""
        serving = subprocess.Popen(
            [self.command, "serve", "--no-replay", "--port", "0", "-d", "mirror.db"],
            cwd=self.folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        url = next(
            word.strip('",')
            for line in serving.stderr or ()
            for word in line.split()
            if word.strip('",').startswith("http://") and "/webhooks" in word
        )
        for number in numbers:
            body = json.dumps(
                {
                    "id": str(uuid.uuid4()),
                    "organizationId": _IDS[0],
                    "action": "UPDATE",
                    "resourceType": "Wallet",
                    "resourceId": _IDS[number],
                    "changes": None,
                    "createdAtUtc": "2026-01-01T00:00:00Z",
                }
            ).encode()
            digest = hmac.digest(_SECRET.encode(), body, hashlib.sha256)
            signed = {"x-service-webhook-hmac": base64.b64encode(digest).decode()}
            httpx.post(url, content=body, headers=signed).raise_for_status()
        serving.terminate()
        serving.communicate()

    def lost(self, what: str) -> float:
        """The share of the first holdings, of their amounts or names, that is gone."""
        query = (
            "SELECT count(*) FROM holdings WHERE amount GLOB '*[1-9]*'"
            " AND amount NOT GLOB '*[^0-9]*'"
            f" AND token_id < '{_of_token(ALL)['tokenId']}'"
        )
        if what == "names":
            query = "SELECT count(*) FROM tokens WHERE name LIKE 'Name %'"
        elif what == "amounts":
            query = f"SELECT sum(CAST(amount AS REAL)) / {_MUCH} FROM holdings"
        return max(0.0, 1 - (self._query(query) or 0) / ALL)

    @property
    def held(self) -> int:
        """Removals held for review."""
        return int(self._query("SELECT count(*) FROM removal_rows WHERE held"))

    def _query(self, query: str) -> Any:
        with closing(sqlite3.connect(self.folder / "mirror.db")) as connection:
            return connection.execute(query).fetchone()[0]


def _for_all(change: Callable[[int], list[Any]], share: float = 1.0) -> Callable[[Liar], None]:
    def attack(liar: Liar) -> None:
        for number in random.Random(1).sample(range(WALLETS), round(share * WALLETS)):
            liar.lists[number] = change(number)
        liar.run("sync")

    return attack


def _in_turn(*changes: Callable[[int], list[Any]]) -> Callable[[Liar], None]:
    """All lists change, as many times as there are changes; a sync follows each."""

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
    """Some wallets are empty and come back, other ones each time; then all are empty."""

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
    """Three times as many new wallets are read, and then some of the others are empty."""

    def attack(liar: Liar) -> None:
        liar.run("sync", "--allow-removals")  # what is there counts as old from now on
        liar.lists += [_listed(number) for number in range(WALLETS, 4 * WALLETS)]
        liar.run("wallets", "add", *_IDS[WALLETS:])
        liar.run("sync")
        _for_all(_nothing, share)(liar)

    return attack


def _minted(liar: Liar) -> None:
    """New wallets that were empty get as many NFTs as there were, and then all are empty."""
    liar.run("sync", "--allow-removals")  # what is there counts as old from now on
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
    """Everything goes to one wallet that is added afterwards."""
    swept = [entry for entries in liar.lists for entry in entries]
    liar.lists = [*([] for _ in range(WALLETS)), swept]
    liar.run("wallets", "add", _IDS[WALLETS])
    liar.run("sync")


def _migrate(runs: int) -> Callable[[Liar], None]:
    """Each wallet's NFTs go to a new wallet that is added afterwards, in some runs."""

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
    """The same, and a webhook for each of the two wallets tells of it."""

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
    """What a provider does after the first sync.

    Attributes:
        run: does it.
        what: what may be gone: `holdings`, `names` or `amounts`.
        before: the first list of each wallet.
        is_fault: whether it is a fault; else nothing may be held for review.
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
    """Print what each attack removed, and how many removals are held for review."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", metavar="NFTSYNC")
    parser.add_argument("--only", default="", help="attacks whose name contains this text")
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
