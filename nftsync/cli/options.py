"""Options that commands share: settings, times, limits; each is a decorator."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.core import ParameterSource

from nftsync.cli.output import one_line, say, typed_settings
from nftsync.errors import DamagedDatabase, NftsyncError, NoDatabase
from nftsync.times import Edge, days_of_month, parse_duration, parse_time

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

#: Adds options to a command.
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def combined(*options: Decorator) -> Decorator:
    """Combine options, in the order of the help."""
    return lambda command: functools.reduce(lambda call, add: add(call), options[::-1], command)


def text(name: str, metavar: str, text: str, *short: str, **more: Any) -> Decorator:
    """Give a command a text."""
    return click.option(name, *short, metavar=metavar, help=text, **more)


def flag(name: str, text: str, *argument: str) -> Decorator:
    """Give a command a flag."""
    return click.option(name, *argument, is_flag=True, help=text)


class _Plain(click.Option):
    """An option whose help omits the range, which an error states."""

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:  # noqa: ARG002
        return {"required": "required"} if self.required else {}


def valued(
    name: str, metavar: str | None, kind: Any, text: str, default: Any = None, **more: Any
) -> Decorator:
    """Give a command an option with a type, and with a default that its help names."""
    if default is not None:  # click takes None for a given value
        text += f" Default: {default}"
        more["default"] = default
    return click.option(name, cls=_Plain, type=kind, metavar=metavar, help=text, **more)


def database(description: str) -> Decorator:
    """Give a command `--database`."""
    return text("--database", "FILE", description, "-d")


config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file. Default: the nearest nftsync.toml",
)
_SETTING_OPTIONS = {
    "base_url": text("--base-url", "URL", "The provider's base URL."),
    "database": database("The SQLite file. Default: data/nftsync.db"),
    "wallets_file": text(
        "--wallets-file",
        "FILE",
        "File of wallet ids, one per line, or CSV with wallet_id, label, group. Use - for stdin.",
    ),
    "concurrency": text("--concurrency", "N", "Limit on concurrent requests. Default: 16"),
    "timeout": text("--timeout", "SECONDS", "Time limit for each attempt. Default: 30"),
    "retries": text("--retries", "N", "Attempts per request, including the first. Default: 5"),
    "rate_limit": text(
        "--rate-limit", "N", "Limit on requests per second, evenly spaced. Default: no limit"
    ),
}

#: Settings of commands that read the provider.
PROVIDER = ("base_url", "concurrency", "timeout", "retries", "rate_limit")


@contextmanager
def _advise(database: Path, source: str) -> Iterator[None]:
    """Name the demo's database if there is none; report damage behind unexpected errors."""
    try:
        yield
    except NoDatabase as error:
        from nftsync.demo.provider import DEMO, nearest

        if source != "default" or (demo := nearest(Path.cwd() / DEMO)) is None:
            raise
        raise NoDatabase(f"{error}. The demo's: --database {os.path.relpath(demo)}") from error
    except (NftsyncError, OSError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        from nftsync.store.database import damage, explained

        with suppress(OSError), explained(database):
            if database.is_file() and (report := damage(database)) is not None:
                raise DamagedDatabase(
                    f"{database} is damaged ({report}); restore a backup, or start over with"
                    " another --database"
                ) from error
        raise


def with_settings(*names: str) -> Decorator:
    """Give a command the flags of these settings and `--config`, and pass it `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, config: Path | None, **values: Any) -> Any:
            context = click.get_current_context()
            own = {"config": config, **{name: values.pop(name) for name in names}}
            typed = typed_settings()
            typed.update((name, value) for name, value in own.items() if value is not None)
            if context.invoked_subcommand is not None:
                for name in values:
                    if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                        option = name.removeprefix("as_")
                        raise click.UsageError(f"put --{option} after the subcommand's name")
                return None
            from nftsync import settings

            for name, near in settings.unknown_variables():
                hint = f"; did you mean {near}?" if near else "; `nftsync check` lists all settings"
                say(f"nftsync: {one_line(name)} is not a setting{hint}")
            flags = {name: value for name, value in typed.items() if name != "config"}
            chosen = settings.load(flags, config=typed.get("config"))
            with _advise(chosen.database, chosen.sources["database"]):
                return command(*args, settings=chosen, **values)

        return combined(*(_SETTING_OPTIONS[name] for name in names), config)(call)

    return decorate


def json(text: str) -> Decorator:
    """Give a command `--json`, as `as_json`."""
    return flag("--json", text, "as_json")


def limit(text: str, default: int | None, most: int | None = None) -> Decorator:
    """Give a command `--limit`."""

    def bounded(_context: click.Context, _option: click.Parameter, rows: int) -> int:
        return rows and min(rows, 2**63 - 1)

    return valued("--limit", "N", click.IntRange(0, most), text, default, callback=bounded)


def duration(name: str, text: str, **more: Any) -> Decorator:
    """Give a command a timedelta."""
    return valued(name, "DURATION", parse_duration, text, **more)


def time(name: str, day: Edge, text: str, **more: Any) -> Decorator:
    """Give a command a stored time; a date becomes its `day`.

    The forms of a time follow a text that is not a sentence, so that a help states them once.
    """
    if not text.endswith("."):
        text += " ISO 8601 (UTC by default), today, yesterday or 7d (7 days ago)."
    text += f" A date alone means the {day} of that day."
    return valued(name, "TIME", lambda typed: parse_time(typed, day), text, **more)


def period(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a period, as `start` (a state's time) or `since`, and `until`."""

    @functools.wraps(command)
    def call(*args: Any, month: tuple[str, str] | None, **values: Any) -> Any:
        ends = {name: values.pop(name) for name in ("from", "since", "to", "until")}
        typed = [f"--{name}" for name, at in ends.items() if at is not None]
        if month is not None and typed:
            raise click.UsageError(f"--month is a whole period; drop {' and '.join(typed)}")
        for pair, verb in ((["--from", "--since"], "start"), (["--to", "--until"], "end")):
            if {*pair} <= {*typed}:
                both = " and ".join(pair)
                raise click.UsageError(f"{both} both {verb} the period; drop one of them")
        since, until = month or (ends["since"], ends["to"] or ends["until"])
        return command(*args, start=ends["from"], since=since, until=until, **values)

    return combined(
        time("--from", "end", "Start of the period:"),
        time("--since", "start", "Start of the period, instead of --from."),
        time("--to", "end", "End of the period. Default: now."),
        time("--until", "end", "End of the period, the same as --to."),
        valued("--month", "YYYY-MM", days_of_month, "The whole month, such as 2026-10."),
    )(call)


#: Options of a command that syncs.
run = combined(
    flag(
        "--resume",
        "Resume the newest run if it was interrupted or killed; otherwise start a new one.",
    ),
    flag("--allow-removals", "Apply all removals, without review."),
    json("Print the result as JSON."),
)
