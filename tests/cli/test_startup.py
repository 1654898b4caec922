"""What a start loads: counted, not timed."""

import json
import subprocess
import sys
from importlib.util import find_spec

import click

from nftsync.cli import nftsync
from nftsync.store.mirror import Mirror

HEAVY = {
    *("flask", "httpcore", "httpx", "msgspec", "numpy", "pandas", "plotly", "prometheus_client"),
    *("pyarrow", "rich", "sqlite3", "sqlite_utils", "tqdm", "waitress"),
}
#: Runs one command line after the other, and shows what is loaded when each ends.
RUN = """
import json, sys
from nftsync.cli import main
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit as ended:
        assert not ended.code
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(code, *arguments, folder):
    """The modules that a fresh interpreter has loaded, at each point at which this code says so."""
    call = [sys.executable, "-c", code, *arguments]
    ran = subprocess.run(call, cwd=folder, check=True, capture_output=True, text=True)
    return [set(json.loads(line)) for line in ran.stderr.splitlines() if line.startswith("[")]


def test_importing_loads_nothing_heavy(tmp_path):
    code = "import json, sys, nftsync; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    (modules,) = loaded(code, folder=tmp_path)
    assert not modules & {*HEAVY, "click", "nftsync.settings"}


def test_help_loads_nothing_heavy_and_that_of_all_commands_no_command(tmp_path):
    words = ["--version", "--help", "sync --help", "holdings --help", "inbox --help"]
    _, of_all, *_, at_last = loaded(RUN, *words, folder=tmp_path)
    own = {name for name in of_all if name.startswith("nftsync.cli.")}
    assert own == {"nftsync.cli.common"}
    assert not at_last & {*HEAVY, "nftsync.settings"}


def test_status_loads_only_what_reads_the_database(tmp_path):
    Mirror(tmp_path / "small.db").close()
    (modules,) = loaded(RUN, "status --database small.db", folder=tmp_path)
    assert not modules & (HEAVY - {"msgspec", "sqlite3"})


def test_help_says_of_each_command_what_the_command_says():
    with click.Context(nftsync, **nftsync.context_settings) as context:
        listed = nftsync.get_help(context).partition("Commands:\n")[2]
        for name in nftsync.list_commands(context):
            command = nftsync.get_command(context, name)
            assert command is not None
            assert f"  {name:<14}  {command.get_short_help_str(1000)}\n" in f"{listed}\n"


def test_no_module_takes_the_place_of_a_public_function():
    for name in ("SyncResult", "database", "gallery", "sync"):
        assert find_spec(f"nftsync.{name}") is None
