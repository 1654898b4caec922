"""Processes that write the same bucket: each write is there once, or was refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from nftsync.lake.reading import ReadReport, read_bucket, reads_of
from nftsync.lake.rows import TABLES
from nftsync.lake.run_spec import RunSpec
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Commit, Lake
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from tests.kit.lake_cluster import environment
from tests.kit.provider import Provider, balances, entry, reply, token, wallet

WRITERS, TIMES = 4, 3

#: Each adds a row of its own to what it has just read, and begins anew where it was overtaken.
FIGHT = f"""
import json, sys
import pyarrow as pa
from nftsync.lake.rows import schema_of
from nftsync.lake.storage import Commit, Lake, WriteConflict
lake, me, refused = Lake(sys.argv[1]), sys.argv[2], 0
sys.stdin.readline()
for turn in range({TIMES}):
    while True:
        version = lake.open("removals").version()
        rows = [row for batch in lake.batches("removals", version, "bucket = 1")
                for row in batch.to_pylist()]
        rows.append(dict.fromkeys(schema_of("removals").names) | {{
            "bucket": 1, "wallet_id": me, "token_id": str(turn)}})
        commit = Commit(int(me), "apply", 1, turn * 1000 + refused, {{"removals": version}})
        try:
            batch = pa.RecordBatch.from_pylist(rows, schema_of("removals"))
            assert lake.replace("removals", [batch], commit)
            break
        except WriteConflict:
            refused += 1
print(json.dumps(refused))
"""

#: The very same task of a run, given to each.
TASK = """
import json, sys, threading
import msgspec
from nftsync.lake.applying import apply_bucket
from nftsync.lake.run_spec import RunSpec
spec = msgspec.json.decode(sys.argv[2], type=RunSpec)
sys.stdin.readline()
print(msgspec.json.encode(apply_bucket(spec, 0)).decode())
"""


def together(code: str, *arguments: list[str]) -> list[str]:
    """Run a program several times at once; what each printed."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *each],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in arguments
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return said


def test_of_writers_that_fight_for_a_bucket_none_loses_or_doubles_a_row(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    create_tables(lake)
    said = together(FIGHT, *([lake.url, str(me)] for me in range(WRITERS)))
    found = sorted(lake.rows("removals", None, "true", ("wallet_id", "token_id")))
    assert found == [(str(me), str(turn)) for me in range(WRITERS) for turn in range(TIMES)]
    assert lake.open("removals").version() == WRITERS * TIMES
    assert sum(map(json.loads, said)) >= 1, "none was refused: it proves nothing"


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
    task = msgspec.json.encode(spec).decode()
    said = together(TASK, *([lake.url, task] for _ in range(2)))
    assert len(set(said)) == 1
    for name, count in {"balances": 100, "balance_changes": 100, "wallets": 20}.items():
        assert (lake.open(name).count(), lake.open(name).version()) == (count, 1), name
