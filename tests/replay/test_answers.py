"""Results of reads for their webhooks, and the pauses of an outage."""

from typing import Any

import pytest

from nftsync.pull.loop import STALE
from nftsync.records import Applied, WalletRead
from nftsync.replay.breaker import CircuitBreaker
from nftsync.replay.config import Timing
from nftsync.replay.jobs import Answer, answer_of
from nftsync.store.inbox import ObjectKey
from tests.kit.provider import wallet

FAILED = {"outcome": "failed", "error": "no"}
DOWN = {**FAILED, "provider_down": True}


@pytest.mark.parametrize(
    ("read", "result", "is_named", "answer"),
    [
        ({"outcome": "ok"}, {"result": "ok"}, False, Answer()),
        ({"outcome": "ok"}, {"result": "ok", "balances_added": 1}, False, Answer(changed=True)),
        ({"outcome": "ok"}, {"result": "ok", "objects_changed": 1}, True, Answer(changed=True)),
        ({"outcome": "ok"}, {"result": "held", "tokens_added": 1}, False, Answer(changed=True)),
        ({"outcome": "unchanged"}, {"result": "unchanged"}, False, Answer()),
        ({"outcome": "ok"}, {"result": "failed"}, False, Answer(STALE)),
        ({"outcome": "unchanged"}, {"result": "failed"}, True, Answer(STALE)),
        ({**FAILED, "outcome": "incomplete"}, {"result": "incomplete"}, False, Answer("no")),
        ({**FAILED, "status": 404}, {"result": "failed"}, False, Answer("no")),
        (DOWN, {"result": "left out"}, False, Answer("no", is_down=True)),
        ({**DOWN, "status": 403}, {"result": "left out"}, False, Answer("no", is_down=True)),
        # Another's wallet: the provider knows nothing of it, or refuses.
        ({**FAILED, "status": 404}, {"result": "left out"}, True, Answer()),
        ({**DOWN, "status": 403}, {"result": "left out"}, True, Answer()),
        ({**DOWN, "status": 401}, {"result": "left out"}, True, Answer("no", is_down=True)),
        (DOWN, {"result": "left out"}, True, Answer("no", is_down=True)),
    ],
)
def test_a_read_decides_on_its_webhooks(
    read: dict[str, Any], result: dict[str, Any], is_named: bool, answer: Answer
) -> None:
    fields = {"wallet_id": wallet(1), "sequence": 1, "started_at": ""}
    applied = Applied(read=WalletRead(**fields, **read), **result)
    assert answer_of(applied, is_named=is_named) == answer


def test_an_outage_of_days_only_reaches_the_longest_pause() -> None:
    """Each pause is twice the last: unbounded, the thousandth exceeds the largest float."""
    breaker = CircuitBreaker(Timing(first_pause=0.001, longest_pause=0.001))
    key = ObjectKey("Wallet", "8d1cc10a-7fbf-42e7-b58d-5110899866aa")
    for _ in range(1_100):
        breaker.open("no answer")
        assert breaker.defer(key, "HTTP 500") <= Timing().longest_deferral
    assert breaker.is_open
