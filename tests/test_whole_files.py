"""What killed processes leave of files they had begun is removed by the next; nothing else is."""

import subprocess
import sys
from pathlib import Path

import pytest

from nftsync.whole_files import whole_directory, whole_file

BEGUN = """
import sys, time
from pathlib import Path
from nftsync import whole_files
with getattr(whole_files, sys.argv[1])(Path(sys.argv[2])) as partial:
    (partial / "x" if partial.is_dir() else partial).write_text("begun")
    print("begun", flush=True)
    time.sleep(1000)
"""


def begin(kind: str, path: Path) -> subprocess.Popen[str]:
    """A process that has begun a file or directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGUN, kind, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("kind", ["whole_file", "whole_directory"])
def test_what_a_killed_process_left_is_removed_by_the_next(kind: str, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / ".mine.abcdefgh.partial").mkdir()
    with begin(kind, tmp_path / "killed") as killed, begin(kind, tmp_path / "lives") as lives:
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.glob(".*.nftsync-partial"))) == 2
        with whole_directory(tmp_path / "a"), whole_file(tmp_path / "b"):
            pass
        [left] = tmp_path.glob(".*.nftsync-partial")
        assert left.name.startswith(".lives.")
        lives.kill()
    with whole_file(tmp_path / "b", replace=True):
        pass
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a", "b", "others", ".mine.abcdefgh.partial"}
