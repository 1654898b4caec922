"""Short runs of damaged databases, of a faulty network and of kills; `make` runs long ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.faults import GOOD
from tests.kit.forward_proxy import AT_ONCE, WITHIN, Fault, Relay
from tests.kit.provider import Provider, reply, wallet
from tests.kit.worlds import Outcome
from tests.nightly import flips
from tests.nightly.network import run_service, run_syncs, struck
from tests.nightly.watch_kills import run_seed


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[Path, str]]:
    """A database, and the URL of its provider."""
    with flips.original() as made:
        yield made


@pytest.mark.parametrize("seeds", [range(4), [4, 5, 31]])
def test_a_damaged_database_causes_no_traceback_and_check_finds_the_damage(
    database: tuple[Path, str], tmp_path: Path, seeds: list[int]
) -> None:
    path, url = database
    figures = [flips.run_seed(seed, path, tmp_path / "damaged", url) for seed in seeds]
    assert sum(each["damaged"] for each in figures)


@pytest.mark.parametrize("seed", range(4))
def test_after_syncs_over_a_faulty_network_the_mirror_is_correct(seed: int) -> None:
    assert struck(run_syncs(seed)) >= 10


def test_tls_detects_changed_bytes(certificates: Any) -> None:
    assert struck(run_syncs(1, certificates=(certificates.ca, certificates.server))) >= 10


def test_a_service_over_a_faulty_network_has_a_correct_mirror_in_the_end() -> None:
    figures = run_service(1, seconds=1.0, least=6)
    assert figures["webhooks"] > 4


def test_check_ends_in_a_line_for_each_fault_of_the_network(
    lying: Provider, command: Callable[..., Outcome]
) -> None:
    lying.always(reply(GOOD))
    for kind in (*AT_ONCE, *WITHIN):
        fault = Fault(kind, 30)
        with Relay(lying.url, lambda fault=fault: fault) as relay:
            base = ("--base-url", relay.url, "--timeout", "0.3", "--retries", "1")
            done = command("check", wallet(1), *base)
        assert (done.code == 0) == (kind == "late"), (kind, done.said)
        assert "Traceback" not in done.said
        assert "API: wallet" in done.out


def test_killed_senders_lose_no_message_and_report_each_change_once(tmp_path: Path) -> None:
    figures = run_seed(1, 2, tmp_path)
    assert figures["kills"] == 2
    assert figures["forwarded"] >= 1
    assert figures["events"] >= 1
