"""Time per output token with LoRA adapters in a batch, against the model alone, in turns on one engine.

Adapters have random weights on all linear layers. Rows of a batch have them in turn, so that each step has several.
"""

from __future__ import annotations

import json as json_module
import statistics
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.script import start
from quire.assembly import load, make_engine
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.models.base import CausalLM
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, setting


@dataclass(frozen=True)
class AdapterSettings(Settings):
    """Options of the benchmark."""

    adapters: tuple[int, ...] = setting("1,4,8", "Numbers of adapters in the batch.", read=integers, at_least=1)
    rank: int = setting(16, "Rank of the adapters.", at_least=1)
    batch: int = setting(16, "Requests at once.", at_least=1)
    input_len: int = setting(32, "Tokens per prompt.", at_least=1)
    output_len: int = setting(24, "Tokens per answer.", at_least=8)
    runs: int = runs(5)


def run(config: EngineConfig, settings: AdapterSettings, json: Path | None) -> None:
    report = Report(
        "adapters",
        f"{config.model}, {settings.batch} requests, adapters of rank {settings.rank} on all linear layers",
        (
            Column("case", "batch"),
            Column("tpot_s", "TPOT ms", scale=1e3, digits=1),
            Column("ratio", "of the model alone", digits=3),
            Column("load_s", "load ms", scale=1e3, digits=0),
        ),
        figures=measure(config, settings),
        notes=["Turns in one engine; half: every second request has no adapter."],
        settings={**asdict(config), **settings.as_json()},
    )
    report.publish(json)


def measure(config: EngineConfig, settings: AdapterSettings) -> list[dict[str, Any]]:
    config = replace(config, enable_prefix_caching=False, skip_tokenizer_init=True, max_num_seqs=settings.batch)
    loaded = load(config)
    engine = make_engine(config, loaded)
    loads = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(max(settings.adapters)):
            path = Path(directory) / str(number)
            write_adapter(path, loaded.model, settings.rank, number)
            began = engine.clock()
            engine.adapters.load(str(number), str(path))
            loads.append(engine.clock() - began)
    cases = {"alone": [""]} | {f"{n} adapters": list(map(str, range(n))) for n in settings.adapters}
    cases[f"{max(settings.adapters)} adapters, half"] = [
        name for number in range(max(settings.adapters)) for name in (str(number), "")
    ]
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for repetition in range(-1, settings.runs):
        for case, names in cases.items():
            tpot_s = _tpot(engine, settings, names, repetition)
            if repetition >= 0:
                seconds[case].append(tpot_s)
    return [
        {
            "case": case,
            "tpot_s": summarise(times),
            "ratio": summarise(a / b for a, b in zip(times, seconds["alone"], strict=True)),
            "load_s": summarise(loads) if case != "alone" else None,
        }
        for case, times in seconds.items()
    ]


def _tpot(engine: Engine, settings: AdapterSettings, names: list[str], seed: int) -> float:
    """Run a batch whose requests have the adapters in turn. Returns the median seconds of a step that decodes."""
    rng = np.random.default_rng(seed + 1)
    params = SamplingParams(temperature=0, max_tokens=settings.output_len, ignore_eos=True, detokenize=False)
    for number in range(settings.batch):
        ids = rng.integers(engine.vocab_size, size=settings.input_len).tolist()
        engine.add_request(Prompt(None, ids, adapter=names[number % len(names)]), params)
    steps = []
    while engine.has_unfinished():
        began = engine.clock()
        engine.step()
        if engine.last_stats is not None and engine.last_stats.num_scheduled_tokens == settings.batch:
            steps.append(engine.clock() - began)
    return statistics.median(steps)


def write_adapter(directory: Path, model: CausalLM, rank: int, seed: int) -> None:
    """Write a random adapter of all projections in PEFT's format."""
    directory.mkdir()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    (directory / "adapter_config.json").write_text(json_module.dumps(config))
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, projection in model.projections().items():
        prefix = f"base_model.model.{model.checkpoint_name(name)}"
        shapes = {"A": (rank, projection.linear.inputs.total), "B": (projection.outputs.total, rank)}
        for factor, shape in shapes.items():
            tensors[f"{prefix}.lora_{factor}.weight"] = 0.01 * rng.standard_normal(shape, np.float32)
    save_file(tensors, directory / "adapter_model.safetensors")


@options(default_model="random:qwen2.5-0.5b", without=("lora", "enable_prefix_caching", "skip_tokenizer_init"))
def main(engine: EngineConfig, settings: AdapterSettings, json: Json = None) -> None:
    """TPOT with LoRA adapters in a batch, against the model alone."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
