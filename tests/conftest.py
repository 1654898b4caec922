"""What holds for all tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.database import Builder, small
from tests.kit.mirrored_site import Site
from tests.kit.processes import end_processes
from tests.kit.provider import Provider
from tests.kit.worlds import Outcome, made_once

# How long an example takes, on a busy machine even to generate, says nothing about whether it is
# right. Fixtures for each test, such as its folder, may serve all of its examples.
settings.register_profile(
    "nftsync",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(  # `make fuzz`
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "2000")),
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(  # `make mutations`: reproducible, and without shrinking
    "mutations",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("nftsync")


def pytest_configure() -> None:
    """Undo what `&` and `nohup` do: all that the tests start would ignore these signals, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    end_processes()


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine: a working directory of its own, and no variables."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("NFTSYNC_", "SSL_CERT_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def lying() -> Iterator[Provider]:
    """A provider with scripted answers."""
    with Provider() as running:
        yield running


@pytest.fixture
def provider(lying: Provider) -> Any:
    """The same; folders whose tests need a world of their own put a sandbox in its place."""
    return lying


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Builder]:
    builder = Builder(tmp_path / "nftsync.db")
    yield builder
    builder.close()


@pytest.fixture(scope="session")
def small_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To read only: all tests have it in common."""
    return small(tmp_path_factory.mktemp("small") / "small.db").close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Four wallets of five NFTs each, mirrored once; edit the world and sync again."""
    monkeypatch.setenv("NFTSYNC_DATABASE", str(tmp_path / "mirror.db"))  # for commands
    with SandboxServer(lambda url: generate(wallets=4, nfts=5, image_base=url)) as server:
        made = Site(server, tmp_path / "mirror.db")
        made.sync()
        yield made


@pytest.fixture
def one_day() -> None:
    """No midnight (UTC) while a test speaks of today: one that is near is waited for."""
    while datetime.now(UTC).strftime("%H:%M") >= "23:58":
        time.sleep(1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True
        ).returncode
    except FileNotFoundError:
        mounted = 1
    if mounted != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all processes of a test run have in common."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def demo(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the database that `nftsync demo` made, its provider ended.

    Beside its folder is `printed.txt`: what the command printed, but for the folder it ran in.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}

    def make(folder: Path) -> None:
        done = subprocess.run(
            "nftsync demo 2>&1",
            shell=True,
            check=True,
            cwd=folder,
            env={**kept, "PATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        (folder / "printed.txt").write_text(done.stdout.replace(f"{folder}/", ""))

    own = tmp_path_factory.mktemp("demo") / "demo"
    shutil.copytree(made_once(shared, "demo", make), own)
    return own / "data" / "demo.db"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""
    from nftsync.cli import main

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return run


class Certificates(NamedTuple):
    """Files in PEM form, all signed by one CA, each with its key."""

    ca: str
    server: str
    client: str
    client_certificate_alone: str
    client_key_alone: str
    locked: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and its certificates: the server `provider.test` (or 127.0.0.1), and a client."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]

    def make(name: str, *options: str) -> Path:
        files = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]
        command = ["openssl", "req", "-x509", *kind, "-subj", f"/CN={name}", *files, *options]
        subprocess.run(command, check=True, capture_output=True)
        both = folder / f"{name}.pem"
        both.write_bytes(b"".join((folder / f"{name}.{x}").read_bytes() for x in ("key", "crt")))
        return both

    make("ca", "-nodes", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    signed = ["-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    names = "subjectAltName=DNS:provider.test,IP:127.0.0.1"
    return Certificates(
        f"{folder}/ca.crt",
        str(make("server", "-nodes", *signed, "-addext", names)),
        str(make("client", "-nodes", *signed)),
        f"{folder}/client.crt",
        f"{folder}/client.key",
        str(make("locked", *signed, "-passout", "pass:hush")),
    )
