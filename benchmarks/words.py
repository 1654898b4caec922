"""Phrases that make prose hard to read, counted; fails above a bound.

python -m benchmarks.words           # the table
python -m benchmarks.words --show    # and each place, with advice
python -m benchmarks.words FILE ...  # only these files; never fails
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).parents[1]
#: Phrases per 1,000 words, in each kind of text.
MOST_PER_THOUSAND = 1.5
MOST_DOCSTRING_WORDS = 41_750
#: Words of a sentence, and how many sentences in README and docs may be longer.
LONG_SENTENCE, MOST_LONG_SENTENCES = 30, 4
#: Variables and arguments with these names.
MOST_VAGUE_NAMES = 0
#: What to write instead of a phrase: advice, and the phrase as regular expressions.
PHRASES = {
    "name the thing": (
        r"what (?:is|was|are|were|comes|came|has|had|there|they|it|an?|of|those|others|else)",
        r"what (?:vanish|wait|show|chang|fail|need|remain|go|stand|hold|belong|count)\w*",
    ),
    "name the person or program": (
        r"who(?:ever)? (?:is|was|has|may|takes?|made|knows?|runs?|wants?)",
        r"who(?:ever)? (?:wait|read|look|use|write|ask|hold|call)\w*",
        r"nobody|somebody|anybody|everybody|no one",
    ),
    "repeat the noun or the verb": (
        r"those (?:that|of|who|which|with|to|in)|that of",
        r"it is so|is so|are so|does so",
    ),
    "continue, resume": (r"(?:go|goes|gone|went|going) on(?: with)?",),
    "again, from the start": (r"anew|afresh",),
    "equals, results in, totals": (r"com(?:e|es|ing|ame) to",),
    "check, inspect, query": (r"look(?:s|ed|ing)? (?:at|into|after)",),
    "repeat, process": (r"made (?:again|up for)|work(?:s|ed|ing)? off",),
    "release, expire, allow": (r"lets? (?:go|through|it)|let go of|let_go",),
    "requeue, hold for review": (r"puts? back|(?:held|holds?) back",),
    "gets, reports, logs": (r"(?:is|are|was|were|been) told|(?:tells?|told) of",),
    "name the state": (r"how (?:it|they) (?:is|are|was|were)",),
    "report, state": (r"says? so|says? what",),
    "automatically, separate": (r"by (?:itself|themselves)|of (?:its|their) own",),
    "confirm": (r"vouch\w*",),
    "is not a …": (r"(?:is|are|be) no [a-z]+",),
    "a second sentence: Otherwise, …": (r", (?:or )?else ",),
    "start date, since": (r"since when",),
    "median, during, between A and B": (r"in the middle|in between",),
    "see docs/glossary.md": (r"brake|verdict|overtaken|ticket",),
    "is in, contains, represents": (r"(?:stands?|stood) (?:in|there|for)",),
    "unchanged, in the order of …": (r"as (?:it|they) (?:came|comes?|stands?)",),
    "rarely, without result, forever": (r"seldom|in vain|for ever|lest|hereafter",),
    "US spelling": (r"(?:colour|behaviour|neutralis|organis|recognis|favour|licence|grey)\w*",),
}
#: Legitimate uses: the text around a phrase, and the reason.
ALLOWED = {
    r"## Who holds": "headings of pages of questions",
    r"\*\*what (?:an|it)|## what an organization": "headings that name a section",
    r"who holds (?:it|both)": "questions that a notebook answers",
    r"those of older hold": "a comparison, with its noun in the sentence",
}
VAGUE_NAMES = {"each", "found", "given", "held", "kept", "known", "said", "seen", "told", "what"}

_GROUPS = "|".join(f"({'|'.join(patterns)})" for patterns in PHRASES.values())
_PHRASE = re.compile(rf"(?<!\w)(?:{_GROUPS})(?!\w)", re.I)
_ADVICE = list(PHRASES)
_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
#: A line number and the text that starts there.
Text: TypeAlias = tuple[int, str]


class Mark(NamedTuple):
    """One place to rewrite."""

    path: Path
    line: int
    phrase: str
    advice: str


def without_code(text: str) -> str:
    """Remove fenced code, inline code, comments and link targets; line numbers stay."""
    for pattern in (r"```.*?```", r"<!--.*?-->", r"`[^`\n]*`", r"\]\([^)]*\)"):
        text = re.sub(pattern, lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    return text


def page(path: Path) -> Iterator[Text]:
    """Yield a page's prose."""
    yield 1, without_code(path.read_text())


def notebook(path: Path) -> Iterator[Text]:
    """Yield the prose cells of a notebook."""
    for number, cell in enumerate(json.loads(path.read_text())["cells"], 1):
        if cell["cell_type"] == "markdown":
            yield number, without_code("".join(cell["source"]))


def _documented(tree: ast.AST) -> Iterator[_Documented]:
    for node in ast.walk(tree):
        if isinstance(node, _Documented):
            yield node


def docstrings(path: Path) -> Iterator[Text]:
    """Yield a module's docstrings."""
    for node in _documented(ast.parse(path.read_text())):
        if text := ast.get_docstring(node):
            yield getattr(node.body[0], "lineno", 1), text


def messages(path: Path) -> Iterator[Text]:
    """Yield texts of at least four words that are neither docstrings nor SQL."""
    tree = ast.parse(path.read_text())
    documented = {
        id(node.body[0].value)
        for node in _documented(tree)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documented
            and len(node.value.split()) >= 4
            and not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|FROM)\b", node.value)
        ):
            yield node.lineno, node.value


def comments(path: Path) -> Iterator[Text]:
    """Yield a module's comments."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.search(r"(?:^|\s)#:? (?!noqa|type:|fmt:)(.*)", line):
            yield number, match[1]


def vague_names(path: Path) -> Iterator[Mark]:
    """Yield variables and arguments that say nothing about their content."""
    for node in ast.walk(ast.parse(path.read_text())):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in VAGUE_NAMES:
            yield Mark(path, node.lineno, name, "name a variable for its content")  # type: ignore[attr-defined]


def long_sentences(path: Path) -> Iterator[Mark]:
    """Yield the sentences of a page that are too long."""
    text = re.sub(r"^\|.*$", "", page_text(path), flags=re.M)
    for match in re.finditer(r"(?:(?!\n\s*\n|\n\s*[-*#] |[.!?:]\s).)+", text, re.S):
        words = match[0].split()
        if len(words) > LONG_SENTENCE:
            line = text[: match.start()].count("\n") + 1
            yield Mark(path, line, " ".join(words[:8]) + " …", f"{len(words)} words: split it")


def page_text(path: Path) -> str:
    """Return a page's prose."""
    return "".join(text for _, text in page(path))


def marks(path: Path, texts: Callable[[Path], Iterator[Text]]) -> tuple[list[Mark], int]:
    """Return the phrases to rewrite in a file, and its number of words."""
    places, words = [], 0
    for line, text in texts(path):
        words += len(re.findall(r"[A-Za-z'’]+", text))
        for match in _PHRASE.finditer(text):
            around = text[max(0, match.start() - 40) : match.end() + 40]
            if not any(re.search(allowed, around, re.I) for allowed in ALLOWED):
                advice = _ADVICE[(match.lastindex or 1) - 1]
                shown = " ".join(around.split())
                places.append(Mark(path, line + text[: match.start()].count("\n"), shown, advice))
    return places, words


def main(arguments: list[str]) -> int:
    """Print the table; the exit code says whether it holds."""
    only = {Path(name).resolve() for name in arguments if not name.startswith("-")}

    def files(*patterns: str) -> list[Path]:
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        return [path for path in paths if not only or path in only]

    code = files("nftsync/**/*.py")
    pages = files("README.md", "CHANGELOG.md", "docs/**/*.md")
    kinds: list[tuple[str, list[Path], Any]] = [
        ("README, CHANGELOG and docs", pages, page),
        ("notebooks", files("notebooks/*.ipynb"), notebook),
        ("messages", code, messages),
        ("docstrings", code, docstrings),
        ("comments", code, comments),
    ]
    rows: list[tuple[str, float, float]] = []
    places: list[Mark] = []
    for kind, paths, texts in kinds:
        counted = [marks(path, texts) for path in paths]
        words = sum(number for _, number in counted)
        here = [mark for some, _ in counted for mark in some]
        places += here
        if words:
            rate = 1000 * len(here) / words
            rows.append((f"phrases per 1,000 words in {kind}", rate, MOST_PER_THOUSAND))
        if kind == "docstrings":
            rows.append(("words in docstrings", words, MOST_DOCSTRING_WORDS))
    sentences = [mark for path in pages for mark in long_sentences(path)]
    names = [mark for path in code for mark in vague_names(path)]
    over = f"sentences over {LONG_SENTENCE} words in README and docs"
    rows.append((over, len(sentences), MOST_LONG_SENTENCES))
    rows.append(("variables without a meaning of their own", len(names), MOST_VAGUE_NAMES))
    if "--show" in arguments:
        for mark in [*places, *sentences, *names]:
            print(f"{mark.path.relative_to(ROOT)}:{mark.line}: {mark.phrase}  [{mark.advice}]")
    for metric, value, bound in rows:
        print(f"{metric:55}{value:>10,.5g}{bound:>10,}{' over' if value > bound else ''}")
    return int(not only and any(value > bound for _, value, bound in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
