"""`nftsync notebook`: JupyterLab as it is really started and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from notebook_worlds import NOTEBOOKS, free_port

from nftsync.errors import InputError
from nftsync.lab.demo_provider import address_file, begin_afresh

_PATIENCE = 240.0
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)")


class Session:
    """A running `nftsync notebook`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("NFTSYNC_")}
        self._told = folder / "told.txt"
        if "--port" not in arguments:  # one that no other test's session takes
            arguments = (*arguments, "--port", str(free_port()))
        with self._told.open("w") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nftsync", "notebook", "--no-browser", *arguments],
                cwd=folder,
                env={**clean, "HOME": str(folder)},
                stderr=told,
                stdout=told,
                start_new_session=True,
            )

    @property
    def told(self) -> str:
        return self._told.read_text()

    def address(self) -> tuple[str, str]:
        """JupyterLab's base URL and its token, once it has told them and listens."""
        url, token = self.until(lambda: _ADDRESS.search(self.told)).groups()
        self.until(lambda: answers(f"{url}/login"))
        return url, token

    def get(self, path: str) -> object:
        """An answer of JupyterLab's API."""
        url, token = self.address()
        asked = Request(f"{url}{path}", headers={"Authorization": f"token {token}"})
        with urlopen(asked, timeout=_PATIENCE) as answer:
            return json.load(answer)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE)

    def until(self, look):  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if found := look():
                return found
            assert self.process.poll() is None, self.told
            time.sleep(0.05)
        raise AssertionError(f"never came: {self.told}")


Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `nftsync notebook` in the test's folder; those that run are ended after the test."""
    started: list[Session] = []

    def start(*arguments: object, folder: Path = tmp_path) -> Session:
        started.append(Session(folder, *map(str, arguments)))
        return started[-1]

    yield start
    for session in started:
        if session.process.poll() is None:
            session.end(signal.SIGTERM)


def answers(url: str) -> bool:
    try:
        urlopen(url, timeout=_PATIENCE).close()
    except URLError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it_opens_the_demo_with_its_provider_and_ends_both(
    copied: Path, tmp_path: Path, start: Start, number: signal.Signals
) -> None:
    session = start("mine", "--database", copied)
    found = session.get("/api/contents/")
    assert isinstance(found, dict)
    names = {entry["name"] for entry in found["content"]}
    assert names == {path.name for path in NOTEBOOKS}
    assert {path.name for path in (tmp_path / "mine").iterdir()} == names
    provider = address_file(copied).read_text().strip()
    assert answers(f"{provider}/sandbox/wallets")
    url, token = session.address()
    assert not answers(f"{url}/api/contents/"), "without its token nobody is let in"
    assert session.end(number) == 0, session.told
    assert not answers(f"{provider}/sandbox/wallets")
    assert not answers(url)
    assert "Traceback" not in session.told
    assert token not in session.told.partition("Copied")[0]


def test_a_second_session_says_that_the_provider_runs_already(
    copied: Path, tmp_path: Path, start: Start
) -> None:
    first = start("first", "--database", copied)
    first.address()
    (tmp_path / "other").mkdir()
    second = start("--database", copied, folder=tmp_path / "other")
    second.address()
    provider = address_file(copied).read_text().strip()
    assert f"The demo's provider runs already, at {provider}" in second.told
    assert first.end() == 0, first.told
    assert not answers(f"{provider}/sandbox/wallets")
    with pytest.raises(InputError, match="nftsync notebook"):
        begin_afresh(copied)
    assert second.end() == 0, second.told
    begin_afresh(copied)


def test_jupyterlab_asks_nothing_calls_nobody_and_prints_little(empty: Path, start: Start) -> None:
    session = start("--database", empty)
    url, token = session.address()
    with urlopen(f"{url}/lab?token={token}", timeout=_PATIENCE) as answer:
        page = answer.read().decode()
    (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    told = json.loads(config)
    assert told["news"] == {"disabled": True}
    assert told["extensionManager"]["can_install"] is False
    assert session.get("/lab/api/update") == {"notification": None}
    assert session.get("/lab/api/build") == {"status": "stable", "message": ""}
    assert session.end() == 0
    assert not re.search(r"^\[[DIW] ", session.told, re.M), session.told


def test_a_port_that_is_taken_is_told_of(empty: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        session = start("--database", empty, "--port", port)
        assert session.process.wait(_PATIENCE) == 1
    assert "nftsync: JupyterLab ended with exit code 1" in session.told
    assert port in session.told


@pytest.mark.parametrize("name", ["jupyterlab", "plotly", "ipywidgets"])
def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path, name: str) -> None:
    script = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "from nftsync.cli import main\n"
        "main(['notebook'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == f"nftsync: notebooks need {name}: pip install 'nftsync[notebook]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "nftsync", "notebook", "file", "-d", str(empty)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("nftsync: cannot copy the notebooks to ")
    assert ran.stderr.count("\n") == 1
