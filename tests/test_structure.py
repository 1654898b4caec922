"""Rules about the size and structure of the package.

python -m tests.test_structure    # the table: metric, value, bound, and the places of each rule

A bound is only raised in a commit of its own that gives the reason.
"""

import ast
import io
import json
import re
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

import grimp

from tests.kit.worlds import PATIENCE

ROOT = Path(__file__).parents[1]

#: Upper bounds. Lines are code lines: without blank lines, comments and docstrings.
BOUNDS = {
    "lines of the package": 29_030,
    "lines of pull, replay and receiver": 2_660,
    "words in docstrings": 32_500,
    "physical lines of benchmarks": 2_900,
    "physical lines of tests": 39_800,
    "modules on a wallet's path in a sync": 40,
    "modules on a webhook's path to a row": 41,
    "import cycles": 0,
    "imports of another package's underscore names": 0,
    "modules outside store/ that write to tables": 0,
    "functions over 60 lines": 0,
    "classes over 200 lines": 0,
    "modules over 400 lines": 0,
    "record types of the removal guard": 4,
    "places that construct FilesInUse": 1,
    "places that construct Checkpoints": 1,
    "definitions of the stale limit": 1,
    "loops that restart after a StoreError": 1,
}

LONGEST_FUNCTION, LONGEST_CLASS, LONGEST_MODULE = 60, 200, 400
#: Limits of classes and modules apply to these packages.
CORE = ("store", "pull", "replay", "receiver")
#: The package outside store/ that may write to tables: temporary databases of buckets.
WRITER = "lake"
#: Modules whose classes are the record types of the removal guard.
GUARD = {"nftsync.pull.guard", "nftsync.store.history", "nftsync.store.day_report"}

_WRITE = re.compile(
    r"\b(?:INSERT (?:OR \w+ )?INTO|REPLACE INTO|UPDATE(?! OF)|DELETE FROM|ALTER TABLE"
    r"|(?:CREATE|DROP) (?:UNIQUE |VIRTUAL )?(?:TABLE|INDEX|VIEW|TRIGGER)(?: IF (?:NOT )?EXISTS)?)"
    r"\s+(?P<table>[\w.{}]+)"
)
_TEMPORARY = re.compile(r"\bCREATE TEMP(?:ORARY)? TABLE (?:IF NOT EXISTS )?(\w+)")
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Documented: TypeAlias = ast.Module | ast.ClassDef | _Function
#: A number, or the places that count.
Value: TypeAlias = int | list[str]


class Module:
    """A source file: its syntax tree and the numbers of its code lines."""

    def __init__(self, path: Path) -> None:
        source = path.read_text()
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.package = [*parts, ""][1]
        self.tree = ast.parse(source)
        self.docstrings = [
            node.body[0]
            for node in ast.walk(self.tree)
            if isinstance(node, _Documented) and ast.get_docstring(node)
        ]
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        self.lines = lines.difference(*map(_span, self.docstrings))

    def nodes(self, *types: type[ast.AST]) -> Iterator[Any]:
        return (node for node in ast.walk(self.tree) if isinstance(node, types))

    def longer(self, limit: int, *types: type[ast.AST]) -> list[str]:
        """Return the functions or classes with more code lines than a limit."""
        return [
            f"{self.name}.{node.name}: {size}"
            for node in self.nodes(*types)
            if (size := len(self.lines.intersection(_span(node)))) > limit
        ]

    def words(self) -> int:
        return sum(len(node.value.value.split()) for node in self.docstrings)

    def private_imports(self) -> Iterator[str]:
        """Yield the imports of underscore names of other packages."""
        for node in self.nodes(ast.ImportFrom, ast.Import):
            for alias in node.names:
                name = ".".join(filter(None, (getattr(node, "module", ""), alias.name)))
                inside = f"nftsync.{self.package}."
                if re.match(r"nftsync\..*(?<=\.)_(?!_)", name) and not name.startswith(inside):
                    yield f"{self.name}: {name}"

    def written_tables(self) -> list[str]:
        """Return the tables that SQL of this module writes to, without its temporary ones."""
        docstrings = {id(node.value) for node in self.docstrings}
        nodes = [x for x in self.nodes(ast.JoinedStr, ast.Constant) if id(x) not in docstrings]
        text = "\0".join(map(_text, nodes))
        written = {match["table"] for match in _WRITE.finditer(text)}
        return sorted(written - {*_TEMPORARY.findall(text)})

    def calls(self, name: str) -> list[str]:
        return [
            f"{self.name}:{node.lineno}"
            for node in self.nodes(ast.Call)
            if getattr(node.func, "id", getattr(node.func, "attr", "")) == name
        ]

    def stale_limits(self) -> list[str]:
        return [
            f"{self.name}.{node.targets[0].id}"
            for node in self.nodes(ast.Assign)
            if "STALE" in getattr(node.targets[0], "id", "")
            if isinstance(getattr(node.value, "value", None), int)
        ]

    def restart_loops(self) -> list[str]:
        """Return the loops that check the files of the database and catch its errors."""
        return [
            f"{self.name}:{loop.lineno}"
            for loop in self.nodes(ast.While)
            if any(getattr(node, "id", "") == "refuse_other_file" for node in ast.walk(loop))
            if any(isinstance(node, ast.ExceptHandler) for node in ast.walk(loop))
        ]


def _span(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def import_cycles() -> list[str]:
    """Return modules that import each other, also for type checking only."""
    graph = grimp.build_graph("nftsync", exclude_type_checking_imports=False, cache_dir=None)
    imported = {x: graph.find_modules_directly_imported_by(x) for x in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def physical_lines(folder: str) -> int:
    return sum(len(file.read_text().splitlines()) for file in (ROOT / folder).rglob("*.py"))


def measure() -> dict[str, Value]:
    """Measure the source files."""
    package = [Module(path) for path in sorted((ROOT / "nftsync").rglob("*.py"))]
    core = [module for module in package if module.package in CORE]

    def places(find: str, *arguments: object, of: list[Module] = package) -> list[str]:
        return [place for module in of for place in getattr(module, find)(*arguments)]

    return {
        "lines of the package": sum(len(x.lines) for x in package),
        "lines of pull, replay and receiver": sum(
            len(x.lines) for x in core if x.package != "store"
        ),
        "words in docstrings": sum(x.words() for x in package),
        "physical lines of benchmarks": physical_lines("benchmarks"),
        "physical lines of tests": physical_lines("tests"),
        "import cycles": import_cycles(),
        "imports of another package's underscore names": places("private_imports"),
        "modules outside store/ that write to tables": [
            f"{module.name}: {', '.join(tables)}"
            for module in package
            if module.package not in {"store", WRITER} and (tables := module.written_tables())
        ],
        "functions over 60 lines": places("longer", LONGEST_FUNCTION, *_Function.__args__),
        "classes over 200 lines": places("longer", LONGEST_CLASS, ast.ClassDef, of=core),
        "modules over 400 lines": [
            f"{x.name}: {len(x.lines)}" for x in core if len(x.lines) > LONGEST_MODULE
        ],
        "record types of the removal guard": [
            f"{module.name}.{node.name}"
            for module in package
            for node in module.nodes(ast.ClassDef)
            if module.name in GUARD
        ],
        "places that construct FilesInUse": places("calls", "FilesInUse"),
        "places that construct Checkpoints": places("calls", "Checkpoints"),
        "definitions of the stale limit": places("stale_limits"),
        "loops that restart after a StoreError": places("restart_loops"),
    }


def trace() -> dict[str, Value]:
    """Return the modules that a wallet and a webhook pass, from a process of its own."""
    command = [sys.executable, "-m", "tests.kit.traced_paths"]
    paths = json.loads(subprocess.check_output(command, cwd=ROOT, timeout=PATIENCE))
    return {
        "modules on a wallet's path in a sync": paths["wallet"],
        "modules on a webhook's path to a row": paths["webhook"],
    }


def _number(value: Value) -> int:
    return value if isinstance(value, int) else len(value)


def _over(values: dict[str, Value]) -> dict[str, Value]:
    return {metric: value for metric, value in values.items() if _number(value) > BOUNDS[metric]}


def test_the_source_is_within_its_bounds():
    assert _over(measure()) == {}


def test_the_paths_of_a_wallet_and_a_webhook_pass_few_modules():
    assert _over(trace()) == {}


def main() -> None:
    values = measure() | trace()
    print(f"{'metric':48} {'now':>7} {'bound':>7}")
    for metric, bound in BOUNDS.items():
        value = values[metric]
        print(f"{metric:48} {_number(value):7,} {bound:7,}{' over' * (_number(value) > bound)}")
        if isinstance(value, list) and value:
            print(textwrap.indent(textwrap.fill(", ".join(value), 96), "    "))


if __name__ == "__main__":
    main()
