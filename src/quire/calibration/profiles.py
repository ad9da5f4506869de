"""Measured costs on disk, reused by later starts: one file per digest of the facts that timings depend on (machine,
model shape, KV blocks, threads, swap tier). A damaged file counts as missing."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.kernels.loaded import load_kernels
from quire.models.base import CausalLM
from quire.ops.arrays import name_of
from quire.system.machine import cpu_name, memory_gib, num_usable_cores
from quire.system.threads import num_threads
from quire.system.user_cache import replace_file, user_cache
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

_VERSION = 3  #: version of the file format


@dataclass(frozen=True)
class ProfilePlace:
    """The profile file of one kind of engine on one machine."""

    directory: Path
    facts: dict[str, Any]  #: all that timings depend on, as JSON

    @property
    def path(self) -> Path:
        return self.directory / f"{_digest(self.facts)[:32]}.json"

    def load(self) -> CostModel | None:
        """The saved cost model; None if it is missing or damaged."""
        try:
            envelope = json.loads(self.path.read_bytes())
            facts, model = envelope["facts"], envelope["model"]
            if envelope["version"] != _VERSION or facts != self.facts or envelope["sha256"] != _digest([facts, model]):
                return None
            return CostModel.from_dict(model)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save(self, model: CostModel) -> None:
        """Replace the saved model. Raises OSError if the file cannot be written."""
        learned = model.to_dict()
        checksum = _digest([self.facts, learned])
        envelope = {"version": _VERSION, "sha256": checksum, "facts": self.facts, "model": learned}
        replace_file(self.path, json.dumps(envelope))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def profile_place(config: EngineConfig, model: CausalLM, device: str) -> ProfilePlace:
    """The profile file for engines of this config and model on a device (cpu or cuda)."""
    facts: dict[str, Any] = {
        **describe_machine(device),
        "model": repr(model.config),
        "dtype": name_of(model.dtype),
        "quantization": model.quantization,
        "weights": model.weights,
        "block_size": config.block_size,
        "threads": num_threads(),
        "kernels": load_kernels().level if device == "cpu" else "none",
        "swap_tier": _tier(config, device),
        "swap_bandwidth": config.swap_bandwidth,
        "kv_dir": None if config.kv_dir is None else os.path.realpath(config.kv_dir),
    }
    if config.kv_cache_dtype != "auto":
        facts["kv_cache_dtype"] = config.kv_cache_dtype
    if config.tensor_parallel_size > 1:
        facts["ranks"] = config.tensor_parallel_size
    return ProfilePlace(profiles_directory(), facts)


def profiles_directory() -> Path:
    return user_cache() / "profiles"


def describe_machine(device: str) -> dict[str, str | int]:
    """Facts of the machine that timings depend on: processor, usable cores, memory, device (a GPU by its name)."""
    if device == "cuda":
        import torch

        device = torch.cuda.get_device_name()
    return {
        "cpu": cpu_name(),
        "architecture": platform.machine(),
        "cores": num_usable_cores(),
        "memory_gib": round(memory_gib()),
        "device": device,
    }


def _tier(config: EngineConfig, device: str) -> str:
    if not config.has_swap_tier(device):
        return "none"
    return "host" if config.swap_dir is None else f"disk:{os.path.realpath(config.swap_dir)}"


class ProfileKeeper:
    """Saves the costs that an engine's `model` learns to `place`, if the bandwidth of the link (`worker`) is as at the
    start. A failing write is logged once."""

    def __init__(self, place: ProfilePlace, model: CostModel, worker: TransferWorker | None) -> None:
        self._place = place
        self._model = model
        self._worker = worker
        self._bandwidth = None if worker is None else worker.bandwidth
        self._has_warned = False

    def keep(self) -> None:
        """Write the model, while the engine takes no step."""
        if self._worker is not None and self._worker.bandwidth != self._bandwidth:
            return
        try:
            self._place.save(self._model)
        except RuntimeError:
            return  # at process exit without a stopped engine, the model changes while it is read
        except OSError as error:
            if not self._has_warned:
                reason = str(error)  # a logged exception would keep the engine alive
                logger.warning(
                    "recovery: measured costs cannot be saved for the next start: %s; "
                    "set XDG_CACHE_HOME to a writable directory",
                    reason,
                )
            self._has_warned = True
