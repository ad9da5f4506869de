"""A runner that computes nothing and takes the time that a machine would have taken.

It keeps a clock of its own. A step moves the clock by its cost in the hardware profile. Saves and loads go over a link
for each tier, first come, first served, beside the steps; swapping within them, where the profile says that it stops
the engine. Tokens are made up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from quire.core.decisions.costs import EMPTY_STEP, TIERS, Costs, StepShape, transfer_seconds
from quire.outputs import BlockTransfer, SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.simulate.hardware import HardwareProfile
from quire.simulate.table_costs import TableCosts
from quire.simulate.virtual_batch import VirtualBatch
from quire.tiers.piece_size import PieceSize, take_piece


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the seconds of one step went."""

    shape: StepShape
    compute_s: float
    stall_s: float = 0.0  #: the engine stood still while blocks were copied
    wait_s: float = 0.0  #: nothing to compute: until the next transfer ended


@dataclass(slots=True)
class _Batch:
    """Transfers that were submitted together and have not begun yet."""

    kind: str
    op_ids: deque[int]
    num_moved: int = 0  #: blocks of it that have begun
    piece_size: PieceSize = field(default_factory=PieceSize)


class VirtualLink:
    """A link between the pool and a tier, first come, first served. It moves and reports pieces, as the real one does
    (`tiers.transfer_worker`).

    Args:
        costs: of a batch; its fixed cost falls to the first piece.
        block_bytes: of one KV block.
        tier: "host" or "disk".
    """

    def __init__(self, costs: Costs, block_bytes: int, tier: str = "host") -> None:
        self._costs = costs
        self._block_bytes = block_bytes
        self._tier = tier
        self._batches: deque[_Batch] = deque()
        self._piece: tuple[float, TransferReport] | None = None  #: that it is moving, and when it ends
        self._ended: list[TransferReport] = []
        self._waiting: set[int] = set()  #: op_ids that have not begun, and were not cancelled

    def submit(self, kind: str, op_ids: Sequence[int], now: float) -> None:
        self._batches.append(_Batch(kind, deque(op_ids)))
        self._waiting.update(op_ids)
        if self._piece is None:
            self._begin(now)

    def cancel(self, op_ids: Iterable[int]) -> None:
        """Transfers that have not begun are reported as cancelled when their turn comes."""
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
        """When the present piece ends."""
        return self._piece[0] if self._piece is not None else None

    def _begin(self, now: float) -> None:
        """Begin the next piece, if there is one, and report the cancelled transfers before it."""
        self._piece = None
        while self._piece is None and self._batches:
            batch = self._batches[0]
            op_ids, is_cancelled = take_piece(batch.op_ids, lambda op_id: op_id not in self._waiting, batch.piece_size)
            self._waiting.difference_update(op_ids)
            if is_cancelled:
                self._ended.append(TransferReport(batch.kind, op_ids, 0, 0.0, is_cancelled=True, tier=self._tier))
            else:
                self._begin_piece(batch, op_ids, now)
            if not batch.op_ids:
                self._batches.popleft()

    def _begin_piece(self, batch: _Batch, op_ids: list[int], now: float) -> None:
        before, num_bytes = batch.num_moved * self._block_bytes, len(op_ids) * self._block_bytes
        seconds_before = transfer_seconds(self._costs, batch.kind, before, self._tier)
        seconds = max(0.0, transfer_seconds(self._costs, batch.kind, before + num_bytes, self._tier) - seconds_before)
        batch.piece_size.note(len(op_ids), seconds)
        report = TransferReport(
            batch.kind,
            op_ids,
            num_bytes,
            seconds,
            continues=batch.num_moved > 0,
            has_more=bool(batch.op_ids),
            tier=self._tier,
        )
        batch.num_moved += len(op_ids)
        self._piece = now + seconds, report


class VirtualStore:
    """What the disk tier tells the scheduler. It belongs to this one process and has room for everything: a claim is
    granted at the next step, and nothing goes. What was saved or lost, the link's reports tell."""

    def __init__(self) -> None:
        self._granted: list[bytes] = []

    def tell(self, out: SchedulerOutput) -> None:
        """Take in what a step has for the store."""
        for key in out.dropped_claims:
            if key in self._granted:
                self._granted.remove(key)
        self._granted += (key for key, _ in out.claims)

    def poll(self) -> StoreChanges | None:
        """What has changed since the last call; None where nothing has."""
        if not self._granted:
            return None
        granted, self._granted = self._granted, []
        return StoreChanges(granted=granted)


class VirtualRunner:
    """Executes steps in no time and says how long they took.

    A step's saves to a tier are one batch on that tier's link, and so are its loads from there.

    Args:
        hardware: what steps and transfers cost.
        block_bytes: of one KV block.
    """

    def __init__(self, hardware: HardwareProfile, block_bytes: int) -> None:
        self.hardware = hardware
        self.block_bytes = block_bytes
        self.now = 0.0  #: seconds on the virtual clock
        self.last = StepTime(EMPTY_STEP, 0.0)  #: where the seconds of the last step went
        self.links = {tier: VirtualLink(hardware.costs, block_bytes, tier) for tier in TIERS}
        self.store = VirtualStore()
        self.stage_shares: dict[int, float] = {}  #: by stage, what its steps take of the whole model's
        self.batch = VirtualBatch()

    def execute(self, out: SchedulerOutput, until: float = math.inf) -> StepOutput:
        """Run a step: the contract of `Runner`.

        Args:
            until: when waiting for a transfer ends at the latest, where there is nothing to compute.
        """
        result = StepOutput(out.step_id)
        stall_s = 0.0
        if out.transfers:
            stall_s = self._transfer("save", out.transfers, result) + self._transfer("load", out.transfers, result)
            self.now += stall_s
            result.stall_s = stall_s
        if out.cancelled:
            for link in self.links.values():
                link.cancel(out.cancelled)
        self.store.tell(out)
        shape = self.batch.advance(out, result)
        compute_s = self._seconds(shape, out.stage)
        self.now += compute_s
        self._take_reports(result)
        wait_s = 0.0
        if not out.seq_ids and not result.transfers and not out.claims:
            wait_s = self._wait(until)
            self._take_reports(result)
        self.last = StepTime(shape, compute_s, stall_s, wait_s)
        return result

    def _seconds(self, shape: StepShape, stage: int) -> float:
        if not shape.num_seqs:
            return 0.0
        seconds = self.hardware.costs.step(shape)
        return seconds * self.stage_shares[stage] if stage in self.stage_shares else seconds

    def seconds_ahead(self, stage: int, num_steps: int) -> list[float]:
        """What each of the next steps takes, as long as they only bring every stream of the batch its next token."""
        num_seqs, context, costs = len(self.batch.streams), self.batch.context, self.hardware.costs
        if isinstance(costs, TableCosts) and stage not in self.stage_shares:
            return costs.decode_steps(num_seqs, context, num_steps)
        ahead = range(context, context + num_steps * num_seqs, num_seqs)
        return [self._seconds(StepShape(num_seqs, num_seqs, 0.0, each), stage) for each in ahead]

    def repeat(self, seconds: Sequence[float]) -> list[float]:
        """Run such steps, of which each took what `seconds_ahead` said. Returns when each has ended."""
        ends = list(accumulate(seconds, initial=self.now))[1:]
        if ends:
            self.batch.repeat(len(ends))
            self.now = ends[-1]
            num_seqs = len(self.batch.streams)
            self.last = StepTime(StepShape(num_seqs, num_seqs, 0.0, self.batch.context - num_seqs), seconds[-1])
        return ends

    def poll_store(self) -> StoreChanges | None:
        """What has changed in the disk tier, before a step is made."""
        return self.store.poll()

    def wait_until(self, now: float) -> None:
        """Let the clock run: there is nothing to do before."""
        self.now = max(self.now, now)

    def _transfer(self, kind: str, transfers: Sequence[BlockTransfer], result: StepOutput) -> float:
        """Have the links move one kind of blocks. Returns the seconds for which the engine stands still."""
        stall_s = 0.0
        for tier, link in self.links.items():
            op_ids = [transfer.op_id for transfer in transfers if transfer.kind == kind and transfer.tier == tier]
            if not op_ids:
                continue
            if tier == "host" and self.hardware.swap_is_synchronous:
                num_bytes = len(op_ids) * self.block_bytes
                stall_s = transfer_seconds(self.hardware.costs, kind, num_bytes)
                result.transfers.append(TransferReport(kind, op_ids, num_bytes, stall_s))
            else:
                link.submit(kind, op_ids, self.now)
        return stall_s

    def _take_reports(self, result: StepOutput) -> None:
        for link in self.links.values():
            result.transfers += link.take_ended(self.now)

    def _wait(self, until: float) -> float:
        """Let the clock run to the next transfer's end, or to `until`. Returns the seconds; 0 where none is going."""
        ends = [link.next_end for link in self.links.values() if link.next_end is not None]
        if not ends:
            return 0.0
        began, self.now = self.now, min(*ends, max(self.now, until))
        return self.now - began
