"""Make plans of stages, by hand, by bytes or by distance, and read and write their files."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.config import format_size
from quire.loading import ModelSource
from quire.loading.checkpoint import read_headers
from quire.models.model_config import DTYPE_BYTES
from quire.models.registry import build_model
from quire.ops.arrays import numpy_dtype
from quire.progressive.stage_plan import StagePlan

PRESETS = {"progressiveserve": (32, ((20, 24), (24, 28)))}
"""Published plans by name: the number of layers, and the groups [start, end) in the order of their return.

progressiveserve: Park et al., "ProgressiveServe", section 2.1, Llama-2-7B: layers 21 to 28, counted from 1.
"""


@dataclass(frozen=True)
class ModelBytes:
    """Sizes of a model's weights in its files."""

    layers: tuple[int, ...]
    others: int  #: embeddings, final norm, head

    @property
    def total(self) -> int:
        return self.others + sum(self.layers)

    def without(self, start: int, end: int) -> int:
        """The size without the layers [start, end)."""
        return self.total - sum(self.layers[start:end])


def model_bytes(source: ModelSource) -> ModelBytes:
    """Read sizes from the headers of a model's files, or compute them from a preset's shapes."""
    num_layers = source.config.num_layers
    if source.path is not None:
        sizes = {name: entry.num_bytes for name, entry in read_headers(source.path).items()}
    else:
        tensors = build_model(source.config, numpy_dtype("float32"), "meta").checkpoint_tensors()
        size = DTYPE_BYTES[source.config.dtype or "float32"]
        sizes = {name: math.prod(tensor.shape) * size for name, tensor in tensors.items()}
    layers = [0] * num_layers
    for name, num_bytes in sizes.items():
        match = re.search(r"\b(?:layers|h)\.(\d+)\.", name)
        if match is not None and int(match[1]) < num_layers:
            layers[int(match[1])] += num_bytes
    return ModelBytes(tuple(layers), sum(sizes.values()) - sum(layers))


def plan_block(num_layers: int, start: int, end: int, num_stages: int | None = None) -> StagePlan:
    """Plan to leave out layers [start, end), restored in `num_stages - 1` groups of similar size (default: two, or one
    for a single layer). ValueError if the layers do not exist, none would be left, or groups outnumber layers."""
    size = end - start
    if not 0 <= start < end <= num_layers:
        raise ValueError(f"there is no block {start}:{end} in {num_layers} layers; they count from 0, its end excluded")
    if size == num_layers:
        raise ValueError(f"all {num_layers} layers cannot be out; leave at least one in")
    num_groups = min(2, size) if num_stages is None else num_stages - 1
    if num_groups < 1:
        raise ValueError(f"{num_stages} stages are too few; a plan has the pruned model and the original at least")
    if num_groups > size:
        raise ValueError(f"{size} layers cannot return in {num_groups} groups; ask for {size + 1} stages at most")
    bounds = [start + -(-size * i // num_groups) for i in range(num_groups + 1)]  # larger groups first
    groups = tuple(tuple(range(a, b)) for a, b in itertools.pairwise(bounds))
    return StagePlan(num_layers, (tuple(i for i in range(num_layers) if not start <= i < end), *groups))


def plan_precision(num_layers: int, mantissa_bits: int) -> StagePlan:
    """Plan all layers with `mantissa_bits` of 7, and then the rest; one stage if these are all."""
    return StagePlan(num_layers, (tuple(range(num_layers)),), mantissa_bits)


def preset_plan(name: str, num_layers: int) -> StagePlan:
    """Return a published plan. Raises ValueError for an unknown name and for models of another depth."""
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}; presets: {', '.join(PRESETS)}")
    depth, spans = PRESETS[name]
    if num_layers != depth:
        raise ValueError(
            f"preset {name} is for models of {depth} layers, and this one has {num_layers}; give --layers-out a number"
        )
    first = tuple(i for i in range(depth) if not any(start <= i < end for start, end in spans))
    return StagePlan(depth, (first, *(tuple(range(*span)) for span in spans)))


def deepest_block(num_layers: int, size: int) -> tuple[int, int]:
    """Return the baseline: the deepest layers without the last one, which every model needs. Raises ValueError."""
    if not 1 <= size < num_layers:
        raise ValueError(f"{size} layers cannot be out of {num_layers}; between 1 and {num_layers - 1} can")
    return num_layers - 1 - size, num_layers - 1


def block_that_fits(sizes: ModelBytes, max_bytes: int, blocks: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the smallest of the blocks (by size) that reduces stage 1 to `max_bytes` of weights. Raises ValueError."""
    if sizes.total <= max_bytes:
        raise ValueError(
            f"the whole model has {format_size(sizes.total)} and fits in {format_size(max_bytes)}; it needs no stages"
        )
    for size in sorted(blocks):
        if sizes.without(*blocks[size]) <= max_bytes:
            return blocks[size]
    least = min(sizes.without(*block) for block in blocks.values())
    raise ValueError(
        f"stage 1 cannot be as small as {format_size(max_bytes)}: with all layers out but one it has "
        f"{format_size(least)}, embeddings among them"
    )


def bytes_by(ttft: float, bandwidth: float, allowance: float) -> int:
    """Bytes that a transfer can load in `ttft` seconds without the `allowance` (imports, first step), or ValueError."""
    if ttft <= allowance:
        raise ValueError(f"a first token after {ttft:g} s leaves no time to load, with {allowance:g} s for all else")
    return int((ttft - allowance) * bandwidth)


def write_plan(plan: StagePlan, path: Path, **facts: Any) -> None:
    """Write a plan; `facts` are further entries, such as the model's name."""
    path.write_text(json.dumps({**plan.to_dict(), **facts}, indent=1) + "\n", encoding="utf-8")


def read_plan(path: Path) -> tuple[StagePlan, dict[str, Any]]:
    """Read a plan and all entries of its file. Raises ValueError, which names an unreadable or invalid file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no JSON object")
        return StagePlan.from_dict(data), data
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; make a plan with `quire stages plan`") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a plan of stages: {error}") from None


def plan_for(path: Path, num_layers: int) -> StagePlan:
    """Read a plan and check the model's number of layers."""
    plan, _ = read_plan(path)
    if plan.num_layers != num_layers:
        raise ValueError(f"{path} plans {plan.num_layers} layers, and the model has {num_layers}; make another plan")
    return plan
