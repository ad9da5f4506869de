"""Blocks return unchanged, with one copy per run of neighbours, in cancellable pieces, and one report per transfer."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire.attention.interface import KVLayout
from quire.outputs import BlockTransfer, TransferReport
from quire.runner.kv_cache import KVCache
from quire.tiers import cuda, swap_space
from quire.tiers import transfer_worker as worker_module
from quire.tiers.disk_space import DiskSpace
from quire.tiers.streams import CpuStream
from quire.tiers.swap_space import HostSpace, SwapSpace
from quire.tiers.transfer_worker import TransferWorker
from tiers.blocks import (
    DEVICES,
    LAYOUT,
    NAMESPACE,
    TensorStream,
    as_bytes,
    drain,
    fix_piece_size,
    joined,
    load,
    make_cache,
    make_space,
    move,
    save,
)

BLOCK_BYTES = LAYOUT.block_bytes(4)
SPACES = ["host", "disk"]
MakeLink = Callable[..., TransferWorker]


@pytest.fixture
def make_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLink]:
    """Make links and close them at the end."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(cuda, "CudaStream", TensorStream)
    links: list[TransferWorker] = []

    def make(cache: KVCache, space: SwapSpace | str = "disk", num_slots: int = 16, **options: object) -> TransferWorker:
        if isinstance(space, str):
            space = make_space(space, tmp_path, num_slots, as_bytes(cache).shape[1], pinned=cache.device == "cuda")
        links.append(TransferWorker(cache.blocks, space, **options))  # type: ignore[arg-type]
        return links[-1]

    yield make
    for link in links:
        link.close()


class WaitingSpace(DiskSpace):
    """Waits before it moves data, and records the order of calls."""

    def __init__(self, directory: Path, num_slots: int) -> None:
        super().__init__(directory, num_slots, BLOCK_BYTES, NAMESPACE)
        self.order: list[tuple[str, list[int]]] = []

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        self.order.append(("write", slots))
        self.wait()
        return super().write(slots, keys, blocks)

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        self.order.append(("read", slots))
        self.wait()
        return super().read(slots, keys, into)

    def wait(self) -> None:
        raise NotImplementedError


class GatedSpace(WaitingSpace):
    """Moves no data before the gate opens."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 16)
        self.gate = threading.Event()
        self.reached = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.gate.wait(60)


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "layout", [LAYOUT, *(KVLayout.uniform(*sizes) for sizes in ((1, 1, 1, 1), (3, 7, 5, 9), (4, 2, 16, 64)))]
)
def test_what_comes_back_is_what_went_in(
    make_link: MakeLink, kind: str, layout: KVLayout, dtype: torch.dtype, device: str
) -> None:
    cache = make_cache(10, layout, dtype, device)
    before = as_bytes(cache).clone()
    link = make_link(cache, kind)
    chosen = {1: 4, 2: 5, 3: 6, 8: 3, 5: 0, 9: 15}  # block -> slot
    (report,) = joined(move(link, *(save(block, slot, op_id=10 + block) for block, slot in chosen.items())))
    assert (report.kind, sorted(report.op_ids), report.failed) == ("save", [11, 12, 13, 15, 18, 19], [])
    assert report.num_bytes == len(chosen) * before.shape[1]
    as_bytes(cache).zero_()
    targets = dict(zip(chosen, [4, 0, 7, 2, 9, 1], strict=True))
    (report,) = joined(move(link, *(load(slot, targets[block], block, op_id=block) for block, slot in chosen.items())))
    assert (report.kind, sorted(report.op_ids), report.failed) == ("load", sorted(chosen), [])
    expected = torch.zeros_like(before)
    for block, target in targets.items():
        expected[target] = before[block]
    assert torch.equal(as_bytes(cache), expected)


@pytest.mark.parametrize("kind", SPACES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_schedule_gives_every_load_what_its_slot_was_last_given(
    make_link: MakeLink, kind: str, data: st.DataObject
) -> None:
    """Saves are overwritten at once, slots are reused, and a block waits for its own dependencies only."""
    cache = make_cache(6)
    link = make_link(cache, kind, num_slots=5)
    in_slot: dict[int, tuple[int, torch.Tensor]] = {}
    for content in range(data.draw(st.integers(1, 12), label="steps")):
        for block in range(6):  # a step computes: blocks change
            as_bytes(cache)[block].copy_(torch.full((BLOCK_BYTES,), (content * 6 + block) % 256))
        blocks = data.draw(st.lists(st.integers(0, 5), unique=True, max_size=5), label="saved")
        slots = data.draw(st.permutations(range(5)), label="slots")[: len(blocks)]
        saves = [save(block, slot, 100 * content + block) for block, slot in zip(blocks, slots, strict=True)]
        for transfer in saves:
            in_slot[transfer.dst] = int.from_bytes(transfer.key or b"", "little"), as_bytes(cache)[transfer.src].clone()
        link.submit(saves)
        as_bytes(cache).fill_(255)
        wanted = data.draw(st.lists(st.sampled_from(sorted(in_slot)), unique=True) if in_slot else st.just([]))
        link.submit([load(slot, block, in_slot[slot][0]) for block, slot in enumerate(wanted)])
        assert all(not report.failed for report in drain(link))
        for block, slot in enumerate(wanted):
            assert torch.equal(as_bytes(cache)[block], in_slot[slot][1])


@pytest.mark.parametrize("kind", SPACES)
def test_a_saved_block_may_be_overwritten_as_soon_as_submit_returns(make_link: MakeLink, kind: str) -> None:
    cache = make_cache(4)
    before = as_bytes(cache).clone()
    link = make_link(cache, kind)
    link.submit([save(block, block) for block in range(4)])
    as_bytes(cache).zero_()
    link.submit([load(slot, slot, slot) for slot in range(4)])
    assert [report.kind for report in joined(drain(link))] == ["save", "load"]
    assert torch.equal(as_bytes(cache), before)


def test_a_load_of_a_slot_whose_save_is_under_way_reads_what_was_saved(make_link: MakeLink, tmp_path: Path) -> None:
    cache = make_cache(8)
    before = as_bytes(cache).clone()
    space = GatedSpace(tmp_path)
    link = make_link(cache, space)
    link.submit([load(3, 7, 2), save(2, 3)])  # saves go first, in any order
    as_bytes(cache).zero_()
    space.reached.wait(60)
    assert link.poll() == [], "nothing has arrived"
    space.gate.set()
    assert [report.failed for report in drain(link)] == [[], []]
    assert space.order == [("write", [3]), ("read", [3])]
    assert torch.equal(as_bytes(cache)[7], before[2])


# -- pieces ----------------------------------------------------------------------------------------------------------


class SteppedSpace(WaitingSpace):
    """Moves once per permit. Its clock stands still, so pieces have 1, 2, 4, ... blocks."""

    def __init__(self, directory: Path, num_slots: int = 64) -> None:
        super().__init__(directory, num_slots)
        self.lets = threading.Semaphore(0)
        self.has_begun = threading.Semaphore(0)

    def clock(self) -> float:
        return 0.0

    def begun(self) -> None:
        """Wait until another transfer has begun."""
        assert self.has_begun.acquire(timeout=60)

    def go(self) -> None:
        """Release everything."""
        self.lets.release(1000)

    def wait(self) -> None:
        self.has_begun.release()
        assert self.lets.acquire(timeout=60)


def transfers_of(kind: str, op_ids: range, slots: list[int] | None = None) -> list[BlockTransfer]:
    """Return transfers between equal block and slot numbers, by default also the op_ids."""
    pairs = zip(op_ids, slots or op_ids, strict=True)
    return [save(at, at, op_id=op_id) if kind == "save" else load(at, at, at, op_id=op_id) for op_id, at in pairs]


def in_short(reports: list[TransferReport]) -> list[tuple[str, list[int]]]:
    """Summarize reports as outcomes of op_ids; each report has one kind."""
    short = []
    for report in reports:
        assert report.failed in ([], report.op_ids)
        assert not (report.failed and report.is_cancelled)
        what = "cancelled" if report.is_cancelled else "lost" if report.failed else "moved"
        if report.is_cancelled:
            assert (report.num_bytes, report.copy_s) == (0, 0.0)
        short.append((what, sorted(report.op_ids)))
    return short


def test_pieces_are_reported_as_they_end_and_what_was_submitted_first_is_moved_first(
    make_link: MakeLink, tmp_path: Path
) -> None:
    cache = make_cache(30)
    before = as_bytes(cache).clone()
    space = SteppedSpace(tmp_path)
    link = make_link(cache, space, clock=space.clock)
    slots = random.Random(3).sample(range(30), 30)
    space.lets.release(1000)
    link.submit(transfers_of("save", range(30), slots))
    saved = drain(link)
    pieces = [range(1), range(1, 3), range(3, 7), range(7, 15), range(15, 30)]
    assert in_short(saved) == [("moved", [*piece]) for piece in pieces]
    assert [slots[op_id] for op_id in saved[3].op_ids] == sorted(slots[7:15]), "within a piece by slot"
    assert [report.continues for report in saved] == [False, True, True, True, True]
    assert sum(report.num_bytes for report in saved) == 30 * BLOCK_BYTES
    as_bytes(cache).zero_()
    while space.lets.acquire(blocking=False):
        pass
    link.submit(transfers_of("load", range(30), slots))
    for piece in pieces:
        assert link.poll() == []
        assert link.num_outstanding == 30 - piece.start
        space.lets.release()
        assert in_short(link.poll(wait=True)) == [("moved", [*piece])]
        for at in (slots[op_id] for op_id in range(piece.stop)):
            assert torch.equal(as_bytes(cache)[at], before[at])
    assert torch.equal(as_bytes(cache), before)


def test_neighbours_on_disk_are_written_at_once_although_they_were_staged_with_others(
    make_link: MakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SteppedSpace(tmp_path)
    link = make_link(make_cache(24), space, clock=space.clock)
    space.go()
    descending = list(range(23, -1, -1))
    move(link, *transfers_of("save", range(24), descending))
    written = [[23], [21, 22], [*range(17, 21)], [*range(9, 17)], [*range(9)]]
    assert [slots for _, slots in space.order] == written
    space.order.clear()
    fix_piece_size(monkeypatch, 16)
    even_first = [*range(0, 16, 2), *range(1, 16, 2)]
    move(link, *transfers_of("load", range(16), even_first), *transfers_of("save", range(16, 32), even_first))
    written = [slots for what, slots in space.order if what == "write"]
    assert written == [[*range(16)]], "as they are one piece"


class TimedSpace(DiskSpace):
    """A disk that takes `fast_s` per block, or `slow_s` in some slots, by its own clock."""

    now = 0.0
    fast_s, slow_s = 0.9e-3, 11e-3
    slow_slots = range(0)

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        self.now += self.seconds(slots)
        return super().write(slots, keys, blocks)

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        self.now += self.seconds(slots)
        return super().read(slots, keys, into)

    def seconds(self, slots: list[int]) -> float:
        return sum(self.slow_s if slot in self.slow_slots else self.fast_s for slot in slots)


def test_a_piece_takes_20_ms_at_the_speed_of_the_last_one_of_its_transfer(make_link: MakeLink, tmp_path: Path) -> None:
    space = TimedSpace(tmp_path, 80, BLOCK_BYTES, NAMESPACE)
    link = make_link(make_cache(80), space, clock=lambda: space.now)

    def sizes(kind: str, num_blocks: int) -> list[int]:
        reports = move(link, *transfers_of(kind, range(num_blocks)))
        for report in reports:
            assert report.copy_s == pytest.approx(space.seconds(report.op_ids))  # with equal slot numbers
        return [len(report.op_ids) for report in reports]

    assert sizes("save", 80) == [1, 2, 4, 8, 16, 22, 22, 5]
    assert sizes("load", 10) == [1, 2, 4, 3]
    assert sizes("load", 10) == [1, 2, 4, 3], "none goes on where another one was"
    space.slow_slots = range(31, 80)
    slowed = sizes("save", 70)
    assert slowed[:6] == [1, 2, 4, 8, 16, 22]
    assert max(slowed[6:]) <= 5, "two would take 22 ms, but the later a piece, the more it has at least"
    space.slow_slots = range(12)
    sped_up = sizes("load", 70)
    assert sped_up[:2] == [1, 1]
    assert sped_up[-2] == 22
    assert all(after <= 2 * before for before, after in pairwise(sped_up))


def test_a_link_of_a_given_bandwidth_is_asked_in_pieces_that_fit_it(make_link: MakeLink) -> None:
    link = make_link(make_cache(30), "host", num_slots=30, bandwidth=None)
    (report,) = move(link, *transfers_of("save", range(30)))
    assert not report.failed, "to memory all is one piece"
    link.bandwidth = 40 * BLOCK_BYTES
    reports = move(link, *transfers_of("load", range(12)))
    sizes = [len(report.op_ids) for report in reports]
    assert sizes[:2] == [1, 1], "a block took at least 25 ms"
    assert [op_id for report in reports for op_id in sorted(report.op_ids)] == [*range(12)]
    assert sum(report.copy_s for report in reports) >= 0.299


class BreakingSpace(SteppedSpace):
    """Raises at its second move, and finds no data at its fourth."""

    def wait(self) -> None:
        super().wait()
        if len(self.order) == 2:
            raise MemoryError("no more")

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        failed = super().read(slots, keys, into)
        return list(range(len(slots))) if len(self.order) == 4 else failed


def test_a_piece_that_fails_ends_nothing_but_itself(
    make_link: MakeLink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = BreakingSpace(tmp_path)
    link = make_link(make_cache(64), space, clock=space.clock)
    space.go()
    space.order = [("", [])] * 10  # no failure yet
    move(link, *transfers_of("save", range(64)))
    space.order.clear()
    with caplog.at_level(logging.DEBUG, logger="quire"):
        reports = move(link, *transfers_of("load", range(64)))
    assert in_short(reports) == [
        ("moved", [0]),
        ("lost", [1, 2]),
        ("moved", [3, 4]),  # as large as the failed one, which showed no speed
        ("lost", [*range(5, 9)]),
        ("moved", [*range(9, 13)]),
        ("moved", [*range(13, 21)]),
        ("moved", [*range(21, 37)]),
        ("moved", [*range(37, 64)]),
    ]
    continued = [at for at, report in enumerate(reports) if not report.failed and report.continues]
    assert continued == [5, 6, 7], "what is lost has no speed for others to go on with"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "swap: 2 of 2 blocks failed while loading: MemoryError('no more')"),
        ("DEBUG", "swap: 4 of 4 blocks failed while loading: missing or altered"),
    ], "although the third was whole"
    caplog.clear()
    move(link, *transfers_of("load", range(64)))
    assert caplog.messages == ["swap: loading works again, after 6 failed blocks"]


class BadSlots(DiskSpace):
    """Rejects writes to two of its slots."""

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        super().write(slots, keys, blocks)
        return [i for i, slot in enumerate(slots) if slot in (6, 17)]


def test_a_block_that_is_not_written_fails_alone_wherever_it_was_staged(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link(make_cache(20), BadSlots(tmp_path, 20, BLOCK_BYTES, NAMESPACE), clock=lambda: 0.0)
    even_first = [*range(0, 20, 2), *range(1, 20, 2)]  # adjacent staged blocks are written in different pieces
    reports = move(link, *(save(slot, slot, op_id=slot) for slot in even_first))
    assert sorted(op_id for report in reports for op_id in report.failed) == [6, 17]
    sizes = [len(report.op_ids) for report in reports]
    assert sizes == [1, 2, 4, 4, 8, 1], "4 again as nothing was learnt, and the rest after 8"


class BreakingOnce(TimedSpace):
    is_broken = True

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        failed = super().read(slots, keys, into)
        if self.is_broken:
            self.is_broken = False
            raise MemoryError("no more")
        return failed


def test_the_seconds_of_a_piece_that_broke_are_not_the_next_ones(
    make_link: MakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_piece_size(monkeypatch, 8)
    space = BreakingOnce(tmp_path, 16, BLOCK_BYTES, NAMESPACE)
    link = make_link(make_cache(16), space, clock=lambda: space.now)
    move(link, *transfers_of("save", range(16)))
    broken, whole = move(link, *transfers_of("load", range(16)))
    assert (len(broken.failed), broken.copy_s) == (8, 0.0)
    assert (len(whole.op_ids), whole.failed) == (8, [])
    assert whole.copy_s == pytest.approx(8 * space.fast_s)


# -- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["save", "load"])
def test_what_has_begun_is_moved_what_has_not_is_not_and_all_is_reported_in_its_turn(
    make_link: MakeLink, tmp_path: Path, kind: str
) -> None:
    space = SteppedSpace(tmp_path)
    link = make_link(make_cache(60), space, clock=space.clock)
    space.go()
    link.cancel([5, 12])  # before they are known
    move(link, *transfers_of("save", range(60)))
    while space.lets.acquire(blocking=False):
        pass
    space.order.clear()
    space.has_begun = threading.Semaphore(0)
    link.submit(transfers_of(kind, range(30)))
    link.submit(transfers_of(kind, range(30, 40)))
    link.submit(transfers_of(kind, range(40, 45)))
    space.begun()
    link.cancel(iter([0, *range(10, 15), 999, 29, *range(30, 40), 44]))  # 0 has begun
    link.cancel([10, 44])
    assert link.poll() == [], "nothing has ended"
    assert link.num_outstanding == 45
    space.go()
    reports = drain(link)
    assert in_short(reports) == [
        ("moved", [0]),
        ("moved", [1, 2]),
        ("moved", [*range(3, 7)]),
        ("moved", [7, 8, 9]),
        ("cancelled", [*range(10, 15)]),
        ("moved", [*range(15, 21)]),  # twice the three moved last
        ("moved", [*range(21, 29)]),
        ("cancelled", [29]),
        ("cancelled", [*range(30, 40)]),
        ("moved", [40]),
        ("moved", [41, 42]),
        ("moved", [43]),
        ("cancelled", [44]),
    ]
    assert {report.kind for report in reports} == {kind}
    continued = [min(report.op_ids) for report in reports if report.continues]
    assert continued == [1, 3, 7, 15, 21, 41, 43], "moved, and not the first of what was submitted together"
    touched = {slot for _, slots in space.order for slot in slots}
    assert touched == {*range(10), *range(15, 29), *range(40, 44)}
    link.cancel(range(100))  # after
    assert link.poll() == []
    assert not link._waiting, "nothing is remembered"
    assert in_short(move(link, *transfers_of(kind, range(10, 13)))) == [("moved", [10]), ("moved", [11, 12])]


def test_what_is_cancelled_between_two_pieces_is_not_moved(make_link: MakeLink, tmp_path: Path) -> None:
    space = SteppedSpace(tmp_path)
    link = make_link(make_cache(60), space, clock=space.clock)
    link.submit(transfers_of("save", range(60)))
    space.begun()
    space.lets.release()
    assert in_short(link.poll(wait=True)) == [("moved", [0])]
    space.begun()  # the second piece is under way
    link.cancel(range(1, 60))
    space.go()
    assert in_short(drain(link)) == [("moved", [1, 2]), ("cancelled", [*range(3, 60)])]


def test_a_cancelled_load_leaves_its_block_as_it_is(make_link: MakeLink, tmp_path: Path) -> None:
    cache = make_cache(60)
    space = SteppedSpace(tmp_path)
    link = make_link(cache, space, clock=space.clock)
    space.lets.release(6)
    saved = move(link, *transfers_of("save", range(40)))
    cache.blocks.fill(7)
    before = as_bytes(cache).clone()
    link.submit([load(0, 50, 0, op_id=0), *(load(slot, slot, slot, op_id=slot) for slot in range(1, 40))])
    for _ in range(len(saved) + 1):
        space.begun()
    link.cancel(range(1, 40))
    space.go()
    assert in_short(drain(link)) == [("moved", [0]), ("cancelled", [*range(1, 40)])]
    assert torch.equal(as_bytes(cache)[:50], before[:50])
    assert not torch.equal(as_bytes(cache)[50], before[50])


@pytest.mark.parametrize("was_there", [None, 77], ids=["an unused slot", "a slot of something else"])
def test_a_load_of_a_slot_whose_save_was_cancelled_fails_and_the_slot_can_be_used_again(
    make_link: MakeLink, tmp_path: Path, was_there: int | None
) -> None:
    cache = make_cache(8)
    before = as_bytes(cache).clone()
    space = SteppedSpace(tmp_path)
    link = make_link(cache, space, clock=space.clock)
    if was_there is not None:
        space.lets.release()
        move(link, save(0, 3, content=was_there))
        space.begun()
    link.submit([save(0, 0, op_id=1)])
    space.begun()
    link.submit([save(1, 3, content=1, op_id=2)])
    link.cancel([2])
    link.submit([load(3, 6, content=1, op_id=3)])
    link.submit([save(2, 3, content=2, op_id=4)])
    link.submit([load(3, 7, content=2, op_id=5)])
    space.go()
    ends = [("moved", [1]), ("cancelled", [2]), ("lost", [3]), ("moved", [4]), ("moved", [5])]
    assert in_short(drain(link)) == ends
    assert torch.equal(as_bytes(cache)[7], before[2])


def test_a_save_to_memory_has_begun_when_it_is_submitted(make_link: MakeLink) -> None:
    """Nothing is left to cancel, and its slot always matches the reports."""
    cache = make_cache(20)
    before = as_bytes(cache).clone()
    link = make_link(cache, "host", num_slots=20)
    move(link, save(5, 0, content=77))
    link.submit(transfers_of("save", range(20)))
    link.cancel(range(20))
    as_bytes(cache).zero_()
    link.submit(transfers_of("load", range(20)))
    reports = drain(link)
    assert in_short(reports)[0] == ("moved", [*range(20)])
    assert all(what == "moved" for what, _ in in_short(reports))
    assert torch.equal(as_bytes(cache), before)
    (report,) = move(link, load(0, 1, content=77, op_id=1))
    assert report.failed == [1]


class GatedMemory(HostSpace):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, BLOCK_BYTES)
        self.gate = threading.Event()
        self.reached = threading.Event()

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        self.reached.set()
        assert self.gate.wait(60)
        return super().read(slots, keys, into)


def test_loads_from_memory_can_be_cancelled(make_link: MakeLink) -> None:
    cache = make_cache(20)
    before = as_bytes(cache).clone()
    space = GatedMemory(20)
    link = make_link(cache, space)
    move(link, *transfers_of("save", range(20)))
    as_bytes(cache).zero_()
    link.submit(transfers_of("load", range(20)))
    assert space.reached.wait(60)
    link.cancel(range(20))
    space.gate.set()
    assert in_short(drain(link)) == [("moved", [0]), ("cancelled", [*range(1, 20)])]
    assert torch.equal(as_bytes(cache)[0], before[0])
    assert not as_bytes(cache)[1:].any()


def test_closing_fails_what_has_not_begun_but_what_was_cancelled(make_link: MakeLink, tmp_path: Path) -> None:
    space = SteppedSpace(tmp_path)
    link = make_link(make_cache(40), space, clock=space.clock)
    link.submit(transfers_of("save", range(30)))
    link.submit(transfers_of("load", range(30, 40)))
    space.begun()
    link.cancel([*range(20, 25), 30])
    threading.Timer(0.05, space.go).start()
    link.close()
    ends = in_short(drain(link))
    assert ends[0] == ("moved", [0])
    assert sorted(op_id for what, op_ids in ends if what == "cancelled" for op_id in op_ids) == [*range(20, 25), 30]
    lost = sorted(op_id for what, op_ids in ends if what == "lost" for op_id in op_ids)
    assert lost == [*range(1, 20), *range(25, 30), *range(31, 40)]
    assert not link._waiting
    link.cancel(range(40))
    assert in_short(move(link, save(0, 0, op_id=50))) == [("lost", [50])]
    assert not link._waiting


def test_nothing_is_kept_of_what_has_ended(make_link: MakeLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither op_ids nor buffers of blocks."""
    link = make_link(make_cache(40), num_slots=40)
    stagings: list[weakref.ref[np.ndarray]] = []
    new_staging = CpuStream.new_staging

    def noted(*arguments: Any) -> np.ndarray:
        staging = new_staging(*arguments)
        stagings.append(weakref.ref(staging))
        return staging

    monkeypatch.setattr(CpuStream, "new_staging", noted)
    for _ in range(5):
        link.submit(transfers_of("save", range(40)))
        link.cancel(range(20, 60))
        link.submit(transfers_of("load", range(100, 120), [*range(20)]))
        link.cancel(range(110, 130))
        drain(link)
    link.close()
    assert len(stagings) >= 5
    assert all(staging() is None for staging in stagings)
    assert not link._waiting


def being_read(transfers: dict[int, BlockTransfer], reports: list[TransferReport]) -> set[int]:
    """Return slots of unreported loads, to which no save may write, since saves to memory do not queue."""
    ended = {op_id for report in reports for op_id in report.op_ids}
    return {each.src for op_id, each in transfers.items() if each.kind == "load" and op_id not in ended}


@pytest.mark.parametrize("kind", SPACES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), is_closed=st.booleans())
def test_whatever_is_cancelled_every_transfer_is_reported_once_and_brings_its_bytes_or_none(
    make_link: MakeLink, kind: str, seed: int, is_closed: bool
) -> None:
    """Each save has its own content, each load its own block. Reports tell the slots' content in order."""
    draw = random.Random(seed)
    cache = make_cache(200)
    as_bytes(cache).fill_(255)
    link = make_link(cache, kind, num_slots=12)
    transfers: dict[int, BlockTransfer] = {}
    cancelled: set[int] = set()
    reports: list[TransferReport] = []
    content_of: dict[int, int] = {}  # slot -> content submitted last
    next_content, next_block = 1, 20
    for _ in range(draw.randrange(1, 8)):
        batch: list[BlockTransfer] = []
        if draw.random() < 0.6:
            slots = sorted({*range(12)} - (being_read(transfers, reports) if kind == "host" else set()))
            for block, slot in enumerate(draw.sample(slots, draw.randrange(len(slots) + 1))):
                as_bytes(cache)[block].fill_(next_content)
                batch.append(save(block, slot, next_content))
                content_of[slot] = next_content
                next_content += 1
        if content_of:
            for slot in draw.choices(sorted(content_of), k=draw.randrange(24)):
                batch.append(load(slot, next_block, content_of[slot]))
                next_block += 1
        transfers.update((transfer.op_id, transfer) for transfer in batch)
        link.submit(batch)
        as_bytes(cache)[:20].fill_(254)
        for _ in range(draw.randrange(4)):
            given_up = draw.sample(sorted(transfers), len(transfers) // 4)
            link.cancel(given_up)
            cancelled.update(given_up)
            reports += link.poll()
    if is_closed:
        link.close()
    reports += drain(link)
    assert sorted(op_id for report in reports for op_id in report.op_ids) == sorted(transfers), "each of them once"
    assert not link._waiting
    in_slot: dict[int, bytes | None] = {}
    for report in reports:
        for op_id in report.op_ids:
            transfer = transfers[op_id]
            assert report.kind == transfer.kind
            if report.is_cancelled:
                assert op_id in cancelled
                assert report.num_bytes == 0
            has_moved = not report.is_cancelled and op_id not in report.failed
            if transfer.kind == "save":
                if has_moved:
                    in_slot[transfer.dst] = transfer.key
                continue
            bytes_there = as_bytes(cache)[transfer.dst]
            if has_moved:
                assert in_slot[transfer.src] == transfer.key
                assert transfer.key is not None
                assert (bytes_there == int.from_bytes(transfer.key, "little")).all()
            elif report.is_cancelled:
                assert (bytes_there == 255).all()
            if not is_closed and not report.is_cancelled:
                assert has_moved == (in_slot.get(transfer.src) == transfer.key)


# -- few copies ------------------------------------------------------------------------------------------------------


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Record the shape of every later copy."""
    shapes: list[tuple[int, ...]] = []
    original = swap_space.copy_blocks

    def counted(into: np.ndarray, blocks: np.ndarray) -> None:
        shapes.append(tuple(into.shape))
        original(into, blocks)

    monkeypatch.setattr(swap_space, "copy_blocks", counted)
    monkeypatch.setattr(worker_module, "copy_blocks", counted)
    return shapes


SCATTERED = {0: 8, 1: 9, 2: 10, 5: 3, 6: 4, 9: 12, 8: 13}  # block -> slot: three common runs, and two single blocks


@pytest.mark.parametrize("kind", SPACES)
def test_there_are_as_many_copies_as_runs(make_link: MakeLink, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_piece_size(monkeypatch, len(SCATTERED))
    link = make_link(make_cache(10), kind)
    shapes = count_copies(monkeypatch)
    move(link, *(save(block, slot) for block, slot in sorted(SCATTERED.items(), key=lambda pair: pair[0] % 4)))
    assert sorted(shapes) == [(1, BLOCK_BYTES), (1, BLOCK_BYTES), (2, BLOCK_BYTES), (3, BLOCK_BYTES)]
    shapes.clear()
    move(link, *(load(slot, block, block) for block, slot in SCATTERED.items()))
    runs = [(1, BLOCK_BYTES), (1, BLOCK_BYTES), (2, BLOCK_BYTES), (3, BLOCK_BYTES)]
    assert sorted(shapes) == (runs if kind == "host" else []), "from disk each block is read to its place"


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_a_slot_with_other_content_fails_and_its_neighbours_do_not(make_link: MakeLink, kind: str) -> None:
    cache = make_cache(4)
    before = as_bytes(cache).clone()
    link = make_link(cache, kind)
    move(link, *(save(block, block) for block in range(4)))
    move(link, save(0, 1, content=77))
    as_bytes(cache).zero_()
    loads = [*(load(slot, slot, slot, op_id=slot) for slot in range(4)), load(9, 1, 5, op_id=9)]
    (report,) = joined(move(link, *loads))
    assert report.failed == [1, 9]
    for block in (0, 2, 3):
        assert torch.equal(as_bytes(cache)[block], before[block])


@pytest.mark.parametrize("device", DEVICES)
def test_bytes_that_rot_on_disk_are_reported_and_their_neighbours_arrive(
    make_link: MakeLink, tmp_path: Path, device: str
) -> None:
    cache = make_cache(4, device=device)
    space = DiskSpace(tmp_path, 4, BLOCK_BYTES, NAMESPACE)
    link = make_link(cache, space)
    move(link, *(save(block, block) for block in range(4)))
    at = os.fstat(space._file.fd).st_size - 7  # in the last record
    (byte,) = os.pread(space._file.fd, 1, at)
    os.pwrite(space._file.fd, bytes([byte ^ 16]), at)
    before = as_bytes(cache).clone()
    (report,) = joined(move(link, *(load(slot, (slot + 1) % 4, slot, op_id=slot) for slot in range(4))))
    assert report.failed == [3]
    assert torch.equal(as_bytes(cache)[1:], before[:3])
    assert device == "cpu" or torch.equal(as_bytes(cache)[0], before[0]), "a GPU never gets what was not checked"


class BrokenSpace(DiskSpace):
    """Violates the rule not to raise."""

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        raise MemoryError("no more")

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        raise MemoryError("no more")


class FullDisk(DiskSpace):
    is_full = True

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        return list(range(len(slots))) if self.is_full else super().write(slots, keys, blocks)


class BrokenMemory(HostSpace):
    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        raise MemoryError("no more")

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        raise MemoryError("no more")


@pytest.mark.parametrize("kind", SPACES)
def test_nothing_raises_out_of_submit_or_the_thread(make_link: MakeLink, kind: str, tmp_path: Path) -> None:
    broken: SwapSpace = BrokenMemory(4, BLOCK_BYTES)
    if kind == "disk":
        broken = BrokenSpace(tmp_path, 4, BLOCK_BYTES, NAMESPACE)
    link = make_link(make_cache(4), broken)
    for _ in range(2):  # the thread lives on
        reports = joined(move(link, save(0, 0, op_id=1), save(1, 1, op_id=2), load(0, 3, 0, op_id=3)))
        assert [(report.kind, report.failed) for report in reports] == [("save", [1, 2]), ("load", [3])]


def test_staging_that_does_not_fit_into_memory_is_a_failed_save(
    make_link: MakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = make_link(make_cache(4))

    def no_memory(*arguments: object, **options: object) -> np.ndarray:
        raise MemoryError("Unable to allocate 960 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", no_memory)
        (report,) = move(link, save(0, 0, op_id=5))
    assert report.failed == [5]


def test_a_space_that_does_not_fit_is_refused() -> None:
    cache = make_cache(2)
    with pytest.raises(ValueError, match="a block has 960 bytes, and the swap space is for 961"):
        TransferWorker(cache.blocks, HostSpace(2, BLOCK_BYTES + 1))


# -- waiting and ending ----------------------------------------------------------------------------------------------


def test_polling_without_waiting_returns_at_once_and_with_waiting_when_something_ends(
    make_link: MakeLink, tmp_path: Path
) -> None:
    space = GatedSpace(tmp_path)
    link = make_link(make_cache(4), space)
    assert link.poll() == []
    assert link.poll(wait=True) == [], "there is nothing to wait for"
    link.submit([save(0, 0, op_id=1), save(1, 1, op_id=2)])
    assert link.num_outstanding == 2
    assert link.poll() == []
    threading.Timer(0.05, space.gate.set).start()
    first = link.poll(wait=True)
    assert in_short(first)[0] == ("moved", [1])
    (report,) = joined(first + drain(link))
    assert (report.op_ids, link.num_outstanding) == ([1, 2], 0)


def test_a_transfer_is_outstanding_until_its_report_was_taken(make_link: MakeLink) -> None:
    link = make_link(make_cache(4), "host")
    link.submit([save(0, 0)])
    while not link._ended:
        pass
    assert link.num_outstanding == 1
    assert len(link.poll(wait=True)) == 1
    assert link.num_outstanding == 0


def test_copies_within_the_device_are_not_the_links(make_link: MakeLink) -> None:
    link = make_link(make_cache(4))
    link.submit([BlockTransfer(0, "copy", 0, 1)])
    assert link.num_outstanding == 0


def test_closing_with_work_outstanding_reports_it_as_failed(make_link: MakeLink, tmp_path: Path) -> None:
    space = GatedSpace(tmp_path)
    link = make_link(make_cache(4), space)
    link.submit([save(0, 0, op_id=1)])
    link.submit([save(1, 1, op_id=2), load(0, 3, 0, op_id=3)])
    space.reached.wait(60)
    threading.Timer(0.05, space.gate.set).start()
    link.close()
    link.close()
    assert not link._thread.is_alive()
    failed = {op_id for report in drain(link) for op_id in report.failed}
    assert failed == {2, 3}, "the first one was being written"
    (report,) = move(link, save(0, 0, op_id=4))
    assert report.failed == [4]


def test_closing_does_not_wait_for_a_slow_link(make_link: MakeLink) -> None:
    link = make_link(make_cache(4), "host", bandwidth=1)  # 16 minutes per block
    link.submit([save(0, 0, op_id=1), load(0, 1, 0, op_id=2)])
    link.close()
    assert sorted(op_id for report in drain(link) for op_id in report.op_ids) == [1, 2]


def test_someone_who_waits_is_woken_by_closing(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link(make_cache(4), "host", bandwidth=1)
    link.submit([save(0, 0, op_id=1), load(0, 1, 0, op_id=2)])
    found = []
    waiter = threading.Thread(target=lambda: found.extend(link.poll(wait=True)))
    waiter.start()
    link.close()
    waiter.join(60)
    assert found


@pytest.mark.parametrize("kind", SPACES)
def test_a_link_that_is_forgotten_ends_and_frees_its_cache(kind: str, tmp_path: Path) -> None:
    cache = make_cache(4)
    link = TransferWorker(cache.blocks, make_space(kind, tmp_path, 4, BLOCK_BYTES))
    move(link, *(save(block, block) for block in range(4)), load(0, 1, 0))
    assert isinstance(cache.blocks.base, np.ndarray), "views refer to it"
    thread, memory = link._thread, weakref.ref(cache.blocks.base)
    del cache, link
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert memory() is None


# -- times -----------------------------------------------------------------------------------------------------------


class SteppingClock:
    """A clock that advances by a second on every read."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            self.now += 1
            return self.now


def test_times_are_those_of_staging_and_of_the_link(make_link: MakeLink) -> None:
    link = make_link(make_cache(4), "disk", clock=SteppingClock())
    staged = link.submit([save(0, 0)])
    assert staged() == 1, "before and after staging"
    (saved,) = drain(link)
    assert saved.copy_s >= 2
    assert link.submit([load(0, 1, 0)])() == 0
    (loaded,) = drain(link)
    assert loaded.copy_s >= 2
    link = make_link(make_cache(4), "host", clock=SteppingClock())
    staged = link.submit([save(0, 0)])
    (saved,) = drain(link)
    assert staged() == 1
    assert saved.copy_s > 1, "staging is the copy, where the space is memory"


def test_losses_in_a_row_are_told_once_and_counted_when_they_are_over(
    make_link: MakeLink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = FullDisk(tmp_path, 4, BLOCK_BYTES, NAMESPACE)
    link = make_link(make_cache(4), space)
    with caplog.at_level(logging.WARNING, logger="quire"):
        for _ in range(5):
            (report,) = joined(move(link, save(0, 0, op_id=1), save(1, 1, op_id=2)))
            assert report.failed == [1, 2]
        assert caplog.messages == ["swap: 1 of 1 blocks failed while saving: missing or altered"]
        space.is_full = False
        for _ in range(3):
            (report,) = move(link, save(0, 0))
            assert not report.failed
        assert caplog.messages[1:] == ["swap: saving works again, after 10 failed blocks"]


def test_a_transfer_that_waited_for_another_was_not_copied_meanwhile(make_link: MakeLink, tmp_path: Path) -> None:
    """With a clock moved only by the test, the first transfer takes 10 s, and the queued second one none."""
    now = 0.0
    space = GatedSpace(tmp_path)
    link = make_link(make_cache(4), space, clock=lambda: now)
    link.submit([save(0, 0)])
    link.submit([save(1, 1)])
    space.reached.wait(60)
    now = 10.0
    space.gate.set()
    assert [report.copy_s for report in drain(link)] == [10.0, 0.0]


def test_the_bandwidth_can_be_changed_while_a_transfer_is_under_way(make_link: MakeLink) -> None:
    link = make_link(make_cache(4), "host", bandwidth=1000)
    link.submit([save(block, block) for block in range(4)])
    assert link.bandwidth == 1000
    link.bandwidth = None
    (report,) = drain(link)
    assert report.failed == []
