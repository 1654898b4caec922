"""Syncs against a static provider, in turn with what else one would take for the job.

    python -m benchmarks.sync

5,000 made-up wallets of 20 NFTs, about 15 KB each. Compared are: dlt into indexed SQLite, as it
comes and on its fastest path; and the plain loop of httpx and sqlite-utils. Seconds are of the work
after the imports; ours is the call of `nftsync.sync`, which starts its reading process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.provider import Provider, static_provider, write_world
from benchmarks.scripts import Ran, installed, ours, peer

DELAY, AT_ONCE = 0.05, 64
MOST = AT_ONCE / DELAY  # wallets a second that so many requests at once allow
Rounds = dict[str, list[Ran]]


def said(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def in_turn(folder: Path, provider: Provider, ids: Path, rounds: int) -> Rounds:
    """Everyone's runs, one after the other, `rounds` times; dlt twice, as it is slow."""
    found: Rounds = defaultdict(list)

    def note(name: str, ran: Ran) -> None:
        found[name].append(ran)
        said(f"{name}: {ran.seconds:.2f} s, {ran.whole:.2f} s with its start")

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
            wal = folder / "loop-wal.db"
            note("tuned loop", peer("plain_loop", provider.url, ids, wal, "wal"))
    return found


def middle(rounds: list[Ran]) -> float:
    return statistics.median(ran.seconds for ran in rounds)


def whole(rounds: list[Ran]) -> float:
    return statistics.median(ran.whole for ran in rounds)


def speed(wallets: int, rounds: list[Ran]) -> str:
    return (
        f"{middle(rounds):.2f} s ({wallets / middle(rounds):,.0f} wallets/s; "
        f"{whole(rounds):.2f} s with its start)"
    )


def times(one: list[Ran], other: list[Ran]) -> float:
    """How many times as long `other` took as `one`: the median of rounds that ran in turn."""
    pairs = zip(one, other, strict=False)
    return statistics.median(theirs.seconds / mine.seconds for mine, theirs in pairs)


def against(what: str, mine: str, found: Rounds, peers: tuple[str, str, float], n: int) -> Figure:
    """A line that compares a run of ours with a peer's."""
    name, key, least = peers
    target = f"at least {least:g}"
    if not found[key]:
        return Figure(what, "not measured", f"{name} is not installed", target)
    ratio = times(found[mine], found[key])
    theirs = f"{middle(found[key]):.1f} s; {whole(found[key]):.1f} s with its start"
    return Figure(
        what,
        speed(n, found[mine]),
        f"{ratio:.1f} times as fast as {name} ({theirs})",
        target,
        ratio >= least,
    )


def compared(found: Rounds, wallets: int, nfts: int) -> list[Figure]:
    first = f"first sync, {wallets:,} wallets x {nfts}"
    again = f"unchanged sync, {wallets:,} wallets x {nfts}"
    lines = [
        (f"{first}, and dlt", "first", ("dlt", "dlt", 3)),
        (f"{first}, and dlt's fastest path", "first", ("dlt's fastest path", "fastest dlt", 2)),
        (f"{first}, and the plain loop", "first", ("the plain loop", "loop", 3.5)),
        (
            f"{again}, and the plain loop's second run",
            "unchanged",
            ("the plain loop", "loop again", 2.2),
        ),
    ]
    return [
        *(against(what, mine, found, peers, wallets) for what, mine, peers in lines),
        Figure(
            f"{first}, and the plain loop in WAL mode",
            f"{middle(found['tuned loop']):.1f} s",
            f"{times(found['first'], found['tuned loop']):.1f} times as long as ours",
        ),
    ]


def memory(folder: Path, provider: Provider, ids: Path) -> Figure:
    peak = ours(provider.url, ids, folder / "memory.db", memory=True).peak / 1e6
    return Figure(
        "memory of a first sync, all its processes together (PSS)",
        f"{peak:.0f} MB at most",
    )


def with_etags(folder: Path, ids: Path, wallets: int) -> Figure:
    with static_provider(folder, etag=True, count=True) as provider:
        ours(provider.url, ids, folder / "etags.db")
        before = provider.sent(wallets)
        ran = ours(provider.url, ids, folder / "etags.db")
        sent = provider.sent(2 * wallets) - before
    return Figure(
        "unchanged sync with ETags",
        f"{sent:,} bytes of bodies in {ran.found['requests']:,.0f} requests",
        f"{before / 1e6:.0f} MB the first time; {wallets / ran.seconds:,.0f} wallets/s",
        "bodies of at most 0.1 %",
        sent <= before / 1000,
    )


def with_latency(folder: Path, wallets: int, nfts: int, rounds: int) -> Figure:
    ids = folder / "wallets.txt"
    ids.write_text("\n".join(write_world(folder, wallets, nfts, seed=2)))
    found = []
    with static_provider(folder, delay=DELAY) as provider:
        for turn in range(rounds):
            database = folder / f"latency-{turn}.db"
            ran = ours(provider.url, ids, database, concurrency=AT_ONCE)
            said(f"latency: {wallets / ran.seconds:,.0f} wallets/s")
            found.append(wallets / ran.seconds)
    rate = statistics.median(found)
    return Figure(
        f"first sync, {wallets:,} wallets x {nfts}, each answered after 50 ms, 64 at once",
        f"{rate:,.0f} wallets/s",
        f"{rate / MOST:.2f} of the {MOST:,.0f} that 64 at once allow, start and end included",
    )


def figures(*, small: bool = False) -> list[Figure]:
    """Compare and measure; about 4 minutes, with `small` a few seconds."""
    wallets, nfts, rounds = (30, 3, 1) if small else (5_000, 20, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = folder / "wallets.txt"
        ids.write_text("\n".join(write_world(folder, wallets, nfts)))
        with static_provider(folder) as provider:
            found = compared(in_turn(folder, provider, ids, rounds), wallets, nfts)
            found.append(memory(folder, provider, ids))
        found.append(with_etags(folder, ids, wallets))
    with tempfile.TemporaryDirectory() as name:
        found.append(with_latency(Path(name), 510 if small else 20_000, nfts, rounds))
    return found


if __name__ == "__main__":
    for figure in figures(small="--small" in sys.argv):
        print(figure)
