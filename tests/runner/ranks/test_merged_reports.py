"""Reports of several ranks are merged: transfers, and blocks on disk."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.outputs import StoreChanges, TransferReport
from quire.runner.ranks.merged_stores import MergedStores
from quire.runner.ranks.merged_transfers import MergedTransfers


def pieces(rank: int, fates: list[str], draw: random.Random) -> list[TransferReport]:
    """Split one rank's reports of loads 0, 1, 2..., in order; `fates` holds the outcome of each."""
    reports: list[TransferReport] = []
    at = 0
    while at < len(fates):
        is_cancelled = fates[at] == "cancelled"
        end = at + 1
        while end < len(fates) and draw.random() < 0.5 and (fates[end] == "cancelled") == is_cancelled:
            end += 1
        ids = list(range(at, end))
        failed = [i for i in ids if fates[i] == "failed"]
        size = 0 if is_cancelled else 10 * len(ids)
        reports.append(TransferReport("load", ids, size, len(ids) * (rank + 1.0), failed, is_cancelled=is_cancelled))
        at = end
    return reports


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 4), st.integers(1, 8), st.integers())
def test_a_transfer_has_ended_when_all_ranks_say_so_and_arrived_where_it_did_on_all(
    num_ranks: int, num_transfers: int, seed: int
) -> None:
    draw = random.Random(seed)
    fates = [
        [draw.choice(["arrived", "arrived", "failed", "cancelled"]) for _ in range(num_transfers)]
        for _ in range(num_ranks)
    ]
    pending = [pieces(rank, fates[rank], draw) for rank in range(num_ranks)]
    told = [0] * num_ranks
    merged = MergedTransfers(num_ranks)
    ended: list[int] = []
    while any(pending):
        now = [reports[: draw.randint(0, len(reports))] for reports in pending]
        for rank, reports in enumerate(now):
            del pending[rank][: len(reports)]
            told[rank] += sum(len(report.op_ids) for report in reports)
        for report in merged.merge(now):
            for op_id in report.op_ids:
                of_ranks = [fates[rank][op_id] for rank in range(num_ranks)]
                assert report.is_cancelled == ("cancelled" in of_ranks)
                assert (op_id in report.failed) == (not report.is_cancelled and "failed" in of_ranks)
            if not report.is_cancelled:
                assert report.num_bytes == 10 * len(report.op_ids)
                assert report.copy_s == len(report.op_ids) * num_ranks  # the last rank is the slowest
            ended += report.op_ids
        assert all(op_id < min(told) for op_id in ended), "one was reported before all ranks had"
    assert ended == sorted(ended) or set(ended) == set(range(num_transfers))
    assert sorted(ended) == list(range(num_transfers))
    assert merged.num_outstanding == 0


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 3), st.integers())
def test_a_block_is_found_on_disk_while_every_rank_has_its_slice(num_ranks: int, seed: int) -> None:
    draw = random.Random(seed)
    keys = [bytes([i]) for i in range(4)]
    have: list[set[bytes]] = [set() for _ in range(num_ranks)]
    merged, found = MergedStores(num_ranks), set[bytes]()
    for _ in range(12):
        changes: list[StoreChanges | None] = []
        doomed = set(draw.sample(keys, draw.randint(0, 1)))
        for mine in have:
            deleted = [key for key in doomed if draw.random() < 0.9]
            gone = mine & set(deleted)
            new = set(draw.sample(keys, draw.randint(0, 3)))
            removed = {key for key in mine - new if draw.random() < 0.2} - gone
            mine -= gone | removed
            mine |= new
            changes.append(StoreChanges(sorted(new), sorted(removed), deleted) if draw.random() < 0.9 or new else None)
            if changes[-1] is None:
                mine |= gone | removed  # no report means no change
        told = merged.merge(changes)
        if told is not None:  # as the scheduler handles it
            assert not set(told.added) & set(told.removed)
            found -= set(told.deleted)
            found -= set(told.removed)
            found |= set(told.added)
        assert found == set.intersection(*have)


def test_a_claim_on_a_block_that_another_rank_lacks_is_granted_after_a_moment() -> None:
    now = 0.0
    merged = MergedStores(2, lambda: now)
    merged.merge([StoreChanges(added=[b"a"]), None])
    merged.update_claims([b"a", b"b"], [])
    assert merged.merge([StoreChanges(added=[b"a"]), None]) == StoreChanges(), "it may be on its way"
    now = 5.0
    assert merged.merge([None, None]) == StoreChanges(granted=[b"a"])
    assert merged.merge([StoreChanges(granted=[b"b"]), None]) == StoreChanges(granted=[b"b"])
    assert merged.merge([None, StoreChanges(added=[b"a"])]) == StoreChanges(added=[b"a"])
    assert merged.merge([None, None]) is None
