"""The database that notebooks open, and the demo's provider."""

import os
import shutil
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import urlopen

import pytest

import nftsync
from nftsync import frames
from nftsync.demo.provider import (
    address_file,
    is_demo,
    remove_demo,
    state_file,
    stored_address,
    stored_provider,
)
from nftsync.errors import InputError
from nftsync.notebooks.database import provider_address
from nftsync.notebooks.jupyter import notebook_environment
from nftsync.sandbox.state import State
from nftsync.sandbox.webhooks import Sandbox
from nftsync.sandbox.world import World
from tests.kit.serve_process import query


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project" / "notebooks"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_an_argument_or_a_setting_names_the_database_despite_other_wrong_settings(
    here, monkeypatch
):
    assert nftsync.database("some.db") == nftsync.database(here / "some.db") == here / "some.db"
    assert nftsync.database("~/some.db") == Path.home() / "some.db"
    (here.parent / "nftsync.toml").write_text('database = "kept/all.db"\nbase_url = 5\n')
    assert nftsync.database() == here.parent / "kept" / "all.db"
    monkeypatch.setenv("NFTSYNC_DATABASE", "theirs.db")
    assert nftsync.database() == here / "theirs.db"


def test_the_default_is_the_nearest_mirror_or_demo_in_a_parent_folder(here, empty, demo, capsys):
    shutil.copytree(demo.parent, here.parent / "data")
    assert nftsync.database() == here.parent / "data" / "demo.db"
    assert "demo" in capsys.readouterr().out
    assert not (here / "data").exists()
    for folder in (here.parent, here):
        (folder / "data").mkdir(exist_ok=True)
        shutil.copy(empty, folder / "data" / "nftsync.db")
        assert nftsync.database() == folder / "data" / "nftsync.db"


def test_a_file_of_another_origin_is_not_the_demo_and_the_demo_is_made(
    here, empty, demo, capsys, monkeypatch
):
    def run(database: Path, _report: object) -> None:
        assert not database.exists()
        shutil.copytree(demo.parent, database.parent)

    monkeypatch.setattr("nftsync.demo.run.run_demo", run)
    (here.parent / "data").mkdir()
    shutil.copy(empty, here.parent / "data" / "demo.db")
    made = nftsync.database()
    assert made == here / "data" / "demo.db"
    assert is_demo(made)
    assert str(made) in capsys.readouterr().out
    assert len(frames.holdings(made)) > 0
    assert query(here.parent / "data" / "demo.db", "SELECT * FROM wallets") == []
    assert nftsync.database() == made


def test_the_provider_resumes_with_its_state_and_a_running_one_is_used(copied):
    messages: list[str] = []
    with stored_provider(copied) as url:
        with stored_provider(copied, messages.append) as again:
            assert again == url
        assert "already running" in messages[0]
        result = nftsync.sync(base_url=url, database=copied, progress=False)
    assert result.status == "ok"
    assert result.wallets.ok == result.wallets.unchanged == 41
    with closing(State(state_file(copied))) as state:
        sandbox = Sandbox(World(state=state))
        assert not sandbox.config["enabled"]
        assert all(each["state"] != "pending" for each in sandbox.deliveries())
    remove_demo(copied)


@pytest.mark.parametrize("runs", [True, False], ids=["provider", "no provider"])
def test_notebooks_of_the_demo_have_its_provider_alone_and_prevent_its_removal(
    copied, tmp_path, monkeypatch, runs
):
    monkeypatch.setenv("NFTSYNC_API_TOKEN", "a-token-for-someone-else")
    monkeypatch.setenv("NFTSYNC_BASE_URL", "https://api.example.com")
    config = tmp_path / "nftsync.toml"
    config.write_text('base_url = "https://api.example.com"\n')
    url = stored_address(copied)
    expected = {"NFTSYNC_DATABASE": str(copied), "NFTSYNC_CONFIG": os.devnull}
    if runs:
        expected["NFTSYNC_BASE_URL"] = url
    else:
        state_file(copied).unlink()
        address_file(copied).unlink()
    messages: list[str] = []
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(notebook_environment(copied, config, messages.append))
        environment = second.enter_context(notebook_environment(copied, config, messages.append))
        assert {name: environment[name] for name in environment if "NFTSYNC" in name} == expected
        if runs:
            with urlopen(f"{url}/sandbox/wallets") as answer:
                assert answer.status == 200
        assert ("pictures are missing" in messages[0]) == (not runs)
        assert (messages[0] == f"The demo's provider is running at {url}.") == runs
        first.close()
        with pytest.raises(InputError, match="nftsync notebook"):
            remove_demo(copied)
        assert is_demo(copied)
    remove_demo(copied)
    assert list(copied.parent.iterdir()) == []


@pytest.mark.parametrize("settings", ["", "base_url = 5\n", "no toml"])
def test_the_demo_s_provider_is_known_despite_settings_and_others_are_configured(
    demo, empty, here, settings, monkeypatch
):
    (here / "nftsync.toml").write_text(settings)
    url = provider_address(demo)
    assert url == address_file(demo).read_text().strip()
    assert "image" not in set(frames.quality(demo, base_url=url).query("value.notna()")["field"])
    assert provider_address(empty) is provider_address(here / "missing.db") is None
    (here / "nftsync.toml").write_text('base_url = "https://api.example.com"')
    assert provider_address(empty) == "https://api.example.com"


def test_a_taken_port_or_a_missing_state_of_the_provider_is_an_error(copied):
    def refuses(problem: str) -> None:
        with pytest.raises(InputError, match=problem), stored_provider(copied):
            pass

    with socket.create_server(("127.0.0.1", 0)) as other:
        address_file(copied).write_text(f"http://127.0.0.1:{other.getsockname()[1]}\n")
        program = rf"\(process {os.getpid()}\); end that program, or recreate the demo"
        refuses(f"is taken by .* {program}")
    address_file(copied).write_text("http://example.com:80/")
    refuses("nftsync demo")
    state_file(copied).unlink()
    refuses("nftsync demo")


def test_another_file_with_the_name_of_a_state_is_kept(tmp_path):
    state = state_file(tmp_path / "mine.db")
    query(state, "CREATE TABLE mine (a)")
    with pytest.raises(InputError, match=r"mine-provider\.state"):
        remove_demo(tmp_path / "mine.db")
    assert query(state, "SELECT * FROM mine") == []


def test_notebooks_of_another_database_have_its_settings(empty, tmp_path, monkeypatch):
    kept = {"NFTSYNC_RETRIES": "3", "NFTSYNC_WALLETS_FILE": "-"}
    for name, value in {**kept, "NFTSYNC_API_TOKEN_FILE": "secrets/token"}.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "nftsync.toml"
    with notebook_environment(empty, config, pytest.fail) as environment:
        assert {name: environment[name] for name in environment if "NFTSYNC" in name} == {
            "NFTSYNC_DATABASE": str(empty),
            "NFTSYNC_CONFIG": str(config),
            "NFTSYNC_API_TOKEN_FILE": str(tmp_path / "secrets" / "token"),
            **kept,
        }
