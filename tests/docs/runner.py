"""Runs the blocks of a page, one after the other, in one folder."""

import ast
import re
import shutil
import sqlite3
from contextlib import closing

import pytest

from nftsync import settings
from tests.docs.pages import Block
from tests.docs.session import Session

#: Programs that a page uses and a machine may lack; there its block is not run.
_BESIDE = ("curl", "sqlite3")


class Runner:
    """Runs blocks, each in the way of its language."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = session
        self.database = session.folder / "data" / "nftsync.db"
        monkeypatch.chdir(session.folder)

    def run(self, block: Block) -> object:
        return getattr(self, f"_{block.language}")(block.text)

    def _text(self, text: str) -> None:
        """What a program prints: nothing to run."""

    def _csv(self, text: str) -> None:
        (self.session.folder / "wallets.csv").write_text(text)

    def _sh(self, text: str) -> object:
        if text.startswith("make "):
            return self.session.make(text)
        if text.startswith("nftsync sandbox"):
            self.session.replace["http://127.0.0.1:8788"] = self.session.serve(text).split()[0]
            return None
        if text.startswith("nftsync serve"):
            url = self.session.receive(text)
            self.session.replace["https://hooks.example.com/webhooks"] = url
            self.session.replace["http://127.0.0.1:8787"] = url.removesuffix("/webhooks")
            return None
        if any(re.match(rf"{name}\b", text) and shutil.which(name) is None for name in _BESIDE):
            return None
        return self.session.run(text)

    def _python(self, text: str) -> object:
        tree = ast.parse(self.session.replaced(text))
        names: dict[str, object] = {"__name__": "snippet"}
        last = tree.body[-1]
        value = None
        if isinstance(last, ast.Expr):
            tree.body.pop()
            value = ast.Expression(last.value)
        exec(compile(tree, "snippet", "exec"), names)
        return value and eval(compile(value, "snippet", "eval"), names)

    def _sql(self, text: str) -> object:
        address = f"file:{self.database}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute(self.session.replaced(text)).fetchall()
        assert rows, f"no rows:\n{text}"
        return rows

    def _toml(self, text: str) -> None:
        file = self.session.folder / "example" / "nftsync.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        loaded = settings.load(config=file, environ={}, directory=self.session.folder)
        assert f"file {file}" in loaded.sources.values()
