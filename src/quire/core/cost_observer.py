"""Tells the cost model and the recovery log what steps and transfers really took.

Called once a step. Knows seconds only as they are given to it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quire.core.cost_model import CostModel
from quire.core.costs import StepShape
from quire.core.recovery_log import Recomputed, RecoveryLog
from quire.outputs import TransferReport

logger = logging.getLogger("quire")


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
            seconds: that executing it took, less those for which copying blocks held it up (`StepOutput.stall_s`).
            reports: of transfers that ended with it.
        """
        for report in reports:
            self._note_transfer(report)
        if not shape.num_tokens:
            return  # it only waited for transfers
        for recomputed in self._log.recomputed:
            self._log.note_compute(recomputed.request_id, seconds * self._share(shape, recomputed))
        self.model.observe_step(shape, seconds)

    def _note_transfer(self, report: TransferReport) -> None:
        """The log tells once when the link begins to fail, and once when it is over."""
        model, kind = self.model, report.kind
        was_failing = model.is_failing(kind)
        if report.failed:
            model.observe_failure(kind)
        elif report.num_bytes:
            model.observe_transfer(kind, report.num_bytes, report.copy_s)
        if was_failing == model.is_failing(kind):
            return
        if was_failing:
            logger.warning("swap: a %s has arrived whole again", kind)
        else:
            logger.warning(
                "swap: %ss go on failing; where costs are weighed, nobody swaps until one has arrived whole", kind
            )

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
