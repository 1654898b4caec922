"""The provider of the simulation: its holdings, responses and webhooks, in simulated time."""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import msgspec

from tests.kit.inbox import ORGANIZATION, body_of
from tests.kit.provider import balances, entry, token, uuid, wallet
from tests.model import simulated

WALLETS = [wallet(number) for number in range(5)]
TOKENS = [token(number) for number in range(6)]
_BACK_OFF = (5.0, 300.0, 1_800.0, 7_200.0)


class Answer(NamedTuple):
    """The entries of a response."""

    lines: dict[str, str]
    is_complete: bool


@dataclass
class Sent:
    """A webhook before its delivery."""

    webhook_id: str
    body: bytes
    due: float
    attempts: int = 0


class World:
    """The provider.

    Attributes:
        mood: `slow` answers come late, some too late; `down` none come; `refusing` are 500, 429 or
            403; `odd` are incomplete or damaged.
        answers: by wallet and the number of the read.
        sent: webhooks on their way.
        acknowledged: how often each was answered with a 200.
        last_webhook: of each object, the webhook of its last change.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held = {each: {rng.choice(TOKENS): "1"} for each in WALLETS}
        self.names = dict.fromkeys(TOKENS, "n0")
        self.changes = 0
        self.mood = "well"
        self.losing = 0.15
        self.answers: dict[tuple[str, int], Answer] = {}
        self.newest_answered = (0.0, 0)
        self.sent: list[Sent] = []
        self.acknowledged: Counter[str] = Counter()
        self.last_webhook: dict[tuple[str, str], str] = {}

    def change(self) -> None:
        """Transfer or rename a token; send webhooks, unless they are lost."""
        self.changes += 1
        token_id = self.rng.choice(TOKENS)
        if self.rng.random() < 0.2:
            self.names[token_id] = f"n{self.rng.randrange(3)}"
            self._announce("Token", token_id)
            return
        if self.rng.random() < 0.1:  # it is burned
            for wallet_id in [each for each in WALLETS if self.held[each].pop(token_id, None)]:
                self._announce("Wallet", wallet_id)
            return
        for wallet_id in self.rng.sample(WALLETS, self.rng.choice([1, 2])):
            lines = self.held[wallet_id]
            if token_id in lines and self.rng.random() < 0.5:
                del lines[token_id]
            else:
                lines[token_id] = self.rng.choice(["0", "1", "2", str(2**200)])
            self._announce("Wallet", wallet_id)

    def _announce(self, kind: str, object_id: str) -> None:
        self.last_webhook[kind, object_id] = webhook_id = uuid(self.rng.getrandbits(40), 0xE)
        if self.rng.random() >= self.losing:
            self.send(webhook_id, kind, object_id)

    def announce_all(self) -> None:
        """A webhook whose type asks for a sync of all wallets, or has no route."""
        kind = self.rng.choice(["Everything", "Other"])
        self.send(uuid(self.rng.getrandbits(40), 0xF), kind, ORGANIZATION)

    def send(self, webhook_id: str, kind: str, object_id: str) -> None:
        body = body_of(0, id=webhook_id, resourceId=object_id, resourceType=kind)
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            late = self.rng.choice([0.0, 0.0, 1.0, 30.0, 600.0]) * self.rng.random()
            self.sent.append(Sent(webhook_id, body, simulated.MACHINE.now + late))

    def refused(self, sent: Sent) -> None:
        """Send a refused webhook again, a few times."""
        if sent.attempts < len(_BACK_OFF):
            sent.due = simulated.MACHINE.now + _BACK_OFF[sent.attempts]
            sent.attempts += 1
            self.sent.append(sent)

    def change_mood(self) -> None:
        self.mood = self.rng.choice(["well", "well", "well", "slow", "down", "refusing", "odd"])

    def newest(self) -> int:
        """Return the greatest number of an answered read since the last boot."""
        boot, number = self.newest_answered
        return number if boot == simulated.MACHINE.boots else 0

    def answer(self, path: str, etag: str | None, number: int) -> httpx.Response:
        """Return a response of the current state."""
        kind, _, object_id = path.removeprefix("/v1/").partition("/")
        if kind == "tokens":
            name = self.names[object_id]
            shown = {"id": object_id, "metadata": {"name": name, "description": f"of {name}"}}
            return response(200, msgspec.json.encode(shown))
        wallet_id = object_id.partition("/")[0]
        lines = dict(self.held[wallet_id])
        more: dict[str, Any] = {}
        odd = 0.4 if self.mood == "odd" else 0.3 * self.losing
        if self.rng.random() < odd:
            lines = dict(self.rng.sample(sorted(lines.items()), len(lines) // 2))
            more = {"nextPage": "2"}
        entries = (
            entry(each, amount, metadata={"name": self.names[each]})
            for each, amount in lines.items()
        )
        body = balances(*entries, **more)
        if self.rng.random() < odd / 2:
            return response(200, body[: self.rng.randrange(len(body))])
        self.answers[wallet_id, number] = Answer(lines, not more)
        own = f'"{hashlib.md5(body).hexdigest()}"'
        if etag == own and not more:
            return response(304, etag=own)
        return response(200, body, **({"etag": own} if self.rng.random() < 0.8 else {}))


def response(status: int, body: bytes = b"", **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


class Transport(httpx.BaseTransport):
    """Replacement of httpx's transport: a network with faults to the provider."""

    world: World

    def __init__(self, **_: object) -> None:
        """Like httpx's."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        machine, world = simulated.MACHINE, self.world
        if machine.rng.random() < 0.2:  # a new connection
            self._wait(machine.rng.random())
            stream = SimpleNamespace(get_extra_info=lambda _: None)  # no socket to shut
            trace = request.extensions["trace"]
            trace("connection.connect_tcp.complete", {"return_value": stream})
        number, older = _number_of_read(), world.newest()
        self._wait(machine.rng.random() * (40.0 if world.mood == "slow" else 0.05))
        mood, luck = world.mood, machine.rng.random()
        if mood == "down" or luck < 0.01:
            raise httpx.ConnectError("no connection")
        if mood == "refusing":
            status = machine.rng.choice([500, 503, 429, 403])
            return response(status, **({"retry-after": "1"} if status == 429 else {}))
        etag = request.headers.get("if-none-match")
        answer = world.answer(request.extensions["target"].decode(), etag, number)
        if number <= older:
            machine.broken = AssertionError(
                f"read {number} was sent after read {older} was answered, and counts as older"
            )
        world.newest_answered = machine.boots, max(number, world.newest())
        self._wait(machine.rng.random() * 0.05)
        if luck > 0.98:  # the response is lost
            raise httpx.ReadError("the connection broke")
        return answer

    def _wait(self, seconds: float) -> None:
        simulated.MACHINE.pause(None, min(seconds, 31.0))
        if seconds > 31.0:
            raise httpx.ReadError("it was cut off")


def _number_of_read() -> int:
    """Return the number of the read whose request is sent; only its caller knows it."""
    frame = sys._getframe()
    while "effort" not in frame.f_locals:
        frame = frame.f_back
    return int(frame.f_locals["effort"].sequence)
