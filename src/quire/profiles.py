"""Where measured costs are kept between starts, and under which name.

The name says what seconds depend on: the machine, the model's shape, the KV blocks, the threads and the swap tier.
Weights do not matter. How a file is made and trusted is `core.profile_store`'s affair.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from quire.config import EngineConfig
from quire.core.cost_model import CostModel
from quire.core.profile_store import describe_machine, load_profile, profile_path, save_profile
from quire.models.base import CausalLM


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
