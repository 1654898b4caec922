"""The first step of a run that approves removals: a worker hands a bucket's over as reads."""

from __future__ import annotations

from zlib import crc32

import msgspec

from nftsync.lake.bucket import BALANCES, mirror_of
from nftsync.lake.order import REPORT, Order, report_of
from nftsync.lake.reading import ReadReport
from nftsync.lake.rows import BUCKET, bucket_of
from nftsync.pull.reads import weight
from nftsync.store.held_back import numbers_held, reads_of_held

_pack = msgspec.msgpack.encode
#: Reads that are applied in one transaction.
_AT_ONCE = 100


def read_held(wallets: list[str] | None, order: Order, bucket: int) -> ReadReport:
    """Hand over the held removals of a bucket as the reads that show them, unless that is done.

    Args:
        wallets: of these wallets; None: of all.
        order: the run.
        bucket: which.

    Raises:
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("read", bucket)
    if (done := report_of(lake, commit, ReadReport)) is not None:
        return done
    own = None
    if wallets is not None:
        own = [wallet for wallet in wallets if bucket_of(wallet, order.buckets) == bucket]
    where = f"{BUCKET} = {bucket} AND held <> 0"
    any_held = any(
        batch.num_rows
        for batch in lake.batches("removals", order.start["removals"], where, ("wallet_id",))
    )
    if own == [] or not any_held:
        return ReadReport(greatest_ticket=order.greatest_ticket)
    with mirror_of(
        lake, order.start, bucket, BALANCES, greatest_ticket=order.greatest_ticket
    ) as mirror:
        connection = mirror.connection
        reads = [
            read
            for number in numbers_held(connection, own)
            for _, read in reads_of_held(connection, mirror.numbers, number)
        ]
        (balances,) = connection.execute("SELECT count(*) FROM balance_rows").fetchone()
        packed = [_pack(read) for read in reads]
        report = ReadReport(
            wallets=len(reads),
            changes=balances + 2 * sum(map(weight, reads)),  # each may come and go
            states=len(reads),
            greatest_ticket=mirror.numbers.take(),
            checksum=sum(map(crc32, packed)),
        )
    if not reads:
        return report
    rows = [(bucket, number // _AT_ONCE, read) for number, read in enumerate(packed)]
    if lake.stage([(bucket, REPORT, _pack(report)), *rows], commit):
        return report
    return report_of(lake, commit, ReadReport) or report  # another worker was sooner
