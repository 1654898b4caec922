"""`nftsync sandbox`: the provider as a local server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nftsync.cli.output import one_line
from nftsync.sandbox.retries import GREATEST_TIME_SCALE

if TYPE_CHECKING:
    from nftsync.sandbox.server import SandboxServer
    from nftsync.sandbox.world import World

__all__ = ["sandbox"]


@click.command(short_help="Play the provider on this machine, to try things on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8788,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes any free one.",
)
@click.option(
    "--wallets",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many wallets to make up.",
)
@click.option(
    "--nfts",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="How many NFTs each wallet holds.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The same seed makes the same world and the same failures.",
)
@click.option(
    "--world",
    "world_file",
    metavar="FILE",
    type=click.Path(),
    help="Serve this world instead: JSON lines, plain or gzip, each "
    '{"walletId", "nftTokenBalances": [...]}.',
)
@click.option(
    "--latency-ms",
    type=click.FloatRange(min=0),
    default=0,
    show_default=True,
    help="Milliseconds before each answer of the provider.",
)
@click.option(
    "--fail-rate",
    type=click.FloatRange(0, 1),
    default=0,
    show_default=True,
    help="Share of the provider's answers that are a 500 or 503.",
)
@click.option(
    "--rate-limit",
    type=click.FloatRange(min=0, min_open=True),
    help="Requests per second; what comes faster gets a 429 with Retry-After.",
    show_default="none",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0, GREATEST_TIME_SCALE, min_open=True),
    default=1,
    show_default=True,
    help="What the waits before a webhook is sent again are multiplied by; 0.001 makes 5 minutes "
    "0.3 seconds.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(),
    help="Keep the world, the webhook configuration and undelivered webhooks here; a file that "
    "has a world already is gone on with, whatever --world, --wallets, --nfts and --seed say.",
)
@click.pass_context
def sandbox(
    context: click.Context,
    *,
    port: int,
    wallets: int,
    nfts: int,
    seed: int,
    world_file: str | None,
    latency_ms: float,
    fail_rate: float,
    rate_limit: float | None,
    time_scale: float,
    state: str | None,
) -> None:
    """Play the provider on this machine, to try nftsync without an account.

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
    given = _given(context, "world_file", "wallets", "nfts", "seed")
    if world_file is not None:
        for name in ("wallets", "nfts"):
            if name in given:
                raise click.UsageError(
                    f"--{name} is for a made-up world; leave it out beside --world", context
                )
    from nftsync.sandbox.generator import generate
    from nftsync.sandbox.server import SandboxServer, serve_forever
    from nftsync.sandbox.world import World

    def source(base_url: str) -> World:
        if world_file is not None:
            return World.load(world_file, seed=seed)
        return generate(wallets=wallets, nfts=nfts, seed=seed, image_base=base_url)

    def start() -> SandboxServer:
        return SandboxServer(
            source,
            port=port,
            latency=latency_ms / 1000,
            fail_rate=fail_rate,
            rate_limit=rate_limit,
            seed=seed,
            time_scale=time_scale,
            state=state,
        )

    def announce(server: SandboxServer) -> None:
        _announce(server)
        if server.sandbox.restored and given:
            flags = " and ".join(f"--{name.removesuffix('_file')}" for name in given)
            click.echo(
                f"The world is the one that {one_line(str(state))} has kept; {flags} did not "
                "change it. Another --state file begins another.",
                err=True,
            )

    serve_forever(start, announce)


def _given(context: click.Context, *names: str) -> list[str]:
    """Those of the options that are not at their defaults."""
    return [
        name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]


def _announce(server: SandboxServer) -> None:
    ids = server.world.wallets()
    example = ids[0] if ids else "WALLET_ID"
    click.echo(
        f"{server.url} plays the provider with {len(ids):,} wallets; Ctrl-C ends it.\n"
        f"Next: nftsync sync --base-url {server.url} {example}"
        f"    (all ids: curl -s {server.url}/sandbox/wallets)\n"
        f"Webhooks: nftsync webhook-config --base-url {server.url} --url RECEIVER --type nft"
        f" --enable --send-secret; then POST to {server.url}/sandbox/transfer, /sandbox/mint or"
        f" /sandbox/emit (all calls: curl -s {server.url}/)",
        err=True,
    )
