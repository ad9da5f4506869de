"""An engine's cost model: kept on disk per machine and kind of engine, measured at the first start."""

from __future__ import annotations

import logging
import time
import weakref
from dataclasses import dataclass

from quire.assembly.model import LoadedModel
from quire.calibration.calibrate import quick_profile
from quire.calibration.profiles import ProfileKeeper, ProfilePlace, profile_place
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")


@dataclass(frozen=True)
class EngineCosts:
    """An engine's cost model and its place on disk."""

    model: CostModel
    place: ProfilePlace | None = None  #: None: neither measured nor kept
    is_measured: bool = False  #: loaded from `place`

    @classmethod
    def load(cls, config: EngineConfig, loaded: LoadedModel) -> EngineCosts:
        place = profile_place(config, loaded.model, loaded.device)
        kept = place.load()
        return cls(kept or CostModel(), place, kept is not None)

    def keep(self, engine: Engine, loaded: LoadedModel, worker: TransferWorker | None) -> None:
        """Measure the costs if there was no profile, and keep what the engine learns.

        Only whole models are measured: with stages, keeping starts at the promotion to the last one.
        """
        if self.place is None:
            return
        if _is_whole(engine, loaded):
            is_arriving = loaded.loader is not None and not loaded.loader.stage_ready  # measuring would wait for it
            self._keep(engine, self.place, worker, measures=not (self.is_measured or is_arriving))
        elif engine.promoter is not None:
            place = self.place

            def keep_once_whole(number: int) -> None:
                if _is_whole(engine, loaded):
                    self._keep(engine, place, worker, measures=False)

            engine.promoter.on_promotion.append(keep_once_whole)

    def _keep(self, engine: Engine, place: ProfilePlace, worker: TransferWorker | None, *, measures: bool) -> None:
        keeper = ProfileKeeper(place, self.model, worker)
        if measures:
            started = time.monotonic()
            quick_profile(engine, self.model)
            logger.info("costs: measured in %.1f s; quire calibrate shows them", time.monotonic() - started)
            keeper.keep()
        engine.on_stats.append(keeper.note)
        weakref.finalize(engine, keeper.keep)  # engines are dropped, not closed


def _is_whole(engine: Engine, loaded: LoadedModel) -> bool:
    """Return whether the engine computes with all layers."""
    return loaded.manifest is None or engine.stage == len(loaded.manifest.stages)
