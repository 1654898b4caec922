"""`nftsync serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from nftsync.cli.common import PROVIDER, one_line, print_json, say, with_settings

if TYPE_CHECKING:
    from nftsync.daemon.serve import ServeConfig
    from nftsync.settings import Settings

__all__ = ["replay", "serve"]


@click.command(short_help="Receive webhooks, and read again what has changed.")
@with_settings("database", "wallets_file", *PROVIDER)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    show_default=True,
    help="Address to listen on. Others than loopback should have TLS in front.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8787,
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option("--path", default="/webhooks", show_default=True, help="Where webhooks are received.")
@click.option(
    "--no-replay", is_flag=True, help="Only store webhooks; `nftsync replay` works them off."
)
@click.option(
    "--sync-every",
    metavar="DURATION",
    help="Also sync all tracked wallets so often (90s, 15m, 6h, 7d), for webhooks that never came.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve Prometheus metrics on this port of 127.0.0.1.",
    show_default="none",
)
def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    path: str,
    no_replay: bool,
    sync_every: str | None,
    metrics_port: int | None,
) -> None:
    """Receive webhooks, and read again what they say has changed.

    Takes signed webhooks, answers once they are on disk, and works them off as they come. Needs the
    webhook secret (NFTSYNC_WEBHOOK_SECRET, or a file named by NFTSYNC_WEBHOOK_SECRET_FILE);
    `nftsync webhook-config` tells the provider where to send them. Logs JSON lines to stderr.
    GET /healthz and /readyz tell how it is. SIGTERM or Ctrl-C lets requests in flight finish and
    ends it with 0.

    \b
    Examples:
      nftsync serve
      nftsync serve --sync-every 6h --metrics-port 9787
      nftsync serve --no-replay         with `nftsync replay` elsewhere
    """
    import dataclasses
    import logging

    from nftsync.daemon.serve import serve as run
    from nftsync.receiver.telemetry import log_json_lines, unblock_stderr

    config = dataclasses.replace(
        _config(settings, no_replay=no_replay, sync_every=sync_every),
        host=host,
        port=port,
        path=path,
        metrics_port=metrics_port,
    )
    unblock_stderr()
    handler = log_json_lines()
    try:
        run(config, _announce)
    finally:
        logging.getLogger().removeHandler(handler)


def _config(settings: Settings, *, no_replay: bool, sync_every: str | None) -> ServeConfig:
    from nftsync.daemon.serve import ServeConfig
    from nftsync.errors import InputError, SettingsError
    from nftsync.settings import require_base_url
    from nftsync.times import parse_duration

    if sync_every is not None and settings.wallets_file == "-":
        raise SettingsError(
            "wallets_file: stdin can be read only once, so not by --sync-every; name a file"
        )
    every = None if sync_every is None else parse_duration(sync_every)
    if every is not None and not every:
        raise InputError("--sync-every 0 would never stop syncing; give 15m or more")
    replay = run_sync = None
    if not no_replay or every is not None:
        from nftsync.daemon.setup import full_sync, replay_config

        require_base_url(settings)
        replay = replay_config(settings)
        run_sync = full_sync(settings, replay.access, resume=True)
    return ServeConfig(
        database=settings.database,
        secrets=_secrets(settings),
        organization_id=settings.organization_id,
        replay=None if no_replay else replay,
        sync_every=every,
        run_sync=run_sync,
    )


def _secrets(settings: Settings) -> list[str]:
    """The secret, then the previous one; `create_app` refuses a blank one."""
    current = settings.webhook_secret
    previous = settings.webhook_secret_previous
    return [secret for secret in (current, previous) if secret is not None] if current else []


def _announce(url: str) -> None:
    if sys.stderr and sys.stderr.isatty():  # it may be closed
        say(f"Receiving webhooks at {url}; Ctrl-C ends it.")


@click.command()
@with_settings("database", *PROVIDER)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def replay(context: click.Context, settings: Settings, *, as_json: bool) -> None:
    """Work off the webhooks that are due, once.

    Many webhooks on one object cost one read. `nftsync serve` does this as webhooks come; both may
    run at the same time, and beside a sync. Exits with 1 when a webhook ended as failed or dead, or
    the provider was down; webhooks that were not worked off wait for the next time.

    \b
    Examples:
      nftsync replay
      nftsync replay --json
      nftsync inbox requeue --state dead && nftsync replay
    """
    import logging

    from nftsync.daemon.setup import replay_config
    from nftsync.replay.run import replay_once
    from nftsync.terminal import interruptible

    logging.getLogger("nftsync").addHandler(logging.NullHandler())  # the result says it all
    with interruptible() as interrupted:
        result = replay_once(
            settings.database,
            replay_config(settings),
            interrupted,
            progress=False if as_json else None,
        )
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())
    if interrupted.is_set():
        say("Interrupted; what was read is saved, and the rest waits. Go on with: nftsync replay")
        context.exit(130)
    if result.error is not None:
        say(f"nftsync: webhooks wait: {one_line(result.error)}")
    if result.failed or result.dead:
        say("nftsync: see which failed, and why: nftsync inbox --state failed (or dead)")
    if result.unrouted:
        say("nftsync: types without a route: nftsync routes suggest")
    context.exit(1 if result.failed or result.dead or result.error is not None else 0)
