"""The flags that commands share, and the settings that come of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["with_settings"]

_FLAGS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "base_url": (("--base-url",), "URL", "The provider's base address."),
    "database": (("--database", "-d"), "FILE", "The SQLite file. Default: data/nftsync.db"),
    "wallets_file": (
        ("--wallets-file",),
        "FILE",
        "One wallet id a line, or CSV with wallet_id, label, group; - is stdin.",
    ),
    "concurrency": (("--concurrency",), "N", "Requests at once. Default: 16"),
    "timeout": (("--timeout",), "SECONDS", "For a whole attempt. Default: 30"),
    "retries": (("--retries",), "N", "Attempts per request, the first included. Default: 5"),
    "rate_limit": (("--rate-limit",), "N", "Requests per second, evenly spaced. Default: none"),
}

#: What commands that read the provider take.
PROVIDER = ("base_url", "concurrency", "timeout", "retries", "rate_limit")


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flags of these settings and `--config`, and pass it `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, config: str | None, **values: Any) -> Any:
            from nftsync import settings as _settings

            flags = {name: values.pop(name) for name in names}
            loaded = _settings.load(flags, config=None if config is None else Path(config))
            return command(*args, settings=loaded, **values)

        call = click.option(
            "--config", metavar="FILE", help="Settings file. Default: the nearest nftsync.toml"
        )(call)
        for name in reversed(names):
            declarations, metavar, text = _FLAGS[name]
            call = click.option(*declarations, name, metavar=metavar, help=text)(call)
        return call

    return decorate
