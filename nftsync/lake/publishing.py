"""Second step of a run: apply the waiting reads of a staged mirror, and write its changes.

The step depends only on its inputs, so a repeat writes the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import pyarrow as pa

from nftsync.lake.rows import SHOWN, SHOWN_ROWS, batches_of, bucket_of
from nftsync.lake.staged import StagedPart
from nftsync.lake.storage import DataFile
from nftsync.lake.syncing import StagedMirror, staged_mirror
from nftsync.store.database import over_keys
from nftsync.store.runs import Counts

if TYPE_CHECKING:
    from nftsync.lake.run_spec import RunSpec

_CONFIRMED = (
    "SELECT t.token_id, max(w.sequence) FROM json_each(?) k"
    " JOIN wallets w ON w.wallet_id = k.value JOIN balance_rows b USING (wallet_no)"
    " JOIN tokens t USING (token_no) GROUP BY t.token_no"
)
_CHANGED = "SELECT token_id, changed_sequence FROM tokens WHERE changed_sequence > ?"


class PublishReport(msgspec.Struct, kw_only=True):
    """Result of publishing a bucket.

    Attributes:
        changed: the number of successfully read wallets whose balances changed.
        showed: bucket and sequence number of the reads that changed only tokens.
    """

    files: list[DataFile] = []
    counts: Counts = msgspec.field(default_factory=Counts)
    changed: int = 0
    showed: list[tuple[int, int]] = []
    held_wallets: list[str] = []
    shown: dict[int, StagedPart] = {}
    rows: dict[int, int] = {}


def publish_bucket(spec: RunSpec, bucket: int, file: str) -> PublishReport:
    """Write a staged mirror's changes into data files, and stage the shown tokens."""
    with staged_mirror(spec, bucket, file) as staged:
        mirror, tally = staged.mirror, staged.tally
        connection = mirror.connection
        with mirror.transaction() as transaction:
            for some in staged.waiting():
                for how, reads in spec.decision.by_effect(some).items():
                    tally.add(transaction.apply(reads, run_id=spec.run_id, removals=how))
        counts = tally.counts
        changed = ["wallets", "present_states"]
        if counts.balances_added or counts.balances_changed or counts.balances_removed:
            changed += ["balances", "balance_changes"]
        if counts.tokens_added or counts.tokens_changed or counts.balances_removed:
            changed.append("known_tokens")
        if staged.rows.removals_changed(connection):
            changed.append("removals")
        report = PublishReport(
            files=staged.rows.write(connection, [*changed, "past_states"]),
            counts=counts,
            changed=len(tally.changed),
            showed=[(bucket, x) for w, x in tally.showed.items() if w not in tally.changed],
            held_wallets=sorted(tally.held_wallets),
        )
        _stage_shown(spec, staged, report)
        return report


def _stage_shown(spec: RunSpec, staged: StagedMirror, report: PublishReport) -> None:
    connection, tally = staged.mirror.connection, staged.tally
    sequences = dict(over_keys(connection, _CONFIRMED, tally.complete))
    changed = connection.execute(_CHANGED, (spec.greatest_sequence,))
    for token_id, sequence in (*tally.partial.items(), *changed):
        sequences[token_id] = max(sequence, sequences.get(token_id, 0))
    by_part: dict[int, list[tuple[str, int]]] = {}
    for token_id, sequence in sequences.items():
        part = spec.part_of(bucket_of(token_id, spec.buckets))
        by_part.setdefault(part, []).append((token_id, sequence))
    if not by_part:
        return
    name, start, pieces = f"shown-{uuid4().hex}", 0, []
    connection.execute("CREATE TEMP TABLE shown (token_id TEXT PRIMARY KEY, sequence INTEGER)")
    for part, rows in by_part.items():
        connection.execute("DELETE FROM shown")
        connection.executemany("INSERT INTO shown VALUES (?, ?)", rows)
        piece = _packed(staged.rows.settled(batches_of(connection, SHOWN, SHOWN_ROWS)))
        report.shown[part], report.rows[part] = StagedPart(name, start, len(piece)), len(rows)
        start += len(piece)
        pieces.append(piece)
    spec.staged.write(name, b"".join(pieces))


def _packed(batches: Iterable[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, SHOWN, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()
