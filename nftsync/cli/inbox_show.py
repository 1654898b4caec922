"""One webhook with all that is known of it, for a person or as JSON."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.output import one_line, visible

if TYPE_CHECKING:
    from nftsync.inbox_view import StoredWebhook

__all__ = ["print_webhook", "webhook_as_json"]

_CHANGES_LISTED = 10


def webhook_as_json(webhook: StoredWebhook) -> dict[str, Any]:
    """What `inbox show --json` prints.

    The body is `body`, as text; where it is no UTF-8, that is null and it is `body_base64`.
    """
    body = _text(webhook.body)
    shown = {**webhook.columns, "body": body, "body_sha256": webhook.body_sha256}
    if webhook.body is not None and body is None:
        shown["body_base64"] = base64.b64encode(webhook.body).decode()
    return {
        **shown,
        "pruned": webhook.body is None,
        "look_again_at": webhook.look_again_at,
        "balance_changes": webhook.balance_changes,
        "token_changes": webhook.token_changes,
    }


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


def print_webhook(webhook: StoredWebhook) -> None:
    """Print a webhook for a person; nothing in it acts on the terminal."""
    lines = {
        **webhook.columns,
        "body_sha256": webhook.body_sha256,
        "look_again_at": webhook.look_again_at,
    }
    for name, value in lines.items():
        if value is not None:
            click.echo(f"{name:<18}{one_line(str(value))}")
    _print_changes("balance_changes", webhook.balance_changes)
    _print_changes("token_changes", webhook.token_changes)
    if webhook.body is None:
        click.echo("body              pruned: emptied by `nftsync inbox prune`")
        return
    click.echo(f"body              {len(webhook.body):,} bytes")
    for line in _readable(webhook.body).splitlines():
        click.echo(visible(line))


def _print_changes(name: str, changes: list[dict[str, Any]]) -> None:
    click.echo(f"{name:<18}{len(changes):,}")
    for change in changes[:_CHANGES_LISTED]:
        ids = "  ".join(str(value) for key, value in change.items() if key != "change_id")
        click.echo(f"  {change['change_id']:<16}{visible(ids)}")
    if len(changes) > _CHANGES_LISTED:
        click.echo(f"  and {len(changes) - _CHANGES_LISTED:,} more; all with --json")


def _readable(body: bytes) -> str:
    """A JSON body over several lines; another as it is, its strange bytes escaped."""
    import msgspec

    try:
        body.decode()
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "backslashreplace")
