"""A runner that computes nothing: each step advances a virtual clock by its cost in the hardware profile, beside (or
with synchronous swapping, after) the transfers of one first-come, first-served link per tier."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from quire.core.decisions.costs import EMPTY_STEP, TIERS, Costs, StepShape, transfer_seconds
from quire.outputs import BlockTransfer, SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.simulate.hardware import HardwareProfile
from quire.simulate.virtual_batch import VirtualBatch
from quire.tiers.pacing import PieceSize, pop_piece


@dataclass(frozen=True, slots=True)
class VirtualStep:
    shape: StepShape
    compute_s: float
    stall_s: float = 0.0  #: the engine stopped for copies
    wait_s: float = 0.0  #: idle until the next transfer ended


@dataclass(slots=True)
class _Batch:
    """Pending transfers that were submitted together."""

    kind: str
    op_ids: deque[int]
    num_records: Mapping[int, int]  #: of transfers with more than one
    num_moved: int = 0  #: records whose transfer has begun
    piece_size: PieceSize = field(default_factory=PieceSize)


class VirtualLink:
    """A link between the pool and a tier ("host" or "disk"), which moves and reports pieces as `tiers.transfer_worker`
    does. The fixed cost of a batch falls to its first piece."""

    def __init__(self, costs: Costs, block_bytes: int, tier: str = "host") -> None:
        self._costs = costs
        self._block_bytes = block_bytes
        self._tier = tier
        self._batches: deque[_Batch] = deque()
        self._piece: tuple[float, TransferReport] | None = None  #: end and report of the current piece
        self._ended: list[TransferReport] = []
        self._waiting: set[int] = set()  #: op_ids neither begun nor cancelled

    def submit(
        self, kind: str, op_ids: Sequence[int], now: float, num_records: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        """Begin transfers. `num_records`: of those with more than one."""
        self._batches.append(_Batch(kind, deque(op_ids), num_records))
        self._waiting.update(op_ids)
        if self._piece is None:
            self._begin(now)

    def cancel(self, op_ids: Iterable[int]) -> None:
        """Cancel pending transfers; they are reported in their turn."""
        self._waiting.difference_update(op_ids)

    def take_ended(self, now: float) -> list[TransferReport]:
        while self._piece is not None and self._piece[0] <= now:
            ends_at, report = self._piece
            self._ended.append(report)
            self._begin(ends_at)
        ended, self._ended = self._ended, []
        return ended

    @property
    def next_end(self) -> float | None:
        """End of the current piece."""
        return self._piece[0] if self._piece is not None else None

    def _begin(self, now: float) -> None:
        """Begin the next piece, and report cancelled transfers before it."""
        self._piece = None
        while self._piece is None and self._batches:
            batch = self._batches[0]
            op_ids, is_cancelled = pop_piece(batch.op_ids, lambda op_id: op_id not in self._waiting, batch.piece_size)
            self._waiting.difference_update(op_ids)
            if is_cancelled:
                self._ended.append(TransferReport(batch.kind, op_ids, 0, 0.0, is_cancelled=True, tier=self._tier))
            else:
                self._begin_piece(batch, op_ids, now)
            if not batch.op_ids:
                self._batches.popleft()

    def _begin_piece(self, batch: _Batch, op_ids: list[int], now: float) -> None:
        count = sum(batch.num_records.get(op_id, 1) for op_id in op_ids)
        before, num_bytes = batch.num_moved * self._block_bytes, count * self._block_bytes
        seconds_before = transfer_seconds(self._costs, batch.kind, before, self._tier)
        seconds = max(0.0, transfer_seconds(self._costs, batch.kind, before + num_bytes, self._tier) - seconds_before)
        batch.piece_size.observe(len(op_ids), seconds)
        report = TransferReport(
            batch.kind,
            op_ids,
            num_bytes,
            seconds,
            continues=batch.num_moved > 0,
            has_more=bool(batch.op_ids),
            tier=self._tier,
        )
        batch.num_moved += count
        self._piece = now + seconds, report


class VirtualStore:
    """A disk tier for one process with unlimited room: grants each claim at the next step."""

    def __init__(self) -> None:
        self._granted: list[bytes] = []

    def apply(self, out: SchedulerOutput) -> None:
        """Apply a step's claims."""
        for key in out.dropped_claims:
            if key in self._granted:
                self._granted.remove(key)
        self._granted += (key for key, _ in out.claims)

    def poll(self) -> StoreChanges | None:
        """Changes since the last call; None without any."""
        if not self._granted:
            return None
        granted, self._granted = self._granted, []
        return StoreChanges(granted=granted)


class VirtualRunner:
    """Executes steps on a virtual clock. A step's saves to a tier are one batch on its link, and so are its loads."""

    def __init__(self, hardware: HardwareProfile, block_bytes: int) -> None:
        self.hardware = hardware
        self.block_bytes = block_bytes
        self.now = 0.0  #: seconds on the virtual clock
        self.last = VirtualStep(EMPTY_STEP, 0.0)
        self.links = {tier: VirtualLink(hardware.costs, block_bytes, tier) for tier in TIERS}
        self.store = VirtualStore()
        self.stage_shares: dict[int, float] = {}  #: cost of a stage's steps relative to the full model's
        self.batch = VirtualBatch()

    def execute(self, out: SchedulerOutput, until: float = math.inf) -> StepOutput:
        """Run a step, as `Runner.execute`. A step without work waits for a transfer, at most until `until`."""
        result = StepOutput(out.step_id)
        stall_s = 0.0
        if out.transfers:
            stall_s = self._transfer("save", out.transfers, result) + self._transfer("load", out.transfers, result)
            self.now += stall_s
            result.stall_s = stall_s
        if out.cancelled:
            for link in self.links.values():
                link.cancel(out.cancelled)
        self.store.apply(out)
        shape = self.batch.advance(out, result)
        compute_s = self._seconds(shape, out.stage)
        self.now += compute_s
        self._take_reports(result)
        wait_s = 0.0
        if not out.seq_ids and not result.transfers and not out.claims:
            wait_s = self._wait(until)
            self._take_reports(result)
        self.last = VirtualStep(shape, compute_s, stall_s, wait_s)
        return result

    def _seconds(self, shape: StepShape, stage: int) -> float:
        if not shape.num_seqs:
            return 0.0
        seconds = self.hardware.costs.step(shape)
        return seconds * self.stage_shares[stage] if stage in self.stage_shares else seconds

    def wait_until(self, now: float) -> None:
        """Advance the clock of an idle runner."""
        self.now = max(self.now, now)

    def _transfer(self, kind: str, transfers: Sequence[BlockTransfer], result: StepOutput) -> float:
        """Submit one kind of transfers. Returns the seconds for which the engine stops."""
        stall_s = 0.0
        for tier, link in self.links.items():
            own = [transfer for transfer in transfers if transfer.kind == kind and transfer.tier == tier]
            if not own:
                continue
            op_ids = [transfer.op_id for transfer in own]
            num_records = {transfer.op_id: len(transfer.records) for transfer in own if transfer.records}
            if tier == "host" and self.hardware.swap_is_synchronous:
                num_bytes = sum(num_records.get(op_id, 1) for op_id in op_ids) * self.block_bytes
                stall_s = transfer_seconds(self.hardware.costs, kind, num_bytes)
                result.transfers.append(TransferReport(kind, op_ids, num_bytes, stall_s))
            else:
                link.submit(kind, op_ids, self.now, num_records)
        return stall_s

    def _take_reports(self, result: StepOutput) -> None:
        for link in self.links.values():
            result.transfers += link.take_ended(self.now)

    def _wait(self, until: float) -> float:
        """Advance the clock to the next end of a transfer, or to `until`. Returns the seconds waited."""
        ends = [link.next_end for link in self.links.values() if link.next_end is not None]
        if not ends:
            return 0.0
        began, self.now = self.now, min(*ends, max(self.now, until))
        return self.now - began
