"""One stream against the time to read the weights and KV that it uses, and to read and write its state, at the
bandwidth of the same run. Each pass decodes another random token, so experts change from pass to pass. Weights of kind
mxfp4 come from a checkpoint with random experts, which only gpt-oss has."""

from __future__ import annotations

import json as json_file
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.settings import Settings, integers, names, setting
from quire.system.memory_reader import MemoryReader

if TYPE_CHECKING:
    from quire.models.base import CausalLM
    from quire.ops.module import Module

_PASSES = 16  # between two measurements of the bandwidth
_BLOCK_SIZE = 16


@dataclass(frozen=True)
class ExpertsSettings(Settings):
    """Options of the benchmark."""

    weights: tuple[str, ...] = setting(
        "none,int8,int4", "Quantizations, packed12 or mxfp4.", read=names, metavar="KIND[,...]"
    )
    contexts: tuple[int, ...] = setting("16", "Tokens, of zeros.", read=integers, metavar="TOKENS[,...]")
    runs: int = setting(8, "Measurements of each kind.", at_least=1)


def active_bytes(model: CausalLM) -> tuple[int, int]:
    """Return the bytes of weights that one token reads: those of experts, and all others."""
    from quire.models.experts import Experts

    mixtures = [module for module in model.modules() if isinstance(module, Experts)]
    held = [_packed_bytes(each) for each in mixtures]
    read = sum(size * each.config.chosen // each.config.count for size, each in zip(held, mixtures, strict=True))
    return read, _packed_bytes(model) - sum(held)


def state_bytes(model: CausalLM) -> int:
    """Return the bytes of a sequence's recurrent state."""
    from quire.attention.interface import LayerState

    return sum(4 * layer.num_floats for layer in model.attention_layers() if isinstance(layer, LayerState))


def _packed_bytes(module: Module) -> int:
    from quire.models.linear.layer import Linear

    layers = [each for each in module.modules() if isinstance(each, Linear)]
    return sum(layer.packed.num_bytes for layer in layers if layer.packed is not None)


def write_mxfp4(name: str, directory: Path) -> None:
    """Write a preset's checkpoint as the makers of gpt-oss do, with random weights."""
    from safetensors.numpy import save_file

    from quire.loading import resolve_model
    from quire.loading.modules.fill import fill_random
    from quire.models.registry import build_model
    from quire.ops.arrays import numpy_dtype

    source, random = resolve_model(name), np.random.default_rng(0)
    config, experts = source.config, source.config.experts
    model = build_model(config, numpy_dtype("bfloat16"), "meta")
    if experts is None or not model.pairs_expert_rows:
        raise ValueError(f"{name} is not gpt-oss, whose experts are stored in MXFP4")
    tensors = {}
    for path, view in model.checkpoint_tensors().items():
        if ".experts." not in path:
            tensors[model.checkpoint_name(path)] = np.empty(view.shape, view.dtype)
    fill_random(tensors, std=config.initializer_range, seed=0)
    for layer in range(config.num_layers):
        for kind, inputs, outputs in (
            ("gate_up_proj", config.hidden_size, 2 * experts.inner), ("down_proj", experts.inner, config.hidden_size)
        ):  # fmt: skip
            path, shape = f"model.layers.{layer}.mlp.experts.{kind}", (experts.count, outputs, inputs // 32)
            tensors[f"{path}_blocks"] = random.integers(0, 256, (*shape, 16), np.uint8)
            tensors[f"{path}_scales"] = random.integers(118, 121, shape, np.uint8)
            tensors[f"{path}_bias"] = np.zeros(shape[:2], numpy_dtype("bfloat16"))
    save_file(tensors, directory / "model.safetensors")
    values = {**source.hf_config, "quantization_config": {"quant_method": "mxfp4"}}
    (directory / "config.json").write_text(json_file.dumps(values))


def decode(model: CausalLM, context: int) -> Iterator[float]:
    """Yield the seconds of `_PASSES` passes, without sampling."""
    from quire.attention.cpu_attention import CpuAttention
    from quire.attention.interface import AttentionBatch, KVLayout
    from quire.kernels.loaded import load_kernels

    library = load_kernels().functions
    if library is None:
        raise ValueError("this benchmark needs kernels")
    layout, num_blocks = KVLayout(model.attention_layers(), _BLOCK_SIZE), -(-context // _BLOCK_SIZE)
    cache = np.zeros(layout.shape(num_blocks), model.dtype)
    cache[:] = 0  # pages of their own
    attention = CpuAttention(cache, layout, library)
    last = context - 1
    batch = AttentionBatch(
        query_start_loc=np.array([0, 1]),
        seq_lens=np.array([context]),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        slot_mapping=np.array([last]),
    )
    generator = np.random.default_rng(0)
    while True:
        started = time.perf_counter()
        for token in generator.integers(model.config.vocab_size, size=(_PASSES, 1)):
            attention.plan(batch)
            model.compute_logits(model(token, np.array([last]), attention.attend))
        yield (time.perf_counter() - started) / _PASSES


def measure(config: EngineConfig, settings: ExpertsSettings) -> Iterator[dict[str, Any]]:
    """Yield a figure per kind of weight."""
    from quire.loading import load_model, resolve_model
    from quire.system.threads import default_num_threads, set_num_threads

    set_num_threads(config.num_threads or default_num_threads())
    memory = MemoryReader()
    for kind in settings.weights:
        with tempfile.TemporaryDirectory(prefix="quire-experts-") as directory:
            if kind == "mxfp4":
                write_mxfp4(config.model, Path(directory))
            source = resolve_model(directory if kind == "mxfp4" else config.model)
            quantization = "none" if kind in ("mxfp4", "packed12") else kind
            weights = "packed12" if kind == "packed12" else "plain"
            model = load_model(source, dtype=config.dtype, quantization=quantization, weights=weights)
        experts, others = active_bytes(model)
        for context in settings.contexts:
            passes, taken, read = decode(model, context), [], []
            kv, state = context * source.config.kv_bytes(model.dtype.name), 2 * state_bytes(model)
            next(passes)
            for _ in range(settings.runs):
                bandwidth = max(memory.measure() for _ in range(3))
                taken.append(next(passes))
                read.append((experts + others + kv + state) / bandwidth)
            yield {
                "weights": kind,
                "context": context,
                "held_bytes": model.weight_bytes(),
                "experts_bytes": experts,
                "other_bytes": others,
                "kv_bytes": kv,
                "state_bytes": state,
                "wall_s": summarise(taken),
                "read_s": summarise(read),
                "ratio": summarise([each / limit for each, limit in zip(taken, read, strict=True)]),
            }


@options(without=("quantization", "weights", "device"))
def main(settings: ExpertsSettings, engine: EngineConfig, json: Json = None) -> None:
    """Decoding one stream against the time to read the weights in use, its KV and its state."""
    columns = (
        Column("weights", "weights"),
        Column("context", "context", digits=0),
        Column("held_bytes", "MB held", scale=1e-6, digits=0),
        Column("experts_bytes", "MB of experts read", scale=1e-6, digits=0),
        Column("other_bytes", "MB of others read", scale=1e-6, digits=0),
        Column("kv_bytes", "MB of KV read", scale=1e-6, digits=1),
        Column("state_bytes", "MB of state read, written", scale=1e-6, digits=1),
        Column("wall_s", "ms per token", scale=1e3, digits=1),
        Column("read_s", "read alone ms", scale=1e3, digits=1),
        Column("ratio", "ratio", digits=2),
    )
    report = Report("experts", f"One stream of {engine.model}", columns)
    report.settings = {**settings.as_json(), "engine": asdict(engine)}
    report.figures = list(measure(engine, settings))
    report.publish(json)


if __name__ == "__main__":
    start(main)
