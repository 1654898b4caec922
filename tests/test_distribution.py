"""Archives have the package and its notebooks, and nothing of the machine that built them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nftsync import __version__
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.docs.pages import PAGES, ROOT, read
from tests.kit.serve_process import environment
from tests.kit.worlds import Outcome

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


CONSTRAINTS = ROOT / "constraints.txt"
UV = ROOT / ".venv" / "bin" / "uv"


class Installed(NamedTuple):
    """An environment of its own with nftsync, far from the checkout, and a database."""

    folder: Path
    wheel: Path

    def run(self, *words: str) -> Outcome:
        """Run a command in a shell's way: with the environment's own programs alone."""
        bin_ = self.folder / "env" / "bin"
        variables = environment(PATH=f"{bin_}:/usr/bin:/bin", PIP_CONSTRAINT=str(CONSTRAINTS))
        done = subprocess.run(words, cwd=self.folder, env=variables, capture_output=True, text=True)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def uv(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [UV, "pip", *words, "--python", self.folder / "env" / "bin" / "python"]
        trusting = {**os.environ, "UV_SYSTEM_CERTS": "true"}
        return subprocess.run(command, env=trusting, capture_output=True, text=True)

    def install(self, package: str) -> None:
        """Install from uv's cache if possible, otherwise from the index."""
        words = ("install", "--constraint", str(CONSTRAINTS), package)
        if self.uv(*words, "--offline").returncode and (failed := self.uv(*words)).returncode:
            pytest.skip(f"no package index here: {failed.stderr}")


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel alone in an empty environment, after a sync."""
    folder = tmp_path_factory.mktemp("machine")
    (wheel,) = built.glob("*.whl")
    if not UV.exists():
        pytest.skip("no `make` has set up this checkout")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
    machine = Installed(folder, wheel)
    machine.install(str(wheel))
    with SandboxServer(generate(wallets=2, nfts=5)) as provider:
        wallets = provider.world.wallets()
        machine.run("nftsync", "sync", *wallets, "--base-url", provider.url).says("2 wallets read")
    yield machine
    shutil.rmtree(folder)


def test_the_archives_hold_what_is_tracked_alone(built):
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no checkout")
    tracked = {*done.stdout.split()}
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(source) as archive:
        in_source = {
            member.name.partition("/")[2]: file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member))
        }
    names = {name for name in in_wheel if ".dist-info/" not in name}
    shipped = "nftsync/notebooks/shipped"
    assert {name.split("-")[0] for name in in_wheel.keys() - names} == {"nftsync"}
    assert names == {"nftsync/sql.md"} | {
        name.replace("notebooks/", f"{shipped}/", 1) if name.startswith("notebooks/") else name
        for name in tracked
        if name.startswith("nftsync/") or re.fullmatch(r"notebooks/\d.*\.ipynb", name)
    }
    kinds = {".py", ".sql", ".ipynb", ".html", ".css", ".js", ".typed", ".json", ".xml", ".md"}
    assert {Path(name).suffix for name in names} <= kinds
    assert in_source.keys() - tracked == {"PKG-INFO"}
    assert {name for name in tracked if name.startswith("notebooks/")} <= in_source.keys()
    contents = (*in_wheel.values(), *in_source.values())
    assert {found for content in contents for found in LEAKS.findall(content)} <= MADE_UP


EVERY_HELP = """
import click
from nftsync.cli import nftsync
with click.Context(nftsync) as context:
    for name in nftsync.list_commands(context):
        nftsync.main([name, "--help"], "nftsync", standalone_mode=False)
"""


def test_the_wheel_alone_has_every_command_but_three(installed):
    run = installed.run
    assert run("nftsync", "--version").out.split()[-1] == __version__
    for words in ("holdings", "transfers", "statement --from 1h", "verify --sample 0"):
        run("nftsync", *words.split()).says()
    for target in ("tables", "book.xlsx"):
        run("nftsync", "export", target).says()
    run("python", "-c", EVERY_HELP).says("Usage: nftsync sandbox", "Usage: nftsync lake")
    code = "import nftsync; nftsync.gallery(nftsync.frames.holdings()).save('page.html')"
    run("python", "-c", code).says()
    assert (installed.folder / "page.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("extra", "package", "command"),
    [
        ("scale", "deltalake", "nftsync lake import data/nftsync.db lake --buckets 2"),
        ("notebook", "plotly", "nftsync report report.html"),
    ],
)
def test_the_message_about_a_missing_extra_has_the_command_that_installs_it(
    installed, extra, package, command
):
    alone = installed.run(*command.split()).tells(package, code=1)
    # All other packages are installed, so that pip only needs one.
    installed.install(f"{installed.wheel}[{extra}]")
    assert installed.uv("uninstall", package).returncode == 0
    refused = installed.run(*command.split()).tells(f"need {package};", code=1)
    install = refused.err.partition("to install: ")[2]
    assert install == alone.err.partition("to install: ")[2]
    done = installed.run("sh", "-c", install)
    if "No matching distribution" in done.err:
        pytest.skip(f"no package index here: {done.err}")
    done.says()
    installed.run(*command.split()).says()


def test_in_a_checkout_the_message_names_the_checkout(tmp_path):
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    for name in ("nftsync", "pyproject.toml"):
        (checkout / name).symlink_to(ROOT / name)
    hidden = "import sys; sys.modules['deltalake'] = None; from nftsync.cli import main"
    code = f"{hidden}; main(['lake', 'status', 'x'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PYTHONPATH=str(checkout)),
        capture_output=True,
        text=True,
    )
    words = shlex.split(done.stderr.partition("to install: ")[2])
    assert words == [sys.executable, "-m", "pip", "install", "--editable", f"{checkout}[scale]"]


@pytest.mark.skipif(not UV.exists(), reason="no `make` has set up this checkout")
def test_make_wheel_builds_what_the_documents_name(tmp_path):
    make = ["env", "--unset=MAKEFLAGS", "make", "--silent", "wheel", f"DIST={tmp_path}"]
    made = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    if "Failed to fetch" in made.stderr:
        pytest.skip(f"no package index here: {made.stderr}")
    (wheel,) = map(Path, made.stdout.split())
    assert wheel.parent == tmp_path
    documents = "".join(map(read, PAGES))
    assert set(re.findall(r"nftsync-[^/]+\.whl", documents)) == {wheel.name}
