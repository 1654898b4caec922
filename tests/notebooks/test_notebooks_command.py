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
from worlds import Outcome

from nftsync.errors import InputError
from nftsync.lab import jupyter
from nftsync.lab.demo_provider import address_file, begin_afresh
from nftsync.lab.jupyter import notebook_environment

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


def test_it_opens_the_demo_with_its_provider_asks_nothing_and_ends_both(
    copied: Path, tmp_path: Path, start: Start
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
    with urlopen(f"{url}/lab?token={token}", timeout=_PATIENCE) as answer:
        page = answer.read().decode()
    (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    told = json.loads(config)
    assert told["news"] == {"disabled": True}
    assert told["extensionManager"]["can_install"] is False
    assert session.get("/lab/api/update") == {"notification": None}
    assert session.get("/lab/api/build") == {"status": "stable", "message": ""}
    assert not re.search(r"^\[[DIW] ", session.told, re.M), session.told
    assert token not in session.told.partition("Copied")[0]
    assert not answers(f"{url}/api/contents/"), "without its token nobody is let in"
    told = []
    with notebook_environment(copied, None, told.append):  # as in a second session
        assert told[0].startswith(f"The demo's provider runs already, at {provider}")
        assert session.end(signal.SIGHUP) == 0, session.told
        assert not answers(f"{provider}/sandbox/wallets")
        assert not answers(url)
        with pytest.raises(InputError, match="nftsync notebook"):
            begin_afresh(copied)
    begin_afresh(copied)
    assert "Traceback" not in session.told


def test_a_port_that_is_taken_is_told_of(empty: Path, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        session = start("--database", empty, "--port", port)
        assert session.process.wait(_PATIENCE) == 1
    assert "nftsync: JupyterLab ended with exit code 1" in session.told
    assert port in session.told


@pytest.mark.parametrize("name", ["jupyterlab", "plotly", "ipywidgets"])
def test_without_the_extra_it_says_how_to_install_it(
    command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = jupyter.find_spec
    monkeypatch.setattr(jupyter, "find_spec", lambda each: None if each == name else found(each))
    done = command("notebook")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"nftsync: notebooks need {name}: pip install 'nftsync[notebook]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(
    command: Callable[..., Outcome], empty: Path
) -> None:
    Path("file").write_text("")
    done = command("notebook", "file", "-d", empty)
    assert done.code == 1
    assert done.err.startswith("nftsync: cannot copy the notebooks to ")
    assert done.err.count("\n") == 1
