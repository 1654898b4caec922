"""`nftsync notebook` starts and stops the real JupyterLab."""

import json
import os
import re
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import httpx
import pytest

from nftsync.demo.provider import address_file, remove_demo
from nftsync.errors import InputError
from tests.docs.pages import ROOT
from tests.notebooks.lab_browser import started
from tests.notebooks.worlds import NOTEBOOKS, free_port

_PATIENCE = 240.0
NOTEBOOK = ("nftsync", "notebook", "--no-browser")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no database at"), ("no database", "is not a SQLite database")],
)
def test_a_database_that_was_named_and_is_none_is_refused_before_jupyterlab_starts(
    tmp_path, command, content, problem
):
    named = tmp_path / "named.db"
    if content is not None:
        named.write_text(content * 1_000)
    before = list(tmp_path.iterdir())
    done = command("notebook", tmp_path / "analysis", "--no-browser", "-d", named)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert problem in done.err
    assert list(tmp_path.iterdir()) == before


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=_PATIENCE, trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_it_opens_the_demo_with_its_provider_asks_nothing_and_ends_both(copied, tmp_path):
    port = free_port()  # one that no other test's session takes
    arguments = ("mine", "--database", copied, "--port", port)
    with started(tmp_path, *NOTEBOOK, *arguments) as session:
        url, token = session.address

        def get(path: str) -> Any:
            asked = Request(f"{url}{path}", headers={"Authorization": f"token {token}"})
            with urlopen(asked, timeout=_PATIENCE) as answer:
                return json.load(answer)

        assert f"{url}/lab?token={token}" in session.told
        assert url.endswith(f"127.0.0.1:{port}")
        names = {entry["name"] for entry in get("/api/contents/")["content"]}
        assert names == {path.name for path in NOTEBOOKS}
        assert {path.name for path in (tmp_path / "mine").iterdir()} == names
        provider = address_file(copied).read_text().strip()
        assert answers(f"{provider}/sandbox/wallets")
        with urlopen(f"{url}/lab?token={token}", timeout=_PATIENCE) as answer:
            page = answer.read().decode()
        (config,) = re.findall(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert json.loads(config)["news"] == {"disabled": True}
        assert json.loads(config)["extensionManager"]["can_install"] is False
        assert get("/lab/api/update") == {"notification": None}
        assert json.loads(config)["buildCheck"] is False  # which warns where nodejs is missing
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


def test_a_port_that_is_taken_is_told_of(empty, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, *NOTEBOOK, "--database", empty, "--port", port) as session:
            assert session.process.wait(_PATIENCE) == 2
    assert f"nftsync: port {port} on 127.0.0.1 is taken by " in session.told
    assert f"(process {os.getpid()}); choose another with --port" in session.told


def test_without_the_extra_it_says_how_to_install_it(command, tmp_path, monkeypatch):
    monkeypatch.setattr("nftsync.extras.find_spec", {"jupyterlab": 1, "ipywidgets": 1}.get)
    done = command("notebook")
    assert (done.code, done.out) == (1, "")
    install = shlex.join([sys.executable, *f"-m pip install --editable {ROOT}[notebook]".split()])
    needed = "nftsync: notebooks and reports need plotly, papermill; to install: "
    assert done.err == f"{needed}{install}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(command, empty):
    Path("file").write_text("")
    done = command("notebook", "file", "-d", empty)
    assert done.code == 1
    assert done.err.startswith("nftsync: cannot copy the notebooks to ")
    assert done.err.count("\n") == 1
