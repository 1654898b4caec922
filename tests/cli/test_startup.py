"""What a start loads: counted, not timed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from nftsync.cli import nftsync
from nftsync.store.mirror import Mirror

HEAVY = {
    *("flask", "httpcore", "httpx", "msgspec", "numpy", "pandas", "plotly", "prometheus_client"),
    *("pyarrow", "rich", "sqlite3", "sqlite_utils", "tqdm", "waitress"),
}
#: Runs the command line and shows what it has loaded when it ends.
RUN = """
import json, sys
from nftsync.cli import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(code: str, *arguments: str, folder: Path) -> set[str]:
    """The modules that a fresh interpreter has loaded when it has run this code."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_importing_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import json, sys, nftsync; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    modules = loaded(code, folder=tmp_path)
    assert not modules & {*HEAVY, "click", "nftsync.settings"}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["sync", "--help"], ["holdings", "--help"], ["inbox", "--help"]],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    modules = loaded(RUN, *arguments, folder=tmp_path)
    assert not modules & {*HEAVY, "nftsync.settings"}


def test_help_loads_no_command(tmp_path: Path) -> None:
    modules = loaded(RUN, "--help", folder=tmp_path)
    own = {name for name in modules if name.startswith("nftsync.cli.")}
    assert own == {"nftsync.cli.common"}


def test_status_loads_only_what_reads_the_database(tmp_path: Path) -> None:
    Mirror(tmp_path / "small.db").close()
    modules = loaded(RUN, "status", "--database", "small.db", folder=tmp_path)
    assert not modules & (HEAVY - {"msgspec", "sqlite3"})


def test_help_says_of_each_command_what_the_command_says() -> None:
    with click.Context(nftsync, **nftsync.context_settings) as context:
        listed = nftsync.get_help(context).partition("Commands:\n")[2]
        for name in nftsync.list_commands(context):
            command = nftsync.get_command(context, name)
            assert command is not None
            assert f"  {name:<14}  {command.get_short_help_str(1000)}\n" in f"{listed}\n"


def test_no_module_takes_the_place_of_a_public_function() -> None:
    for name in ("SyncResult", "database", "gallery", "sync"):
        assert find_spec(f"nftsync.{name}") is None
