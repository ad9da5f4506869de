"""Report the measured seconds of steps and transfers to the cost model and the recovery log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs, StepShape, transfer_seconds
from quire.core.decisions.recovery_log import Recomputed, RecoveryLog
from quire.outputs import TransferReport

logger = logging.getLogger("quire")

_STRETCH_S = 20e-3  #: of pieces per observation: shorter ones measure late wake-ups of threads


@dataclass(slots=True)
class _Stretch:
    """Consecutive pieces of one run on a link that have not been reported to the model."""

    num_bytes: int = 0
    seconds: float = 0.0
    continues: bool = False  #: earlier pieces of the run have been reported


class CostObserver:
    """Reports each step and transfer to the model, and each recovery's share of them to its log."""

    def __init__(self, model: CostModel, log: RecoveryLog) -> None:
        self.model = model
        self._log = log
        self._stretches: dict[tuple[str, str], _Stretch] = {}  #: by tier and kind

    def observe(self, shape: StepShape, seconds: float, reports: Sequence[TransferReport]) -> None:
        """Report a step, its seconds without stalls by copies (`StepOutput.stall_s`), and transfers ended with it."""
        for report in reports:
            self._observe_transfer(report)
        if not shape.num_tokens:
            return  # it only waited for transfers
        record_recomputed(self._log, self.model, shape, seconds)
        self.model.observe_step(shape, seconds)

    def _observe_transfer(self, report: TransferReport) -> None:
        """Report a transfer; warn once when the swap link begins to fail, and once when it works again."""
        model, tier, kind = self.model, report.tier, report.kind
        was_failing = model.is_failing(kind, tier)
        if report.failed:
            self._stretches[tier, kind] = _Stretch()
            model.observe_failure(kind, tier)
        elif report.is_cancelled:
            self._end_run(tier, kind)
        elif report.num_bytes:
            if kind == "load":
                model.observe_decoding(report.saved_bytes, report.coding_s)
            self._add_piece(report)
        if tier != "host" or was_failing == model.is_failing(kind):
            return
        if was_failing:
            logger.warning("swap: a %s has succeeded again", kind)
        else:
            logger.warning("swap: %ss keep failing; the cost policy recomputes until one succeeds", kind)

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
            self._observe_stretch(*link)
        elif not report.has_more:
            self._end_run(*link)

    def _end_run(self, tier: str, kind: str) -> None:
        """Report a run that is short as a whole; the short rest of a longer one says nothing new."""
        stretch = self._stretches.get((tier, kind), _Stretch())
        if stretch.num_bytes and not stretch.continues:
            self._observe_stretch(tier, kind)

    def _observe_stretch(self, tier: str, kind: str) -> None:
        stretch = self._stretches[tier, kind]
        self._stretches[tier, kind] = _Stretch(continues=True)
        self.model.observe_transfer(kind, stretch.num_bytes, stretch.seconds, continues=stretch.continues, tier=tier)


def record_recomputed(log: RecoveryLog, costs: Costs, shape: StepShape, seconds: float) -> None:
    """Record which part of a step's seconds recomputed tokens took."""
    for recomputed in log.recomputed:
        log.record_compute(recomputed.request_id, seconds * _share(costs, shape, recomputed))


def _share(costs: Costs, shape: StepShape, recomputed: Recomputed) -> float:
    """The share of a step that these tokens took; at least a tenth of the average token's, while costs are unknown."""
    average = recomputed.count / shape.num_tokens
    whole = costs.step(shape)
    if whole <= 0:
        return average
    without = shape.minus_chunk(recomputed.start, recomputed.count)
    return min(1.0, max(average / 10, 1.0 - costs.step(without) / whole))
