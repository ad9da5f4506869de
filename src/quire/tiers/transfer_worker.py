"""The thread that moves blocks between the device and a swap space, first come, first served."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from quire.ops.arrays import Array, as_numpy, is_numpy, torch_dtype
from quire.outputs import BlockTransfer, TransferReport
from quire.tiers.pacing import PieceSize, RateLimiter, pop_piece
from quire.tiers.store.layout.coding import CodingTally
from quire.tiers.streams import CpuStream, Done
from quire.tiers.swap_space import SwapSpace, copy_blocks, runs

if TYPE_CHECKING:
    from quire.tiers.cuda import CudaStream

logger = logging.getLogger("quire")

_NAMES = {"save": "saving", "load": "loading"}
_Move = Callable[[list[int], list[bytes], Array], list[int]]  #: `SwapSpace.write` or `.read`


@dataclass(slots=True)
class _Piece:
    """Transfers of one kind that move together, by record, ordered by slot."""

    kind: str
    op_ids: list[int]
    rows: list[int]  #: of the device
    slots: list[int]
    keys: list[bytes]
    failed: set[int] = field(default_factory=set)  #: indices
    coding: CodingTally = field(default_factory=CodingTally)

    @classmethod
    def of(cls, kind: str, transfers: Iterable[BlockTransfer], row_of: Callable[[int, int], int]) -> _Piece:
        records: list[tuple[int, int, bytes, int]] = []
        for each in transfers:
            block, slot = (each.src, each.dst) if kind == "save" else (each.dst, each.src)
            parts = each.records or [(0, slot, each.key or b"")]
            records += [(slot, row_of(block, part), key, each.op_id) for part, slot, key in parts]
        records.sort(key=lambda record: record[0])
        slots, rows, keys, op_ids = (list(column) for column in zip(*records, strict=True))
        return cls(kind, op_ids, rows, slots, keys)

    @property
    def ops(self) -> list[int]:
        """The op_ids, each once."""
        return list(dict.fromkeys(self.op_ids))


@dataclass(slots=True)
class _Batch:
    """Transfers of one kind that were submitted together."""

    kind: str
    rest: deque[BlockTransfer]  #: transfers that have not begun, in order
    asked_at: float = 0.0
    copied: _Piece | None = None  #: the whole batch, for saves to memory
    staging: Array | None = None  #: for saves to any other space
    row_of: dict[bytes, int] = field(default_factory=dict)  #: key -> row of `staging`, ascending like slots
    staged: Done = lambda: 0.0  #: for saves: waits until the bytes have left the device
    point: object = None  #: for loads: the point in the device's work after which their blocks may be written
    piece_size: PieceSize = field(default_factory=PieceSize)
    has_lost: bool = False  #: some piece has failed blocks
    can_go_on: bool = False  #: its last piece succeeded, so that the next one continues it


class TransferWorker:
    """Moves blocks between a KV cache and a swap space.

    Transfers submitted together form a batch and move in pieces, in order (`PieceSize`); saves to memory are copied on
    submission, and other spaces stage them. A report `continues` the previous piece, whose end its seconds count from.
    Every transfer is reported once, and a failed piece affects no other.

    Loads are staged for a GPU; on a CPU, a failed load leaves its block undefined. A load of a slot with a pending save
    reads the saved content, and fails if that save was cancelled.

    Args:
        cache: `[num_blocks, num_layers, 2, ...]`, contiguous; a tensor if on a GPU.
        bandwidth: bytes per second of both directions together; None for no limit. May be changed at any time.
        on_report: called in the worker's thread after each report.
        tally: bytes and seconds of a space that codes blocks.
    """

    def __init__(
        self,
        cache: Array,
        space: SwapSpace,
        *,
        bandwidth: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        tier: str = "host",
        on_report: Callable[[], None] | None = None,
        tally: CodingTally | None = None,
    ) -> None:
        blocks = cache.reshape(len(cache), -1)
        self._device: Array  # [num_blocks * num_parts, block_bytes]
        self._stream: CpuStream | CudaStream
        if is_numpy(blocks):
            self._device, self._stream = blocks.view(np.uint8), CpuStream(clock)
        else:
            from quire.tiers.cuda import CudaStream

            self._device, self._stream = blocks.view(torch_dtype("uint8")), CudaStream(cache.device)
        self._block_bytes = space.block_bytes
        num_parts, rest = divmod(self._device.shape[1], space.block_bytes)
        if rest:
            raise ValueError(
                f"a block has {self._device.shape[1]} bytes, and the swap space is for {self._block_bytes}"
            )
        #: row_of(block, part) -> where a record of a block is in the cache.
        self.row_of: Callable[[int, int], int] = lambda block, part: block * num_parts + part
        self._device = self._device.reshape(-1, self._block_bytes)
        self._space = space
        self._closing = threading.Event()
        self._clock = clock
        self._tier = tier
        self._on_report = on_report
        self._tally = tally or CodingTally()
        self._rate_limiter = RateLimiter(bandwidth, clock, self._closing.wait)
        self._ended_at = clock()  #: end of the last piece
        self._changed = threading.Condition()
        self._ended: list[TransferReport] = []
        self._waiting: set[int] = set()  #: op_ids that have not begun and are not cancelled
        self._num_lost = {"save": 0, "load": 0}  #: consecutive failed blocks
        self.num_outstanding = 0  #: transfers that `poll` has not returned
        # The thread refers to the worker only during a job, so that an unreferenced worker ends and frees its cache.
        jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._jobs = jobs
        self._end = weakref.finalize(self, jobs.put, None)
        self._thread = threading.Thread(target=_work, args=(jobs,), name="quire-link", daemon=True)
        self._thread.start()

    @property
    def bandwidth(self) -> float | None:
        return self._rate_limiter.bandwidth

    @bandwidth.setter
    def bandwidth(self, bandwidth: float | None) -> None:
        self._rate_limiter.bandwidth = bandwidth

    def submit(self, transfers: Sequence[BlockTransfer]) -> Done:
        """Submit saves, then loads; never raises. Loaded blocks belong to the worker until it reports them. Returns a
        function that waits until the saved bytes have left the device, and returns the seconds."""
        staged: list[Done] = []
        for kind in ("save", "load"):
            batch = _Batch(kind, deque(transfer for transfer in transfers if transfer.kind == kind))
            if batch.rest:
                staged.append(self._submit(batch))
        return lambda: sum(wait() for wait in staged)

    def cancel(self, op_ids: Iterable[int]) -> None:
        """Cancel transfers that have not begun; they are reported as cancelled. Thread-safe. Saves to memory have
        begun."""
        with self._changed:
            self._waiting.difference_update(op_ids)

    def poll(self, wait: bool = False, timeout_s: float | None = None) -> list[TransferReport]:
        """Return the reports since the last call. `wait` waits for one if any transfer is outstanding."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._ended or not self.num_outstanding, timeout_s)
            ended, self._ended = self._ended, []
            self.num_outstanding -= sum(len(report.op_ids) for report in ended)
        return ended

    def close(self) -> None:
        """End the thread after its current piece. Other transfers fail; the space stays open."""
        with self._changed:
            self._closing.set()
            self._end()
        self._thread.join()

    def _submit(self, batch: _Batch) -> Done:
        whole = _Piece.of(batch.kind, batch.rest, self.row_of)
        with self._changed:
            self.num_outstanding += len(batch.rest)
        batch.asked_at = self._clock()
        try:
            self._stage(batch, whole)
        except Exception as error:
            self._fail(whole, error)
            return lambda: 0.0
        with self._changed:
            is_open = not self._closing.is_set()
            if is_open:
                self._waiting.update(transfer.op_id for transfer in batch.rest)
                self._jobs.put(partial(self._run_batch, batch))
        if not is_open:
            self._report(whole, failed=whole.ops)
        return batch.staged

    def _stage(self, batch: _Batch, whole: _Piece) -> None:
        """Do the part of a batch that must happen before the calling thread continues."""
        if batch.kind == "load":
            batch.point = self._stream.now()
        elif self._space.is_memory:
            batch.rest.clear()
            batch.copied = whole
            batch.staged = self._stream.before_work(partial(self._move_directly, whole, self._space.write))
        else:
            batch.staging = self._stream.new_staging(len(whole.op_ids), self._block_bytes)
            batch.row_of = {key: row for row, key in enumerate(whole.keys)}
            batch.staged = self._stream.before_work(partial(self._save_to_staging, whole, batch.staging))
            batch.asked_at = self._clock()

    def _run_batch(self, batch: _Batch) -> None:
        if batch.copied is not None:
            self._move(batch, batch.copied)
        while batch.rest:
            piece, is_cancelled = self._begin_piece(batch)
            if is_cancelled:
                self._add(TransferReport(piece.kind, piece.ops, num_bytes=0, copy_s=0.0, is_cancelled=True))
            else:
                self._move(batch, piece)

    def _begin_piece(self, batch: _Batch) -> tuple[_Piece, bool]:
        """Return a batch's next piece, and whether it is cancelled. It cannot be cancelled any more."""
        with self._changed:
            taken, is_cancelled = pop_piece(batch.rest, lambda each: each.op_id not in self._waiting, batch.piece_size)
            self._waiting.difference_update(each.op_id for each in taken)
        return _Piece.of(batch.kind, taken, self.row_of), is_cancelled

    def _move(self, batch: _Batch, piece: _Piece) -> None:
        """Move a piece and report it. A failure does not affect the other pieces of the batch."""
        if self._closing.is_set():
            self._report(piece, failed=piece.ops)
            return
        began_at = max(batch.asked_at, self._ended_at)
        try:
            took_s = self._copy(batch, piece)
            coding = piece.coding = self._tally.pop()
            num_arrived = len(piece.op_ids) - len(piece.failed)
            num_bytes = max(0, num_arrived * self._block_bytes - coding.saved_bytes)
            busy_s = self._rate_limiter.hold(num_bytes, batch.asked_at, took_s - coding.seconds)
        except Exception as error:
            batch.has_lost, batch.can_go_on = True, False
            self._fail(piece, error)
            return
        finally:
            self._ended_at = self._clock()
        if self.bandwidth is None:
            busy_s = max(self._ended_at - began_at, took_s) - coding.seconds
        failed = list(dict.fromkeys(piece.op_ids[i] for i in sorted(piece.failed)))
        continues, batch.can_go_on = batch.can_go_on, not failed
        if failed:
            batch.has_lost = True
            self._log_loss(piece, len(failed), "missing or altered")
        else:
            batch.piece_size.observe(num_arrived, busy_s + coding.seconds)  # not for failures: their speed says nothing
            if not batch.has_lost:
                self._log_success(piece.kind)
        self._report(piece, failed, busy_s, continues=continues, has_more=bool(batch.rest))

    def _copy(self, batch: _Batch, piece: _Piece) -> float:
        """Copy a piece's bytes, without a bandwidth limit. Returns the seconds."""
        started_at = self._clock()
        staging_s = batch.staged()
        if piece.kind == "load":
            self._load(piece, batch.point)
        elif batch.staging is not None:
            self._write(piece, batch.staging, batch.row_of)
        took_s = self._clock() - started_at
        return took_s if batch.copied is None else max(took_s, staging_s)  # then staging was the copy

    def _move_directly(self, piece: _Piece, move: _Move) -> None:
        for run in runs(piece.rows, piece.slots):
            failed = move(piece.slots[run], piece.keys[run], self._neighbours(piece.rows[run]))
            piece.failed.update(run.start + i for i in failed)

    def _save_to_staging(self, piece: _Piece, staging: Array) -> None:
        for run in runs(piece.rows):
            copy_blocks(staging[run], self._neighbours(piece.rows[run]))

    def _write(self, piece: _Piece, staging: Array, row_of: dict[bytes, int]) -> None:
        """Write from staging. Neighbouring slots have neighbouring rows."""
        rows = [row_of[key] for key in piece.keys]
        for run in runs(rows):
            content = as_numpy(staging[rows[run.start] : rows[run.stop - 1] + 1])
            failed = self._space.write(piece.slots[run], piece.keys[run], content)
            piece.failed.update(run.start + i for i in failed)

    def _load(self, piece: _Piece, point: object) -> None:
        if self._space.is_memory:
            self._stream.after(point, partial(self._move_directly, piece, self._space.read))()
            return
        if is_numpy(self._device):  # no request reads a block before its load is reported as successful
            buffers = [self._device[row].data for row in piece.rows]
            piece.failed.update(self._space.read(piece.slots, piece.keys, buffers))
            return
        staging = self._stream.new_staging(len(piece.op_ids), self._block_bytes)
        piece.failed.update(self._space.read(piece.slots, piece.keys, as_numpy(staging)))
        self._stream.after(point, partial(self._load_from_staging, piece, staging))()

    def _load_from_staging(self, piece: _Piece, staging: Array) -> None:
        intact = [i for i in range(len(piece.op_ids)) if i not in piece.failed]
        rows = [piece.rows[i] for i in intact]
        for run in runs(intact, rows):
            copy_blocks(self._neighbours(rows[run]), staging[intact[run.start] : intact[run.stop - 1] + 1])

    def _neighbours(self, rows: list[int]) -> Array:
        return self._device[rows[0] : rows[0] + len(rows)]

    def _fail(self, piece: _Piece, error: Exception) -> None:
        self._log_loss(piece, len(piece.op_ids), repr(error))
        self._report(piece, failed=piece.ops)

    def _log_loss(self, piece: _Piece, num_lost: int, why: str) -> None:
        """Log the first of consecutive losses; their number is logged when they end."""
        with self._changed:
            is_first = not self._num_lost[piece.kind]
            self._num_lost[piece.kind] += num_lost
        level = logging.WARNING if is_first else logging.DEBUG
        logger.log(
            level, "swap: %d of %d blocks failed while %s: %s", num_lost, len(piece.op_ids), _NAMES[piece.kind], why
        )

    def _log_success(self, kind: str) -> None:
        """Log the end of losses, at most once per batch."""
        with self._changed:
            num_lost, self._num_lost[kind] = self._num_lost[kind], 0
        if num_lost:
            logger.warning("swap: %s works again, after %d failed blocks", _NAMES[kind], num_lost)

    def _report(
        self, piece: _Piece, failed: list[int], copy_s: float = 0.0, *, continues: bool = False, has_more: bool = False
    ) -> None:
        coding = piece.coding
        num_bytes = len(piece.op_ids) * self._block_bytes - coding.saved_bytes
        report = TransferReport(piece.kind, piece.ops, num_bytes, copy_s, list(failed), continues, has_more)
        report.saved_bytes, report.coding_s = coding.saved_bytes, coding.seconds
        self._add(report)

    def _add(self, report: TransferReport) -> None:
        report.tier = self._tier
        with self._changed:
            self._ended.append(report)
            self._changed.notify_all()
        if self._on_report is not None:
            self._on_report()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it refers to the worker
