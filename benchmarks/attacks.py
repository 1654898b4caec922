"""How much of a mirror a provider with a fault can take away: a hundred wallets of ten NFTs each.

    python -m benchmarks.attacks [NFTSYNC]

Each attack begins with a whole mirror, and answers 200 to everything. NFTSYNC is the command to
attack, the one beside this Python by default; another checkout's shows how it was before.
"""

from __future__ import annotations

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
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

WALLETS, EACH = 100, 10
ALL = WALLETS * EACH
_SECRET = "the secret of the attack"
_IDS = [f"0000000a-0000-4000-8000-{number:012x}" for number in range(WALLETS)]


def _entry(number: int, place: int, amount: str = "4", name: str | None = "A name") -> Any:
    token_id = f"0000000b-0000-4000-8000-{number * EACH + place:012x}"
    metadata = {} if name is None else {"name": name}
    return {"tokenId": token_id, "amount": amount, "token": {"id": token_id, "metadata": metadata}}


def _listed(number: int, places: int = EACH, **of: Any) -> list[Any]:
    return [_entry(number, place, **of) for place in range(places)]


@dataclass
class Liar:
    """The provider, and the command that mirrors it."""

    command: str
    folder: Path
    url: str = ""
    lists: list[list[Any]] = field(default_factory=lambda: [_listed(n) for n in range(WALLETS)])

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
        """The share of the holdings, or of the names, that is gone from the mirror."""
        query = "SELECT count(*) FROM holdings WHERE amount GLOB '*[1-9]*'"
        if what == "names":
            query = "SELECT count(name) FROM tokens"
        with closing(sqlite3.connect(self.folder / "mirror.db")) as connection:
            (left,) = connection.execute(query).fetchone()
        return max(0.0, 1 - left / ALL)


def _for_all(change: Callable[[int], list[Any]], share: float = 1.0) -> Callable[[Liar], None]:
    def attack(liar: Liar) -> None:
        for number in random.Random(1).sample(range(WALLETS), round(share * WALLETS)):
            liar.lists[number] = change(number)
        liar.run("sync")

    return attack


def _growing(liar: Liar) -> None:
    for run in range(1, 7):
        for number in range(15 * run):
            liar.lists[number] = []
        liar.run("sync")


def _named(liar: Liar) -> None:
    liar.lists = [[] for _ in range(WALLETS)]
    for start in range(0, WALLETS, 19):
        liar.run("sync", *_IDS[start : start + 19])


def _webhooks(at_once: int) -> Callable[[Liar], None]:
    def attack(liar: Liar) -> None:
        for start in range(0, WALLETS, at_once):
            for number in range(start, start + at_once):
                liar.lists[number] = _listed(number, 1)
            liar.post(range(start, start + at_once))
            liar.run("replay")

    return attack


ATTACKS: dict[str, Callable[[Liar], None]] = {
    "empty lists for all": _for_all(lambda _: []),
    "empty lists for all, 19 wallets a run": _named,
    "empty lists for 60 %": _for_all(lambda _: [], 0.6),
    "empty lists for 15 % more in each of six runs": _growing,
    "lists lose 90 % of their entries": _for_all(lambda number: _listed(number, 1)),
    "lists are replaced by one other token": _for_all(lambda number: [_entry(number, 5_000)]),
    'each amount becomes "0"': _for_all(lambda number: _listed(number, amount="0")),
    "metadata emptied for everybody (names)": _for_all(lambda number: _listed(number, name=None)),
    "webhooks alone, lists cut to a tenth, all at once": _webhooks(WALLETS),
    "webhooks alone, lists cut to a tenth, ten at a time": _webhooks(10),
}


@contextmanager
def _lying(command: str) -> Iterator[Liar]:
    with tempfile.TemporaryDirectory() as name:
        liar = Liar(command, Path(name))

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
            (liar.folder / "wallets.txt").write_text("\n".join(_IDS))
            if liar.run("sync", "--wallets-file", "wallets.txt"):
                raise SystemExit(f"{command} cannot sync")
            yield liar
            server.shutdown()


def main() -> None:
    """Print what each attack took away."""
    command = sys.argv[1] if len(sys.argv) > 1 else str(Path(sys.executable).with_name("nftsync"))
    for name, attack in ATTACKS.items():
        began = time.monotonic()
        with _lying(command) as liar:
            attack(liar)
            lost = liar.lost("names" if "names" in name else "holdings")
        print(f"{name:<55}{lost:>6.0%}  ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
