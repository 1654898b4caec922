"""The commands `serve`, `replay` and `webhook-config`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    duration_option,
    json_option,
    one_line,
    print_result,
    say,
    shown_option,
    with_settings,
)
from nftsync.errors import (
    AccessRefused,
    InputError,
    NoConnection,
    ReadError,
    SettingsError,
    UnusableAnswer,
)
from nftsync.text import visible

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.serve.serve import ServeConfig
    from nftsync.settings import Settings


#: What can be subscribed to (provider's document, section Webhook configuration).
_TYPES = ("payment", "transaction", "nft", "kyc", "document", "custodialAccount")


@click.command()
@with_settings("database", "wallets_file", *PROVIDER)
@shown_option("--host", str, "127.0.0.1", "Address to listen on; others need TLS in front.")
@shown_option("--port", click.IntRange(0, 65535), 8787, "Port to listen on; 0 takes any free one.")
@shown_option("--path", str, "/webhooks", "Where webhooks are received.")
@click.option(
    "--no-replay", is_flag=True, help="Only store webhooks; `nftsync replay` works them off."
)
@duration_option(
    "--sync-every",
    "Also sync all tracked wallets so often (90s, 15m, 6h, 7d), for webhooks that never came.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve Prometheus metrics on this port of 127.0.0.1.",
    show_default="none",
)
def serve(settings: Settings, **options: Any) -> None:
    """Receive webhooks, and read again what has changed.

    Takes signed webhooks, answers once they are on disk, and works them off as they come. Needs the
    webhook secret (NFTSYNC_WEBHOOK_SECRET, or a file named by NFTSYNC_WEBHOOK_SECRET_FILE);
    `nftsync webhook-config` tells the provider where to send them. Logs to stderr, in JSON lines
    where that is no terminal. GET /healthz and /readyz tell how it is. SIGTERM or Ctrl-C lets
    requests in flight finish and ends it with 0.

    \b
    Examples:
      nftsync serve
      nftsync serve --sync-every 6h --metrics-port 9787
      nftsync serve --no-replay         with `nftsync replay` elsewhere
    """
    import logging

    from nftsync.serve.log import log_lines, unblock_stderr
    from nftsync.serve.serve import serve as run

    config = _config(settings, **options)
    unblock_stderr()
    handler = log_lines()
    try:
        run(config, _announce)
    finally:
        logging.getLogger().removeHandler(handler)


def _config(
    settings: Settings, *, no_replay: bool, sync_every: timedelta | None, **listening: Any
) -> ServeConfig:
    from nftsync.serve.serve import ServeConfig
    from nftsync.settings import require_base_url

    if sync_every is not None and settings.wallets_file == "-":
        raise SettingsError(
            "wallets_file: stdin can be read only once, so not by --sync-every; name a file"
        )
    if sync_every is not None and not sync_every:
        raise InputError("--sync-every 0 would never stop syncing; give 15m or more")
    replay = run_sync = None
    if not no_replay or sync_every is not None:
        from nftsync.serve.schedule import full_sync, replay_config

        require_base_url(settings)
        replay = replay_config(settings)
        run_sync = full_sync(settings, replay.access, resume=True)
    current, previous = settings.webhook_secret, settings.webhook_secret_previous
    secrets = [each for each in (current, previous) if each is not None] if current else []
    return ServeConfig(
        database=settings.database,
        secrets=secrets,
        organization_id=settings.organization_id,
        replay=None if no_replay else replay,
        sync_every=sync_every,
        run_sync=run_sync,
        **listening,
    )


def _announce(url: str) -> None:
    if sys.stderr and sys.stderr.isatty():  # it may be closed
        say(f"Receiving webhooks at {url}; Ctrl-C ends it.")


@click.command()
@with_settings("database", *PROVIDER)
@json_option("Print the result as JSON.")
def replay(settings: Settings, *, as_json: bool) -> int:
    """Work off the webhooks that are due, once.

    Many webhooks on one object cost one read. `nftsync serve` does this as webhooks come; both may
    run at the same time, and beside a sync. Exits with 1 when a webhook ended as failed or dead,
    removals were held for review, or the provider was down; what was not worked off waits for
    the next time.

    \b
    Examples:
      nftsync replay
      nftsync replay --json
      nftsync inbox requeue --state dead && nftsync replay
    """
    import logging

    from nftsync.replay.worker import replay_once
    from nftsync.serve.schedule import replay_config
    from nftsync.store.removals import HELD_BACK
    from nftsync.terminal import interruptible
    from nftsync.text import counted

    logging.getLogger("nftsync").addHandler(logging.NullHandler())  # the result says it all
    with interruptible() as interrupted:
        config, shown = replay_config(settings), False if as_json else None
        result = replay_once(settings.database, config, interrupted, progress=shown)
    print_result(result, as_json=as_json)
    if interrupted.is_set():
        say("Interrupted; what was read is saved, and the rest waits. Go on with: nftsync replay")
        return 130
    if result.error is not None:
        say(f"nftsync: webhooks wait: {one_line(result.error)}")
    if result.failed or result.dead:
        say("nftsync: see which failed, and why: nftsync inbox --state failed (or dead)")
    if result.held:
        say(f"nftsync: {counted(result.held, 'read')}: {HELD_BACK}. Review them: nftsync removals")
    if result.unrouted:
        say("nftsync: types without a route: nftsync routes suggest")
    return 1 if result.failed or result.dead or result.held or result.error is not None else 0


@click.command("webhook-config")
@click.option("--url", metavar="URL", help="Where webhooks are sent: this server, from outside.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(_TYPES),
    metavar="TYPE",
    help=f"Receive {', '.join(_TYPES[:-1])} or {_TYPES[-1]}; give it several times for several. "
    "They replace the whole list.",
)
@click.option("--enable/--disable", "enabled", default=None, help="Have webhooks sent, or not.")
@click.option(
    "--send-secret", is_flag=True, help="Send the configured webhook_secret; it is never shown."
)
@click.option(
    "--yes", is_flag=True, help="Don't ask before another URL takes the present one's place."
)
@with_settings("base_url", "timeout", "retries")
def webhook_config(
    settings: Settings,
    *,
    url: str | None,
    types: tuple[str, ...],
    enabled: bool | None,
    send_secret: bool,
    yes: bool,
) -> int:
    """Change where the provider sends webhooks, and which.

    Only what is given is sent. An organization has one receiver: a new --url takes the place of the
    present one, whoever runs it. On a terminal that is asked first.

    \b
    Examples:
      nftsync webhook-config --url https://hooks.example.com/webhooks --type nft --send-secret
      nftsync webhook-config --enable
      nftsync webhook-config --type nft --type transaction
    """
    from nftsync.provider.client import Client
    from nftsync.pull.api import client_config

    changes: dict[str, Any] = {}  # under the names of the provider's document
    if url is not None:
        changes["url"] = _checked_url(url)
    if enabled is not None:
        changes["enabled"] = enabled
    if types:
        changes["webhookTypes"] = list(dict.fromkeys(types))
    if send_secret:
        changes["sharedSecret"] = settings.webhook_secret
        if settings.webhook_secret is None or not settings.webhook_secret.strip():
            raise SettingsError(
                "no webhook_secret, or a blank one: set it with NFTSYNC_WEBHOOK_SECRET, "
                "NFTSYNC_WEBHOOK_SECRET_FILE or webhook_secret in nftsync.toml"
            )
    if not changes:
        raise click.UsageError(
            "nothing to change; give --url, --type, --enable or --disable, or --send-secret"
        )
    config = client_config(settings)
    if url is not None and not yes and sys.stdin.isatty():
        to = f"All webhooks of the organization will go to {visible(url)} and nowhere else. Go on?"
        if not click.confirm(to, err=True):
            say("Nothing was changed.")
            return 1
    with Client(config) as client:
        try:
            client.configure_webhooks(changes)
        except ReadError as error:
            raise _explained(error) from None
    _report(config.base_url, changes)
    return 0


def _checked_url(given: str) -> str:
    """Check a receiver's address; a user name or password in it is not repeated.

    Raises:
        InputError: it cannot be the address of a receiver.
    """
    from nftsync.reports.status import is_this_machine
    from nftsync.text import http_url

    url = given.strip()
    parts = http_url(url)
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InputError("--url must not contain a user name or password")
    if parts is None or "#" in url:
        raise InputError("--url must be an address such as https://hooks.example.com/webhooks")
    host = parts.hostname or ""
    if parts.scheme == "http" and not is_this_machine(host):
        say(
            f"warning: webhooks to {host} would travel unencrypted over plain http; "
            "put TLS in front of `nftsync serve` and give an https address"
        )
    return url


def _explained(error: ReadError) -> ReadError:
    """The failure in one line that says what to do next."""
    if isinstance(error, AccessRefused):
        text = (
            f"the provider refused the change ({error.status}); check api_token, token_command or "
            "headers, and that they may change the organization's configuration"
        )
    elif error.status == 404:
        text = "the provider has no webhook configuration at this base_url (404); check base_url"
    elif isinstance(error, NoConnection):
        text = f"{error}; whether the change arrived is not known: run it again"
    elif isinstance(error, UnusableAnswer) or error.status is None:
        text = f"{error}; nothing is known to have changed"
    elif error.status == 429 or error.status >= 500:
        text = f"{error}; run it again later"
    else:
        text = f"the provider refused the change ({error.status}); check what you gave"
    return ReadError(text, status=error.status)


def _report(base_url: str, changes: dict[str, Any]) -> None:
    click.echo(f"Sent to {base_url}:")
    for name, value in changes.items():
        if name == "sharedSecret":
            shown = "the configured webhook_secret"
        elif isinstance(value, bool):
            shown = str(value).lower()
        else:
            shown = ", ".join(value) if isinstance(value, list) else visible(value)
        click.echo(f"  {name:<14}{shown}")
    if changes.get("enabled") is False:
        say("No webhooks are sent until `nftsync webhook-config --enable`.")
        return
    if "sharedSecret" not in changes and "url" in changes:
        say("If the provider doesn't have the secret yet, send it with --send-secret.")
    if "url" in changes and "enabled" not in changes:
        say("Webhooks are sent only while enabled: `nftsync webhook-config --enable`.")
    say("Receive them with `nftsync serve`.")
