"""Decode steps with the attention kernel, with KV in the model's dtype and in 8 bits, and with torch's, in turns.

Sequences' contexts are blocks strewn over the pool, and are not computed: a step's time does not depend on values. In
each step the weights pass between a layer's KV and the next one's, so that no cache of the processor holds any.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.limits import check_torch
from benchmarks.script import start
from quire.attention.interface import AttentionBackend, AttentionBatch, KVLayout, LayerAttention
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.ops.arrays import Array, as_numpy, as_tensor
from quire.runner.kv_cache import KVCache
from quire.settings import Settings, integers, setting
from quire.system.memory_reader import MemoryReader

_STEPS = 4  # a turn; the first one takes the sequences in, and is not counted


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Options of the attention benchmark."""

    running: tuple[int, ...] = setting("1,8,32", "Sequences per step.", read=integers, at_least=1)
    context: int = setting(512, "Tokens of each sequence.", at_least=1)
    shared: int = setting(0, "Common tokens of all sequences, in the same blocks.", at_least=0)
    runs: int = setting(5, "Turns of each backend.", at_least=1)


class _Timed:
    """A backend, and the seconds that each step took in it."""

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self.seconds: list[float] = []

    def plan(self, batch: AttentionBatch) -> None:
        started = time.perf_counter()
        self._backend.plan(batch)
        self.seconds.append(time.perf_counter() - started)

    def attend(self, layer_index: int, *arrays: Array | None) -> Array:
        started = time.perf_counter()
        out = self._backend.attend(layer_index, *arrays)
        self.seconds[-1] += time.perf_counter() - started
        return out


class _OnTensors:
    """torch's attention for a model of numpy arrays."""

    def __init__(self, backend: AttentionBackend) -> None:
        self.plan, self._backend = backend.plan, backend

    def attend(self, layer_index: int, *arrays: Array | None) -> Array:
        given = (None if each is None else as_tensor(each) for each in arrays)
        return as_numpy(self._backend.attend(layer_index, *given))


def measure(config: EngineConfig, settings: AttentionSettings) -> list[dict[str, Any]]:
    """One figure a number of running sequences and backend.

    Raises:
        ValueError: there are no kernels, or not for this dtype, or no torch.
    """
    check_torch("a comparison with torch's attention")
    from quire.assembly import load, make_engine
    from quire.attention.cpu_attention import CpuAttention
    from quire.attention.torch_attention import TorchAttention
    from quire.calibration.microbenchmark import Microbenchmark
    from quire.kernels.loaded import load_kernels
    from quire.runner.model_runner import ModelRunner

    length = settings.context + _STEPS
    most = max(settings.running)
    config = replace(
        config,
        device="cpu",
        skip_tokenizer_init=True,
        max_num_seqs=most,
        max_num_batched_tokens=max(most, config.max_num_batched_tokens or 0),
        max_model_len=length,
        num_kv_blocks=most * -(-length // config.block_size) + 1,
    )
    engine = make_engine(config, load(config))
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    kernel = runner.attention
    if not isinstance(kernel, CpuAttention):
        raise ValueError(f"there is nothing to compare: kernels: {load_kernels()}")
    cache = runner.cache
    blocks = as_tensor(cache.blocks).normal_()  # memory that was never written would be one page of zeros
    reference = TorchAttention(blocks, cache.layout)
    level = load_kernels()
    assert level.functions is not None
    layers = [replace(layer, scale_size=4) for layer in cache.layout.layers if isinstance(layer, LayerAttention)]
    quantized = _quantized_cache(len(blocks), KVLayout(layers, config.block_size))
    in_bytes = CpuAttention(quantized.blocks, quantized.layout, level.functions, kernel.dtype)
    backends = {
        "torch": _Timed(_OnTensors(reference)),
        level.level: _Timed(kernel),
        f"{level.level}, KV in 8 bits": _Timed(in_bytes),
    }
    block_bytes = [cache.blocks[0].nbytes, cache.blocks[0].nbytes, quantized.blocks[0].nbytes]
    kv_bytes = {
        name: size // config.block_size * settings.context for name, size in zip(backends, block_bytes, strict=True)
    }
    memory = MemoryReader()
    figures = []
    with Microbenchmark(engine) as bench:
        for running in settings.running:
            steps: dict[str, list[tuple[float, float]]] = {name: [] for name in backends}
            reads = []
            for _ in range(settings.runs):
                bench.scatter()
                reads.append(memory.measure())
                for name, backend in backends.items():
                    runner.attention = backend
                    backend.seconds.clear()
                    times = bench.decode(running, settings.context, _STEPS, settings.shared)
                    pairs = zip(backend.seconds, (each.seconds for each in times), strict=True)
                    steps[name].extend(list(pairs)[1:])
            for name, turns in steps.items():
                figures.append(
                    {
                        "running": running,
                        "context": settings.context,
                        "shared": settings.shared,
                        "attention": name,
                        "attention_s": summarise(seconds for seconds, _ in turns),
                        "step_s": summarise(step for _, step in turns),
                        "kv_bytes_s": summarise(running * kv_bytes[name] / seconds for seconds, _ in turns),
                        "read_bytes_s": summarise(reads),
                    }
                )
    return figures


def _quantized_cache(num_blocks: int, layout: KVLayout) -> KVCache:
    cache = KVCache(num_blocks, layout, np.dtype(np.int8))
    cache.blocks[:] = np.random.default_rng(0).integers(-127, 128, layout.block_numel, dtype=np.int8)
    for index in range(len(layout.layers)):
        for rows in layout.parts(cache.blocks, index):
            rows[..., :4] = np.frombuffer(np.float32(0.02).tobytes(), np.int8)
    return cache


@options(without=("kv_cache_dtype", "device", "max_num_seqs", "max_model_len", "num_kv_blocks", "kv_cache_memory"))
def main(engine: EngineConfig, settings: AttentionSettings, json: Json = None) -> None:
    """Decode steps with the CPU kernel for attention and with torch's, in turns."""
    report = Report(
        "attention",
        f"Decode steps at {settings.context:,} tokens of context: {engine.model}",
        (
            Column("running", "running", digits=0),
            Column("attention", "attention"),
            Column("attention_s", "attention, ms", scale=1e3, digits=1),
            Column("step_s", "whole step, ms", scale=1e3, digits=1),
            Column("kv_bytes_s", "K and V, GB/s", scale=1e-9, digits=1),
            Column("read_bytes_s", "memory reads, GB/s", scale=1e-9, digits=1),
        ),
        figures=measure(engine, settings),
        settings={**asdict(engine), **settings.as_json()},
    )
    report.publish(json)


if __name__ == "__main__":
    start(main)
