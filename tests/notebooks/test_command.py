"""`nftsync notebook` starts and stops the real JupyterLab."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from nftsync.demo.provider import address_file, remove_demo
from nftsync.errors import InputError
from nftsync.notebooks import jupyter
from tests.kit.worlds import Outcome
from tests.notebooks.worlds import NOTEBOOKS, free_port

_PATIENCE = 240.0
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no database at"), ("no database", "is not a SQLite database")],
)
def test_a_database_that_was_named_and_is_none_is_refused_before_jupyterlab_starts(
    tmp_path: Path, command: Callable[..., Outcome], content: str | None, problem: str
) -> None:
    named = tmp_path / "named.db"
    if content is not None:
        named.write_text(content * 1_000)
    before = list(tmp_path.iterdir())
    done = command("notebook", tmp_path / "analysis", "--no-browser", "-d", named)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert problem in done.err
    assert list(tmp_path.iterdir()) == before


class Session:
    """A running `nftsync notebook`."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._told = folder / "told.txt"
        with self._told.open("w") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nftsync", "notebook", "--no-browser", *map(str, arguments)],
                env={**os.environ, "HOME": str(folder)},
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

    def get(self, path: str) -> Any:
        """An answer of JupyterLab's API."""
        url, token = self.address()
        asked = Request(f"{url}{path}", headers={"Authorization": f"token {token}"})
        with urlopen(asked, timeout=_PATIENCE) as answer:
            return json.load(answer)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE)

    def until(self, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if found := look():
                return found
            assert self.process.poll() is None, self.told
            time.sleep(0.05)
        raise AssertionError(f"never came: {self.told}")


@contextmanager
def started(folder: Path, *arguments: object) -> Iterator[Session]:
    session = Session(folder, *arguments)
    try:
        yield session
    finally:
        if session.process.poll() is None:
            session.end(signal.SIGTERM)


def answers(url: str) -> bool:
    try:
        urlopen(url, timeout=_PATIENCE).close()
    except URLError:
        return False
    return True


def test_it_opens_the_demo_with_its_provider_asks_nothing_and_ends_both(
    copied: Path, tmp_path: Path
) -> None:
    port = free_port()  # one that no other test's session takes
    with started(tmp_path, "mine", "--database", copied, "--port", port) as session:
        names = {entry["name"] for entry in session.get("/api/contents/")["content"]}
        assert names == {path.name for path in NOTEBOOKS}
        assert {path.name for path in (tmp_path / "mine").iterdir()} == names
        provider = address_file(copied).read_text().strip()
        assert answers(f"{provider}/sandbox/wallets")
        url, token = session.address()
        with urlopen(f"{url}/lab?token={token}", timeout=_PATIENCE) as answer:
            page = answer.read().decode()
        (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert json.loads(config)["news"] == {"disabled": True}
        assert json.loads(config)["extensionManager"]["can_install"] is False
        assert session.get("/lab/api/update") == {"notification": None}
        assert session.get("/lab/api/build") == {"status": "stable", "message": ""}
        assert not re.search(r"^\[[DIW] ", session.told, re.M), session.told
        assert token not in session.told.partition("Copied")[0]
        assert not answers(f"{url}/api/contents/"), "without its token nobody is let in"
        with pytest.raises(InputError, match="nftsync notebook"):
            remove_demo(copied)
        assert session.end(signal.SIGHUP) == 0, session.told
        assert not answers(f"{provider}/sandbox/wallets")
        assert not answers(url)
        remove_demo(copied)
        assert "Traceback" not in session.told


def test_a_port_that_is_taken_is_told_of(empty: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, "--database", empty, "--port", port) as session:
            assert session.process.wait(_PATIENCE) == 1
    assert "nftsync: JupyterLab failed with exit code 1" in session.told
    assert str(port) in session.told


def test_without_the_extra_it_says_how_to_install_it(
    command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jupyter, "find_spec", {"jupyterlab": 1, "ipywidgets": 1}.get)
    done = command("notebook")
    assert (done.code, done.out) == (1, "")
    assert done.err == "nftsync: notebooks need plotly: pip install 'nftsync[notebook]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(
    command: Callable[..., Outcome], empty: Path
) -> None:
    Path("file").write_text("")
    done = command("notebook", "file", "-d", empty)
    assert done.code == 1
    assert done.err.startswith("nftsync: cannot copy the notebooks to ")
    assert done.err.count("\n") == 1
