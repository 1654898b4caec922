"""Fixtures and settings of all tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
from tests.kit.worlds import Command, Outcome, made_once

# How long an example takes, on a busy machine even to generate, says nothing about whether it is
# right. Fixtures for each test, such as its folder, may serve all of its examples.
_TIMES = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("nftsync", deadline=None, suppress_health_check=_TIMES)
_ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))
_MANY = int(os.environ.get("EXAMPLES", "2000"))
settings.register_profile("fuzz", _ANY, max_examples=_MANY, print_blob=True)  # `make fuzz`
# `make mutations`: reproducible, and without shrinking
_PHASES = [Phase.explicit, Phase.generate]
settings.register_profile("mutations", _ANY, derandomize=True, phases=_PHASES)
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
    """The same; folders whose tests need a sandbox put it in its place."""
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
    mount = f"mount -t tmpfs -o size=3m tmpfs '{folder}'"
    if subprocess.run(mount, shell=True, capture_output=True).returncode != 0:
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
    options = {"shell": True, "env": {**kept, "PATH": path}, "text": True}

    def make(folder: Path) -> None:
        printed = subprocess.check_output("nftsync demo 2>&1", cwd=folder, **options)
        (folder / "printed.txt").write_text(printed.replace(f"{folder}/", ""))

    own = tmp_path_factory.mktemp("demo") / "demo"
    shutil.copytree(made_once(shared, "demo", make), own)
    return own / "data" / "demo.db"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process, on the streams of the test."""
    from nftsync.cli import main

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, *capsys.readouterr())

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
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2"

    def make(name: str, options: str) -> str:
        files = f"-subj /CN={name} -keyout {name}.key -out {name}.crt"
        both = f"cat {name}.key {name}.crt > {name}.pem"
        command = f"{new} {files} {options} && {both}"
        subprocess.run(command, shell=True, check=True, capture_output=True, cwd=folder)
        return f"{folder}/{name}.pem"

    make("ca", "-nodes -addext keyUsage=critical,keyCertSign,cRLSign")
    signed = "-CA ca.crt -CAkey ca.key -addext basicConstraints=critical,CA:FALSE"
    names = "subjectAltName=DNS:provider.test,IP:127.0.0.1"
    return Certificates(
        ca=f"{folder}/ca.crt",
        server=make("server", f"-nodes {signed} -addext {names}"),
        client=make("client", f"-nodes {signed}"),
        client_certificate_alone=f"{folder}/client.crt",
        client_key_alone=f"{folder}/client.key",
        locked=make("locked", f"{signed} -passout pass:hush"),
    )
