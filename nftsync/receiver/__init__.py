"""The webhook receiver: verify, store, reply; it never reads from the provider."""

from __future__ import annotations

from nftsync.receiver.app import close_app, create_app, refuse_webhooks

__all__ = ["close_app", "create_app", "refuse_webhooks"]
