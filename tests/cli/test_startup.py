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
#: Imports nftsync, runs one command line after the other, and shows what is loaded after each step.
RUN = """
import json, sys, nftsync
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
from nftsync.cli import main
for words in sys.argv[1:]:
    try:
        main(words.split())
    except SystemExit as ended:
        assert not ended.code
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def test_import_help_and_status_load_only_what_they_need(tmp_path):
    Mirror(tmp_path / "small.db").close()
    words = ["--help", "sync --help", "holdings --help", "inbox --help", "status -d small.db"]
    ran = subprocess.run([sys.executable, "-c", RUN, *words], check=True, stderr=subprocess.PIPE)
    lines = [line for line in ran.stderr.splitlines() if line.startswith(b"[")]
    imported, of_all, *_, of_commands, status = (set(json.loads(line)) for line in lines)
    assert not imported & {*HEAVY, "click", "nftsync.settings"}
    own = {name for name in of_all if name.startswith("nftsync.cli.")}
    assert own == {"nftsync.cli.output"}
    assert not of_commands & {*HEAVY, "nftsync.settings"}
    assert not status & (HEAVY - {"msgspec", "sqlite3"})


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
