"""Tells the cost model and the recovery log, once a step, what steps and transfers really took."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs, StepShape, transfer_seconds
from quire.core.decisions.recovery_log import Recomputed, RecoveryLog
from quire.outputs import TransferReport

logger = logging.getLogger("quire")

_STRETCH_S = 20e-3  #: of pieces, before the model is told: single ones tell of threads that were woken late


@dataclass(slots=True)
class _Stretch:
    """Pieces of one run on the link, one after the other, of which the model has not been told yet."""

    num_bytes: int = 0
    seconds: float = 0.0
    continues: bool = False  #: the model has been told of the run's earlier pieces


class CostObserver:
    """Args:
    model: learns from every step and transfer.
    log: gets each recovery's share of them.
    """

    def __init__(self, model: CostModel, log: RecoveryLog) -> None:
        self.model = model
        self._log = log
        self._stretches: dict[tuple[str, str], _Stretch] = {}  #: by tier and kind

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
        note_recomputed(self._log, self.model, shape, seconds)
        self.model.observe_step(shape, seconds)

    def _note_transfer(self, report: TransferReport) -> None:
        """The log tells once when the link for swapping begins to fail, and once when it is over."""
        model, tier, kind = self.model, report.tier, report.kind
        was_failing = model.is_failing(kind, tier)
        if report.failed:
            self._stretches[tier, kind] = _Stretch()
            model.observe_failure(kind, tier)
        elif report.is_cancelled:
            self._end_run(tier, kind)
        elif report.num_bytes:
            self._add_piece(report)
        if tier != "host" or was_failing == model.is_failing(kind):
            return
        if was_failing:
            logger.warning("swap: a %s has arrived whole again", kind)
        else:
            logger.warning(
                "swap: %ss go on failing; where costs are weighed, nobody swaps until one has arrived whole", kind
            )

    def _add_piece(self, report: TransferReport) -> None:
        link = report.tier, report.kind
        if not report.continues:
            self._end_run(*link)
            self._stretches[link] = _Stretch()
        stretch = self._stretches.setdefault(link, _Stretch())
        stretch.num_bytes += report.num_bytes
        stretch.seconds += report.copy_s
        predicted_s = transfer_seconds(self.model, report.kind, stretch.num_bytes, report.tier)
        if max(stretch.seconds, predicted_s) >= _STRETCH_S:
            self._tell(*link)
        elif not report.has_more:
            self._end_run(*link)

    def _end_run(self, tier: str, kind: str) -> None:
        """A run may be short as a whole; but the rest of a longer one tells nothing new."""
        stretch = self._stretches.get((tier, kind), _Stretch())
        if stretch.num_bytes and not stretch.continues:
            self._tell(tier, kind)

    def _tell(self, tier: str, kind: str) -> None:
        stretch = self._stretches[tier, kind]
        self._stretches[tier, kind] = _Stretch(continues=True)
        self.model.observe_transfer(kind, stretch.num_bytes, stretch.seconds, continues=stretch.continues, tier=tier)


def note_recomputed(log: RecoveryLog, costs: Costs, shape: StepShape, seconds: float) -> None:
    """Tell the log of the part of a step's seconds that went into tokens which had been computed before."""
    for recomputed in log.recomputed:
        log.note_compute(recomputed.request_id, seconds * _share(costs, shape, recomputed))


def _share(costs: Costs, shape: StepShape, recomputed: Recomputed) -> float:
    """Costs that see no difference yet do not make tokens free: they count at least a tenth of the average one."""
    average = recomputed.count / shape.num_tokens
    whole = costs.step(shape)
    if whole <= 0:
        return average
    without = shape.minus_chunk(recomputed.start, recomputed.count)
    return min(1.0, max(average / 10, 1.0 - costs.step(without) / whole))
