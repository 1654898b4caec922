"""The commands `demo`, `notebook` and `sandbox`; none needs an account."""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nftsync.cli import options
from nftsync.cli.holdings import HOLDING, holdings_of
from nftsync.cli.movements import TRANSFER, amount_pages
from nftsync.cli.output import one_line, program, say, say_line
from nftsync.cli.tables import print_table
from nftsync.sandbox import GREATEST_TIME_SCALE
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    from nftsync.sandbox.server import SandboxServer
    from nftsync.sandbox.world import World


_SHOWN = 15

_NEXT_STEPS = {
    "All holdings (--json for scripts)": "holdings",
    "The change feed": "changes",
    "The received webhooks": "inbox",
    "A report as one page": "report report.html",
    "Notebooks with images": "notebook",
    "Parquet, CSV or Excel files": "export exports/demo",
}


@click.command()
@options.database("The demo's database. Each run recreates it. Default: data/demo.db")
def demo(database: str | None) -> None:
    """Run a demo of the whole product, without any configuration.

    The demo syncs a sandbox provider with a year of generated history, registers a webhook
    receiver, transfers NFTs, checks that webhooks reported every change, and prints transfers and
    holdings. It ignores the environment and nftsync.toml.

    \b
    Examples:
      nftsync demo
      nftsync holdings --database data/demo.db      afterwards
      nftsync report report.html --database data/demo.db
    """
    from nftsync import settings
    from nftsync.demo.provider import remove_demo
    from nftsync.demo.run import run_demo
    from nftsync.store.database import explained

    flags = {"database": database if database is not None else "data/demo.db"}
    path = settings.load(flags, config=Path(os.devnull), environ={}).database
    with explained(path):
        remove_demo(path)
    result = run_demo(path, say)
    states = ", ".join(f"{count} {state}" for state, count in result.webhooks.items())
    milliseconds = [1000 * seconds for seconds in result.seconds]
    say(
        f"Webhooks: {states}. Latency from provider to database: median"
        f" {statistics.median(milliseconds):.0f} ms, maximum {max(milliseconds):.0f} ms."
    )
    click.echo(f"\nTransfers and mint ({len(result.transfers)}, each observed through a webhook):")
    print_table(amount_pages(result.transfers), TRANSFER)
    click.echo(f"\nHoldings ({len(result.holdings):,}; one from each of {_SHOWN} wallets):")
    sample = result.holdings.drop_duplicates("wallet_id", keep="last").head(_SHOWN)
    print_table(holdings_of(sample), [column for column in HOLDING if not column.optional])
    shown = one_line(str(path))
    click.echo("\nNext steps:")
    for purpose, command in _NEXT_STEPS.items():
        click.echo(f"{purpose}:\n  {program()} {command} -d {shlex.quote(shown)}")
    click.echo(f'In Python:\n  from nftsync import frames\n  frames.holdings("{shown}")')
    click.echo(f"A local provider for experiments:\n  {program()} sandbox")


@click.command()
@click.argument("directory", default="notebooks", type=click.Path())
@options.valued(
    "--port",
    "N",
    click.IntRange(1, 65535),
    "Port on 127.0.0.1. Default: 8888, or the next free one",
)
@options.flag("--no-browser", "Print the address; don't open a browser.")
@options.database("Database for the notebooks. Default: the configured one, or the demo database")
@options.config
def notebook(
    *, directory: str, port: int | None, no_browser: bool, database: str | None, config: Path | None
) -> None:
    """Open the notebooks in JupyterLab.

    nftsync copies missing notebooks to DIRECTORY (default: notebooks).

    Without a database, the notebooks use the demo database, which nftsync creates if needed, with
    the demo's provider, so that images load and nftsync.sync() works. Ctrl-C stops everything.

    \b
    Examples:
      nftsync notebook
      nftsync notebook analysis --database snapshots/2026-01-31.db
      nftsync notebook --no-browser --port 9000
    """
    from nftsync import settings
    from nftsync.notebooks.database import named_or_demo
    from nftsync.notebooks.jupyter import open_notebooks, require_notebook_extra
    from nftsync.store.schema import opened_as_is

    require_notebook_extra()
    loaded = settings.load({"database": database}, config=config)
    if database is not None:
        with opened_as_is(loaded.database):
            """Fail on an invalid database before JupyterLab starts."""
    opened = named_or_demo(loaded.database, loaded.sources["database"], say_line)
    file = settings.settings_file(config)
    open_notebooks(Path(directory), opened, file, say_line, port=port, browser=not no_browser)


@click.command()
@options.valued(
    "--port", "N", click.IntRange(0, 65535), "Port on 127.0.0.1; 0 picks a free one.", 8788
)
@options.valued("--wallets", "N", click.IntRange(min=1), "Number of wallets.", 50)
@options.valued("--nfts", "N", click.IntRange(min=0), "NFTs per wallet.", 20)
@options.valued(
    "--seed", "N", int, "Random seed. The same seed gives the same data and failures.", 0
)
@options.text(
    "--world",
    "FILE",
    "File to serve instead of generated data. Each line is a JSON object "
    '{"walletId", "nftTokenBalances": [...]}. The file may be compressed with gzip.',
)
@options.valued(
    "--latency-ms", "N", click.FloatRange(min=0), "Delay of each response, in milliseconds.", 0
)
@options.valued(
    "--fail-rate", "P", click.FloatRange(0, 1), "Share (0 to 1) of responses with 500 or 503.", 0
)
@options.valued(
    "--rate-limit",
    "N",
    click.FloatRange(min=0, min_open=True),
    "Requests per second; excess requests get a 429 with Retry-After. Default: no limit",
)
@options.valued(
    "--time-scale",
    "X",
    click.FloatRange(0, GREATEST_TIME_SCALE, min_open=True),
    "Factor for the delays between webhook retries; 0.001 turns 5 minutes into 0.3 seconds.",
    1,
)
@options.text(
    "--state",
    "FILE",
    "File that keeps the data, the webhook configuration and undelivered webhooks. If the file "
    "exists, the sandbox resumes from it, and ignores --world, --wallets, --nfts and --seed.",
)
@options.text("--wallets-out", "FILE", "New file for the wallet ids: a wallets file for sync.")
@options.text("--list-out", "FILE", "New file with all holdings: a list for `nftsync compare`.")
@options.valued(
    "--list-mistakes", "N", click.IntRange(min=0), "Mistakes of all kinds in the list.", 0
)
@click.pass_context
def sandbox(
    context: click.Context,
    /,
    *,
    wallets: int,
    nfts: int,
    seed: int,
    world: str | None,
    latency_ms: float,
    state: str | None,
    wallets_out: str | None,
    list_out: str | None,
    list_mistakes: int,
    **options: Any,
) -> None:
    """Run a local provider with generated data.

    The sandbox serves wallets and tokens at the provider's paths, to anyone on this machine: it
    needs no token. GET /sandbox/wallets lists the wallet ids, and GET / lists all endpoints.

    It sends no webhooks until `nftsync webhook-config` enables them. To trigger one, POST to
    /sandbox/transfer, /sandbox/mint or /sandbox/emit.

    \b
    Examples:
      nftsync sandbox --wallets-out sandbox-wallets.txt
      nftsync sandbox --wallets 5000 --nfts 20 --latency-ms 50
      nftsync sandbox --fail-rate 0.05 --rate-limit 200
      nftsync sandbox --world wallets.jsonl.gz
      nftsync sandbox --state sandbox.state --time-scale 0.01

    \b
    A transfer, from another terminal:
      curl -s http://127.0.0.1:8788/sandbox/transfer -d '{"fromWalletId": "...",
        "toWalletId": "...", "tokenId": "...", "amount": "1"}'
      curl -s http://127.0.0.1:8788/sandbox/deliveries
    """
    names = ("world", "wallets", "nfts", "seed")
    typed = [x for x in names if context.get_parameter_source(x) is not ParameterSource.DEFAULT]
    if world is not None and (generated := {"wallets", "nfts"} & set(typed)):
        raise click.UsageError(
            f"--{max(generated)} is for generated data; it cannot be used with --world", context
        )
    from nftsync.sandbox.generator import generate
    from nftsync.sandbox.second_list import second_list
    from nftsync.sandbox.server import SandboxServer
    from nftsync.sandbox.world import World
    from nftsync.threads import Failures
    from nftsync.wsgi import stop_signals, wake_main_thread

    def source(base_url: str) -> World:
        if world is not None:
            return World.load(world, seed=seed)
        return generate(wallets=wallets, nfts=nfts, seed=seed, image_base=base_url)

    failures = Failures(wake_main_thread)
    options |= {"latency": latency_ms / 1000, "on_broken": failures.of("the sandbox")}
    with stop_signals() as wait, SandboxServer(source, seed=seed, state=state, **options) as server:
        _announce(server, wallets_out)
        if list_out is not None:
            _write_lines(list_out, second_list(server.world, list_mistakes, seed=seed))
        if server.world.restored and typed:
            flags = " and ".join(f"--{name}" for name in typed)
            say(
                f"Continuing with the data in {one_line(str(state))}; {flags} had no effect. "
                "For new data, name another --state file."
            )
        wait()
    failures.raise_first()


def _announce(server: SandboxServer, wallets_out: str | None) -> None:
    ids = server.world.wallets()
    wallets = ids[0] if ids else "WALLET_ID"
    if wallets_out is not None:
        _write_lines(wallets_out, ids)
        wallets = f"--wallets-file {shlex.quote(one_line(wallets_out))}"
    run, base_url = program(), f"--base-url {server.url}"
    say(
        f"{server.url} serves a sandbox with {len(ids):,} wallets. Stop it with Ctrl-C.\n"
        "Next, in another terminal:\n"
        f"  {run} sync {base_url} --database sandbox.db {wallets}\n"
        f"  {run} holdings --database sandbox.db\n"
        f"Webhooks, for a running `nftsync serve`:\n"
        f"  {run} webhook-config {base_url} --url RECEIVER --type nft --enable --send-secret\n"
        f"Then POST to /sandbox/transfer, /sandbox/mint or /sandbox/emit; all calls: {server.url}/"
    )


def _write_lines(path: str, lines: Iterable[str]) -> None:
    with whole_file(Path(path)) as file:
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
