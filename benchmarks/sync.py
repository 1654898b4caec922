"""Syncs of a static provider, in turn with other programs for the same job.

Each program reads 5,000 generated wallets of 20 NFTs, about 15 KB each. The others are dlt into
indexed SQLite, by default and on its fastest path, and a plain loop with httpx and sqlite-utils.
Times begin after the imports. nftsync's time is that of `nftsync.sync`, with the start of its
reading process.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.commands import progress
from benchmarks.figure import Figure
from benchmarks.provider import Provider, static_provider, write_world
from benchmarks.scripts import Ran, installed, ours, peer

DELAY, AT_ONCE = 0.05, 64
MOST = AT_ONCE / DELAY  # wallets per second with so many requests at once
Rounds = dict[str, list[Ran]]


def in_turn(folder: Path, provider: Provider, ids: Path, rounds: int) -> Rounds:
    """Run all programs `rounds` times; dlt twice, because it is slow."""
    runs: Rounds = defaultdict(list)

    def note(name: str, ran: Ran) -> None:
        runs[name].append(ran)
        progress(f"{name}: {ran.seconds:.2f} s, {ran.whole:.2f} s with its start")

    for turn in range(rounds):
        mine, loop = folder / f"ours-{turn}.db", folder / f"loop-{turn}.db"
        note("first", ours(provider.url, ids, mine))
        note("loop", peer("plain_loop", provider.url, ids, loop))
        note("unchanged", ours(provider.url, ids, mine))
        note("loop again", peer("plain_loop", provider.url, ids, loop))
        if turn < 2 and installed("dlt"):
            plain, fast = folder / f"dlt-{turn}.db", folder / f"dlt-fast-{turn}.db"
            note("dlt", peer("with_dlt", provider.url, ids, plain))
            note("fastest dlt", peer("with_dlt", provider.url, ids, fast, "fastest"))
        if turn == 0:
            note("tuned loop", peer("plain_loop", provider.url, ids, folder / "wal.db", "wal"))
    return runs


def median(runs: list[Ran]) -> float:
    return statistics.median(ran.seconds for ran in runs)


def ratio(runs: list[Ran], others: list[Ran]) -> float:
    """Return how many times as long the others took: the median over the rounds."""
    pairs = zip(runs, others, strict=False)
    return statistics.median(other.seconds / ran.seconds for ran, other in pairs)


def with_start(runs: list[Ran]) -> str:
    return f"{statistics.median(ran.whole for ran in runs):.2f} s with its start"


def compared(runs: Rounds, wallets: int, nfts: int) -> list[Figure]:
    size = f"{wallets:,} wallets x {nfts}"
    lines = [
        (f"first sync, {size}, and dlt", "first", "dlt", "dlt", 3),
        (
            f"first sync, {size}, and dlt's fastest path",
            *("first", "dlt's fastest path", "fastest dlt", 2),
        ),
        (f"first sync, {size}, and the plain loop", "first", "the plain loop", "loop", 3.5),
        (
            f"unchanged sync, {size}, and the plain loop's second run",
            *("unchanged", "the plain loop", "loop again", 2.2),
        ),
    ]
    figures = []
    for metric, mine, name, key, least in lines:
        figure, compared, met = "not measured", f"{name} is not installed", None
        if runs[key]:
            times, seconds = ratio(runs[mine], runs[key]), median(runs[mine])
            speed = f"{wallets / seconds:,.0f} wallets/s"
            figure = f"{seconds:.2f} s ({speed}; {with_start(runs[mine])})"
            peers = f"{median(runs[key]):.1f} s; {with_start(runs[key])}"
            compared = f"{times:.1f} times as fast as {name} ({peers})"
            met = times >= least
        figures.append(Figure(metric, figure, compared, f"at least {least:g}", met))
    return [
        *figures,
        Figure(
            f"first sync, {size}, and the plain loop in WAL mode",
            f"{median(runs['tuned loop']):.1f} s",
            f"{ratio(runs['first'], runs['tuned loop']):.1f} times as long as nftsync",
        ),
    ]


def memory(folder: Path, provider: Provider, ids: Path) -> Figure:
    peak = ours(provider.url, ids, folder / "memory.db", memory=True).peak / 1e6
    return Figure(
        "memory of a first sync, all its processes together (PSS)", f"{peak:.0f} MB at most"
    )


def with_etags(folder: Path, ids: Path, wallets: int) -> Figure:
    with static_provider(folder, etag=True, count=True) as provider:
        ours(provider.url, ids, folder / "etags.db")
        before = provider.sent(wallets)
        ran = ours(provider.url, ids, folder / "etags.db")
        sent = provider.sent(2 * wallets) - before
    return Figure(
        "unchanged sync with ETags",
        f"{sent:,} bytes of bodies in {ran.values['requests']:,.0f} requests",
        f"{before / 1e6:.0f} MB the first time; {wallets / ran.seconds:,.0f} wallets/s",
        "bodies of at most 0.1 %",
        sent <= before / 1000,
    )


def with_latency(folder: Path, wallets: int, nfts: int, rounds: int) -> Figure:
    ids = folder / "wallets.txt"
    ids.write_text("\n".join(write_world(folder, wallets, nfts, seed=2)))
    with static_provider(folder, delay=DELAY) as provider:
        rate = statistics.median(
            wallets
            / ours(provider.url, ids, folder / f"latency-{turn}.db", concurrency=AT_ONCE).seconds
            for turn in range(rounds)
        )
    return Figure(
        f"first sync, {wallets:,} wallets x {nfts}, each answered after 50 ms, 64 at once",
        f"{rate:,.0f} wallets/s",
        f"{rate / MOST:.2f} of the {MOST:,.0f} that 64 at once allow, with start and end",
    )


def figures(*, small: bool = False) -> list[Figure]:
    """Compare and measure; about 4 minutes."""
    wallets, nfts, rounds = (30, 3, 1) if small else (5_000, 20, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = folder / "wallets.txt"
        ids.write_text("\n".join(write_world(folder, wallets, nfts)))
        with static_provider(folder) as provider:
            figures = compared(in_turn(folder, provider, ids, rounds), wallets, nfts)
            figures.append(memory(folder, provider, ids))
        figures.append(with_etags(folder, ids, wallets))
    with tempfile.TemporaryDirectory() as name:
        figures.append(with_latency(Path(name), 510 if small else 20_000, nfts, rounds))
    return figures
