"""The commands `lake …`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from nftsync.cli import options
from nftsync.cli.output import (
    one_line,
    print_json,
    print_json_rows,
    print_result,
    program,
    rerun,
    say,
)
from nftsync.cli.removals import accept_options, may_remove, print_accepted, print_held
from nftsync.cli.sync import say_failures
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.text import counted

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.settings import Settings


_RUN = (
    TableColumn("run", "run_id", "number"),
    TableColumn("status", "status", "state"),
    TableColumn("ended", "finished_at", "time"),
    TableColumn("wallets", "wallets_ok", "number"),
    TableColumn("failed", "wallets_failed", "number"),
    TableColumn("added", "balances_added", "number"),
    TableColumn("changed", "balances_changed", "number"),
    TableColumn("removed", "balances_removed", "number"),
)
_FRESH = (
    TableColumn("part", "what", "key"),
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

_buckets_option = options.valued(
    "--buckets",
    "N",
    click.IntRange(1, 65_536),
    "Number of buckets (databases, split by wallet) of a new lake. To change it later, export "
    "the lake and import it again. Default: one per 1,000 wallets, at least 4 and at most 64",
)
_cluster_options = options.combined(
    options.text("--scheduler", "ADDRESS", "Address of a Dask scheduler: tcp://HOST:PORT."),
    options.valued(
        "--workers",
        "N",
        click.IntRange(min=1),
        "Number of local worker processes, if you don't set --scheduler. Default: one for up "
        "to 500 wallets, otherwise one per processor",
    ),
)
_takeover_option = options.duration(
    "--takeover-after",
    "Take over a run if its driver (the process that runs it) sends no heartbeat for this long.",
    default="60s",
)


@click.group()
def lake() -> None:
    """Sync on a Dask cluster into a lake.

    A lake is a set of nftsync databases in compressed files, its buckets. Delta tables are
    published from them for other programs. LAKE is a folder, or an address in an object store
    (s3://bucket/folder). The commands need the extra `scale`; without it, they say how to install
    it.
    """


@lake.command("sync")
@click.argument("url", metavar="LAKE")
@options.with_settings("wallets_file", *options.PROVIDER)
@_cluster_options
@_buckets_option
@_takeover_option
@click.option("--publish/--no-publish", default=True, help="Publish Delta tables. Default: yes")
@options.run
def sync(
    settings: Settings,
    url: str,
    *,
    scheduler: str | None,
    workers: int | None,
    buckets: int | None,
    takeover_after: timedelta,
    publish: bool,
    as_json: bool,
    **options: bool,
) -> int:
    """Read wallets into a lake.

    The sync reads the wallets in the wallets file, otherwise all tracked wallets of the lake.
    --concurrency applies to each worker, and --rate-limit to all workers together. Until the run
    has written everything, readers see the previous run.

    --resume reuses the reads of an interrupted run for the same wallets, and reports how old these
    reads are. It never reuses reads from another provider.

    \b
    Examples:
      nftsync lake sync data/lake --wallets-file wallets.csv --base-url https://api.example.com
      nftsync lake sync data/lake --workers 4
      nftsync lake sync data/lake --resume          after Ctrl-C or a crash
      nftsync lake sync s3://holdings/lake --scheduler tcp://scheduler:8786
    """
    from nftsync.lake.run import ClusterOptions, sync_lake

    seconds = takeover_after.total_seconds()
    where = ClusterOptions(scheduler, workers, buckets, seconds, publish)
    result = sync_lake(settings, url, where, progress=False if as_json else None, **options)
    print_result(result, as_json=as_json)
    say_failures(result, {}, review_command(url))
    if result.status == "interrupted":
        say(f"Interrupted; all reads are saved. Resume: {rerun('lake', 'sync', url, '--resume')}")
    return {"ok": 0, "interrupted": 130}.get(result.status, 1)


@lake.command("runs")
@click.argument("url", metavar="LAKE")
@options.json("Print all runs as JSON.")
def runs(url: str, *, as_json: bool) -> None:
    """List the runs, newest last. You can no longer read the rows of expired runs."""
    import msgspec

    from nftsync.lake.run import runs_of

    lake_runs = runs_of(url)
    rows: list[dict[str, Any]] = [msgspec.to_builtins(run) for run in lake_runs]
    rows = [row | row.pop("counts") for row in rows]
    if as_json:
        print_json_rows([rows])
    elif rows:
        for run, row in zip(lake_runs, rows, strict=True):
            if run.expired:
                row["status"] += ", expired"
            if run.kind != "sync":
                row["status"] = f"{run.kind}: {row['status']}"
        print_table([rows], _RUN)
    else:
        say("No runs yet. Start one: `nftsync lake sync`")


@lake.command("status")
@click.argument("url", metavar="LAKE")
@options.json("Print the status as JSON.")
def status(url: str, *, as_json: bool) -> int:
    """Show the freshness of a lake, and the size of its buckets and published tables.

    The status is from the last finished run. lake status exits with 1 if the lake's list of runs
    (its ledger) is damaged.

    \b
    Examples:
      nftsync lake status data/lake
      nftsync lake status s3://holdings/lake --json
    """
    import msgspec

    from nftsync.lake.status import status_of

    report = status_of(url)
    code = 0 if report.problem is None else 1
    if as_json:
        print_json(report)
        return code
    buckets = f"{counted(report.buckets, 'bucket')}, {decimal(report.bytes)}"
    click.echo(f"{one_line(report.lake)}: {buckets}, run {report.run:,}")
    rows = (counted(report.rows[f"{name}s"], name) for name in ("wallet", "balance", "token"))
    click.echo(", ".join(rows) + "\n")
    print_table([report.freshness], _FRESH)
    if report.removals_held.since is not None:
        click.echo(f"{report.removals_held} held for review: {review_command(url)}")
    tables = [
        {**msgspec.structs.asdict(table), "name": name, "size": decimal(table.bytes)}
        for name, table in report.tables.items()
    ]
    if tables:
        click.echo()
        print_table([tables], _TABLE)
    return code


@lake.command("compact")
@click.argument("url", metavar="LAKE")
@options.duration(
    "--keep",
    "Expire runs that ended more than this long ago (12h, 7d). The last run never expires.",
    default="30d",
)
@_takeover_option
@options.json("Print the result as JSON.")
def compact(url: str, *, keep: timedelta, takeover_after: timedelta, as_json: bool) -> None:
    """Merge small files, expire old runs, and delete files that no remaining run needs.

    No sync can start during the compaction. After an interruption, run the command again. You can
    no longer read the rows of expired runs.

    \b
    Examples:
      nftsync lake compact data/lake
      nftsync lake compact s3://holdings/lake --keep 7d
    """
    from nftsync.lake.compacting import compact_lake

    seconds, progress = takeover_after.total_seconds(), False if as_json else None
    done = compact_lake(url, keep, takeover_after=seconds, progress=progress)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"Compacted {counted(done.buckets, 'bucket')} and {counted(done.tables, 'table')}:"
        f" {counted(done.files_before, 'file')} became {done.files_after:,},"
        f" {decimal(done.bytes_freed)} freed;"
        f" {counted(len(done.runs_kept), 'run')} kept (`nftsync lake runs`)"
    )


@lake.command("import")
@click.argument("database", metavar="DB", type=click.Path(path_type=Path))
@click.argument("url", metavar="LAKE")
@_buckets_option
@_takeover_option
def import_(database: Path, url: str, *, buckets: int | None, takeover_after: timedelta) -> None:
    """Split a database, with its history, into the buckets of a new lake."""
    from nftsync.lake.copies import import_database

    seconds = takeover_after.total_seconds()
    run = import_database(database, url, buckets=buckets, takeover_after=seconds)
    where = f"{url} ({counted(run.buckets, 'bucket')})"
    say(f"Imported {database} into {where} as run {run.run_id}. Continue with `nftsync lake sync`.")


@lake.command("export")
@click.argument("url", metavar="LAKE")
@click.argument("database", metavar="DB", type=click.Path(path_type=Path))
@click.option("--run", "run_id", type=int, metavar="N", help="Run to export. Default: the last run")
def export(url: str, database: Path, *, run_id: int | None) -> None:
    """Join the buckets of a lake, with their history, into a new database."""
    from nftsync.lake.copies import export_lake

    run = export_lake(url, database, run_id=run_id)
    say(f"Exported run {run.run_id} of {url} to {database}.")


@lake.command("fetch")
@click.argument("url", metavar="LAKE")
@click.argument("bucket", metavar="BUCKET", type=click.IntRange(min=0))
@click.argument("database", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--run", "run_id", type=int, metavar="N", help="Run to fetch. Default: the last run")
def fetch(url: str, bucket: int, database: Path, *, run_id: int | None) -> None:
    """Copy one bucket of a lake into a new database, which all commands can read.

    Buckets have numbers from 0. A wallet and its history are always in the same bucket.
    """
    from nftsync.lake.copies import fetch_bucket

    run = fetch_bucket(url, bucket, database, run=run_id)
    say(f"Fetched bucket {bucket} of run {run.run_id} of {url} to {database}.")


class _ListByDefault(click.Group):
    """A group that runs `list` unless the first word is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def review_command(url: str, *words: str) -> str:
    """Return a command for a lake's removals."""
    return shlex.join([*shlex.split(program()), "lake", "removals", *words, url])


@lake.group(cls=_ListByDefault, subcommand_metavar="LAKE | COMMAND [ARGS]...")
def removals() -> None:
    """List or approve the removals that a lake holds for review.

    `nftsync removals --help` explains when nftsync holds removals for review.

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
    """List the removals held for review."""
    from nftsync.lake.status import find_held

    review = find_held(url)
    print_held(review, view, review_command(url, "accept"))


@removals.command("accept")
@click.argument("url", metavar="LAKE")
@click.argument("names", nargs=-1, metavar="[WALLET]...")
@accept_options
@_cluster_options
@_takeover_option
def accept(
    url: str,
    names: tuple[str, ...],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    scheduler: str | None,
    workers: int | None,
    takeover_after: timedelta,
) -> int:
    """Approve removals that a lake holds for review.

    accept applies all removals, or only those of the named wallets (by id or label), in a new run,
    without requests to the provider. Without names, it also resets the 24-hour count of removals.
    If a sync is running, wait for its end. On a terminal, accept asks for confirmation first.
    """
    from nftsync.lake.run import ClusterOptions, approve_in_lake
    from nftsync.lake.status import find_held

    where = ClusterOptions(scheduler, workers, takeover_after=takeover_after.total_seconds())
    review = find_held(url, names)
    extra: dict[str, Any] = {}
    if review.counts.since is not None and not dry_run:
        if not may_remove(review, "the lake", yes=yes):
            return 1
        result = approve_in_lake(url, review.wallets, where, progress=False if as_json else None)
        if result.status != "ok":
            return {"interrupted": 130}.get(result.status, 1)
        extra["run_id"] = result.run_id
    print_accepted(review, dry_run=dry_run, as_json=as_json, **extra)
    return 0
