"""One pass over all linear layers of a model, by number of rows and kind of weight, in turns.

Weights are random and distinct per layer, so no processor cache holds them. The limit is the time to read their bytes
at the bandwidth of the same run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.limits import random_array
from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.ops.arrays import Array, as_tensor, name_of, numpy_dtype, torch_dtype
from quire.settings import Settings, integers, names, setting
from quire.system.memory_reader import MemoryReader

if TYPE_CHECKING:
    from quire.models.linear.interface import PackedWeight

_MAX_HEAD_ROWS = 64  # a prompt needs the logits of its last token alone


@dataclass(frozen=True)
class LinearSettings(Settings):
    """Options of the linear layer benchmark."""

    rows: tuple[int, ...] = setting("1,4,16,32,256", "Rows of each product.", read=integers, at_least=1)
    weights: tuple[str, ...] = setting(
        "plain,packed12,onednn,int8,int4",
        "Kinds of weights: plain (the model's own), packed12, onednn, int8, int4, or an encoding of GGUF such as Q4_0.",
        read=names,
        metavar="KIND[,...]",
    )
    runs: int = setting(5, "Turns of each kind.", at_least=1)


def _has_onednn(dtype: str) -> bool:
    from benchmarks.onednn import has_onednn

    return has_onednn(torch_dtype(dtype))


def measure(config: EngineConfig, settings: LinearSettings) -> list[dict[str, Any]]:
    """One figure per number of rows and kind of weight. Raises ValueError for unknown models or kinds."""
    from quire.loading import resolve_model
    from quire.loading.modules.fitting import choose_dtype
    from quire.models.encodings import BLOCKS
    from quire.models.linear.block_weight import TYPES, BlockRows, BlockWeight, block_kernels
    from quire.models.linear.layer import Linear
    from quire.models.linear.panel_weight import pack_weight
    from quire.models.linear.quantized_weight import BITS, quantize_weight
    from quire.models.registry import build_model
    from quire.system.threads import default_num_threads, set_num_threads

    def pack(shape: tuple[int, int], kind: str) -> PackedWeight:
        weight = deepcopy(values[shape])
        if kind == "onednn":
            from benchmarks.onednn import OneDnnWeight

            return OneDnnWeight(as_tensor(weight))
        library = block_kernels(dtype)
        if kind in BLOCKS and library is not None:
            values_per_block, num_bytes = BLOCKS[kind]
            if shape[1] % values_per_block:
                raise ValueError(f"{shape[1]} inputs are no whole blocks of {kind}; choose another model")
            rows = np.random.default_rng(0).integers(
                0, 256, (shape[0], shape[1] // values_per_block * num_bytes), np.uint8
            )
            rows &= 0x7B  # scales in float16 stay finite
            return BlockWeight([BlockRows(kind, rows)], shape[1], dtype, library)
        if kind in ("plain", "packed12"):
            packed: PackedWeight | None = pack_weight(weight, is_compact=kind == "packed12")
        else:
            packed = quantize_weight(weight, kind)
        if packed is None:
            raise ValueError(f"there is no packed product for {dtype} here")
        return packed

    known = ("plain", "packed12", "onednn", *BITS, *(kind for kind in TYPES if kind in BLOCKS))
    if unknown := set(settings.weights) - set(known):
        raise ValueError(f"weights={', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    set_num_threads(config.num_threads or default_num_threads())
    source = resolve_model(config.model, load_format="random")
    dtype = numpy_dtype(choose_dtype(config.dtype, source.config, None))
    model = build_model(source.config, dtype, "meta")
    shapes = [(each.out_features, each.in_features) for each in model.modules() if isinstance(each, Linear)]
    head = (model.lm_head.out_features, model.lm_head.in_features)
    # Without torch there is no oneDNN, and maybe no arithmetic of this dtype in the processor.
    skips_onednn = find_spec("torch") is None or not _has_onednn(name_of(dtype))
    kinds: dict[str, list[PackedWeight]] = {
        kind: [] for kind in settings.weights if kind != "onednn" or not skips_onednn
    }
    values = {shape: random_array(shape, dtype) for shape in shapes}
    for shape in shapes:
        for kind, weights in kinds.items():
            weights.append(pack(shape, kind))
    memory = MemoryReader()
    figures = []
    for num_rows in settings.rows:
        skips = head if num_rows > _MAX_HEAD_ROWS else None
        inputs = {depth: random_array((num_rows, depth), dtype) for _, depth in shapes}
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        read: list[float] = []
        for _ in range(settings.runs + 1):  # the first turn warms up
            read.append(memory.measure())
            for kind, weights in kinds.items():
                taken[kind].append(_pass(shapes, weights, inputs, skips, takes_tensors=kind == "onednn"))
        bandwidth = max(read[1:])
        operations = 2 * num_rows * sum(rows * depth for rows, depth in shapes if (rows, depth) != skips)
        first = next(iter(kinds))
        for kind, weights in kinds.items():
            each = [w.num_bytes for shape, w in zip(shapes, weights, strict=True) if shape != skips]
            least = min(taken[kind][1:])
            figures.append(
                {
                    "rows": num_rows,
                    "weights": kind,
                    "weight_bytes": sum(each),
                    "wall_s": summarise(taken[kind][1:]),
                    "least_s": least,
                    "ratio": summarise([a / b for a, b in zip(taken[kind][1:], taken[first][1:], strict=True)]),
                    "least_ratio": least / min(taken[first][1:]),
                    "read_s": sum(each) / bandwidth,
                    "read_share": 100 * sum(each) / bandwidth / least,
                    "gops": operations / least / 1e9,
                }
            )
    return figures


def _pass(
    shapes: list[tuple[int, int]],
    weights: list[PackedWeight],
    inputs: Mapping[int, Array],
    skips: tuple[int, int] | None,
    *,
    takes_tensors: bool,
) -> float:
    started = time.perf_counter()
    for shape, weight in zip(shapes, weights, strict=True):
        if shape != skips:
            x = inputs[shape[1]]
            weight.product(as_tensor(x) if takes_tensors else x, None)
    return time.perf_counter() - started


def run(config: EngineConfig, settings: LinearSettings, json_path: Path | None = None) -> None:
    """`quire bench linear`."""
    columns = (
        Column("rows", "rows", digits=0),
        Column("weights", "weights"),
        Column("weight_bytes", "MB", scale=1e-6, digits=0),
        Column("wall_s", "ms", scale=1e3, digits=1),
        Column("ratio", "to the first", digits=2),
        Column("read_s", "read alone ms", scale=1e3, digits=1),
        Column("read_share", "of read", digits=0, unit=" %"),
        Column("gops", "GOP/s", digits=0),
    )
    report = Report("linear", f"All linear layers of {config.model}, once", columns)
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    report.figures = measure(config, settings)
    report.notes.append("Shares and rates are those of the fastest turn.")
    report.publish(json_path)


@options(without=("quantization", "weights", "device"))
def main(settings: LinearSettings, engine: EngineConfig, json: Json = None) -> None:
    """All linear layers of a model once, by rows and kind of weight, against the time to read their bytes."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
