"""Tells the cost model and the recovery log what steps and transfers really took.

Called once a step. Knows seconds only as they are given to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.core.cost_model import CostModel
from quire.core.costs import StepShape
from quire.core.recovery_log import Recomputed, RecoveryLog
from quire.outputs import TransferReport


class CostObserver:
    """Args:
    model: learns from every step and transfer.
    log: gets each recovery's share of them.
    """

    def __init__(self, model: CostModel, log: RecoveryLog) -> None:
        self.model = model
        self._log = log

    def note(self, shape: StepShape, seconds: float, reports: Sequence[TransferReport]) -> None:
        """A step is over.

        Args:
            shape: what it computed.
            seconds: that executing it took.
            reports: of transfers that ended with it.
        """
        for report in reports:
            if not report.failed and report.num_bytes:
                self.model.observe_transfer(report.kind, report.num_bytes, report.copy_s)
        if not shape.num_tokens:
            return  # it only waited for transfers
        busy_s = max(0.0, seconds - sum(report.stall_s for report in reports))
        for recomputed in self._log.recomputed:
            self._log.note_compute(recomputed.request_id, busy_s * self._share(shape, recomputed))
        self.model.observe_step(shape, busy_s)

    def _share(self, shape: StepShape, recomputed: Recomputed) -> float:
        """The part of a step that went into tokens which had been computed before.

        A model that sees no difference yet does not make them free: they count at least a tenth of the average token.
        """
        average = recomputed.count / shape.num_tokens
        whole = self.model.step(shape).seconds
        if whole <= 0:
            return average
        without = shape.minus_chunk(recomputed.start, recomputed.count)
        return min(1.0, max(average / 10, 1.0 - self.model.step(without).seconds / whole))
