"""The organization's webhook configuration (provider's document, section Webhook configuration)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from nftsync.errors import InputError
from nftsync.sandbox.inputs import decode_body

__all__ = ["WEBHOOK_TYPES", "WebhookConfig", "check_type"]

#: The types that can be chosen (provider's document, section Events).
WEBHOOK_TYPES = ("payment", "transaction", "nft", "kyc", "document", "custodialAccount")

_URL = re.compile(r"https?://[!-~]{1,2000}", re.ASCII | re.IGNORECASE)


class _Patch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    url: str | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    shared_secret: str | msgspec.UnsetType = msgspec.UNSET
    webhook_types: list[str] | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return "_Patch(...)"  # a secret is in it


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where webhooks go, which, and signed with what.

    Attributes:
        url: the receiver, or None.
        enabled: whether webhooks leave at all.
        webhook_types: the chosen types.
        shared_secret: what webhooks are signed with; empty while none was set.
        previous_secret: the secret before the last change; empty when there was none.
    """

    url: str | None = None
    enabled: bool = False
    webhook_types: tuple[str, ...] = ()
    shared_secret: str = ""
    previous_secret: str = ""

    def __repr__(self) -> str:
        return f"WebhookConfig({self.shown()})"

    def shown(self) -> dict[str, object]:
        """What a PATCH is answered: all but the secrets."""
        return {
            "url": self.url,
            "enabled": self.enabled,
            "webhookTypes": list(self.webhook_types),
        }

    @property
    def may_send(self) -> bool:
        """Whether a webhook can leave now: enabled, with a URL and a secret."""
        return self.enabled and self.url is not None and bool(self.shared_secret)

    def takes(self, webhook_type: str) -> bool:
        """Whether a webhook of this type is made now (provider's document, Events 2 and 3)."""
        return self.enabled and self.url is not None and webhook_type in self.webhook_types

    def patched(self, body: bytes) -> WebhookConfig:
        """The configuration with the fields of a PATCH's body changed.

        Raises:
            InputError: the body is no JSON object of the document's fields and types, a type is
                not allowed, the URL is not one of http or https, or the secret is blank.
        """
        patch = decode_body(body, _Patch, "webhook configuration")
        changes: dict[str, Any] = {}
        if patch.url is not msgspec.UNSET:
            changes["url"] = _checked_url(patch.url)
        if patch.enabled is not msgspec.UNSET:
            changes["enabled"] = patch.enabled
        if patch.webhook_types is not msgspec.UNSET:
            changes["webhook_types"] = tuple(dict.fromkeys(map(check_type, patch.webhook_types)))
        if patch.shared_secret is not msgspec.UNSET:
            if not patch.shared_secret.strip():
                raise InputError("the sharedSecret is blank; nothing could be verified with it")
            if patch.shared_secret != self.shared_secret:
                changes["previous_secret"] = self.shared_secret
                changes["shared_secret"] = patch.shared_secret
        return msgspec.structs.replace(self, **changes)


def check_type(webhook_type: str) -> str:
    """Check a webhook type and give it back.

    Raises:
        InputError: it is not one of WEBHOOK_TYPES.
    """
    if webhook_type not in WEBHOOK_TYPES:
        raise InputError(
            f"{webhook_type[:40]!r} is no webhook type; allowed are {', '.join(WEBHOOK_TYPES)}"
        )
    return webhook_type


def _checked_url(url: str) -> str:
    """Check that a URL names a receiver that a webhook can be sent to."""
    usable = _URL.fullmatch(url) is not None
    if usable:
        try:
            parts = urlsplit(url)
            # Names and passwords are not part of the interface, and would show in answers.
            usable = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        except ValueError:
            usable = False
    if not usable:
        raise InputError(
            "the url is not the http or https address of a receiver; "
            "write one such as http://127.0.0.1:8787/webhooks"
        )
    return url
