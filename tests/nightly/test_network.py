"""A faulty network: a short profile; `make network` runs the long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.forward_proxy import AT_ONCE, WITHIN, Fault, Relay
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import Outcome
from tests.nightly.network import run_service, run_syncs, struck


@pytest.mark.parametrize("seed", range(4))
def test_after_syncs_over_a_faulty_network_the_mirror_is_right(seed: int) -> None:
    assert struck(run_syncs(seed)) >= 10


def test_so_it_is_over_tls_which_notices_a_changed_byte(certificates: Any) -> None:
    assert struck(run_syncs(1, certificates=(certificates.ca, certificates.server))) >= 10


def test_a_service_over_a_faulty_network_ends_in_the_truth() -> None:
    figures = run_service(1, seconds=1.0, least=6)
    assert figures["webhooks"] > len("some")


def test_check_ends_in_a_line_whatever_the_network_does(command: Callable[..., Outcome]) -> None:
    with Provider() as provider:
        provider.always(reply(balances(entry(token(1)))))
        for kind in (*AT_ONCE, *WITHIN):
            fault = Fault(kind, 30)
            with Relay(provider.url, lambda fault=fault: fault) as relay:
                base = ("--base-url", relay.url, "--timeout", "0.3", "--retries", "1")
                done = command("check", wallet(1), *base)
            assert (done.code == 0) == (kind == "late"), (kind, done.said)
            assert "Traceback" not in done.said
            assert "API: wallet" in done.out
