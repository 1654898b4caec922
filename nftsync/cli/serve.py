"""The commands `serve`, `replay` and `webhook-config`."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import confirmed, one_line, print_result, say
from nftsync.errors import (
    AccessRefused,
    InputError,
    NoConnection,
    ReadError,
    SettingsError,
    UnusableResponse,
)
from nftsync.provider.addresses import is_loopback
from nftsync.provider.webhooks import WEBHOOK_TYPES
from nftsync.terminal import interruptible
from nftsync.text import counted, http_url, visible

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.serve.serve import ServeConfig
    from nftsync.settings import Settings


@click.command()
@options.with_settings("database", "wallets_file", *options.PROVIDER)
@options.valued(
    "--host",
    "ADDRESS",
    str,
    "Address to listen on. Put a TLS proxy in front of a public address.",
    "127.0.0.1",
)
@options.valued(
    "--port", "N", click.IntRange(0, 65535), "Port to listen on; 0 picks a free port.", 8787
)
@options.valued("--path", "PATH", str, "URL path of the receiver.", "/webhooks")
@options.flag("--no-replay", "Only store webhooks, for `nftsync replay` to process.")
@options.duration(
    "--sync-every", "Also sync all tracked wallets at this interval (90s, 15m, 6h, 7d)."
)
@options.valued(
    "--metrics-port",
    "N",
    click.IntRange(1, 65535),
    "Port on 127.0.0.1 for Prometheus metrics. Default: no metrics",
)
def serve(settings: Settings, **options: Any) -> None:
    """Receive webhooks, and read the objects that they name.

    serve stores each signed webhook before it answers, then reads the wallet, token or other
    object. It needs the webhook secret, in NFTSYNC_WEBHOOK_SECRET or in a file that
    NFTSYNC_WEBHOOK_SECRET_FILE names. With [watch.NAME] or [forward.NAME] in nftsync.toml, it also
    sends alerts and forwards webhooks.

    serve logs to stderr: text on a terminal, otherwise JSON lines. GET /healthz and GET /readyz
    report its state. SIGTERM or Ctrl-C ends it once open requests are complete.

    \b
    Examples:
      nftsync serve
      nftsync serve --sync-every 6h --metrics-port 9787
      nftsync serve --no-replay         if `nftsync replay` runs elsewhere
    """
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
        raise SettingsError("wallets_file: --sync-every cannot read stdin repeatedly; name a file")
    if sync_every is not None and not sync_every:
        raise InputError("--sync-every must be above 0, such as 15m")
    replay = run_sync = None
    if not no_replay or sync_every is not None:
        from nftsync.serve.schedule import full_sync, replay_config

        require_base_url(settings)
        replay = replay_config(settings)
        run_sync = full_sync(settings, replay.access, resume=True)
    watch = None
    if settings.watch or settings.forward:
        from nftsync.watch.service import watch_config

        watch = watch_config(settings)
    current, previous = settings.webhook_secret, settings.webhook_secret_previous
    secrets = [secret for secret in (current, previous) if secret is not None] if current else []
    return ServeConfig(
        database=settings.database,
        secrets=secrets,
        organization_id=settings.organization_id,
        replay=None if no_replay else replay,
        sync_every=sync_every,
        run_sync=run_sync,
        watch=watch,
        **listening,
    )


def _announce(url: str) -> None:
    if sys.stderr and sys.stderr.isatty():  # stderr may be closed
        say(f"Receiving webhooks at {url}. Stop with Ctrl-C.")


@click.command()
@options.with_settings("database", *options.PROVIDER)
@options.json("Print the result as JSON.")
def replay(settings: Settings, *, as_json: bool) -> int:
    """Process the due webhooks once, then exit.

    replay reads each object once, however many webhooks name it. You can run it alongside serve
    and syncs. It exits with 1 if a webhook ended as failed or dead, if removals were held for
    review, or if the provider was unreachable.

    \b
    Examples:
      nftsync replay
      nftsync replay --json
      nftsync inbox requeue --state dead && nftsync replay
    """
    from nftsync.replay.worker import replay_once
    from nftsync.serve.schedule import replay_config
    from nftsync.store.removals import HELD_BACK

    logging.getLogger("nftsync").addHandler(logging.NullHandler())  # the result has all details
    with interruptible() as interrupted:
        config, shown = replay_config(settings), False if as_json else None
        result = replay_once(settings.database, config, interrupted, progress=shown)
    print_result(result, as_json=as_json)
    if interrupted.is_set():
        say("Interrupted; all reads are saved. Process the rest: nftsync replay")
        return 130
    if result.error is not None:
        say(f"nftsync: webhooks stay pending: {one_line(result.error)}")
    if result.failed or result.dead:
        say("List failures and reasons: nftsync inbox --state failed (or dead)")
    if result.reads_held:
        reads = counted(result.reads_held, "read")
        say(f"nftsync: {reads}: {HELD_BACK}. Review them: nftsync removals")
    if result.unrouted:
        say("Find routes for unrouted types: nftsync routes suggest")
    return 1 if result.failed or result.dead or result.reads_held or result.error is not None else 0


@click.command("webhook-config")
@options.text(
    "--url",
    "URL",
    "Public URL of the receiver. An organization has only one. On a terminal, nftsync asks before "
    "replacing it.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(WEBHOOK_TYPES),
    metavar="TYPE",
    help=f"Webhook type to receive: {', '.join(WEBHOOK_TYPES[:-1])} or {WEBHOOK_TYPES[-1]}. For"
    " several types, repeat --type. The new types replace the current ones.",
)
@click.option("--enable/--disable", "enabled", default=None, help="Turn webhooks on or off.")
@options.flag("--send-secret", "Send the configured webhook_secret, without showing it.")
@options.flag("--yes", "Don't ask before replacing the current URL.")
@options.with_settings("base_url", "timeout", "retries")
def webhook_config(
    settings: Settings,
    *,
    url: str | None,
    types: tuple[str, ...],
    enabled: bool | None,
    send_secret: bool,
    yes: bool,
) -> int:
    """Change the URL and the types of the provider's webhooks.

    nftsync sends only the options that you set.

    \b
    Examples:
      nftsync webhook-config --url https://hooks.example.com/webhooks --type nft --send-secret
      nftsync webhook-config --enable
      nftsync webhook-config --type nft --type transaction
    """
    from nftsync.provider.client import Client
    from nftsync.pull.api import client_config

    changes: dict[str, Any] = {}  # names from the provider's document
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
                "webhook_secret is missing or blank; set it with NFTSYNC_WEBHOOK_SECRET, "
                "NFTSYNC_WEBHOOK_SECRET_FILE or webhook_secret in nftsync.toml"
            )
    if not changes:
        raise click.UsageError(
            "nothing to change: set --url, --type, --enable, --disable or --send-secret"
        )
    config = client_config(settings)
    if url is not None:
        question = f"Send all of the organization's webhooks to {visible(url)}, and nowhere else?"
        if not confirmed(question, yes=yes):
            return 1
    with Client(config) as client:
        try:
            client.configure_webhooks(changes)
        except ReadError as error:
            raise _with_advice(error) from None
    _report(config.base_url, changes)
    return 0


def _checked_url(text: str) -> str:
    # Errors do not repeat credentials in it.
    url = text.strip()
    parts = http_url(url)
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InputError("--url must not contain a user name or password")
    if parts is None or "#" in url:
        raise InputError("--url must be a URL such as https://hooks.example.com/webhooks")
    host = parts.hostname or ""
    if parts.scheme == "http" and not is_loopback(host):
        say(
            f"warning: webhooks to {host} would travel unencrypted over plain http; "
            "put TLS in front of `nftsync serve`, and use an https URL"
        )
    return url


def _with_advice(error: ReadError) -> ReadError:
    if isinstance(error, AccessRefused):
        text = f"nothing was changed: {error}"
    elif error.status == 404:
        text = "no webhook configuration at this base_url (404); check base_url"
    elif isinstance(error, UnusableResponse) or error.status is None:
        again = "; run the command again" if isinstance(error, NoConnection) else ""
        text = f"{error}; the change may or may not have been applied{again}"
    elif error.provider_down:
        text = f"{error}; run the command again later"
    else:
        reason = error.reason and f": {error.reason}"
        text = f"the provider refused the change ({error.status}){reason}; check the options"
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
        say("Webhooks are off. Turn them on: nftsync webhook-config --enable")
        return
    if "sharedSecret" not in changes and "url" in changes:
        say("If the provider doesn't have the secret yet, send it with --send-secret.")
    if "url" in changes and "enabled" not in changes:
        say("If webhooks are off, turn them on: nftsync webhook-config --enable")
    say("Receive webhooks: nftsync serve")
