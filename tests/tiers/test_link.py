"""Blocks come back as they left, in as few copies as there are runs of neighbours, and every transfer is reported."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire.attention.interface import KVLayout
from quire.outputs import BlockTransfer
from quire.runner.kv_cache import KVCache
from quire.tiers import block_copy, host_space
from quire.tiers import link as link_module
from quire.tiers.disk_space import DiskSpace
from quire.tiers.host_space import HostSpace
from quire.tiers.link import Link
from quire.tiers.swap_space import SwapSpace
from tiers.blocks import DEVICES, LAYOUT, NAMESPACE, as_bytes, drain, load, make_cache, make_space, move, save

BLOCK_BYTES = LAYOUT.block_bytes(4)
SPACES = ["host", "disk"]
MakeLink = Callable[..., Link]


@pytest.fixture
def make_link(tmp_path: Path) -> Iterator[MakeLink]:
    """Links, closed at the end."""
    links: list[Link] = []

    def make(cache: KVCache, space: SwapSpace | str = "disk", num_slots: int = 16, **options: object) -> Link:
        if isinstance(space, str):
            space = make_space(space, tmp_path, num_slots, as_bytes(cache).shape[1], pinned=cache.tensor.is_cuda)
        links.append(Link(cache.tensor, space, **options))  # type: ignore[arg-type]
        return links[-1]

    yield make
    for link in links:
        link.close()


class GatedSpace(DiskSpace):
    """Moves nothing before the gate is open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 16, BLOCK_BYTES, NAMESPACE)
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.order: list[tuple[str, list[int]]] = []

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        self._pass("write", slots)
        return super().write(slots, keys, blocks)

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor) -> list[int]:
        self._pass("read", slots)
        return super().read(slots, keys, into)

    def _pass(self, what: str, slots: list[int]) -> None:
        self.order.append((what, slots))
        self.reached.set()
        assert self.gate.wait(60)


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("copy_mode", ["block", "layer"])
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [LAYOUT, KVLayout(1, 1, 1, 1), KVLayout(3, 7, 5, 9), KVLayout(4, 2, 16, 64)])
def test_what_comes_back_is_what_went_in(
    make_link: MakeLink, kind: str, layout: KVLayout, dtype: torch.dtype, copy_mode: str, device: str
) -> None:
    cache = make_cache(10, layout, dtype, device)
    before = as_bytes(cache).clone()
    link = make_link(cache, kind, copy_mode=copy_mode)
    chosen = {1: 4, 2: 5, 3: 6, 8: 3, 5: 0, 9: 15}  # block -> slot
    (report,) = move(link, *(save(block, slot, op_id=10 + block) for block, slot in chosen.items()))
    assert (report.kind, sorted(report.op_ids), report.failed) == ("save", [11, 12, 13, 15, 18, 19], [])
    assert report.num_bytes == len(chosen) * before.shape[1]
    cache.tensor.zero_()
    targets = dict(zip(chosen, [4, 0, 7, 2, 9, 1], strict=True))
    (report,) = move(link, *(load(slot, targets[block], block, op_id=block) for block, slot in chosen.items()))
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
    """Saves are overwritten at once, slots are used again, and nothing is waited for but what a block needs."""
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
    cache.tensor.zero_()
    link.submit([load(slot, slot, slot) for slot in range(4)])
    assert [report.kind for report in drain(link)] == ["save", "load"]
    assert torch.equal(as_bytes(cache), before)


def test_a_load_of_a_slot_whose_save_is_under_way_reads_what_was_saved(make_link: MakeLink, tmp_path: Path) -> None:
    cache = make_cache(8)
    before = as_bytes(cache).clone()
    space = GatedSpace(tmp_path)
    link = make_link(cache, space)
    link.submit([load(3, 7, 2), save(2, 3)])  # saves go first, whatever the order
    cache.tensor.zero_()
    space.reached.wait(60)
    assert link.poll() == [], "nothing has arrived"
    space.gate.set()
    assert [report.failed for report in drain(link)] == [[], []]
    assert space.order == [("write", [3]), ("read", [3])]
    assert torch.equal(as_bytes(cache)[7], before[2])


# -- few copies ------------------------------------------------------------------------------------------------------


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of every copy from now on."""
    shapes: list[tuple[int, ...]] = []
    original = host_space.copy_blocks

    def counted(into: torch.Tensor, blocks: torch.Tensor) -> None:
        shapes.append(tuple(into.shape))
        original(into, blocks)

    monkeypatch.setattr(host_space, "copy_blocks", counted)
    monkeypatch.setattr(link_module, "copy_blocks", counted)
    return shapes


SCATTERED = {0: 8, 1: 9, 2: 10, 5: 3, 6: 4, 9: 12, 8: 13}  # block -> slot: three runs of both, and two loners


@pytest.mark.parametrize("kind", SPACES)
def test_there_are_as_many_copies_as_runs(make_link: MakeLink, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = make_link(make_cache(10), kind)
    shapes = count_copies(monkeypatch)
    move(link, *(save(block, slot) for block, slot in sorted(SCATTERED.items(), key=lambda pair: pair[0] % 4)))
    assert sorted(shapes) == [(1, BLOCK_BYTES), (1, BLOCK_BYTES), (2, BLOCK_BYTES), (3, BLOCK_BYTES)]
    shapes.clear()
    move(link, *(load(slot, block, block) for block, slot in SCATTERED.items()))
    assert sorted(shapes) == [(1, BLOCK_BYTES), (1, BLOCK_BYTES), (2, BLOCK_BYTES), (3, BLOCK_BYTES)]


@pytest.mark.parametrize("kind", SPACES)
def test_layer_mode_copies_k_and_v_of_every_block_and_layer(
    make_link: MakeLink, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    original = block_copy._copy
    monkeypatch.setattr(block_copy, "_copy", lambda into, part: (sizes.append(part.numel()), original(into, part)))
    link = make_link(make_cache(10), kind, copy_mode="layer")
    move(link, *(save(block, slot) for block, slot in SCATTERED.items()))
    assert sizes == [BLOCK_BYTES // 4] * (4 * len(SCATTERED))  # 2 layers, K and V


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_a_slot_with_other_content_fails_and_its_neighbours_do_not(make_link: MakeLink, kind: str) -> None:
    cache = make_cache(4)
    before = as_bytes(cache).clone()
    link = make_link(cache, kind)
    move(link, *(save(block, block) for block in range(4)))
    move(link, save(0, 1, content=77))
    cache.tensor.zero_()
    (report,) = move(link, *(load(slot, slot, slot, op_id=slot) for slot in range(4)), load(9, 1, 5, op_id=9))
    assert report.failed == [1, 9]
    for block in (0, 2, 3):
        assert torch.equal(as_bytes(cache)[block], before[block])


def test_bytes_that_rot_on_disk_are_reported_and_never_reach_the_device(make_link: MakeLink, tmp_path: Path) -> None:
    cache = make_cache(4)
    space = DiskSpace(tmp_path, 4, BLOCK_BYTES, NAMESPACE)
    link = make_link(cache, space)
    move(link, *(save(block, block) for block in range(4)))
    at = os.fstat(space.fileno()).st_size - 7  # in the last record
    (byte,) = os.pread(space.fileno(), 1, at)
    os.pwrite(space.fileno(), bytes([byte ^ 16]), at)
    before = as_bytes(cache).clone()
    (report,) = move(link, *(load(slot, (slot + 1) % 4, slot, op_id=slot) for slot in range(4)))
    assert report.failed == [3]
    assert torch.equal(as_bytes(cache)[0], before[0]), "the target of the failed load is as it was"


class BrokenSpace(DiskSpace):
    """Breaks its promise not to raise."""

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        raise MemoryError("no more")

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor) -> list[int]:
        raise MemoryError("no more")


class FullDisk(DiskSpace):
    is_full = True

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        return list(range(len(slots))) if self.is_full else super().write(slots, keys, blocks)


class BrokenMemory(HostSpace):
    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        raise MemoryError("no more")

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor) -> list[int]:
        raise MemoryError("no more")


@pytest.mark.parametrize("kind", SPACES)
def test_nothing_raises_out_of_submit_or_the_thread(make_link: MakeLink, kind: str, tmp_path: Path) -> None:
    broken: SwapSpace = BrokenMemory(4, BLOCK_BYTES)
    if kind == "disk":
        broken = BrokenSpace(tmp_path, 4, BLOCK_BYTES, NAMESPACE)
    link = make_link(make_cache(4), broken)
    for _ in range(2):  # the thread lives on
        reports = move(link, save(0, 0, op_id=1), save(1, 1, op_id=2), load(0, 3, 0, op_id=3))
        assert [(report.kind, report.failed) for report in reports] == [("save", [1, 2]), ("load", [3])]


def test_staging_that_does_not_fit_into_memory_is_a_failed_save(
    make_link: MakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = make_link(make_cache(4))

    def no_memory(*arguments: object, **options: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", no_memory)
        (report,) = move(link, save(0, 0, op_id=5))
    assert report.failed == [5]


def test_spaces_and_modes_that_do_not_fit_are_refused() -> None:
    cache = make_cache(2)
    with pytest.raises(ValueError, match="a block has 960 bytes, and the swap space is for 961"):
        Link(cache.tensor, HostSpace(2, BLOCK_BYTES + 1))
    with pytest.raises(ValueError, match="copy_mode='head'"):
        Link(cache.tensor, HostSpace(2, BLOCK_BYTES), copy_mode="head")


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
    (report,) = link.poll(wait=True)
    assert (sorted(report.op_ids), link.num_outstanding) == ([1, 2], 0)


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
    link = make_link(make_cache(4), "host", bandwidth=1)  # 16 minutes a block
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
    link = Link(cache.tensor, make_space(kind, tmp_path, 4, BLOCK_BYTES))
    move(link, *(save(block, block) for block in range(4)), load(0, 1, 0))
    thread, tensor = link._thread, weakref.ref(cache.tensor)
    del cache, link
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert tensor() is None


# -- times -----------------------------------------------------------------------------------------------------------


class SteppingClock:
    """A second passes whenever somebody looks."""

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
            (report,) = move(link, save(0, 0, op_id=1), save(1, 1, op_id=2))
            assert report.failed == [1, 2]
        assert caplog.messages == ["swap: 2 of 2 blocks were lost at saving: they did not arrive, or not as they were"]
        space.is_full = False
        for _ in range(3):
            (report,) = move(link, save(0, 0))
            assert not report.failed
        assert caplog.messages[1:] == ["swap: saving works again, after 10 lost blocks"]


def test_a_transfer_that_waited_for_another_was_not_copied_meanwhile(make_link: MakeLink, tmp_path: Path) -> None:
    """With a clock that only the test moves, the first one takes 10 s, and the second, there all along, none."""
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
