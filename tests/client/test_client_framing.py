"""Where a message ends: no lie and no setting lets one run into the next."""

from __future__ import annotations

import pytest
from provider import MakeClient, Provider, balances, entry, head, raw, reply, token, wallet

from nftsync.provider import Auth, Tally

OURS = balances(entry(token(1)))
NOT_OURS = balances(entry(token(2)))


def test_what_comes_beyond_a_body_is_not_the_next_answer(
    certificate: str, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the TLS layer, where the socket does not show it."""
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    beyond = head(f"content-length: {len(NOT_OURS)}") + NOT_OURS
    with Provider(certificate=certificate) as secure:
        # One TLS record each, so that the body and what is beyond come together.
        secure.always(
            raw(head(f"content-length: {len(OURS)}"), OURS + beyond, then="keep", pause=0.2),
            reply(OURS),
        )
        client, tally = make_client(url=secure.url), Tally()
        for number in (1, 2):
            entries = client.balances(wallet(number), tally).entries
            assert entries is not None
            assert entries[0][0] == token(1)
    assert (tally.requests, tally.retries) == (2, 0)


def test_configured_headers_do_not_say_where_a_request_ends(
    provider: Provider, make_client: MakeClient
) -> None:
    provider.always(reply(OURS))
    headers = {"Transfer-Encoding": "chunked", "Content-Length": "9", "Content-Type": "text/x"}
    client = make_client(auth=Auth(headers=headers))
    client.balances(wallet(1), Tally())
    client.configure_webhooks({"enabled": True})
    get, patch = provider.requests()
    assert "content-length" not in get.headers
    assert patch.body == b'{"enabled":true}'
    types = [seen.headers["content-type"] for seen in (get, patch)]
    assert types == ["text/x", "application/json"]  # one each: the provider looks for doubled ones
    assert not any("transfer-encoding" in seen.headers for seen in (get, patch))
