"""The help texts in docs/use/commands.md: `python -m tests.docs.write_commands` writes them anew.

In the page, a line `<!-- help: COMMAND -->` stands before each block that holds a help text.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.testing import CliRunner

from nftsync.cli import nftsync

PAGE = Path(__file__).parents[2] / "docs" / "use" / "commands.md"

_COLUMNS = 100
_HELP = re.compile(r"<!-- help: (?P<command>[a-z -]+) -->\n```text\n.*?^```\n", re.DOTALL | re.M)


def commands() -> list[str]:
    """Every command, as it is typed; the first is nftsync itself."""
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


def help_of(command: str) -> str:
    """What `COMMAND --help` prints on a terminal of 100 columns."""
    ran = CliRunner().invoke(
        nftsync,
        [*command.split()[1:], "--help"],
        prog_name="nftsync",
        terminal_width=_COLUMNS - 2,  # click leaves that margin
    )
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def with_help(page: str) -> str:
    """The page with each help text as it is now."""

    def block(found: re.Match[str]) -> str:
        command = found["command"]
        return f"<!-- help: {command} -->\n```text\n$ {command} --help\n{help_of(command)}```\n"

    return _HELP.sub(block, page)


def described(page: str) -> list[str]:
    """The commands whose help the page holds."""
    return [found["command"] for found in _HELP.finditer(page)]


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
