"""Workers that write the same bucket: each write is there once, or was refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from nftsync.lake.applying import ApplyReport, apply_bucket
from nftsync.lake.reading import ReadReport, read_bucket, reads_of
from nftsync.lake.rows import TABLES, schema_of
from nftsync.lake.run_spec import RunSpec
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Commit, Lake, WriteConflict
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE

WRITERS, TIMES = 4, 3


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    """Do the same several times at once; what each returned."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


def test_of_writers_that_fight_for_a_bucket_none_loses_or_doubles_a_row(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    create_tables(lake)
    all_have_read = threading.Barrier(WRITERS, timeout=PATIENCE)

    def write(me: int) -> int:
        """Add rows, each to what was just read, and begin anew where it was overtaken."""
        own, attempt = Lake(lake.url), 0
        for turn in range(TIMES):
            while True:
                version = own.open("removals").version()
                batches = own.batches("removals", version, "bucket = 1")
                rows = [row for batch in batches for row in batch.to_pylist()]
                row = {"bucket": 1, "wallet_id": str(me), "token_id": str(turn)}
                rows.append(dict.fromkeys(schema_of("removals").names) | row)
                batch = pa.RecordBatch.from_pylist(rows, schema_of("removals"))
                if not attempt:
                    all_have_read.wait()
                attempt += 1
                try:
                    commit = Commit(me, "apply", 1, attempt, {"removals": version})
                    assert own.replace("removals", [batch], commit)
                    break
                except WriteConflict:
                    pass
        return attempt - TIMES

    refused = together(write, WRITERS)
    found = sorted(lake.rows("removals", None, "true", ("wallet_id", "token_id")))
    assert found == [(str(me), str(turn)) for me in range(WRITERS) for turn in range(TIMES)]
    assert lake.open("removals").version() == WRITERS * TIMES
    assert sum(refused) >= WRITERS - 1


class Between(Lake):
    """A lake into which another worker puts the same step, just when it was looked for."""

    other: Lake | None = None

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        table = super().table(name, version)
        other, self.other = self.other, None
        if other is not None:
            assert other.stage([(0, 0, b"theirs")], STEP)
        return table


STEP = Commit(1, "read", 0, 0, {})


def test_a_step_that_is_written_while_it_is_looked_for_is_written_once(tmp_path: Path) -> None:
    lake = Between(str(tmp_path / "lake"))
    create_tables(lake)
    lake.other = Lake(lake.url)
    assert not lake.stage([(0, 0, b"ours")], STEP)
    assert list(lake.staged(1, "read")) == [(0, 0, b"theirs")]


def test_later_commits_do_not_change_who_wrote_the_commits_before_them(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    create_tables(lake)

    def write(run_id: int, attempt: int) -> int:
        commit = Commit(run_id, "apply", 0, attempt, {})
        assert lake.replace("removals", [], commit)
        return lake.open("removals").version()

    base = write(1, 0)
    until = write(2, 1)
    write(3, 0)
    assert lake.written_only_by(2, 1, "removals", base, until)
    assert not lake.written_only_by(2, 0, "removals", base, until)
    assert not lake.written_only_by(2, 1, "removals", base - 1, until)
    assert not lake.written_only_by(2, 1, "removals", base, until + 1)


def spec_of(lake: Lake, provider: Provider, wallets: int) -> RunSpec:
    """A run that reads some wallets into a lake of one bucket."""
    create_tables(lake)
    spec = RunSpec(
        url=lake.url,
        run_id=1,
        buckets=1,
        planned=True,
        start=dict.fromkeys(TABLES, 0),
        greatest_sequence=0,
        config=ClientConfig(base_url=provider.url),
        applied_at="2026-01-01T00:00:00.000000Z",
        first_change=[1],
        first_state=[1],
    )
    lines = msgspec.msgpack.encode([(wallet(number), None, None) for number in range(wallets)])
    lake.stage([(0, 0, lines)], spec.commit("plan", 0))
    return spec


def read(spec: RunSpec) -> ReadReport:
    return read_bucket(spec, 0, None, threading.Event(), GiveUpRule())


def test_a_bucket_that_two_workers_read_is_reported_by_what_is_kept(
    provider: Provider, tmp_path: Path
) -> None:
    spec = spec_of(Lake(str(tmp_path / "lake")), provider, 1)
    reports = []

    def meanwhile(peer: Any) -> bool:
        reports.append(read(spec))
        return reply(balances())(peer)

    many = balances(*(entry(token(number)) for number in range(9)))
    provider.on(f"/v1/wallets/{wallet(0)}/nft-balances", meanwhile, reply(many))
    reports.append(read(spec))
    assert reports[0] == reports[1]
    (batch,) = reads_of(spec, 0)
    assert reports[1].changes >= len(getattr(batch[0], "entries", ())) == 9


def test_one_task_that_several_workers_are_given_is_done_once(
    provider: Provider, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for number in range(20):
        provider.holds(wallet(number), *(entry(token(5 * number + n)) for n in range(5)))
    spec = spec_of(lake, provider, 20)
    read(spec)
    spec = msgspec.structs.replace(spec, config=None, base=lake.versions())

    def apply(driver: int) -> ApplyReport:  # each driver's worker opens its own tables
        return apply_bucket(msgspec.structs.replace(spec, driver=str(driver)), 0)

    one, other = together(apply, 2)
    assert one == other
    for name, count in {"balances": 100, "balance_changes": 100, "wallets": 20}.items():
        assert (lake.open(name).count(), lake.open(name).version()) == (count, 1), name
