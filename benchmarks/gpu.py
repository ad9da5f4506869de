"""Steps of an engine on a GPU against the card's limits: decodes with CUDA graphs and without, prompts, attention alone
beside torch's, and preempted sequences that are swapped, in blocks and layer by layer, or computed again.

Contexts of decodes are blocks that are not computed: a step's time does not depend on values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.limits import check_torch
from benchmarks.script import start
from quire.attention.interface import AttentionBackend, AttentionBatch, LayerAttention
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.ops.arrays import Array, as_tensor
from quire.settings import Settings, integers, setting

if TYPE_CHECKING:
    from quire.calibration.microbenchmark import Microbenchmark
    from quire.runner.model_runner import ModelRunner

Figure = dict[str, Any]
_STEPS = 8  # of a turn; the first two take the sequences in and record a graph, and are not counted
_LIMIT_SIZE = 8192  # rows and columns of the product that gives the rate of the matrix units
_LIMIT_BYTES = 2**30


@dataclass(frozen=True)
class GpuSettings(Settings):
    """Options of the GPU benchmark."""

    running: tuple[int, ...] = setting("1,32", "Sequences of a decode step.", read=integers, at_least=1)
    context: tuple[int, ...] = setting("512,4096", "Tokens of each.", read=integers, at_least=1)
    prefill: tuple[int, ...] = setting("512,2048", "Tokens of a prompt.", read=integers, at_least=1)
    swapped: tuple[int, ...] = setting("512,1024", "Tokens of a preempted sequence.", read=integers, at_least=1)
    runs: int = setting(5, "Turns of each.", at_least=1)


@dataclass(frozen=True)
class Card:
    """The card's measured rates, each second."""

    read_bytes_s: float
    operations_s: float
    link_bytes_s: float  #: from pinned memory to the card

    @classmethod
    def measure(cls, dtype: Any, device: Any) -> Card:
        import torch

        source, target = (torch.zeros(_LIMIT_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
        x = torch.zeros((_LIMIT_SIZE, _LIMIT_SIZE), dtype=dtype, device=device)
        host = torch.zeros(_LIMIT_BYTES, dtype=torch.uint8, pin_memory=source.is_cuda)
        copy_s, product_s, link_s = (
            min(seconds_of(run, 5)[1:])
            for run in (lambda: target.copy_(source), lambda: x @ x, lambda: target.copy_(host, non_blocking=True))
        )
        return cls(2 * _LIMIT_BYTES / copy_s, 2 * _LIMIT_SIZE**3 / product_s, _LIMIT_BYTES / link_s)


def wait() -> None:
    """Wait until the device is done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        wait()
        started = time.perf_counter()
        run()
        wait()
        found.append(time.perf_counter() - started)
    return found


class GpuBenchmark:
    """Measures an idle engine."""

    def __init__(self, bench: Microbenchmark, runner: ModelRunner, settings: GpuSettings) -> None:
        self._bench, self._runner, self._settings = bench, runner, settings
        self._blocks, self._layout = as_tensor(runner.cache.blocks), runner.cache.layout
        self.card = Card.measure(runner.model.dtype, self._blocks.device)

    def figures(self) -> Iterator[Figure]:
        """A figure for each part, size and way."""
        settings = self._settings
        for running in settings.running:
            for context in settings.context:
                yield from self._decodes(running, context)
                yield from self._attention(f"attention of {running} × {context:,}", [(context, 1)] * running)
        for num_tokens in settings.prefill:
            yield from self._prompts(num_tokens)
            yield from self._attention(f"attention of a prompt of {num_tokens:,}", [(0, num_tokens)])
        for num_tokens in settings.swapped:
            yield from self._recoveries(num_tokens)

    def _decodes(self, running: int, context: int) -> Iterator[Figure]:
        model, ways = self._runner.model, {"CUDA graph": False, "eager": True}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(self._settings.runs):
            for way, model.is_eager in ways.items():
                timings = self._bench.decode(running, context, _STEPS)[2:]
                seconds[way].append(median(each.seconds for each in timings))
        limit_s = self._limit_s(running, [(context, 1)] * running)
        for way, found in seconds.items():
            yield _figure(f"decode of {running} × {context:,}", way, found, limit_s)

    def _prompts(self, num_tokens: int) -> Iterator[Figure]:
        seconds = []
        for _ in range(self._settings.runs + 1):
            seq, steps = self._bench.compute(num_tokens)
            self._bench.forget(seq)
            seconds.append(sum(step.seconds for step in steps))
        yield _figure(
            f"prompt of {num_tokens:,}", "eager", seconds[1:], self._limit_s(num_tokens, [(num_tokens, num_tokens)])
        )

    def _limit_s(self, num_tokens: int, contexts: list[tuple[int, int]]) -> float:
        from benchmarks.profile.limits import work_of_step

        work = work_of_step(self._runner.model, num_tokens, contexts)
        rates: Any = self.card
        return sum(work.limit(part, rates) or 0.0 for part in work.num_bytes)

    def _attention(self, part: str, contexts: list[tuple[int, int]]) -> Iterator[Figure]:
        """Attend in all layers, without what lies between; with our kernels as one graph, if the step allows that."""
        from benchmarks.profile.limits import work_of_step
        from benchmarks.profile.parts import ATTENTION
        from quire.attention.torch_attention import TorchAttention

        blocks, layout = self._blocks, self._layout
        rows = sum(count for _, count in contexts)
        batch = _batch(contexts, layout.block_size, len(blocks))
        limit_s = work_of_step(self._runner.model, rows, [(sum(pair), pair[1]) for pair in contexts]).limit(
            ATTENTION,
            self.card,  # type: ignore[arg-type]
        )
        inputs = [_random_inputs(layer, rows, blocks) for layer in layout.layers]
        backends = {"ours": self._runner.attention, "torch": TorchAttention(blocks, layout)}
        passes = {way: self._attending(backend, batch, inputs) for way, backend in backends.items()}
        seconds: dict[str, list[float]] = {way: [] for way in passes}
        for _ in range(self._settings.runs):
            for way, run in passes.items():
                seconds[way] += seconds_of(run, 2)[1:]
        for way, found in seconds.items():
            yield _figure(part, way, found, limit_s)

    @staticmethod
    def _attending(
        backend: AttentionBackend, batch: AttentionBatch, inputs: list[tuple[Array, ...]]
    ) -> Callable[[], object]:
        from quire.ops.cuda_graphs import GraphRecorder

        backend.plan(batch)

        def attend(*queries: Array) -> Array:
            outputs = [
                backend.attend(index, q, *given)
                for index, (q, (_, *given)) in enumerate(zip(queries, inputs, strict=True))
            ]
            return outputs[-1]

        queries = [q for q, *_ in inputs]
        if not getattr(backend, "is_recordable", False):
            return lambda: attend(*queries)
        _, recorded = GraphRecorder().record(attend, queries, len(queries[0]))
        return lambda: recorded(*queries) if recorded is not None else attend(*queries)

    def _recoveries(self, num_tokens: int) -> Iterator[Figure]:
        bench = self._bench
        seconds: dict[str, list[float]] = {"computed": [], "loaded, blocks": [], "saved, blocks": []}
        for _ in range(self._settings.runs):
            seq, steps = bench.compute(num_tokens)
            seconds["computed"].append(sum(step.seconds for step in steps))
            seconds["saved, blocks"].append(bench.swap_out(seq).wall_s)
            loaded = bench.swap_in(seq)
            seconds["loaded, blocks"].append(loaded.wall_s)
            bench.forget(seq)
        copy = self._layer_copies(num_tokens // self._layout.block_size)
        seconds["loaded, layers"] = seconds_of(copy, self._settings.runs + 1)[1:]
        limits = {"computed": self._limit_s(num_tokens, [(num_tokens, num_tokens)])}
        link_s = loaded.num_bytes / self.card.link_bytes_s
        for way, found in seconds.items():
            yield _figure(f"{num_tokens:,} tokens again", way, found, limits.get(way, link_s))

    def _layer_copies(self, num_blocks: int) -> Callable[[], object]:
        """Load strewn blocks as a cache with one array for each layer's K and one for its V does: copy by copy."""
        import torch

        blocks, layout = self._blocks, self._layout
        order = np.random.default_rng(0).permutation(len(blocks))[:num_blocks].tolist()
        parts = [part for index in range(len(layout.layers)) for part in layout.parts(blocks, index)]
        held = [torch.empty((num_blocks, *part.shape[1:]), dtype=part.dtype, pin_memory=part.is_cuda) for part in parts]

        def copy() -> None:
            for part, host in zip(parts, held, strict=True):
                for at, block in enumerate(order):
                    part[block].copy_(host[at], non_blocking=True)

        return copy


def _batch(contexts: list[tuple[int, int]], block_size: int, num_blocks: int) -> AttentionBatch:
    """Sequences of (tokens before, tokens of the step), in strewn blocks."""
    lens = np.array([sum(pair) for pair in contexts])
    width = -(-int(lens.max()) // block_size)
    tables = np.random.default_rng(0).permutation(num_blocks)[: len(contexts) * width].astype(np.int32)
    tables = tables.reshape(len(contexts), width)
    slots = [
        table[at // block_size].astype(np.int64) * block_size + at % block_size
        for table, (before, count) in zip(tables, contexts, strict=True)
        for at in [np.arange(before, before + count)]
    ]
    return AttentionBatch(np.cumsum([0, *(count for _, count in contexts)]), lens, tables, np.concatenate(slots))


def _random_inputs(layer: Any, num_rows: int, like: Array) -> tuple[Array, ...]:
    assert isinstance(layer, LayerAttention)
    heads, is_stored = layer.num_kv_heads, layer.reads_layer is None
    sizes = ((layer.num_heads, layer.head_dim), (heads, layer.head_dim), (heads, layer.value_dim))
    q, k, v = (like.new_zeros((num_rows, *size)).normal_() for size in sizes)
    return q, k if is_stored else None, v if is_stored and not layer.has_latent else None


def _figure(part: str, way: str, seconds: list[float], limit_s: float | None) -> Figure:
    reached = None if limit_s is None else limit_s / median(seconds)
    return {"part": part, "way": way, "part_s": summarise(seconds), "limit_s": limit_s, "reached": reached}


def measure(config: EngineConfig, settings: GpuSettings) -> tuple[list[Figure], Card]:
    """All figures, and the card's rates. ValueError without a GPU."""
    check_torch("a GPU")
    from quire.assembly import load, make_engine
    from quire.calibration.microbenchmark import Microbenchmark
    from quire.runner.model_runner import ModelRunner

    longest = max(max(settings.context) + _STEPS, *(count + 1 for count in (*settings.prefill, *settings.swapped)))
    config = replace(
        config,
        device="cuda" if config.device == "auto" else config.device,
        skip_tokenizer_init=True,
        max_num_seqs=max(settings.running),
        max_num_batched_tokens=max(*settings.running, *settings.prefill, *settings.swapped),
        max_model_len=longest,
        enable_prefix_caching=False,
    )
    engine = make_engine(config, load(config))
    assert isinstance(engine.runner, ModelRunner)
    with Microbenchmark(engine) as bench:
        bench.scatter()
        benchmark = GpuBenchmark(bench, engine.runner, settings)
        return list(benchmark.figures()), benchmark.card


@options(without=("max_num_seqs", "max_num_batched_tokens", "max_model_len", "enforce_eager"))
def main(engine: EngineConfig, settings: GpuSettings, json: Json = None) -> None:
    """Steps on a GPU against its limits, and swapping."""
    figures, card = measure(engine, settings)
    report = Report(
        "gpu",
        f"Steps on a GPU: {engine.model}",
        (
            Column("part", "part"),
            Column("way", "way"),
            Column("part_s", "ms", scale=1e3),
            Column("limit_s", "limit, ms", scale=1e3),
            Column("reached", "limit / ms, %", scale=100, digits=0),
        ),
        figures=figures,
        notes=[
            f"Limits: {card.read_bytes_s / 1e9:,.0f} GB/s of memory, {card.operations_s / 1e12:,.1f} TFLOP/s in "
            f"products, {card.link_bytes_s / 1e9:.1f} GB/s from pinned memory, each measured before."
        ],
        settings={**asdict(engine), **settings.as_json()},
        more=asdict(card),
    )
    report.publish(json)


if __name__ == "__main__":
    start(main)
