"""Growth of a database whose images get new signatures in each sync, on the real holdings.

    python -m benchmarks.presigned [SYNCS]

The reads are decoded and applied as in a sync, but without HTTP.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nftsync.provider.wire import decode_wallet, without_duplicates
from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now

DATA = Path(__file__).resolve().parents[2] / "shared/data/wallets.jsonl.gz"
IMAGE = re.compile(rb'("image":"https?://[^"?]+)"')
WALLET = re.compile(rb'"walletId":"([^"]+)".*?("nftTokenBalances":.*)', re.DOTALL)
AT_ONCE = 500


def lists(turn: int) -> Iterator[tuple[str, bytes]]:
    """Yield each wallet and its response, with presigned images."""
    signature = b"?X-Amz-Date=%d&X-Amz-Expires=900&X-Amz-Signature=%064d" % (turn, turn)
    with gzip.open(DATA, "rb") as file:
        for line in file:
            match = WALLET.search(line)
            if match is not None:
                body = IMAGE.sub(rb'\1%s"' % signature, b"{" + match[2])
                yield match[1].decode(), body


def sync(mirror: Mirror, turn: int) -> tuple[int, int]:
    """Apply all wallets; return the numbers of new and of changed tokens."""
    added = changed = 0
    reads: list[WalletRead] = []
    for wallet_id, body in lists(turn):
        entries = without_duplicates(decode_wallet(body).entries)
        reads.append(
            WalletRead(
                wallet_id=wallet_id,
                sequence=mirror.numbers.take(),
                started_at=now(),
                outcome="ok",
                entries=entries,
                digest=f"{turn:064}",
            )
        )
        if len(reads) == AT_ONCE:
            added, changed = apply(mirror, reads, added, changed)
    return apply(mirror, reads, added, changed)


def apply(mirror: Mirror, reads: list[WalletRead], added: int, changed: int) -> tuple[int, int]:
    with mirror.transaction() as transaction:
        applied = transaction.apply(reads)
    reads.clear()
    return (
        added + sum(one.tokens_added for one in applied),
        changed + sum(one.tokens_changed for one in applied),
    )


def main(syncs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nftsync.db")
        first = 0
        for turn in range(syncs + 1):
            began = time.perf_counter()
            with Mirror(path, write_gap=0) as mirror:
                added, changed = sync(mirror, turn)
            size = path.stat().st_size
            first = first or size
            print(
                f"sync {turn}: {added:,} new and {changed:,} changed tokens in"
                f" {time.perf_counter() - began:.0f} s; {size / 1e6:.2f} MB,"
                f" {size / first - 1:+.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
