"""Plausible mistakes: each ends with its exit code and a line that says what to do next."""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nftsync
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import body_of
from tests.kit.provider import balances, reply, wallet
from tests.kit.serve_process import query
from tests.kit.worlds import Outcome

STRANGER = "00000000-0000-4000-8000-000000000001"
LIKE, ZERO = STRANGER.replace("-", "\u2010"), f"{STRANGER}\u200b"
FULL = STRANGER.replace("0", "\uff10", 1)
NEVER_NAMED = "00000000-0000-4000-8000-000000000002"


class Place(NamedTuple):
    """A folder with a database of three wallets, and a provider that answers."""

    folder: Path
    ids: list[str]
    url: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    world = lambda url: generate(wallets=3, nfts=3, seed=4, image_base=url)  # noqa: E731
    with SandboxServer(world, port=0) as server:
        ids = server.world.wallets()
        labels = zip(ids, ("Treasury", "Twins", "Twins"), strict=True)
        for name, text in {
            "wallets.csv": "\n".join(["wallet_id,label", *map(",".join, labels)]),
            "names.csv": "name;place\nTreasury;here\n",
            "like.csv": f"wallet_id\n{LIKE}\n".replace("\u2010", "\u2212"),
            "text.db": "wallet_id\n" * 100,
            "unknown.toml": 'base-ur = "https://api.example.com"\n',
            "broken.toml": "base_url = https://api.example.com\n",
            "blank.db": "",
        }.items():
            (folder / name).write_text(text)
        file, database = folder / "wallets.csv", folder / "nfts.db"
        nftsync.sync(wallets_file=file, base_url=server.url, database=database, progress=False)
        os.mkfifo(folder / "pipe.db")
        (folder / "loop.db").symlink_to("loop.db")
        (folder / "cut.db").write_bytes(database.read_bytes()[:9_000])
        query(folder / "other.db", "CREATE TABLE songs (title)")
        yield Place(folder, ids, server.url)


@pytest.fixture
def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv("NFTSYNC_DATABASE", "nfts.db")
    return made


#: Command line after variables (URL: the provider's), exit code, and a part of the message.
TYPED = [
    ("holding", 2, "Did you mean 'holdings'?"),
    ("holdings --limit -1", 2, "--limit"),
    ("find cats --limit 100000000000000000000", 2, "100000000000000000000 is not in the range"),
    ("sync --base-url URL --resume Treasury", 2, "wallets were named: 'Treasury'"),
    ("wallets --status broken", 2, "'broken' is not one of 'never', 'ok'"),
    ("wallets --json list", 2, "No such command 'list'"),
    ("wallets --limit 3 untrack Treasury", 2, "put --limit after the subcommand's name"),
    ("holdings --wallet Tresury", 2, "similar: 'Treasury'"),
    ("holdings --wallet Twins", 2, "2 wallets are called 'Twins'; name one by its id"),
    ("evidence Nobody --at today", 2, "neither a wallet id (a UUID) nor the label"),
    ("holdings --contract Harborr", 2, "unknown collection or contract 'Harborr'"),
    ("holdings --as-of 2999-01-01", 2, "is in the future"),
    ("holdings --as-of 31.01.2026", 2, "is not a time; write 2026-01-31"),
    ("changes --since 2999-01-01", 2, "is in the future"),
    ("export .", 2, "name a new directory in it"),
    ("snapshot nfts.db", 2, "already exists; name a new file"),
    ("sync", 2, "no base_url; set it with --base-url, NFTSYNC_BASE_URL"),
    ("sync", 2, "To try nftsync without a provider: `nftsync demo` or `nftsync sandbox`"),
    ("sync --base-url http://127.0.0.1:1 Treasury", 1, "no connection to http://127.0.0.1:1: "),
    (f"sync --base-url URL {STRANGER}", 1, "nftsync wallets untrack"),
    ("sync --base-url URL not-a-uuid", 2, "'not-a-uuid' is neither a wallet id (a UUID) nor"),
    *(
        (f"{words} {LIKE}", 2, "' (character 9 is U+2010, HYPHEN)")
        for words in (
            *("sync --base-url URL", "wallets add", "holdings --wallet", "evidence --at today"),
            "hide",
        )
    ),
    (f"sync --base-url URL {FULL}", 2, "(character 1 is U+FF10, FULLWIDTH DIGIT ZERO)"),
    (f"sync --base-url URL {ZERO}", 2, "(character 37 is U+200B, ZERO WIDTH SPACE)"),
    ("sync --base-url URL --wallets-file like.csv", 2, "like.csv, line 2: "),
    ("sync --base-url URL --wallets-file like.csv", 2, "(character 9 is U+2212, MINUS SIGN)"),
    ("sync --base-url URL --wallets-file none.csv", 2, "cannot read the wallets file"),
    ("sync --base-url URL --wallets-file names.csv", 2, "begins with headings: wallet_id,label"),
    ("sync --base-url URL --older-than yesterday", 2, "90s, 15m, 6h or 7d"),
    ("check --base-url URL --wallets-file none.csv", 1, "FAILED   wallets file: cannot read"),
    ("holdings -d text.db", 1, "is not a SQLite database"),
    ("holdings -d other.db", 1, "other.db"),
    ("holdings -d cut.db", 1, "damaged"),
    (f"sync --base-url URL -d /proc/nfts.db {STRANGER}", 1, "choose a --database"),
    (f"evidence {NEVER_NAMED} --at today", 2, f"`nftsync sync {NEVER_NAMED}` starts reading this"),
    ("holdings -d pipe.db", 1, "is a pipe or a device, not a database; name a file"),
    (f"sync --base-url URL -d loop.db {STRANGER}", 1, "Too many levels of symbolic links"),
    (f"sync --base-url URL -d / {STRANGER}", 1, "/ is a folder, not a database; name a file"),
    ("check --base-url URL -d loop.db", 1, "FAILED   database: cannot use"),
    ("holdings --config unknown.toml", 2, "did you mean 'base_url'?"),
    ("holdings --config broken.toml", 2, "broken.toml is not valid TOML: line 1"),
    ("holdings -d blank.db", 1, "blank.db is empty"),
    ("changes --after 9223372036854775808", 2, "--after"),
    ("holdings --group nope", 2, "wallets is in group 'nope'"),
    ("changes --since 2d --until 3d", 2, "is after until"),
    ("changes --follow --until today", 2, "--follow waits for new changes"),
    ("NFTSYNC_BASE_UR=http://x status", 0, "did you mean NFTSYNC_BASE_URL?"),
    ("NFTSYNC_RETRIES=lots status", 2, "retries (NFTSYNC_RETRIES)"),
    ("NFTSYNC_TOKEN_COMMAND=false sync --base-url URL Treasury", 2, "to see why"),
    ("NFTSYNC_PROXY=http://127.0.0.1:1 sync --base-url URL Treasury", 1, "to the proxy"),
    ("NFTSYNC_CA_FILE=none.pem sync --base-url https://x.example Treasury", 2, "ca_file"),
    ("NFTSYNC_CONFIG=none.toml status", 2, "cannot read"),
    ("NFTSYNC_CA_FILE=none.pem check", 1, "FAILED   settings: ca_file: no file "),
]


@pytest.mark.parametrize(("typed", "code", "says"), TYPED, ids=[row[0] for row in TYPED])
def test_a_mistake_is_answered_with_advice(typed, code, says, place, command, monkeypatch):
    words = typed.replace("URL", place.url).split()
    while words[0].startswith("NFTSYNC_"):
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    if "sync" in words and "--retries" not in words:
        words += ["--retries", "1"]
    answered(command(*words), code, says)


def test_a_404_from_a_path_in_base_url_does_not_suggest_to_untrack_wallets(place, command):
    done = command("sync", "Treasury", "--base-url", f"{place.url}/v1")
    answered(done, 1, "paths already start with /v1: remove it from base_url")
    assert "untrack" not in done.err


def test_check_reports_a_running_sync_and_a_sync_waits_for_check(place, command):
    assert "a sync is running" not in command("check", "--base-url", place.url).out
    with (place.folder / "nfts.db.sync-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answered(command("check", "--base-url", place.url), 0, "; a sync is running, so another")
        threading.Timer(0.2, lock.close).start()
        answered(command("sync", place.ids[0], "--base-url", place.url), 0, "ok")


def answered(done: Outcome, code: int, says: str) -> None:
    assert (done.code, says in done.err + done.out) == (code, True), done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 4


#: Redirection, command line, exit code, and a part of the message.
SHELL = [
    ("> /dev/full", "wallets", 1, "cannot write the output: No space left on device"),
    ("> /dev/full", "changes --json", 1, "cannot write the output: No space left on device"),
    (">&-", "wallets", 1, "cannot write the output: standard output is closed"),
    (">&-", "collections label 0xabc Name", 2, "unknown collection or contract '0xabc'"),
    ("2>/dev/full", "status", 0, ""),
    ("| head -n 1", "changes", 0, ""),
    ("| true", "wallets --json", 0, ""),
]


@pytest.mark.parametrize(("end", "typed", "code", "says"), SHELL)
def test_an_output_that_is_full_or_closed_ends_in_a_line(end, typed, code, says, place):
    call = ["bash", "-c", f"set -o pipefail; {sys.executable} -m nftsync {typed} {end}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    answered(Outcome(done.returncode, done.stdout, done.stderr), code, says)


MISSING = "no access; no token is set: set NFTSYNC_API_TOKEN, NFTSYNC_API_TOKEN_FILE or headers"
WRONG = "no access; check api_token, token_command or headers"
VALID = "no access; the credentials are valid but"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (None, None),
        ("NFTSYNC_API_TOKEN", "a-token"),
        ("NFTSYNC_API_TOKEN_FILE", "token.txt"),
        ("NFTSYNC_TOKEN_COMMAND", "echo a-token"),
        ("NFTSYNC_HEADERS", '{"X-Api-Key": "a-token"}'),
    ],
)
def test_a_refusal_advises_to_set_a_token_or_to_check_it(
    lying, inbox, command, tmp_path, monkeypatch, name, value
):
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    lying.always(reply(balances()))
    command("sync", wallet(1)).says("ok")
    (tmp_path / "token.txt").write_text("a-token\n")
    if name is not None:
        monkeypatch.setenv(name, value)
    for status, advice in ((401, WRONG), (403, VALID)):
        lying.always(reply(b"no", status))
        inbox.receive(body_of(status))
        for words in ("replay", "sync", "check", "verify", "webhook-config --enable"):
            done = command(*words.split())
            said = " ".join(done.said.split())
            assert (done.code, "a-token" in said) == (1, False), words
            assert f"{status}: {advice if name else MISSING}" in said


def test_a_sync_that_gives_up_advises_the_same(lying, command):
    lying.always(reply(status=401))
    done = command("sync", "--base-url", lying.url, *map(wallet, range(30)))
    done.says("first 20 responses were all 401 or 403", MISSING, code=1)
