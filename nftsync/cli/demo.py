"""The commands `demo`, `notebook` and `sandbox`; none needs an account."""

from __future__ import annotations

import shlex
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nftsync.cli.common import one_line, program, say, shown_option
from nftsync.cli.holdings import HOLDING, holdings_of
from nftsync.cli.tables import TableColumn, print_table
from nftsync.sandbox import GREATEST_TIME_SCALE

if TYPE_CHECKING:
    from nftsync.sandbox.server import SandboxServer
    from nftsync.sandbox.world import World


_SHOWN = 15
_TRANSFER = (
    TableColumn("from", "from_label"),
    TableColumn("to", "to_label"),
    TableColumn("name", "name"),
    TableColumn("amount", "amount", "number"),
)


@click.command()
@click.option(
    "--database",
    "-d",
    metavar="FILE",
    help="Where to keep what was read; begun afresh each time. Default: data/demo.db",
)
def demo(database: str | None) -> None:
    """See the whole product work, with nothing to configure.

    Starts a sandbox provider with a made-up year behind it, reads its wallets, starts the receiver
    and registers it, lets NFTs change hands, reads all wallets again to see that webhooks told of
    everything, and shows what changed and who holds what. Reads neither the environment nor
    nftsync.toml.
    """
    from nftsync import settings
    from nftsync.demo.provider import begin_afresh
    from nftsync.demo.run import run_demo
    from nftsync.store.database import explained

    flags = {"database": database if database is not None else "data/demo.db"}
    path = settings.isolated(flags).database
    with explained(path):
        begin_afresh(path)
    result = run_demo(path, say)
    came = ", ".join(f"{count} {state}" for state, count in result.webhooks.items())
    milliseconds = [1000 * seconds for seconds in result.seconds]
    say(
        f"Webhooks: {came}. From the change at the provider to the database: "
        f"{statistics.median(milliseconds):.0f} ms in the middle, {max(milliseconds):.0f} ms at"
        " most."
    )
    click.echo(
        f"\nWhat changed ({len(result.transfers)} movements, each observed through a webhook):"
    )
    rows = result.transfers.astype(object).where(result.transfers.notna(), None)
    print_table([rows.to_dict("records")], _TRANSFER)
    click.echo(
        f"\nWho holds what ({len(result.holdings):,} holdings, one each of {_SHOWN} wallets):"
    )
    sample = result.holdings.drop_duplicates("wallet_id", keep="last").head(_SHOWN)
    print_table(holdings_of(sample), HOLDING)
    shown = one_line(str(path))
    run, file = program(), shlex.quote(shown)
    click.echo(
        "\nWhat next:\n"
        f"  All of it (--json for scripts):  {run} holdings -d {file}\n"
        f"  The log of changes:              {run} changes -d {file}\n"
        f"  The webhooks that came:          {run} inbox -d {file}\n"
        f"  Parquet, CSV or Excel files:     {run} export exports/demo -d {file}\n"
        "  In Python:                       from nftsync import frames\n"
        f'                                   frames.holdings("{shown}")\n'
        f"  Notebooks, with the pictures:    {run} notebook -d {file}\n"
        f"  A provider to try things on:     {run} sandbox"
    )


@click.command()
@click.argument("directory", default="notebooks", type=click.Path())
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port on 127.0.0.1. Default: 8888, or the next free one",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--database",
    "-d",
    metavar="FILE",
    help="What the notebooks open. Default: the configured one, else the demo's",
)
@click.option("--config", metavar="FILE", help="Settings file. Default: the nearest nftsync.toml")
def notebook(
    *, directory: str, port: int | None, no_browser: bool, database: str | None, config: str | None
) -> None:
    """Open JupyterLab on the notebooks, with this database.

    Copies those that are missing in DIRECTORY (default: notebooks) and never overwrites any. Where
    no database is configured, and there is no data/nftsync.db here or above, they open that of
    `nftsync demo`, which is made first if need be. Its provider runs beside them then: pictures
    show, and nftsync.sync() has something to read. Ctrl-C ends all of it.

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

    def tell(text: str) -> None:
        say(one_line(text))

    require_notebook_extra()
    given = None if config is None else Path(config)
    loaded = settings.load({"database": database}, config=given)
    if database is not None:
        with opened_as_is(loaded.database):
            """Refuse what is no database before JupyterLab starts."""
    opened = named_or_demo(loaded.database, loaded.sources["database"], tell)
    file = settings.settings_file(given)
    open_notebooks(Path(directory), opened, file, tell, port=port, browser=not no_browser)


@click.command()
@shown_option("--port", click.IntRange(0, 65535), 8788, "Port on 127.0.0.1; 0 takes any free one.")
@shown_option("--wallets", click.IntRange(min=1), 50, "How many wallets to make up.")
@shown_option("--nfts", click.IntRange(min=0), 20, "How many NFTs each wallet holds.")
@shown_option("--seed", click.INT, 0, "The same seed makes the same world and the same failures.")
@click.option(
    "--world",
    "world_file",
    metavar="FILE",
    help="Serve this world instead: JSON lines, plain or gzip, each "
    '{"walletId", "nftTokenBalances": [...]}.',
)
@shown_option("--latency-ms", click.FloatRange(min=0), 0, "Milliseconds before each answer.")
@shown_option("--fail-rate", click.FloatRange(0, 1), 0, "Share of answers that are a 500 or 503.")
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0, min_open=True),
    help="Requests per second; what comes faster gets a 429 with Retry-After.",
    show_default="none",
)
@shown_option(
    "--time-scale",
    click.FloatRange(0, GREATEST_TIME_SCALE, min_open=True),
    1,
    "What the waits before a webhook is sent again are multiplied by; 0.001 makes 5 minutes "
    "0.3 seconds.",
)
@click.option(
    "--state",
    metavar="FILE",
    help="Keep the world, the webhook configuration and undelivered webhooks here; a file that "
    "has a world already is gone on with, whatever --world, --wallets, --nfts and --seed say.",
)
@click.pass_context
def sandbox(
    context: click.Context,
    /,
    *,
    wallets: int,
    nfts: int,
    seed: int,
    world_file: str | None,
    latency_ms: float,
    state: str | None,
    **options: Any,
) -> None:
    """Play the provider on this machine, to try things on.

    Serves the balances of its wallets and their tokens at the paths of the provider's document;
    the wallets' ids are at /sandbox/wallets. Webhooks leave once they are configured (nftsync
    webhook-config) and something happens: POST to /sandbox/transfer, /sandbox/mint or
    /sandbox/emit; / lists all calls. Ctrl-C ends it.

    \b
    Examples:
      nftsync sandbox
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
    named = ("world_file", "wallets", "nfts", "seed")
    given = [x for x in named if context.get_parameter_source(x) is not ParameterSource.DEFAULT]
    if world_file is not None and (made_up := {"wallets", "nfts"} & set(given)):
        raise click.UsageError(
            f"--{max(made_up)} is for a made-up world; leave it out beside --world", context
        )
    from nftsync.sandbox.generator import generate
    from nftsync.sandbox.server import SandboxServer
    from nftsync.sandbox.world import World
    from nftsync.threads import Failures
    from nftsync.wsgi import stop_signals, wake_main_thread

    def source(base_url: str) -> World:
        if world_file is not None:
            return World.load(world_file, seed=seed)
        return generate(wallets=wallets, nfts=nfts, seed=seed, image_base=base_url)

    failures = Failures(wake_main_thread)
    started = {"latency": latency_ms / 1000, "seed": seed, "state": state, **options}
    started["on_broken"] = failures.of("the sandbox")
    with stop_signals() as wait, SandboxServer(source, **started) as server:
        _announce(server)
        if server.world.restored and given:
            flags = " and ".join(f"--{name.removesuffix('_file')}" for name in given)
            say(
                f"The world is the one that {one_line(str(state))} has kept; {flags} did not "
                "change it. Another --state file begins another."
            )
        wait()
    failures.raise_first()


def _announce(server: SandboxServer) -> None:
    ids = server.world.wallets()
    example = ids[0] if ids else "WALLET_ID"
    say(
        f"{server.url} plays the provider with {len(ids):,} wallets; Ctrl-C ends it.\n"
        f"Next: nftsync sync --base-url {server.url} {example}"
        f"    (all ids: curl -s {server.url}/sandbox/wallets)\n"
        f"Webhooks: nftsync webhook-config --base-url {server.url} --url RECEIVER --type nft"
        f" --enable --send-secret; then POST to {server.url}/sandbox/transfer, /sandbox/mint or"
        f" /sandbox/emit (all calls: curl -s {server.url}/)"
    )
