"""Clearing and copying KV blocks with numpy and with torch, in turns over two pools of equal bytes.

Blocks lie anywhere in a pool that is larger than the processor's caches, as while serving.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.limits import check_torch
from benchmarks.script import start
from quire.attention.interface import KVLayout
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.ops.arrays import numpy_dtype
from quire.runner.kv_cache import KVCache
from quire.settings import Settings, integers, setting
from quire.system.malloc import keep_freed_memory
from quire.system.threads import default_num_threads, set_num_threads

_LAYOUT = KVLayout.uniform(24, 2, 16, 64)  # Qwen2.5-0.5B: 192 KiB a block in bfloat16
_NUM_BLOCKS = 2048


@dataclass(frozen=True)
class BlocksSettings(Settings):
    """Options of the benchmark of KV blocks."""

    blocks: tuple[int, ...] = setting("1,8,64", "Blocks at once.", read=integers, at_least=1)
    runs: int = setting(100, "Turns.", at_least=1)


def measure(settings: BlocksSettings) -> list[dict[str, Any]]:
    """A figure per operation and number of blocks. ValueError without torch."""
    check_torch("a comparison with torch")
    import torch  # noqa: F401  before its number of threads is set

    set_num_threads(default_num_threads())
    keep_freed_memory()
    caches = [KVCache(_NUM_BLOCKS, _LAYOUT, numpy_dtype("bfloat16"), device) for device in ("cpu", "cpu:0")]
    for cache in caches:
        cache.blocks[:] = 1  # memory that was never written would be one page of zeros
    chance, figures = random.Random(0), []
    operations: dict[str, Callable[[KVCache, list[int]], None]] = {
        "clear": KVCache.clear,
        "copy": lambda cache, blocks: cache.write([block + _NUM_BLOCKS // 2 for block in blocks], cache.read(blocks)),
    }
    for name, operation in operations.items():
        for count in settings.blocks:
            taken: tuple[list[float], list[float]] = ([], [])
            for _ in range(settings.runs + 2):  # the first turns warm up
                blocks = chance.sample(range(_NUM_BLOCKS // 2), count)
                for cache, times in zip(caches, taken, strict=True):
                    started = time.perf_counter()
                    operation(cache, blocks)
                    times.append(time.perf_counter() - started)
            ours, torchs = (times[2:] for times in taken)
            ratios = summarise(theirs / own for own, theirs in zip(ours, torchs, strict=True))
            seconds = {"numpy_s": summarise(ours), "torch_s": summarise(torchs), "ratio": ratios}
            figures.append({"operation": name, "blocks": count, **seconds})
    return figures


@options()
def main(settings: BlocksSettings, json: Json = None) -> None:
    """Clearing and copying KV blocks with numpy, as on a CPU, and with torch."""
    columns = (
        Column("operation", "operation"),
        Column("blocks", "blocks", digits=0),
        Column("numpy_s", "numpy µs", scale=1e6, digits=1),
        Column("torch_s", "torch µs", scale=1e6, digits=1),
        Column("ratio", "torch / numpy", digits=1),
    )
    report = Report("blocks", "Whole KV blocks of Qwen2.5-0.5B in bfloat16", columns)
    report.settings = settings.as_json()
    report.figures = measure(settings)
    report.publish(json)


if __name__ == "__main__":
    start(main)
