"""Engines over a shared KV directory that always load prefixes from disk, whatever the cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams


def config_of(kv_dir: Path, model: str = "random:tiny", **options: Any) -> EngineConfig:
    base = {"num_kv_blocks": 64, "max_model_len": 256, "device": "cpu", "use_tqdm": False}
    return EngineConfig(model, kv_dir=str(kv_dir), **base, **options)


def start(config: EngineConfig, loaded: LoadedModel | None = None) -> Engine:
    """Start an engine without a profile, as after a restart."""
    engine = make_engine(config, loaded or load(config), cost_model=CostModel())
    engine.scheduler.decider.costs = None
    engine.step()  # learns the blocks on disk
    return engine


def run(engine: Engine, prompt: Prompt | list[int] | str) -> RequestState:
    """Run a request until its blocks are on disk."""
    state = engine.add_request(prompt, SamplingParams(max_tokens=2, temperature=0, ignore_eos=True))
    while not state.is_finished or engine.has_unfinished():
        engine.step()
    engine.scheduler.check_integrity()
    assert state.request.error is None
    return state
