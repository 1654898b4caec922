"""Drivers and workers that write at once: each version has the rows of one commit."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from nftsync.errors import StoreError
from nftsync.lake.publishing import PublishReport, publish_bucket
from nftsync.lake.rows import TABLES, schema_of
from nftsync.lake.run_spec import RunSpec
from nftsync.lake.setup import create_tables
from nftsync.lake.staged import StagedFiles, StagedPart
from nftsync.lake.storage import Lake, WriteConflict
from nftsync.lake.syncing import SyncReport, plan_name, staged_reports, sync_bucket
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.times import now
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE

WRITERS, TIMES = 4, 5


def test_of_drivers_that_commit_at_once_each_version_has_the_rows_of_one(tmp_path: Path) -> None:
    """All start from one version: what others committed since is not in theirs."""
    lake = Lake(str(tmp_path / "lake"))
    create_tables(lake)
    start = threading.Barrier(WRITERS, timeout=PATIENCE)

    def write(me: int) -> list[tuple[int, str]]:
        own, done = Lake(lake.url), []
        for turn in range(TIMES):
            row = {"wallet_id": f"{me}.{turn}", "token_id": "", "held": 1}
            rows = pa.Table.from_pylist([row], schema_of("removals"))
            file = own.write_file("removals", 1, rows.to_batches())
            start.wait()
            try:
                done.append((own.commit("removals", 0, [file], replace=True), row["wallet_id"]))
            except WriteConflict:
                continue
        return done

    with ThreadPoolExecutor(WRITERS) as threads:
        done = [one for some in threads.map(write, range(WRITERS)) for one in some]
    assert len(done) >= TIMES
    assert max(Counter(version for version, _ in done).values()) == 1
    for version, name in done:
        assert list(lake.rows("removals", {"removals": version}, "true", ("wallet_id",))) == [
            (name,)
        ]


def test_a_file_that_no_commit_names_is_in_no_version(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    create_tables(lake)
    rows = pa.Table.from_pylist([{"wallet_id": "w", "token_id": "t"}], schema_of("removals"))
    one, other = (lake.write_file("removals", n, rows.to_batches()) for n in (1, 2))
    version = lake.commit("removals", 0, [one], replace=True)
    assert list(lake.rows("removals", {"removals": version}, "true", ("bucket",))) == [(1,)]
    assert [batch.num_rows for batch in lake.read_file(other)] == [1]


def test_staged_files_of_any_size_are_read_as_they_were_written(tmp_path: Path) -> None:
    staged = StagedFiles(Lake(str(tmp_path)).files, "run-1")
    large = bytes(range(256)) * 12_000
    staged.write("empty", b"")
    staged.write("large", large)
    assert (staged.read("empty"), staged.read("large")) == (b"", large)
    assert staged.read_part(StagedPart("large", 1, 300)) == large[1:301]
    assert staged.names() == ["empty", "large"]


def spec_of(lake: Lake, provider: Provider, wallets: int) -> RunSpec:
    """A run that reads some wallets into a lake of one bucket."""
    create_tables(lake)
    spec = RunSpec(
        url=lake.url,
        run_id=1,
        folder="run-1",
        buckets=1,
        planned=True,
        start=dict.fromkeys(TABLES, 0),
        greatest_sequence=0,
        started_at=now(),
        config=ClientConfig(base_url=provider.url),
        applied_at="2026-01-01T00:00:00.000000Z",
        first_change={0: 1},
        first_state={0: 1},
    )
    lines = msgspec.msgpack.encode([(wallet(number), None, None) for number in range(wallets)])
    spec.staged.write(plan_name(0), lines)
    return spec


def read(spec: RunSpec) -> SyncReport:
    return sync_bucket(spec, 0, None, threading.Event(), GiveUpRule())


def test_of_a_bucket_that_two_workers_read_each_report_names_its_own_reads(
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
    published = [publish_bucket(spec, 0, report.file) for report in reports]
    assert [report.counts.balances_added for report in published] == [9, 0]
    assert staged_reports(spec.lake, spec.staged, 1)[0].file in {x.file for x in reports}


def test_a_repeated_step_writes_the_same_rows(provider: Provider, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for number in range(20):
        provider.holds(wallet(number), *(entry(token(5 * number + n)) for n in range(5)))
    spec = spec_of(lake, provider, 20)
    report = read(spec)

    def rows(published: PublishReport) -> dict[str, list[Any]]:
        return {
            file.table: [row for batch in lake.read_file(file) for row in batch.to_pylist()]
            for file in published.files
        }

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: publish_bucket(spec, 0, report.file), range(2))
    assert rows(one) == rows(other)
    assert {name: len(found) for name, found in rows(one).items() if found} == {
        "wallets": 20,
        "present_states": 20,
        "balances": 100,
        "balance_changes": 100,
        "known_tokens": 100,
    }
    assert {row["observed_at"] for row in rows(one)["balance_changes"]} == {spec.applied_at}


@pytest.mark.parametrize("kept", [0, 7, 50, -1])
def test_a_cut_off_file_of_reads_is_refused(kept: int, provider: Provider, tmp_path: Path) -> None:
    provider.holds(wallet(0), entry(token(1)))
    spec = spec_of(Lake(str(tmp_path / "lake")), provider, 1)
    report = read(spec)
    (path,) = tmp_path.glob(f"lake/steps/*/{report.file}")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StoreError, match="damaged or missing"):
        publish_bucket(spec, 0, report.file)
