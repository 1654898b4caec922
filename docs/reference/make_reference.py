"""Write the generated pages of this folder from the code.

python docs/reference/make_reference.py            # or: make reference
python docs/reference/make_reference.py --check    # name the pages that are out of date
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any

import click
from click.testing import CliRunner

from nftsync import frames, settings
from nftsync.cli import nftsync
from nftsync.receiver.app import Backlog, Metrics
from nftsync.reports.verification import Difference, Rule, Unread, Verification
from nftsync.serve.metrics import Freshness
from nftsync.store.catalog import TABLES
from nftsync.store.schema import open_store

FOLDER = Path(__file__).parent
NOTEBOOKS = FOLDER.parents[1] / "notebooks"
COLUMNS = 100
#: Fields of `nftsync verify --json`.
VERIFICATION = {
    "database": "Path of the database.",
    "verified_at": "Start of the verification.",
    "tracked": "Number of tracked wallets.",
    "never_read": "Number of tracked wallets without a complete read; they are not compared.",
    "sampled": "Number of wallets selected for the comparison.",
    "compared": "Number of wallets compared.",
    "read_meanwhile": "Number of wallets not compared because another process read them meanwhile.",
    "differing": "Number of wallets that differ.",
    "balances": "Number of balances compared, including balances that only the database or only"
    " the provider has.",
    "likely_at_most": "The largest likely share of differing wallets among all tracked wallets, at"
    " 95 % confidence. Null if a compared wallet differed, or if no wallet was compared.",
    "differences": "The first 10,000 differences. `mirror` is the value in the database, and"
    " `provider` is the value at the provider; null means that it is missing."
    " `read_at` is the start of the last complete read of the wallet. `webhook` is the state of the"
    " newest webhook since that read, or null. `why` tells whether a webhook announced the"
    " difference.",
    "differences_total": "Number of all differences.",
    "untold": "Text that explains why no webhook announced some of the differences, or null.",
    "unread": "Wallets that could not be read.",
    "rules": "Consistency checks. `checked` is the number of rows checked, `broken` the number of"
    " violations.",
    "error": "Reason why the verification could not continue, or null.",
    "repair": "With `--repair`: the result of the repair, as in `sync --json`.",
    "repaired": "With `--repair`: ids of the wallets that it repaired.",
    "requests": "Number of requests.",
    "seconds": "Duration in seconds.",
}
VERIFICATION_LISTS = {"differences": Difference, "unread": Unread, "rules": Rule}
MARK = "<!-- Generated from the code by `make reference`. Do not edit. -->"


def commands() -> list[str]:
    """Return every command as it is typed; the first is nftsync itself."""
    return [" ".join(names) for names in _walk(nftsync, ("nftsync",))]


def _walk(command: click.Command, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = [names]
    if isinstance(command, click.Group):
        with click.Context(command, **command.context_settings) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                found += _walk(inner, (*names, name))
    return found


def _help(command: str) -> str:
    """Return the output of `COMMAND --help` on a terminal of 100 columns."""
    ran = CliRunner().invoke(
        nftsync,
        [*command.split()[1:], "--help"],
        prog_name="nftsync",
        terminal_width=COLUMNS - 2,  # click leaves that margin
    )
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines) + "\n"


def _code(value: object) -> str:
    return f"`{value}`" if value else "–"


def _sentence(text: str) -> str:
    text = text.replace("|", r"\|")
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def commands_page() -> str:
    """Return the help of every command."""
    parts = [
        "# Command help\n",
        "The output of each command's `--help`. How to use them: [commands](../use/commands.md).\n",
    ]
    for command in commands():
        title = command.removeprefix("nftsync ")
        parts.append(f"## {title}\n\n```text\n$ {command} --help\n{_help(command)}```\n")
        if title == "verify":
            parts.append(_verification())
    return "\n".join(parts)


def _verification() -> str:
    rows = []
    for field in Verification.__struct_fields__:
        if (listed := VERIFICATION_LISTS.get(field)) is not None:
            field_names = ", ".join(map(_code, listed.__struct_fields__))
            rows.append((_code(field), f"{VERIFICATION[field]} Fields: {field_names}."))
        else:
            rows.append((_code(field), VERIFICATION[field]))
    return "With `--json`, it prints these fields:\n\n" + _table(("field", "meaning"), rows)


def settings_page() -> str:
    """Return every setting."""
    described = re.findall(
        r"(?m)^    (\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(settings.Settings) or ""
    )
    meanings = {name: " ".join(text.split()) for name, text in described}
    rows = [
        (
            _code(key.name),
            _code(key.variable),
            _code(key.flag),
            _default(key.default),
            _sentence(meanings[key.name]) + (" A secret." if key.secret else ""),
        )
        for key in settings.KEYS
    ]
    intro = (
        "Each setting with its variable, flag and default. How to set them, and what they do"
        " together: [settings](../operate/settings.md).\n"
    )
    table = _table(("key", "variable", "flag", "default", "meaning"), rows)
    return f"# All settings\n\n{intro}\n{table}"


def _default(value: object) -> str:
    if value is None or value == {}:
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def tables_page() -> str:
    """Return the columns of the public tables and views."""
    parts = [
        "# Columns of the tables and views\n",
        "The public columns of the tables. What the tables are for: [the data](../use/data.md).\n",
        "Other columns are internal.\n",
    ]
    for name, table in TABLES.items():
        rows = [
            (_code(column), note.kind, _sentence(note.meaning), note.source)
            for column, note in table.columns.items()
        ]
        parts += [f"## {name}\n", _table(("column", "type", "meaning", "source"), rows)]
    return "\n".join(parts)


def frames_page() -> str:
    """Return the columns of the frames, and the functions of the notebooks."""
    parts = [
        "# Columns of the frames\n",
        "The columns of each frame; `frames.explain(NAME)` returns them in Python.\n",
        "How to use frames: [the data](../use/data.md).\n",
        "The last section has the [functions of the notebooks](#functions-of-the-notebooks).\n",
    ]
    for name in frames.explain()["name"]:
        notes = frames.explain(name).itertuples(index=False)
        rows = [(_code(note.column), note.type, _sentence(note.meaning)) for note in notes]
        parts += [f"## {name}\n", _table(("column", "type", "meaning"), rows)]
    return "\n".join([*parts, _notebook_functions()])


def _notebook_functions() -> str:
    """Return what the notebooks import beside frames and charts, with the docstrings."""
    imports = set()
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        for module, names in re.findall(r"from (nftsync\.notebooks\.\w+) import (.+)", text):
            imports |= {(module, name) for name in names.split(", ")}
    parts = [
        "## Functions of the notebooks\n",
        "The [notebooks](../use/notebooks/README.md) import these; they may change.\n",
    ]
    for module, name in sorted(imports):
        helper = getattr(import_module(module), name)
        parts += [f"### {name}\n", f"```text\nfrom {module} import {name}\n"]
        parts += [_described(name, helper) + "```\n"]
    return "\n".join(parts)


def _described(name: str, member: Any) -> str:
    """Return the call of a member and its docstring; of a class, also its public members."""
    call = name
    if callable(member):
        signature = inspect.signature(member)
        named = [part for part in signature.parameters.values() if part.name != "self"]
        bare = [part.replace(annotation=part.empty) for part in named]
        call += str(signature.replace(parameters=bare, return_annotation=signature.empty))
    text = f"{call}\n{indent(inspect.getdoc(member) or '', '    ')}\n"
    if inspect.isclass(member):
        members = [item for item in vars(member).items() if not item[0].startswith("_")]
        text += "".join(indent(f"\n{_described(*item)}", "    ") for item in members)
    return text


def metrics_page() -> str:
    """Return the metrics of `nftsync serve --metrics-port`."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "nftsync.db"
        open_store(database).close()
        sources = (Metrics().registry, Backlog(database), Freshness(database, timedelta(hours=6)))
        families = [family for source in sources for family in source.collect()]
    rows = []
    for family in families:
        total = "_total" if family.type == "counter" else ""
        labels: dict[str, list[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le" and value not in labels.setdefault(label, []):
                    labels[label].append(value)
        values = "; ".join(f"`{label}`: {', '.join(names)}" for label, names in labels.items())
        meaning = _sentence(family.documentation)
        rows.append((_code(family.name + total), family.type, values or "–", meaning))
    intro = (
        "The metrics of `nftsync serve --metrics-port`."
        " How to collect them, and alert rules: [monitor](../operate/monitor.md#metrics).\n"
    )
    return "\n".join(["# Metrics\n", intro, _table(("metric", "type", "labels", "meaning"), rows)])


def readme_page() -> str:
    """Return the list of the other pages."""
    titles = {name: make().partition("\n")[0].removeprefix("# ") for name, make in LISTED.items()}
    titles["provider.yaml"] = "The provider's API, as OpenAPI"
    intro = "Complete lists, generated from the code.\n\n"
    return f"# Reference\n\n{intro}" + "".join(
        f"- [{title}]({name})\n" for name, title in titles.items()
    )


LISTED: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "tables.md": tables_page,
    "frames.md": frames_page,
    "metrics.md": metrics_page,
}
PAGES = {"README.md": readme_page, **LISTED}


def main() -> int:
    """Write the pages, or with --check list those that are out of date."""
    pages = {FOLDER / name: f"{MARK}\n\n{make()}" for name, make in PAGES.items()}
    stale = [
        page for page, text in pages.items() if not page.exists() or page.read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.name} is out of date: make reference")
        return min(1, len(stale))
    for page in stale:
        page.write_text(pages[page], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
