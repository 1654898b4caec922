"""Commands that work on a lake: the same reads on a cluster, into Delta tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    again,
    cluster_options,
    json_option,
    one_line,
    print_json,
    print_json_rows,
    say,
    takeover_option,
    with_settings,
)
from nftsync.cli.lake_removals import removals, review_command
from nftsync.cli.sync import say_what_failed
from nftsync.cli.tables import Column, print_table
from nftsync.text import counted, size

if TYPE_CHECKING:
    from nftsync.settings import Settings


_RUN = (
    Column("run", "run_id", "number"),
    Column("status", "status"),
    Column("ended", "finished_at", "time"),
    Column("wallets", "wallets_ok", "number"),
    Column("failed", "wallets_failed", "number"),
    Column("added", "balances_added", "number"),
    Column("changed", "balances_changed", "number"),
    Column("removed", "balances_removed", "number"),
)
_FRESH = (
    Column("what", "what", "key"),
    Column("count", "count", "number"),
    Column("at", "at", "time"),
    Column("detail", "detail", "message"),
)
_TABLE = (
    Column("table", "name", "key"),
    Column("version", "version", "number"),
    Column("rows", "rows", "number"),
    Column("files", "files", "number"),
    Column("size", "size"),
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


lake.add_command(removals)


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
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the newest run if it was interrupted or killed; else start one.",
)
@click.option(
    "--allow-removals",
    is_flag=True,
    help="Approve all removals, however many come at once.",
)
@json_option("Print the result as JSON.")
def sync(
    settings: Settings,
    url: str,
    *,
    scheduler: str | None,
    workers: int | None,
    buckets: int | None,
    takeover_after: str,
    resume: bool,
    allow_removals: bool,
    as_json: bool,
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
    from nftsync.lake.sync import sync_with
    from nftsync.times import parse_duration

    result = sync_with(
        settings,
        url,
        scheduler=scheduler,
        workers=workers,
        buckets=buckets,
        silence=parse_duration(takeover_after).total_seconds(),
        resume=resume,
        allow_removals=allow_removals,
        progress=False if as_json else None,
    )
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())
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

    from nftsync.lake.sync import runs_of

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
@click.option(
    "--keep",
    metavar="DURATION",
    default="30d",
    show_default=True,
    help="Runs that ended longer ago are let go, as 12h or 7d; the last one never is.",
)
@takeover_option
@json_option("Print the result as JSON.")
def compact(url: str, *, keep: str, takeover_after: str, as_json: bool) -> None:
    """Make a lake's tables few files, and remove those that no kept run needs.

    Holds the lake as a run does: no sync begins meanwhile. One that was cut off is made up for by
    the next. Runs that are let go stay in `runs`; their rows can no longer be read.

    \b
    Examples:
      nftsync lake compact data/lake
      nftsync lake compact s3://holdings/lake --keep 7d
    """
    from nftsync.lake.compacting import compact_lake
    from nftsync.times import parse_duration

    done = compact_lake(
        url,
        parse_duration(keep),
        silence=parse_duration(takeover_after).total_seconds(),
        progress=False if as_json else None,
    )
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
def import_(database: Path, url: str, *, buckets: int, takeover_after: str) -> None:
    """Fill a new lake with all that a database holds, history included.

    \b
    Examples:
      nftsync lake import data/nftsync.db data/lake
    """
    from nftsync.lake.copies import import_database
    from nftsync.times import parse_duration

    silence = parse_duration(takeover_after).total_seconds()
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
