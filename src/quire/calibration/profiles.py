"""Where measured costs are kept between starts, under which name, and when they are written.

The name says what seconds depend on: the machine, the model's shape, the KV blocks, the threads and the swap tier.
Weights do not matter. How a file is made and trusted is `core.profile_store`'s affair.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quire.calibration.cost_change import has_learnt
from quire.calibration.profile_store import describe_machine, load_profile, profile_path, save_profile
from quire.config import EngineConfig
from quire.core.costs.cost_model import CostModel
from quire.models.base import CausalLM
from quire.outputs import Stats
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

_WRITE_EVERY_S = 300.0  #: at most


def profiles_directory() -> Path:
    """`$XDG_CACHE_HOME/quire/profiles`, or ~/.cache/quire/profiles where that is not set or not absolute."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path("~/.cache").expanduser()
    return cache / "quire" / "profiles"


@dataclass(frozen=True)
class ProfilePlace:
    """The file for one kind of engine on this machine."""

    path: Path
    machine: dict[str, str | int]
    namespace: bytes

    def load(self) -> CostModel | None:
        """What was kept; None where there is nothing that can be trusted."""
        return load_profile(self.path, self.machine, self.namespace)

    def save(self, model: CostModel) -> None:
        """Keep a model, in the place of what was kept before.

        Raises:
            OSError: the directory cannot be written.
        """
        save_profile(self.path, model, self.machine, self.namespace)


def profile_place(config: EngineConfig, model: CausalLM, device: str) -> ProfilePlace:
    """The place for engines of this config over this model.

    Args:
        config: of the engine.
        model: as loaded.
        device: cpu or cuda.
    """
    facts = {
        "architecture": repr(model.config),
        "dtype": str(model.dtype),
        "block_size": config.block_size,
        "threads": torch.get_num_threads(),
        "swap_tier": _tier(config, device),
        "swap_bandwidth": config.swap_bandwidth,
    }
    namespace = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    machine = describe_machine(torch.cuda.get_device_name() if device == "cuda" else device)
    return ProfilePlace(profile_path(profiles_directory(), machine, namespace), machine, namespace)


def _tier(config: EngineConfig, device: str) -> str:
    if not config.has_swap_tier(device):
        return "none"
    return "host" if config.swap_dir is None else f"disk:{os.path.realpath(config.swap_dir)}"


class ProfileKeeper:
    """Writes down what an engine learns about costs: every few minutes of its running, and when it is gone.

    Only what differs from the file by more than noise is written, and nothing while the link has another bandwidth
    than the engine was made with, for then its costs are not of this place. Where writing fails, a warning says so
    once; the engine goes on.

    Args:
        place: of the engine's kind.
        model: learns in the engine's thread.
        link: whose costs it learns.
        is_kept: whether `place` holds the model as it is now.
    """

    def __init__(self, place: ProfilePlace, model: CostModel, link: TransferWorker, *, is_kept: bool) -> None:
        self._place = place
        self._model = model
        self._worker = link
        self._bandwidth = link.bandwidth
        self._kept = CostModel.from_dict(model.to_dict()) if is_kept else None
        self._has_warned = False
        self._due_at: float | None = None  #: on the engine's clock
        self._writer: threading.Thread | None = None
        # The last write may come from a garbage collection in the midst of another one, in the same thread.
        self._turn = threading.RLock()

    def note(self, stats: Stats) -> None:
        """A step is over. Where it is time, a thread of its own compares and writes; the engine's takes a snapshot."""
        if self._due_at is None:
            self._due_at = stats.time + _WRITE_EVERY_S
        if stats.time < self._due_at or (self._writer is not None and self._writer.is_alive()):
            return
        self._due_at = stats.time + _WRITE_EVERY_S
        self._writer = threading.Thread(target=self._write, args=(self._model.to_dict(),), name="profile", daemon=True)
        self._writer.start()

    def keep(self) -> None:
        """Write what has been learnt, in this thread. For an engine that takes no step meanwhile."""
        try:
            learnt = self._model.to_dict()
        except RuntimeError:
            return  # it does take one: the process ends without having stopped it, and the model changes as it is read
        self._write(learnt)

    def _write(self, learnt: dict[str, Any]) -> None:
        if self._worker.bandwidth != self._bandwidth:
            return
        model = CostModel.from_dict(learnt)
        with self._turn:
            if self._kept is not None and not has_learnt(model, self._kept):
                return
            try:
                self._place.save(model)
            except OSError as error:
                if not self._has_warned:
                    reason = str(error)  # the error itself, in somebody's log, would hold on to the engine
                    logger.warning("recovery: what was measured cannot be kept for the next start: %s", reason)
                self._has_warned = True
            else:
                self._kept = model
