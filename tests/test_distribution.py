"""What is handed out: the package and its notebooks, and nothing of the machine that built it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

#: What no archive may hold: places on a developer's machine, and what looks like a real secret.
LEAKS = re.compile(
    rb"/(?:home|Users|root|work)/\w+|-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}"
    rb"|gh[pousr]_[A-Za-z0-9]{30,}|xox[bp]-[0-9A-Za-z-]{20,}"
)
#: Made-up homes in examples and tests.
MADE_UP = {b"/home/me", b"/home/nftsync", b"/root/x"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both archives, by the build backend itself, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    if subprocess.run([sys.executable, "-c", "import hatchling"], capture_output=True).returncode:
        pytest.skip("hatchling is not installed here")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def ours(folder: str) -> list[str]:
    """The files of the project, those that are not committed yet among them."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no checkout")
    return done.stdout.split()


def test_the_wheel_holds_the_package_alone(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        leaks = {found for name in names for found in LEAKS.findall(archive.read(name))} - MADE_UP
    assert leaks == set()
    kinds = {Path(name).suffix for name in names if ".dist-info/" not in name}
    assert kinds <= {".py", ".sql", ".ipynb", ".html", ".css", ".js", ".typed", ".json", ".xml"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"nftsync"}
    tracked = ours("nftsync")
    inside = {
        name for name in names if ".dist-info/" not in name and "/notebooks/shipped/" not in name
    }
    assert inside == {name for name in tracked if "/notebooks/shipped/" not in name}


def test_the_source_archive_holds_what_is_tracked_alone(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    tracked = ours(".")
    with tarfile.open(source) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        names = {member.name.partition("/")[2] for member in files}
        held = [(archive.extractfile(member) or sys.stdin.buffer).read() for member in files]
    assert names - set(tracked) == {"PKG-INFO"}
    assert {found for content in held for found in LEAKS.findall(content)} - MADE_UP == set()
