"""Where the demo's database is not the one that a command reads by default."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.kit.worlds import Command

TREASURY = "evidence Treasury"
#: Commands that need a database.
READING = (
    *("holdings", "holdings --json", "changes", "transfers", "statement --from 30d", TREASURY),
    *("status", "wallets", "inbox", "outbox", "removals", "collections", "find kite", "hidden"),
    *("routes suggest", "inbox requeue --state dead", "hide --suggest", "verify --sample 0"),
    *("snapshot copy.db", "export files", "backup copies", "migrate"),
)


@pytest.fixture
def beside(demo: Path, tmp_path: Path) -> Path:
    """The working directory, with a demo's database in `data`."""
    (tmp_path / "data").mkdir()
    shutil.copy(demo, tmp_path / "data" / "demo.db")
    return tmp_path


@pytest.mark.parametrize("words", READING)
def test_a_command_without_a_database_names_the_demo(
    beside: Path, command: Command, words: str
) -> None:
    done = command(*shlex.split(words)).tells("there is no database at", code=1)
    advice = f". The demo's: --database {Path('data', 'demo.db')}\n"
    assert done.err.startswith("nftsync: ")
    assert done.err.endswith(advice)
    assert [file.name for file in (beside / "data").iterdir()] == ["demo.db"]
    again = command(*shlex.split(words), *advice.partition(": ")[2].split())
    assert again.code == 0, again.err


def test_it_is_named_below_its_folder(
    beside: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = beside / "a" / "folder"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    command("holdings").tells(". The demo's: --database ../../data/demo.db\n", code=1)


def test_only_its_own_database_is_named(
    beside: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "demo" not in command("holdings", "-d", "other.db").tells("other.db", code=1).err
    monkeypatch.setenv("NFTSYNC_DATABASE", "other.db")
    assert "demo" not in command("holdings").tells("other.db", code=1).err
    monkeypatch.delenv("NFTSYNC_DATABASE")
    for content in (b"", b"text", None):
        file = beside / "data" / "demo.db"
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert "demo" not in command("holdings").tells("no database", code=1).err
        file.touch()
