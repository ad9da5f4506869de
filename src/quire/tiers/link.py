"""The way between the device's blocks and the swap space: one thread, first come, first served.

Saves are staged at once, so that their blocks may be reused; all else happens beside the steps, and is told by reports.
Knows blocks, slots and bytes; knows nothing about requests, or why something is moved.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

import torch

from quire.outputs import BlockTransfer, TransferReport
from quire.tiers.block_copy import copy_blocks, runs
from quire.tiers.pace import Pace
from quire.tiers.streams import Done, make_stream
from quire.tiers.swap_space import SwapSpace

logger = logging.getLogger("quire")

_NAMES = {"save": "saving", "load": "loading"}


@dataclass(slots=True)
class _Batch:
    """Transfers of one kind that were submitted together, in the order of their slots."""

    kind: str
    op_ids: list[int]
    blocks: list[int]
    slots: list[int]
    keys: list[bytes]
    asked_at: float = 0.0
    staging: torch.Tensor | None = None  #: of saves to a space that is no memory
    staged: Done = lambda: 0.0  #: of saves: waits until their bytes have left the device's blocks
    point: object = None  #: of loads: in the device's work, from where on their blocks may be written
    failed: set[int] = field(default_factory=set)  #: indices

    @classmethod
    def of(cls, kind: str, transfers: Sequence[BlockTransfer]) -> _Batch:
        ends = [(t.dst, t.src, t) if kind == "save" else (t.src, t.dst, t) for t in transfers if t.kind == kind]
        ends.sort(key=lambda end: end[0])
        return cls(
            kind,
            op_ids=[t.op_id for _, _, t in ends],
            blocks=[block for _, block, _ in ends],
            slots=[slot for slot, _, _ in ends],
            keys=[t.key or b"" for _, _, t in ends],
        )


class Link:
    """Moves blocks between a KV cache and a swap space.

    Neighbours, both in blocks and in slots, move in one copy; neighbouring slots are written and read at once. Memory
    is copied directly; for any other space saved blocks wait in memory until they are written. A load of a slot whose
    save is under way reads what was saved. Whatever goes wrong ends up in `TransferReport.failed`.

    Args:
        cache: `[num_blocks, num_layers, 2, ...]`, contiguous.
        space: used by this link only.
        bandwidth: bytes a second, for both directions together; the link is as slow as such a device would be. None
            is as fast as it goes. May be changed at any time (`link.bandwidth = ...`).
        copy_mode: block; or layer, which copies K and V of every block and layer by themselves, to show what that
            costs.
        clock: seconds, monotonic.

    Raises:
        ValueError: the space is made for other blocks, or there is no such mode.
    """

    def __init__(
        self,
        cache: torch.Tensor,
        space: SwapSpace,
        *,
        bandwidth: float | None = None,
        copy_mode: str = "block",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if copy_mode not in ("block", "layer"):
            raise ValueError(f"copy_mode={copy_mode!r} is not one of block, layer")
        num_pieces = cache.shape[1] * cache.shape[2] if copy_mode == "layer" else 1
        pieces = cache.view(len(cache), num_pieces, -1).view(torch.uint8)
        self._device = pieces if copy_mode == "layer" else pieces[:, 0]  # [num_blocks, (pieces,) bytes]
        self._block_bytes = self._device[0].numel()
        if self._block_bytes != space.block_bytes:
            raise ValueError(f"a block has {self._block_bytes} bytes, and the swap space is for {space.block_bytes}")
        self._space = space
        self._stream = make_stream(cache.device, clock)
        self._closing = threading.Event()
        self._clock = clock
        self._pace = Pace(bandwidth, clock, self._closing.wait)
        self._ended_at = clock()  #: the last batch
        self._changed = threading.Condition()
        self._ended: list[TransferReport] = []
        self._num_lost = {"save": 0, "load": 0}  #: blocks since one batch arrived whole
        self.num_outstanding = 0  #: transfers whose report `poll` has not handed out yet
        # The thread knows the link only while it works for it, so that one that is forgotten ends, and frees its cache.
        jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._jobs = jobs
        self._end = weakref.finalize(self, jobs.put, None)
        self._thread = threading.Thread(target=_work, args=(jobs,), name="quire-link", daemon=True)
        self._thread.start()

    @property
    def bandwidth(self) -> float | None:
        return self._pace.bandwidth

    @bandwidth.setter
    def bandwidth(self, bandwidth: float | None) -> None:
        self._pace.bandwidth = bandwidth

    def submit(self, transfers: Sequence[BlockTransfer]) -> Done:
        """Begin saves, then loads; copies within the device are not the link's. Never raises.

        On return the blocks that are saved may be written again, by work that the calling thread gives the device from
        now on. Blocks that are loaded belong to the link until it reports them.

        Returns:
            Waits until what is saved has left the device's blocks, and gives the seconds that this kept the device from
            that work. To be called once the work is done, when there is nothing to wait for.
        """
        staged: list[Done] = []
        for kind in ("save", "load"):
            batch = _Batch.of(kind, transfers)
            if not batch.op_ids:
                continue
            with self._changed:
                self.num_outstanding += len(batch.op_ids)
            batch.asked_at = self._clock()
            try:
                self._stage(batch)
            except Exception as error:
                self._fail(batch, error)
                continue
            staged.append(batch.staged)
            with self._changed:
                is_open = not self._closing.is_set()
                if is_open:
                    self._jobs.put(partial(self._carry_out, batch))
            if not is_open:
                self._report(batch, failed=batch.op_ids)
        return lambda: sum(wait() for wait in staged)

    def poll(self, wait: bool = False, timeout_s: float | None = None) -> list[TransferReport]:
        """Reports of what has ended since the last call.

        Args:
            wait: until there is at least one, if anything is outstanding.
            timeout_s: but no longer than this; None is as long as it takes.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._ended or not self.num_outstanding, timeout_s)
            ended, self._ended = self._ended, []
            self.num_outstanding -= sum(len(report.op_ids) for report in ended)
        return ended

    def close(self) -> None:
        """End the thread, after the transfers that it is at; those that it has not begun are reported as failed. The
        space stays open."""
        with self._changed:
            self._closing.set()
            self._end()
        self._thread.join()

    def _stage(self, batch: _Batch) -> None:
        """What has to happen before the calling thread goes on."""
        if batch.kind == "load":
            batch.point = self._stream.now()
        elif self._space.is_memory:
            batch.staged = self._stream.before_work(partial(self._save_directly, batch))
        else:
            batch.staging = self._new_staging(batch)
            batch.staged = self._stream.before_work(partial(self._save_to_staging, batch, batch.staging))
            batch.asked_at = self._clock()

    def _carry_out(self, batch: _Batch) -> None:
        """The link thread's part."""
        if self._closing.is_set():
            self._report(batch, failed=batch.op_ids)
            return
        try:
            began_at, started_at = max(batch.asked_at, self._ended_at), self._clock()
            staging_s = batch.staged()
            if batch.kind == "load":
                self._load(batch)
            elif batch.staging is not None:
                batch.failed.update(self._space.write(batch.slots, batch.keys, batch.staging))
            took_s = self._clock() - started_at
            if batch.kind == "save" and batch.staging is None:  # then staging was all there was to do
                took_s = max(took_s, staging_s)
            num_bytes = (len(batch.op_ids) - len(batch.failed)) * self._block_bytes
            self._pace.hold(num_bytes, batch.asked_at, took_s)
            self._ended_at = self._clock()
        except Exception as error:
            self._fail(batch, error)
            return
        failed = [batch.op_ids[i] for i in sorted(batch.failed)]
        if failed:
            self._tell_loss(batch, len(failed), "they did not arrive, or not as they were")
        else:
            self._tell_success(batch)
        self._report(batch, failed, max(self._ended_at - began_at, took_s))

    def _save_directly(self, batch: _Batch) -> None:
        for run in runs(batch.blocks, batch.slots):
            failed = self._space.write(batch.slots[run], batch.keys[run], self._neighbours(batch.blocks[run]))
            batch.failed.update(run.start + i for i in failed)

    def _save_to_staging(self, batch: _Batch, staging: torch.Tensor) -> None:
        for run in runs(batch.blocks):
            copy_blocks(staging[run], self._neighbours(batch.blocks[run]))

    def _load(self, batch: _Batch) -> None:
        if self._space.is_memory:
            self._stream.after(batch.point, partial(self._load_directly, batch))()
            return
        staging = self._new_staging(batch)
        batch.failed.update(self._space.read(batch.slots, batch.keys, staging))
        self._stream.after(batch.point, partial(self._load_from_staging, batch, staging))()

    def _load_directly(self, batch: _Batch) -> None:
        for run in runs(batch.blocks, batch.slots):
            failed = self._space.read(batch.slots[run], batch.keys[run], self._neighbours(batch.blocks[run]))
            batch.failed.update(run.start + i for i in failed)

    def _load_from_staging(self, batch: _Batch, staging: torch.Tensor) -> None:
        intact = [i for i in range(len(batch.op_ids)) if i not in batch.failed]
        blocks = [batch.blocks[i] for i in intact]
        for run in runs(intact, blocks):
            copy_blocks(self._neighbours(blocks[run]), staging[intact[run.start] : intact[run.stop - 1] + 1])

    def _neighbours(self, blocks: list[int]) -> torch.Tensor:
        """The device's bytes of blocks that are a run."""
        return self._device[blocks[0] : blocks[0] + len(blocks)]

    def _new_staging(self, batch: _Batch) -> torch.Tensor:
        shape = (len(batch.op_ids), *self._device.shape[1:])
        return torch.empty(shape, dtype=torch.uint8, pin_memory=self._stream.is_cuda)

    def _fail(self, batch: _Batch, error: Exception) -> None:
        self._tell_loss(batch, len(batch.op_ids), repr(error))
        self._report(batch, failed=batch.op_ids)

    def _tell_loss(self, batch: _Batch, num_lost: int, why: str) -> None:
        """Of losses in a row the log has the first, and how many there were when they are over."""
        with self._changed:
            is_first = not self._num_lost[batch.kind]
            self._num_lost[batch.kind] += num_lost
        level = logging.WARNING if is_first else logging.DEBUG
        logger.log(
            level, "swap: %d of %d blocks were lost at %s: %s", num_lost, len(batch.op_ids), _NAMES[batch.kind], why
        )

    def _tell_success(self, batch: _Batch) -> None:
        with self._changed:
            num_lost, self._num_lost[batch.kind] = self._num_lost[batch.kind], 0
        if num_lost:
            logger.warning("swap: %s works again, after %d lost blocks", _NAMES[batch.kind], num_lost)

    def _report(self, batch: _Batch, failed: list[int], copy_s: float = 0.0) -> None:
        num_bytes = len(batch.op_ids) * self._block_bytes
        report = TransferReport(batch.kind, batch.op_ids, num_bytes, copy_s, list(failed))
        with self._changed:
            self._ended.append(report)
            self._changed.notify_all()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    with torch.inference_mode():
        while (job := jobs.get()) is not None:
            job()
            del job  # with the link that it holds
