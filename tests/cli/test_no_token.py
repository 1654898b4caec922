"""What commands advise if the provider refuses: without a token, to set one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.inbox import Inbox, body_of
from tests.kit.provider import Provider, balances, reply, wallet
from tests.kit.worlds import Command

MISSING = "no access; no token is set: set NFTSYNC_API_TOKEN, NFTSYNC_API_TOKEN_FILE or headers"
WRONG = "no access; check api_token, token_command or headers"


@pytest.fixture
def refused(
    lying: Provider, inbox: Inbox, command: Command, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Iterator[str]]:
    """Tells what each command says if the provider refuses with a status."""
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    lying.always(reply(balances()))
    command("sync", wallet(1)).says("ok")

    def run(status: int) -> Iterator[str]:
        lying.always(reply(b"no", status))
        inbox.receive(body_of(status))
        for words in ("replay", "sync", "check", "verify", "webhook-config --enable"):
            done = command(*words.split())
            assert done.code == 1, words
            yield " ".join(done.said.split())

    return run


def test_without_a_token_commands_advise_to_set_one(
    refused: Callable[[int], Iterator[str]],
) -> None:
    for status in (401, 403):
        for said in refused(status):
            assert f"{status}: {MISSING}" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NFTSYNC_API_TOKEN", "a-token"),
        ("NFTSYNC_API_TOKEN_FILE", "token.txt"),
        ("NFTSYNC_TOKEN_COMMAND", "echo a-token"),
        ("NFTSYNC_HEADERS", '{"X-Api-Key": "a-token"}'),
    ],
)
def test_with_credentials_it_advises_to_check_them(
    refused: Callable[[int], Iterator[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    (tmp_path / "token.txt").write_text("a-token\n")
    monkeypatch.setenv(name, value)
    for said in refused(401):
        assert f"401: {WRONG}" in said
        assert "a-token" not in said
    for said in refused(403):
        assert "403: no access; the credentials are valid but" in said


def test_a_sync_that_gives_up_advises_the_same(lying: Provider, command: Command) -> None:
    lying.always(reply(status=401))
    done = command("sync", "--base-url", lying.url, *map(wallet, range(30)))
    done.says("first 20 responses were all 401 or 403", MISSING, code=1)
