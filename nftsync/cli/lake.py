"""The commands `lake …`: sync a lake on a cluster, copy, compact, and review removals."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    again,
    cluster_options,
    duration_option,
    json_option,
    one_line,
    print_json,
    print_json_rows,
    print_result,
    program,
    run_options,
    say,
    takeover_option,
    with_settings,
)
from nftsync.cli.removals import accept_options, confirmed, print_accepted, print_held
from nftsync.cli.sync import say_what_failed
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.text import counted, size

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.settings import Settings


_RUN = (
    TableColumn("run", "run_id", "number"),
    TableColumn("status", "status"),
    TableColumn("ended", "finished_at", "time"),
    TableColumn("wallets", "wallets_ok", "number"),
    TableColumn("failed", "wallets_failed", "number"),
    TableColumn("added", "balances_added", "number"),
    TableColumn("changed", "balances_changed", "number"),
    TableColumn("removed", "balances_removed", "number"),
)
_FRESH = (
    TableColumn("what", "what", "key"),
    TableColumn("count", "count", "number"),
    TableColumn("at", "at", "time"),
    TableColumn("detail", "detail", "message"),
)
_TABLE = (
    TableColumn("table", "name", "key"),
    TableColumn("version", "version", "number"),
    TableColumn("rows", "rows", "number"),
    TableColumn("files", "files", "number"),
    TableColumn("size", "size"),
)


@click.group()
def lake() -> None:
    """Sync on a cluster, into Delta Lake, and look into it.

    LAKE is a folder, or an address that Delta knows (s3://bucket/folder). Needs the extra: pip
    install 'nftsync[scale]'.

    \b
    Examples:
      nftsync lake sync data/lake --wallets-file wallets.csv
      nftsync lake sync s3://holdings/lake --scheduler tcp://scheduler:8786
      nftsync lake status data/lake
    """


@lake.command("sync")
@click.argument("url", metavar="LAKE")
@with_settings("wallets_file", *PROVIDER)
@cluster_options
@click.option(
    "--buckets",
    type=click.IntRange(1, 65_536),
    metavar="N",
    help="Parts of a new lake, which stay as many. Default: 64",
)
@takeover_option
@run_options
def sync(
    settings: Settings,
    url: str,
    *,
    scheduler: str | None,
    workers: int | None,
    buckets: int | None,
    takeover_after: timedelta,
    as_json: bool,
    **how: bool,
) -> int:
    """Read wallets into a lake, on a Dask cluster or on processes of this machine.

    Reads those of the wallets file; no file, every tracked wallet of the lake. Each worker makes
    up to --concurrency requests at once; --rate-limit holds for all of them together. What a run
    has read counts once all of it is written: until then readers see the run before.

    A run starts afresh, unless --resume is given. It then takes over what an interrupted run of the
    same wallets had read, however old that is, and reports how much and how old. It never takes
    over reads of another provider.

    \b
    Examples:
      nftsync lake sync data/lake --wallets-file wallets.csv --base-url https://api.example.com
      nftsync lake sync data/lake --workers 4
      nftsync lake sync data/lake --resume          after Ctrl-C or a crash
      nftsync lake sync s3://holdings/lake --scheduler tcp://scheduler:8786
    """
    from nftsync.lake.run import Where, sync_lake

    where = Where(scheduler, workers, buckets, takeover_after.total_seconds())
    result = sync_lake(settings, url, where, progress=False if as_json else None, **how)
    print_result(result, as_json=as_json)
    say_what_failed(result, {}, review_command(url))
    if result.status == "interrupted":
        say(f"Interrupted; what was read is kept. Resume: {again('lake', 'sync', url, '--resume')}")
    return {"ok": 0, "interrupted": 130}.get(result.status, 1)


@lake.command("runs")
@click.argument("url", metavar="LAKE")
@json_option("Print all runs as JSON.")
def runs(url: str, *, as_json: bool) -> None:
    """List the runs of a lake, the newest last; those that are let go can no longer be read."""
    import msgspec

    from nftsync.lake.run import runs_of

    found = runs_of(url)
    rows: list[dict[str, Any]] = [msgspec.to_builtins(run) for run in found]
    rows = [row | row.pop("counts") for row in rows]
    if as_json:
        print_json_rows([rows])
    elif rows:
        for run, row in zip(found, rows, strict=True):
            if run.let_go:
                row["status"] += ", let go"
            if run.kind != "sync":
                row["status"] = f"{run.kind}: {row['status']}"
        print_table([rows], _RUN)
    else:
        say("No runs yet; `nftsync lake sync` makes one.")


@lake.command("status")
@click.argument("url", metavar="LAKE")
@json_option("Print the status as JSON.")
def status(url: str, *, as_json: bool) -> int:
    """Show how fresh a lake is, and how large its tables are.

    It shows the last finished run, whose version of each table readers see. A damaged ledger is
    reported, and the exit code is 1.

    \b
    Examples:
      nftsync lake status data/lake
      nftsync lake status s3://holdings/lake --json
    """
    import msgspec

    from nftsync.lake.status import status_of

    found = status_of(url)
    code = 0 if found.problem is None else 1
    if as_json:
        print_json(found)
        return code
    click.echo(f"{one_line(found.lake)}: {counted(found.buckets, 'bucket')}, run {found.run:,}\n")
    print_table([found.freshness], _FRESH)
    if found.removals_held.since is not None:
        click.echo(f"{found.removals_held} held for review: {review_command(url)}")
    click.echo()
    tables = [{**msgspec.structs.asdict(x), "size": size(x.bytes)} for x in found.tables]
    print_table([tables], _TABLE)
    return code


@lake.command("compact")
@click.argument("url", metavar="LAKE")
@duration_option(
    "--keep",
    "Runs that ended longer ago are let go, as 12h or 7d; the last one never is.",
    default="30d",
)
@takeover_option
@json_option("Print the result as JSON.")
def compact(url: str, *, keep: timedelta, takeover_after: timedelta, as_json: bool) -> None:
    """Make a lake's tables few files, and remove those that no kept run needs.

    Holds the lake as a run does: no sync begins meanwhile. One that was cut off is made up for by
    the next. Runs that are let go stay in `runs`; their rows can no longer be read.

    \b
    Examples:
      nftsync lake compact data/lake
      nftsync lake compact s3://holdings/lake --keep 7d
    """
    from nftsync.lake.compacting import compact_lake

    silence, progress = takeover_after.total_seconds(), False if as_json else None
    done = compact_lake(url, keep, silence=silence, progress=progress)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"Compacted {counted(done.tables, 'table')}: {counted(done.files_before, 'file')} became"
        f" {done.files_after:,}, {size(done.bytes_freed)} freed;"
        f" {counted(len(done.runs_kept), 'run')} kept (`nftsync lake runs`)"
    )


@lake.command("import")
@click.argument("database", metavar="DB", type=click.Path(path_type=Path))
@click.argument("url", metavar="LAKE")
@click.option(
    "--buckets",
    type=click.IntRange(1, 65_536),
    metavar="N",
    default=64,
    show_default=True,
    help="Parts of the new lake, which stay as many.",
)
@takeover_option
def import_(database: Path, url: str, *, buckets: int, takeover_after: timedelta) -> None:
    """Fill a new lake with all that a database holds, history included.

    \b
    Examples:
      nftsync lake import data/nftsync.db data/lake
    """
    from nftsync.lake.copies import import_database

    silence = takeover_after.total_seconds()
    run = import_database(database, url, buckets=buckets, silence=silence)
    say(f"All of {database} is in {url}, as run {run.run_id}; `nftsync lake sync` goes on from it.")


@lake.command("export")
@click.argument("url", metavar="LAKE")
@click.argument("database", metavar="DB", type=click.Path(path_type=Path))
@click.option("--run", "run_id", type=int, metavar="N", help="Which run. Default: the last one")
def export(url: str, database: Path, *, run_id: int | None) -> None:
    """Write what a run of a lake pinned into a new database, history included.

    \b
    Examples:
      nftsync lake export data/lake data/nftsync.db
      nftsync holdings -d data/nftsync.db
    """
    from nftsync.lake.copies import export_lake

    run = export_lake(url, database, run_id=run_id)
    say(f"Run {run.run_id} of {url} is in {database}.")


class _ListByDefault(click.Group):
    """A group that lists unless the first word is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def review_command(url: str, *words: str) -> str:
    """Return the command that lists the removals of a lake, or another of its subcommands."""
    return shlex.join([*shlex.split(program()), "lake", "removals", *words, url])


@lake.group(cls=_ListByDefault, subcommand_metavar="LAKE | COMMAND [ARGS]...")
def removals() -> None:
    """List the removals that a lake holds for review, or approve them.

    `nftsync removals --help` explains when removals are held. A later read that shows the NFTs
    again clears them.

    \b
    Examples:
      nftsync lake removals data/lake
      nftsync lake removals accept data/lake Treasury
      nftsync lake removals accept data/lake
    """


@removals.command("list")
@click.argument("url", metavar="LAKE")
@view_options("Print all removals held for review as JSON.")
def list_(url: str, *, view: View) -> None:
    """List the removals that a lake holds for review: what `nftsync lake removals LAKE` does."""
    from nftsync.lake.status import find_held

    found = find_held(url)
    print_held(found.rows, found.counts, found.share, view, review_command(url, "accept"))


@removals.command("accept")
@click.argument("url", metavar="LAKE")
@click.argument("named", nargs=-1, metavar="[WALLET]...")
@accept_options
@cluster_options
@takeover_option
def accept(
    url: str,
    named: tuple[str, ...],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    scheduler: str | None,
    workers: int | None,
    takeover_after: timedelta,
) -> int:
    """Approve removals that a lake holds for review: all of them, or those of some wallets.

    WALLET is an id, or a label that only one wallet has. Without WALLET, all that was removed so
    far no longer counts towards the limit. The removals are applied by a run of their own, which
    asks the provider for nothing and is pinned like a sync. A sync that is at work must end first.
    On a terminal, the command asks for confirmation.
    """
    from nftsync.lake.run import Where, approve_in_lake
    from nftsync.lake.status import find_held

    where = Where(scheduler, workers, silence=takeover_after.total_seconds())
    found = find_held(url, named)
    more: dict[str, Any] = {}
    if found.counts.since is not None and not dry_run:
        if not confirmed(found.counts, "the lake", yes=yes):
            return 1
        result = approve_in_lake(url, found.wallets, where, progress=False if as_json else None)
        if result.status != "ok":
            return {"interrupted": 130}.get(result.status, 1)
        more["run_id"] = result.run_id
    print_accepted(found.counts, found.rows, dry_run=dry_run, as_json=as_json, **more)
    return 0
