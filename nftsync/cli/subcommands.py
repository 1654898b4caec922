"""Groups whose own call does something too: flags may stand before or after a subcommand's name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["settings_of"]


def settings_of(context: click.Context, own: Settings) -> Settings:
    """A subcommand's settings: those after its name, else those before it.

    Args:
        context: the subcommand's; its `obj` is the group's settings.
        own: what the flags after the subcommand's name, and all else, come to.
    """
    outer: Settings | None = context.obj
    if outer is None:
        return own
    last, first = (own, outer) if context.params.get("config") is not None else (outer, own)
    by_flag = next((each for each in (own, outer) if _database_by_flag(each)), None)
    if by_flag is None or by_flag is last:
        return last
    return replace(
        last, database=first.database, sources={**last.sources, "database": "flag --database"}
    )


def _database_by_flag(settings: Settings) -> bool:
    return settings.sources["database"].startswith("flag")
