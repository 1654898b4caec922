"""Statements of docs/use/gallery.md."""

import inspect
import re
from pathlib import Path

import nftsync
from tests.gallery.gallery_frames import data_of
from tests.kit.database import Builder, wallet_id

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "gallery.md").read_text(encoding="utf-8")


def test_the_example_writes_a_page(tmp_path, monkeypatch):
    build = Builder(tmp_path / "nftsync.db")
    for number, label in enumerate(("Treasury", "Auctions"), start=1):
        build.wallet(number, label=label)
        build.token(number)
        build.balance(number, number, "1")
    monkeypatch.setenv("NFTSYNC_DATABASE", str(build.close()))
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(example, "gallery.md", "exec"), {})
    written = (tmp_path / "treasury.html").read_text(encoding="utf-8")
    assert data_of(written)["columns"]["wallet"]["of"] == [wallet_id(1)]


def test_each_argument_is_described_with_its_default():
    rows = dict(re.findall(r"^\| (`.+?) \| (.+?) \|", PAGE, re.M))
    described = {name: default for names, default in rows.items() for name in names.split(", ")}
    arguments = inspect.signature(nftsync.gallery).parameters
    assert [name.strip("`") for name in described] == list(arguments)
    for name, argument in arguments.items():
        if argument.default is not None:
            assert described[f"`{name}`"] == str(argument.default).lower()
