"""Which database notebooks open, and the demo's provider beside it."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest
from notebook_worlds import count

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from nftsync.lab.demo_provider import (
    address_file,
    begin_afresh,
    is_demo,
    provider_again,
    state_file,
)
from nftsync.lab.jupyter import notebook_environment
from nftsync.lab.notebook import provider_address
from nftsync.sandbox.state import State
from nftsync.sandbox.webhooks import Outbox


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project" / "notebooks"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_a_path_that_is_given_is_taken(here: Path) -> None:
    assert nftsync.database("some.db") == here / "some.db"
    assert nftsync.database(here / "some.db") == here / "some.db"
    assert nftsync.database("~/some.db") == Path.home() / "some.db"


def test_the_environment_names_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFTSYNC_DATABASE", "theirs.db")
    assert nftsync.database() == here / "theirs.db"


def test_a_settings_file_above_names_one_whatever_else_is_wrong_with_it(here: Path) -> None:
    (here.parent / "nftsync.toml").write_text('database = "kept/all.db"\nbase_url = 5\n')
    assert nftsync.database() == here.parent / "kept" / "all.db"


def test_the_nearest_of_the_default_name_is_taken_from_the_folder_upwards(
    here: Path, empty: Path
) -> None:
    for folder in (here.parent, here):
        (folder / "data").mkdir()
        shutil.copy(empty, folder / "data" / "nftsync.db")
        assert nftsync.database() == folder / "data" / "nftsync.db"


def test_else_it_is_the_demo_s_from_the_folder_upwards(
    here: Path, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo.parent, here.parent / "data")
    assert nftsync.database() == here.parent / "data" / "demo.db"
    assert "demo" in capsys.readouterr().out
    assert not (here / "data").exists()


def test_what_no_demo_has_made_is_not_taken_for_its_and_the_demo_is_made(
    here: Path, empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here.parent / "data").mkdir()
    shutil.copy(empty, here.parent / "data" / "demo.db")
    made = nftsync.database()
    assert made == here / "data" / "demo.db"
    assert is_demo(made)
    assert str(made) in capsys.readouterr().out
    assert len(frames.holdings(made)) > 0
    assert count(here.parent / "data" / "demo.db", "SELECT count(*) FROM wallets") == 0
    assert nftsync.database() == made


def test_the_provider_runs_again_as_it_was_left(copied: Path) -> None:
    with provider_again(copied) as url:
        result = nftsync.sync(base_url=url, database=copied, progress=False)
    assert result.status == "ok"
    assert result.wallets.ok == result.wallets.unchanged == 41


def test_it_shows_the_pictures_again(demo: Path) -> None:
    images = frames.tokens(demo)["image"].dropna()
    kept = address_file(demo).read_text().strip()
    assert all(image.startswith(f"{kept}/sandbox/images/") for image in images)
    with provider_again(demo) as url, urlopen(images.iloc[0]) as picture:
        assert url == kept
        assert picture.read().startswith(b"<svg")


def test_one_that_runs_already_is_used_and_goes_on(copied: Path) -> None:
    told: list[str] = []
    with provider_again(copied) as url:
        with provider_again(copied, told.append) as again:
            assert again == url
        assert "runs already" in told[0]
        assert nftsync.sync(base_url=url, database=copied, progress=False).status == "ok"
    begin_afresh(copied)


def test_the_demo_does_not_begin_afresh_under_any_session(copied: Path) -> None:
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(notebook_environment(copied, None, lambda _: None))
        second.enter_context(notebook_environment(copied, None, lambda _: None))
        first.close()
        with pytest.raises(InputError, match="nftsync notebook"):
            begin_afresh(copied)
        assert is_demo(copied)
    begin_afresh(copied)
    assert list(copied.parent.iterdir()) == []


def test_nor_under_a_session_whose_provider_does_not_run(copied: Path) -> None:
    state_file(copied).unlink()
    address_file(copied).unlink()
    told: list[str] = []
    with notebook_environment(copied, None, told.append) as environment:
        assert "no pictures" in told[0]
        assert "NFTSYNC_BASE_URL" not in environment
        with pytest.raises(InputError, match="nftsync notebook"):
            begin_afresh(copied)
    begin_afresh(copied)
    assert list(copied.parent.iterdir()) == []


@pytest.mark.parametrize("settings", ["", "base_url = 5\n", "no toml"])
def test_the_demo_s_provider_is_known_whatever_the_settings(
    demo: Path, here: Path, settings: str
) -> None:
    (here / "nftsync.toml").write_text(settings)
    url = provider_address(demo)
    assert url == address_file(demo).read_text().strip()
    assert "image" not in set(frames.quality(demo, base_url=url).query("value.notna()")["field"])


def test_the_provider_of_another_database_is_the_configured_one(
    here: Path, empty: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider_address(empty) is None
    assert provider_address(here / "missing.db") is None
    monkeypatch.setenv("NFTSYNC_BASE_URL", "https://api.example.com")
    assert provider_address(empty) == "https://api.example.com"
    address_file(copied).unlink()
    assert provider_address(copied) == "https://api.example.com"
    monkeypatch.setenv("NFTSYNC_BASE_URL", "nonsense")
    assert provider_address(empty) is None


def test_a_port_that_something_else_has_is_an_error(copied: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address_file(copied).write_text(f"http://127.0.0.1:{other.getsockname()[1]}\n")
        Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        with pytest.raises(InputError, match="port"), provider_again(copied):
            pass


@pytest.mark.parametrize("lost", ["address", "state", "nonsense"])
def test_a_provider_that_was_not_kept_is_an_error_that_says_so(copied: Path, lost: str) -> None:
    if lost == "nonsense":
        address_file(copied).write_text("http://example.com:80/")
    else:
        (address_file if lost == "address" else state_file)(copied).unlink()
    with pytest.raises(InputError, match="nftsync demo"), provider_again(copied):
        pass


def test_the_demo_leaves_a_state_alone_that_is_none(tmp_path: Path) -> None:
    database = tmp_path / "mine.db"
    with closing(sqlite3.connect(state_file(database))) as connection:
        connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(InputError, match=r"mine-provider\.state"):
        begin_afresh(database)
    assert count(state_file(database), "SELECT count(*) FROM mine") == 0


def test_the_provider_sends_no_webhooks_once_the_demo_has_ended(copied: Path) -> None:
    with closing(State(state_file(copied))) as state:
        outbox = Outbox(state, "any")
        assert not outbox.config.enabled
        assert all(each["state"] != "pending" for each in outbox.deliveries())


def test_notebooks_of_the_demo_know_its_provider_and_nothing_of_another(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_API_TOKEN", "a-token-for-someone-else")
    monkeypatch.setenv("NFTSYNC_BASE_URL", "https://api.example.com")
    config = tmp_path / "nftsync.toml"
    config.write_text('base_url = "https://api.example.com"\n')
    told: list[str] = []
    with notebook_environment(copied, config, told.append) as environment:
        ours = {name: value for name, value in environment.items() if "NFTSYNC" in name}
        url = environment["NFTSYNC_BASE_URL"]
        with urlopen(f"{url}/sandbox/wallets") as answer:
            assert answer.status == 200
    assert ours == {
        "NFTSYNC_DATABASE": str(copied),
        "NFTSYNC_BASE_URL": url,
        "NFTSYNC_CONFIG": os.devnull,
    }
    assert told == [f"The demo's provider answers at {url}."]


def test_notebooks_of_another_database_have_its_settings(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NFTSYNC_RETRIES", "3")
    monkeypatch.setenv("NFTSYNC_API_TOKEN_FILE", "secrets/token")
    monkeypatch.setenv("NFTSYNC_WALLETS_FILE", "-")
    config = tmp_path / "nftsync.toml"
    with notebook_environment(empty, config, pytest.fail) as environment:
        assert environment["NFTSYNC_DATABASE"] == str(empty)
        assert environment["NFTSYNC_CONFIG"] == str(config)
        assert environment["NFTSYNC_RETRIES"] == "3"
        assert environment["NFTSYNC_API_TOKEN_FILE"] == str(tmp_path / "secrets" / "token")
        assert environment["NFTSYNC_WALLETS_FILE"] == "-"
