"""How large the house is: prints one table, and fails on nothing.

python -m benchmarks.counts
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(source: str) -> int:
    """Lines of code: no blank ones, comments or docstrings."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | _Function) and ast.get_docstring(node):
            found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def length(text: str) -> int:
    return len(text.splitlines())


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of each of a module's functions, docstrings included, and which one it is."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, _Function):
            yield (node.end_lineno or 0) - node.lineno + 1, f"{path.name}: {node.name}"


def main() -> None:
    package = {path: path.read_text() for path in (ROOT / "nftsync").rglob("*.py")}
    module = max((length(text), path.name) for path, text in package.items())
    function = max(found for path in package for found in functions(path))
    tests = sum(length(path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
    roots = sum(path.parent.name == "nftsync" for path in package)
    for what, value in (
        ("code lines of the package", f"{sum(map(code_lines, package.values())):,}"),
        ("modules", f"{len(package)}, {roots} of them at the root"),
        ("lines of tests", f"{tests:,}"),
        ("longest module", "{} lines, {}".format(*module)),
        ("longest function", "{} lines, {}".format(*function)),
    ):
        print(f"{what:26} {value}")


if __name__ == "__main__":
    main()
