"""How workers sign in to the provider: each with its own settings, as no secret is sent to them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nftsync.errors import SettingsError
from nftsync.provider.config import ClientConfig
from nftsync.pull.api import client_config
from nftsync.settings import load
from nftsync.settings.keys import KEYS

#: What the driver sends. All else belongs to a machine: credentials, the proxy and certificates.
_SHARED = (
    "base_url",
    "rate_limit",
    "timeout",
    "attempts",
    "first_wait",
    "max_bytes",
    "max_entries",
    "large_bytes",
    "ignore_fields",
    "paging",
)
_OWN = tuple(name for name in ClientConfig.__struct_fields__ if name not in _SHARED)


def shared_part(config: ClientConfig) -> ClientConfig:
    """Return the part of a configuration that may be sent: it holds no secret."""
    return ClientConfig(**{name: getattr(config, name) for name in _SHARED})


def names_of_own(config: ClientConfig) -> list[str]:
    """Return the names of the settings that are set here and not sent."""
    return [key.name for key in KEYS if key.name in _OWN and getattr(config, key.name)]


def completed(shared: ClientConfig, required: Sequence[str]) -> ClientConfig:
    """Return a configuration completed with the settings of this process.

    Args:
        shared: the part that the driver sent.
        required: the names of the settings that are set where the driver runs.

    Raises:
        SettingsError: one of them is not set here, or a setting cannot be used.
    """
    own = client_config(load({"base_url": shared.base_url}))
    missing = [key for key in KEYS if key.name in required and not getattr(own, key.name)]
    if missing:
        names = " and ".join(key.name for key in missing)
        variables = " and ".join(
            f"{key.variable} (or {key.variable}_FILE)" if key.secret else str(key.variable)
            for key in missing
        )
        raise SettingsError(
            f"no {names}, which `lake sync` has but sends to no worker: set {variables} in the"
            " worker's environment, and restart it"
        )
    return msgspec.structs.replace(shared, **{name: getattr(own, name) for name in _OWN})
