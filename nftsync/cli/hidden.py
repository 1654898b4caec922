"""The commands `hide`, `unhide` and `hidden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import one_line, open_existing, say
from nftsync.cli.tables import TableColumn, View, view_options

if TYPE_CHECKING:
    from nftsync.settings import Settings

_NFTS = (
    TableColumn("hidden", "id", "id", name="name"),
    TableColumn("tokens", "tokens", "number"),
    TableColumn("holdings", "holdings", "number"),
)
_ENTRY = (
    *_NFTS,
    TableColumn("source", "source"),
    TableColumn("since", "hidden_at", "time"),
    TableColumn("reason", "reason"),
)
_CANDIDATE = (
    _NFTS[0]._replace(heading="candidate"),
    *_NFTS[1:],
    TableColumn("reason", "reason", "message"),
)

_named = click.argument("named", nargs=-1, metavar="CONTRACT_OR_TOKEN...")


def _show(
    view: View, rows: list[dict[str, Any]], columns: tuple[TableColumn, ...], noun: str, empty: str
) -> None:
    if not view.as_json:
        rows = [row | {"id": row["contract"] or row["token_id"]} for row in rows]
    view.show(rows, columns, noun, empty=empty)


@click.command()
@_named
@options.text("--reason", "TEXT", "Reason that `nftsync hidden` shows.")
@options.flag("--suggest", "List spam candidates with reasons; hide nothing.")
@options.with_settings("database")
@view_options("Print the hidden entries, or the candidates, as JSON.")
def hide(
    settings: Settings, named: tuple[str, ...], *, reason: str | None, suggest: bool, view: View
) -> None:
    """Hide spam: contracts by address or name, and tokens by id.

    Holdings, transfers, statistics, charts, galleries and reports omit hidden NFTs, and state their
    number; `holdings`, `transfers` and `collections` include them with --hidden. Statements show
    them in a separate row. Tables, the change feed, exports, evidence and verify always contain
    them.

    \b
    --suggest lists contracts and tokens that match either rule:
      - Names contain a link or a word such as "claim", or descriptions contain
        both.
      - At least 5 wallets, and 80 % of the holders, received the NFTs within
        24 hours from an unknown sender.

    \b
    Examples:
      nftsync hide --suggest
      nftsync hide "Claim Rewards" --reason "airdropped spam"
      nftsync hide 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d
    """
    if suggest == bool(named):
        raise click.UsageError("name contracts or tokens to hide, or list candidates: --suggest")
    if suggest:
        if reason is not None:
            raise click.UsageError("--reason cannot be used with --suggest; drop one of them")
        from nftsync.reports.spam import suggest_hidden

        candidates = suggest_hidden(settings.database)
        _show(view, candidates, _CANDIDATE, "candidates", "No candidates.")
        if candidates:
            say("Hide one by its name or id: `nftsync hide`")
        return
    from nftsync.store.hidden import entry_named, list_hidden
    from nftsync.store.hidden import hide as store

    with open_existing(settings.database) as mirror:
        mirror.index_tokens()
        with mirror.transaction() as transaction:
            connection = transaction.connection
            entries = {entry_named(connection, text.strip()) for text in named}
            store(connection, entries, reason and reason.strip(), transaction.observed_at)
            rows = [
                row
                for row in list_hidden(connection)
                if row["source"] == "given" and (row["contract"], row["token_id"]) in entries
            ]
    _show(view, rows, _ENTRY, "entries", "")
    say("To undo this: `nftsync unhide`")


@click.command()
@_named
@options.with_settings("database")
def unhide(settings: Settings, named: tuple[str, ...]) -> None:
    """Show hidden contracts and tokens again.

    Entries from `hidden_file` stay hidden until you remove them from the file and sync.

    \b
    Examples:
      nftsync unhide "Claim Rewards"
      nftsync unhide 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d
    """
    if not named:
        raise click.UsageError("name contracts or tokens; to list them: `nftsync hidden`")
    from nftsync.store.hidden import entry_named
    from nftsync.store.hidden import unhide as remove

    with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
        connection = transaction.connection
        entries = {entry_named(connection, text.strip()): text for text in reversed(named)}
        still_hidden = {
            one_line(text): remove(connection, entry, text, settings.hidden_file)
            for entry, text in reversed(entries.items())
        }
    for text, is_hidden in still_hidden.items():
        still = f"{text}: removed, but its contract still hides it: `nftsync hidden`"
        say(still if is_hidden else f"Shown again: {text}")


@click.command()
@options.with_settings("database")
@view_options("Print all entries as JSON.")
def hidden(settings: Settings, *, view: View) -> None:
    """List the hidden contracts and tokens.

    `tokens` and `holdings` count the ones that an entry hides.

    \b
    The source is one of:
      given   set by you with `nftsync hide`
      file    from the file set as `hidden_file`, which each sync reads

    \b
    Examples:
      nftsync hidden
      nftsync hidden --json
    """
    from nftsync.store.hidden import list_hidden
    from nftsync.store.schema import reading

    with reading(settings.database) as connection:
        rows = list_hidden(connection)
    empty = "Nothing is hidden. To list candidates: `nftsync hide --suggest`"
    _show(view, rows, _ENTRY, "entries", empty)
