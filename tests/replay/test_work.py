"""What is in hand: no job is left waiting for nothing."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from nftsync.pull.reads import AnyTask, WalletTask
from nftsync.records import WalletRead
from nftsync.replay.work import Job, Work
from nftsync.store.inbox import ObjectKey
from tests.kit.provider import wallet


@settings(max_examples=40)
@given(st.data())
def test_every_job_that_is_not_dropped_gets_all_its_reads(data: st.DataObject) -> None:
    """In whatever order jobs come, reads end, are withdrawn, and jobs are given back."""
    work = Work()
    sequence = 0
    jobs: list[Job] = []
    under_way: list[tuple[AnyTask, int]] = []  # each with the number that it took as it began

    def end_read(task: AnyTask, began: int) -> None:
        assert isinstance(task, WalletTask)
        read = WalletRead(wallet_id=task.wallet_id, sequence=began, started_at="", outcome="ok")
        for served in work.complete(read, stale=False):
            assert served.since < began
            if not served.waits_for:
                work.drop(served)

    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["add", "submit", "read", "withdraw", "drop"]))
        sequence += 1
        if step == "add":
            jobs.append(Job(ObjectKey("Wallet", wallet(len(jobs))), "webhook", sequence))
            numbers = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
            work.add(jobs[-1], [WalletTask(wallet(number), etag="known") for number in numbers])
        elif step == "submit":
            submitted = work.submit()
            assert not {task.wallet_id for task in submitted} & {t.wallet_id for t, _ in under_way}
            under_way += [(task, sequence) for task in submitted]
        elif step == "read" and under_way:
            end_read(*under_way.pop(data.draw(st.integers(0, len(under_way) - 1))))
        elif step == "withdraw":
            work.withdraw([under_way.pop()[0] for _ in range(len(under_way) // 2)])
        elif step == "drop" and jobs:
            work.drop(jobs.pop(data.draw(st.integers(0, len(jobs) - 1))))
    while any(each.waits_for for each in jobs):
        sequence += 1
        under_way += [(task, sequence) for task in work.submit()]
        assert under_way, "a job waits for a read that nobody makes"
        end_read(*under_way.pop())
