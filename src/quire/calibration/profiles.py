"""Measured costs on disk, so that a start need not measure them again: one file a machine and kind of engine.

A file's name and content say what its seconds depend on: the machine, the model's shape, the KV blocks, the threads and
the swap tier. Weights do not matter. A file that is torn, changed or of another kind counts as missing: the costs are
measured anew and replace it. Files are replaced whole, so that a reader never sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.kernels.loaded import load_kernels
from quire.models.base import CausalLM
from quire.outputs import Stats
from quire.system.user_cache import replace_file, user_cache
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

_VERSION = 2  #: of the file around the model
_WRITE_EVERY_S = 300.0


@dataclass(frozen=True)
class ProfilePlace:
    """The file for one kind of engine on one machine.

    Attributes:
        directory: of all profiles.
        facts: what the seconds depend on, as JSON can hold it.
    """

    directory: Path
    facts: dict[str, Any]

    @property
    def path(self) -> Path:
        return self.directory / f"{_digest(self.facts)[:32]}.json"

    def load(self) -> CostModel | None:
        """The model that was saved for these facts. None where there is none that can be trusted."""
        try:
            envelope = json.loads(self.path.read_bytes())
            facts, model = envelope["facts"], envelope["model"]
            if envelope["version"] != _VERSION or facts != self.facts or envelope["sha256"] != _digest([facts, model]):
                return None
            return CostModel.from_dict(model)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save(self, model: CostModel) -> None:
        """Write a model, in the place of an earlier one.

        Raises:
            OSError: the disk is full, or the directory cannot be written.
        """
        self.write(model.to_dict())

    def write(self, model: dict[str, Any]) -> None:
        """See `save`; the model is a `CostModel.to_dict`."""
        checksum = _digest([self.facts, model])
        envelope = {"version": _VERSION, "sha256": checksum, "facts": self.facts, "model": model}
        replace_file(self.path, json.dumps(envelope))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def profile_place(config: EngineConfig, model: CausalLM, device: str) -> ProfilePlace:
    """The place for engines of this config over this model.

    Args:
        config: of the engine.
        model: as loaded.
        device: cpu or cuda.
    """
    facts: dict[str, Any] = {
        **describe_machine(torch.cuda.get_device_name() if device == "cuda" else device),
        "model": repr(model.config),
        "dtype": str(model.dtype),
        "quantization": model.quantization,
        "block_size": config.block_size,
        "threads": torch.get_num_threads(),
        "kernels": load_kernels().level if device == "cpu" else "none",
        "swap_tier": _tier(config, device),
        "swap_bandwidth": config.swap_bandwidth,
        "kv_dir": None if config.kv_dir is None else os.path.realpath(config.kv_dir),
    }
    if config.tensor_parallel_size > 1:
        facts["ranks"] = config.tensor_parallel_size
    return ProfilePlace(profiles_directory(), facts)


def profiles_directory() -> Path:
    """Where profiles are kept, in this user's cache."""
    return user_cache() / "profiles"


def describe_machine(device: str) -> dict[str, str | int]:
    """The facts by which timings of one machine are comparable: its processor, the cores that this process may use,
    its memory, and the device's name."""
    return {
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": _memory_gib(),
        "device": device,
    }


def _tier(config: EngineConfig, device: str) -> str:
    if not config.has_swap_tier(device):
        return "none"
    return "host" if config.swap_dir is None else f"disk:{os.path.realpath(config.swap_dir)}"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory_gib() -> int:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):
        return 0


class ProfileKeeper:
    """Writes down the costs that an engine learns: every few minutes while it runs, and when it is gone.

    Nothing is written while the link has another bandwidth than the engine was made with: then its costs are not of
    this place. Where writing fails, a warning says so once, and the engine goes on.

    Args:
        place: of the engine's kind.
        model: learns in the engine's thread.
        worker: the link to the swap tier that the model learns about; None where there is none.
    """

    def __init__(self, place: ProfilePlace, model: CostModel, worker: TransferWorker | None) -> None:
        self._place = place
        self._model = model
        self._worker = worker
        self._bandwidth = None if worker is None else worker.bandwidth
        self._has_warned = False
        self._due_at: float | None = None  #: on the engine's clock
        self._writer: threading.Thread | None = None
        # The last write may come from a garbage collection in the midst of another one, in the same thread.
        self._lock = threading.RLock()

    def note(self, stats: Stats) -> None:
        """A step is over. Where a write is due, the engine's thread takes a snapshot and another thread writes it."""
        if self._due_at is None:
            self._due_at = stats.time + _WRITE_EVERY_S
        if stats.time < self._due_at or (self._writer is not None and self._writer.is_alive()):
            return
        self._due_at = stats.time + _WRITE_EVERY_S
        self._writer = threading.Thread(target=self._write, args=(self._model.to_dict(),), name="profile", daemon=True)
        self._writer.start()

    def keep(self) -> None:
        """Write the model in this thread. For an engine that takes no step meanwhile."""
        try:
            model = self._model.to_dict()
        except RuntimeError:
            return  # the process ends without having stopped the engine, and the model changes as it is read
        self._write(model)

    def _write(self, model: dict[str, Any]) -> None:
        if self._worker is not None and self._worker.bandwidth != self._bandwidth:
            return
        with self._lock:
            try:
                self._place.write(model)
            except OSError as error:
                if not self._has_warned:
                    reason = str(error)  # the error itself, in somebody's log, would hold on to the engine
                    logger.warning(
                        "recovery: what was measured cannot be kept for the next start: %s; "
                        "XDG_CACHE_HOME may name a directory that this user may write",
                        reason,
                    )
                self._has_warned = True
