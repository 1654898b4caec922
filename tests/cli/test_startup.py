"""Modules that a start loads."""

import json
import subprocess
import sys
from importlib.util import find_spec

from tests.kit.database import begun

HEAVY = {
    *("flask", "httpcore", "httpx", "msgspec", "numpy", "pandas", "plotly", "prometheus_client"),
    *("pyarrow", "rich", "sqlite3", "sqlite_utils", "tqdm", "waitress"),
}
#: Imports nftsync, runs command lines, and prints the loaded modules after each step.
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
    begun(tmp_path / "small.db")
    words = ["--help", "sync --help", "holdings --help", "inbox --help", "status -d small.db"]
    ran = subprocess.run([sys.executable, "-c", RUN, *words], check=True, stderr=subprocess.PIPE)
    lines = [line for line in ran.stderr.splitlines() if line.startswith(b"[")]
    imported, of_all, *_, of_commands, status = (set(json.loads(line)) for line in lines)
    assert not imported & {*HEAVY, "click", "nftsync.settings"}
    own = {name for name in of_all if name.startswith("nftsync.cli.")}
    assert own == {"nftsync.cli.output"}
    assert not of_commands & {*HEAVY, "nftsync.settings"}
    assert not status & (HEAVY - {"msgspec", "sqlite3"})


def test_help_has_the_first_sentence_of_each_command_s_help(command):
    listed = command("--help").out.partition("Commands:\n")[2]
    assert len(listed.splitlines()) > 20
    for line in listed.splitlines():
        name, text = line.split(maxsplit=1)
        assert text in " ".join(command(name, "--help").out.split())


def test_no_module_takes_the_place_of_a_public_function():
    for name in ("SyncResult", "database", "gallery", "sync"):
        assert find_spec(f"nftsync.{name}") is None
