"""Size and structure of the package, each figure beside its bound; nothing fails on them.

python -m benchmarks.counts            # also traces a sync and a webhook, which takes seconds
python -m benchmarks.counts --quick    # only what the source files show
python -m benchmarks.counts --modules  # and the modules on the two paths
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import re
import sys
import tempfile
import textwrap
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias
from urllib.request import Request, urlopen

import grimp

ROOT = Path(__file__).parents[1]
#: Users import these modules.
PUBLIC = {"nftsync", "nftsync.frames", "nftsync.charts", "nftsync.lake"}
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Count(NamedTuple):
    """One line of the table; `names` says which things were counted, if they are few."""

    metric: str
    value: int
    bound: int
    names: str = ""


def code_lines(source: str) -> int:
    """Count lines without blank ones, comments and docstrings."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | _Function) and ast.get_docstring(node):
            found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_cycles() -> list[set[str]]:
    """Return the groups of modules that import each other, imports within functions included."""
    graph = grimp.build_graph("nftsync", exclude_type_checking_imports=True, cache_dir=None)
    reach: dict[str, set[str]] = {}
    for module in graph.modules:
        found: set[str] = set()
        left = [module]
        while left:
            for imported in graph.find_modules_directly_imported_by(left.pop()) - found:
                found.add(imported)
                left.append(imported)
        reach[module] = found
    cycles = {frozenset(x for x in reach[m] if m in reach[x]) for m in reach if m in reach[m]}
    return [set(cycle) for cycle in cycles]


def private_imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield a module's imports of underscore names and modules of other packages."""
    home = name.split(".")[1:2]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            of = node.module.split(".")
            imported = [[*of, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            imported = [alias.name.split(".") for alias in node.names]
        else:
            continue
        private = [parts for parts in imported if any(re.match("_(?!_)", x) for x in parts)]
        if any(parts[0] == "nftsync" and parts[1:2] != home for parts in private):
            yield f"{name} from {'.'.join(private[0][:-1])}"


def written_words(text: str) -> int:
    """Count the words of a page without its code blocks and the table that `make bench` writes."""
    text = re.sub(r"<!-- Made by .*?<!-- Made by .*? up to here. -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *(```+).*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return sum(any(map(str.isalnum, word)) for word in text.split())


def is_generated(text: str) -> bool:
    return "generated" in text.partition("\n")[0].lower()


def source_counts() -> Iterator[Count]:
    package = {path: path.read_text() for path in sorted((ROOT / "nftsync").rglob("*.py"))}
    trees = {module_name(path): ast.parse(text) for path, text in package.items()}
    lines = {module_name(path): code_lines(text) for path, text in package.items()}
    lake = sum(count for name, count in lines.items() if name.startswith("nftsync.lake"))
    yield Count("code lines of the package", sum(lines.values()), 24_550)
    yield Count("code lines without lake/", sum(lines.values()) - lake, 21_050)
    yield Count("modules", len(package), 145)
    cycles = import_cycles()
    yield Count("import cycles", len(cycles), 0, "; ".join(", ".join(sorted(c)) for c in cycles))
    private = [found for name, tree in trees.items() for found in private_imports(name, tree)]
    yield Count(
        "imports of another package's underscore names", len(private), 0, "; ".join(private)
    )
    internal = [
        name
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        if name not in PUBLIC
    ]
    yield Count("modules with an internal __all__", len(internal), 0, ", ".join(internal))
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = [name for name, count in classes.items() if count > 1]
    yield Count("public class names defined twice", len(twice), 0, ", ".join(twice))
    tests = (ROOT / "tests").rglob("*.py")
    yield Count("lines of tests", sum(len(path.read_text().splitlines()) for path in tests), 30_000)
    pages = [page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    words = sum(written_words(page) for page in pages if not is_generated(page))
    yield Count("words of hand-written docs", words, 18_000)


class Tracer:
    """Notes whose functions run while it is on, in all threads that start after it was made."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._on = False
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        # The bodies of modules and classes run once, when they are imported.
        if self._on and event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            name = frame.f_globals.get("__name__", "")
            if name.partition(".")[0] == "nftsync":
                self.modules.add(name)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False


def _synced(base: str, wallets: list[str], folder: Path) -> set[str]:
    """Return the modules that a sync of some wallets runs, the second time."""
    import nftsync

    for number in range(2):
        tracer = Tracer()
        database = folder / f"sync{number}.db"
        with tracer.on():
            nftsync.sync(wallets, base_url=base, database=database, progress=False)
    return tracer.modules


def _replayed(base: str, wallets: list[str], folder: Path) -> set[str]:
    """Return the modules that run from the receiver's port to the rows, the second time."""
    from benchmarks.webhooks import SECRET, webhook
    from nftsync import settings
    from nftsync.provider.webhooks import HEADER, sign
    from nftsync.receiver.app import close_app, create_app
    from nftsync.replay.worker import replay_once
    from nftsync.serve.schedule import replay_config
    from nftsync.wsgi import HttpServer

    config = replay_config(settings.load({"base_url": base}, environ={}, directory=folder))
    database = folder / "replay.db"
    for wallet in wallets[:2]:
        tracer = Tracer()
        body = webhook("Wallet", wallet)
        headers = {HEADER: sign(SECRET, body), "Content-Type": "application/json"}
        app = create_app(database=database, secrets=[SECRET])
        with HttpServer(app) as server, tracer.on():
            with urlopen(Request(f"{server.url}/webhooks", body, headers)) as reply:
                assert reply.status == 200
            result = replay_once(database, config, threading.Event(), progress=False)
        close_app(app)
        assert result.done == 1
    return tracer.modules


def traced_counts() -> Iterator[Count]:
    from benchmarks.webhooks import provider

    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as name, provider(8, 5) as base:
        os.chdir(name)  # no settings file
        with urlopen(f"{base}/sandbox/wallets") as answer:
            wallets = json.load(answer)
        for metric, bound, trace in (
            ("modules on a wallet's path in a sync", 28, _synced),
            ("modules on a webhook's path to a row", 30, _replayed),
        ):
            modules = trace(base, wallets, Path(name))
            yield Count(metric, len(modules), bound, ", ".join(sorted(modules)))
        os.chdir(ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="trace nothing")
    parser.add_argument("--modules", action="store_true", help="name what the paths run")
    asked = parser.parse_args()
    counts = [*source_counts(), *([] if asked.quick else traced_counts())]
    print(f"{'metric':46} {'now':>7} {'at most':>8}")
    for count in counts:
        over = "over" if count.value > count.bound else ""
        print(f"{count.metric:46} {count.value:7,} {count.bound:8,} {over}".rstrip())
        path = count.metric.startswith("modules on")
        if count.names and (asked.modules if path else True):
            shown = count.names if asked.modules else textwrap.shorten(count.names, 200)
            print(textwrap.indent(textwrap.fill(shown, 96), "    "))


if __name__ == "__main__":
    main()
