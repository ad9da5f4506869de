"""`quire bench linear`: all linear layers of a model and its head, one after the other, as a step goes through them.

Our kernels and oneDNN's packed ones take turns over the same weights, beside a plain read of memory. With a model that
is larger than the processor's caches, each product has its weight from memory, as in decoding.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.bench.report import Column, Report, summarise
from quire.bench.settings import LinearSettings
from quire.config import EngineConfig

if TYPE_CHECKING:
    from torch import Tensor

    from quire.models.layers import Linear
    from quire.models.packed_weight import PackedWeight

_READ_BYTES = 2**28
_HEAD_ROWS = 64  # of a step that needs logits


def measure(config: EngineConfig, settings: LinearSettings) -> list[dict[str, Any]]:
    """One figure a number of rows and kernel.

    Raises:
        ValueError: there are no kernels of ours, or not for this dtype.
    """
    import torch

    from quire.build import load
    from quire.kernels.loaded import load_kernels
    from quire.models.packed_weight import OneDnnWeight
    from quire.models.panel_weight import PanelWeight

    model = load(replace(config, device="cpu", skip_tokenizer_init=True)).model
    linears: list[Linear] = list({id(each): each for each, _ in model.projections().values()}.values())
    linears.append(model.lm_head)
    ours: list[PackedWeight] = []
    others: list[PackedWeight] = []
    for linear in linears:
        if not isinstance(linear.packed, PanelWeight):
            raise ValueError(f"there is nothing to compare: kernels: {load_kernels()}")
        ours.append(linear.packed)
        others.append(OneDnnWeight(linear.packed.rows(torch.arange(linear.out_features))))
    num_bytes = sum(weight.num_bytes for weight in ours)
    sizes = [(each.in_features, each.out_features) for each in linears]
    piece = torch.ones(_READ_BYTES // 4)

    def sweep(weights: list[PackedWeight], inputs: dict[int, Tensor]) -> float:
        started = time.perf_counter()
        for weight, (in_features, _) in zip(weights[:-1], sizes, strict=False):
            weight.product(inputs[in_features], None)
        weights[-1].product(inputs[sizes[-1][0]][:_HEAD_ROWS], None)
        return time.perf_counter() - started

    figures = []
    with torch.no_grad():
        for num_rows in settings.rows:
            inputs = {size: torch.randn(num_rows, size).to(model.dtype) for size, _ in sizes}
            operations = 2 * num_rows * sum(a * b for a, b in sizes[:-1])
            operations += 2 * min(num_rows, _HEAD_ROWS) * sizes[-1][0] * sizes[-1][1]
            seconds: dict[str, list[float]] = {load_kernels().level: [], "oneDNN": []}
            reads = []
            for _ in range(settings.runs):
                started = time.perf_counter()
                piece.sum()
                reads.append(_READ_BYTES / (time.perf_counter() - started))
                for taken, weights in zip(seconds.values(), (ours, others), strict=True):
                    taken.append(sweep(weights, inputs))
            for name, taken in seconds.items():
                figures.append(
                    {
                        "rows": num_rows,
                        "kernel": name,
                        "sweep_s": summarise(taken),
                        "weight_bytes_s": summarise(num_bytes / each for each in taken),
                        "read_bytes_s": summarise(reads),
                        "operations_s": summarise(operations / each for each in taken),
                    }
                )
    return figures


def run(config: EngineConfig, settings: LinearSettings, json: Path | None) -> None:
    """Measure, and publish the table."""
    report = Report(
        "linear",
        f"All linear layers and the head: {config.model}",
        (
            Column("rows", "rows", digits=0),
            Column("kernel", "kernel"),
            Column("sweep_s", "all, ms", scale=1e3, digits=1),
            Column("weight_bytes_s", "weights, GB/s", scale=1e-9, digits=1),
            Column("read_bytes_s", "memory reads, GB/s", scale=1e-9, digits=1),
            Column("operations_s", "GFLOP/s", scale=1e-9, digits=0),
        ),
        figures=measure(config, settings),
        settings={**asdict(config), **settings.as_json()},
    )
    report.publish(json)
