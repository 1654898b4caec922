"""Arguments of frames, resolved in the database."""

from __future__ import annotations

import json
import operator
from collections.abc import Collection
from contextlib import suppress
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import pandas as pd

from nftsync.columnar.columns import INTEGER
from nftsync.columnar.source import IN_JSON, Numbers, Source
from nftsync.errors import InputError
from nftsync.store.filters import Filters, find_filters
from nftsync.store.history import known_time, last_observed, period_start, whole_time
from nftsync.store.wallets import WalletIds, ids_in
from nftsync.text import quoted
from nftsync.times import Edge, now, parse_time

#: A time as callers may write it.
Moment: TypeAlias = "str | date | datetime | np.datetime64"
#: Characters of a value that an error message repeats.
_LONGEST_SHOWN = 60


def stored_time(source: Source, value: Moment, edge: Edge) -> str:
    """Return a caller's time; a date means the `edge` of its day, and the end of today is now."""
    if isinstance(value, np.datetime64) and not np.isnat(value):
        moment = pd.Timestamp(value)
        value = moment.date() if np.datetime_data(value)[0] == "D" else moment
    if not isinstance(value, str | date) or value is pd.NaT:
        raise InputError(f"{shown(value)} is not a time; use text, a date or a datetime")
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        raise InputError(f"{shown(value)} is not a time; write 2026-01-31T12:00:00Z")
    return known_time(source.cursor, parse_time(value, edge))


def state_time(source: Source, value: Moment) -> str:
    """Return the time of the last whole state by then; warn if that is earlier."""
    return whole_time(source.cursor, stored_time(source, value, "end"))


def states_between(source: Source, start: Moment, end: Moment | None) -> tuple[str, str | None]:
    """Return the times of the states at both ends of a period, as `whole_states` does.

    A start before the history moves to its begin, with a warning.
    """
    first, last = whole_states(source, start, end)
    return period_start(source.cursor, first, last), last


def whole_states(source: Source, start: Moment, end: Moment | None) -> tuple[str, str | None]:
    """Return the times of the states at both ends of a span, as `state_time` does; None is now.

    Without an end, the last state is earlier than now if a run has stored only some of its changes.
    """
    first, last = stored_span(source, start, end, "end")
    present = last or max(now(), last_observed(source.cursor) or "")
    whole = whole_time(source.cursor, present)
    return whole_time(source.cursor, first or ""), last and whole if whole == present else whole


def stored_span(
    source: Source, start: Moment | None, end: Moment | None, edge: Edge = "start"
) -> tuple[str | None, str | None]:
    """Return both ends of a span in the stored form; `edge` applies to `start`."""
    first = None if start is None else stored_time(source, start, edge)
    last = None if end is None else stored_time(source, end, "end")
    if first is not None and last is not None and first > last:
        raise InputError(f"start ({first}) is after end ({last}); swap them")
    return first, last


def only_one(**names: Moment | None) -> Moment | None:
    """Return the argument that is set, of several with the same meaning."""
    values = [value for value in names.values() if value is not None]
    if len(values) > 1:
        raise InputError(f"{' and '.join(names)} are aliases; give only one")
    return values[0] if values else None


def shown(value: object) -> str:
    """Return a caller's value, or its type, for an error message."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or pd.api.types.is_scalar(value):
        written = repr(value)
        if len(written) <= _LONGEST_SHOWN:
            return written
    return f"a {type(value).__name__}"


def whole_number(name: str, value: SupportsIndex, most: int | None) -> int:
    """Check a count: a whole number from 1."""
    with suppress(TypeError):
        number = operator.index(value)
        if not isinstance(value, bool) and 1 <= number <= (most or number):
            return number
    span = "of 1 or more" if most is None else f"from 1 to {most:,}"
    raise InputError(f"{name}={value!r} is not a whole number {span}")


def one_of(value: object, name: str, choices: Collection[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    instead = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"{name}={shown(value)} is unknown; {instead}use one of {', '.join(choices)}")


def ticks_of(stored: str) -> int:
    """Return a stored time as microseconds since 1970."""
    return int(np.datetime64(stored[:-1], "us").astype(np.int64))


def filters_of(
    source: Source, *, since: Moment | None = None, until: Moment | None = None, **names: Any
) -> Filters:
    return find_filters(
        source.cursor,
        **names,
        since=None if since is None else stored_time(source, since, "start"),
        until=None if until is None else stored_time(source, until, "end"),
    )


def wallet_numbers(source: Source, wallet: WalletIds) -> Numbers:
    """Return the numbers of known wallets, by id or label."""
    if not (ids := ids_in(source.cursor, wallet)):
        return np.empty(0, dtype=np.int64)
    (numbers,) = source.columns(
        f"SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON}", [INTEGER], (json.dumps(ids),)
    )
    return np.asarray(numbers.to_numpy())
