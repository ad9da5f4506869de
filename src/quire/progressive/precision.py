"""Costs of fewer mantissa bits: how far they turn the last hidden states of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from quire.config import format_size
from quire.loading.stage_manifest import WHOLE_BITS
from quire.models.base import CausalLM
from quire.models.linear.layer import WeightLayer
from quire.progressive.hidden_states import hidden_states, log_probs
from quire.progressive.plans import ModelBytes
from quire.progressive.stage_plan import StagePlan

EXPONENT_BITS = 2.65  #: of a coded exponent: 2.61 to 2.66 in every model measured
_LAST_TOKENS = 32  #: of a text, whose next tokens are compared
_WEIGHT_BITS = {"bfloat16": 16, "float32": 32}


def share_of_bytes(dtype: str, mantissa_bits: int) -> float:
    """Estimate the bytes of a stage with so many mantissa bits, as a share of the plain files'. ValueError for float16,
    which has no such stages."""
    if dtype not in _WEIGHT_BITS:
        raise ValueError(f"{dtype} weights have no precision stages; leave out layers instead")
    all_bits = _WEIGHT_BITS[dtype] if mantissa_bits == WHOLE_BITS else 9 + mantissa_bits
    return (EXPONENT_BITS + all_bits - 8) / _WEIGHT_BITS[dtype]


def most_mantissa_bits(dtype: str, num_bytes: int, max_bytes: int) -> int:
    """Return the most mantissa bits whose stage fits into `max_bytes`, of plain files of `num_bytes`, or ValueError."""
    fitting = [bits for bits in range(WHOLE_BITS) if share_of_bytes(dtype, bits) * num_bytes <= max_bytes]
    if not fitting:
        least = int(share_of_bytes(dtype, 0) * num_bytes)
        raise ValueError(
            f"stage 1 has {format_size(least)} without any mantissa bit, and {format_size(max_bytes)} fit; leave out "
            "layers as well, with --mantissa-bits 0"
        )
    return fitting[-1]


@contextmanager
def truncated(layers: Sequence[WeightLayer], mantissa_bits: int) -> Iterator[None]:
    """Compute with so many mantissa bits."""
    if mantissa_bits == WHOLE_BITS:
        yield
        return
    for layer in layers:
        layer.truncate(mantissa_bits)
    try:
        yield
    finally:
        for layer in layers:
            layer.packed, layer.views = layer.views.get(False, layer.packed), {}


def turn(
    model: CausalLM,
    texts: Sequence[Sequence[int]],
    whole: np.ndarray,
    layers: Sequence[Any] | None = None,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> float:
    """Average arccos(cos(x, y)) / π over texts: x is the output of the last of `layers` (default: the model's) at a
    text's last token, and y the row of `whole`, of length 1. Raises ValueError if activations are not finite."""
    found = []
    for text in texts:
        found.append(hidden_states(model, text, layers)[-1][-1].astype(np.float64))
        advance(1)
    x = np.stack(found)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return float(np.arccos((x * whole).sum(axis=1).clip(-1, 1)).mean() / np.pi)


def measure_precisions(
    model: CausalLM,
    texts: Sequence[Sequence[int]],
    whole: np.ndarray,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> tuple[float, ...]:
    """Return how far 0 to 6 mantissa bits turn the last layer's output. Nothing for a quantized checkpoint, which has
    no planes. Raises as `turn`."""
    linear = [module for module in model.modules() if isinstance(module, WeightLayer)]
    if any(layer.stored is not None for layer in linear):
        return ()
    distances = []
    for bits in range(WHOLE_BITS):
        with truncated(linear, bits):
            distances.append(turn(model, texts, whole, advance=advance))
    return tuple(distances)


def spread_bits(
    plan: StagePlan,
    model: CausalLM,
    texts: Sequence[Sequence[int]],
    sizes: ModelBytes,
    dtype: str,
    max_bytes: int,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> StagePlan:
    """Give one mantissa bit more to those layers, and perhaps all other weights, where it brings the next token's
    probabilities back the most for its bytes, as long as stage 1 fits into `max_bytes`."""
    bits = plan.bits_of(None)
    parts = [[each for each in layer.modules() if isinstance(each, WeightLayer)] for layer in model.layers]
    in_layers = {id(each) for part in parts for each in part}
    parts.insert(0, [each for each in model.modules() if isinstance(each, WeightLayer) and id(each) not in in_layers])
    losses = np.zeros(1 + len(parts))
    for text in texts:
        whole = log_probs(model, text, _LAST_TOKENS)
        for raised in range(len(losses)):
            with ExitStack() as stack:
                for number, part in enumerate(parts, 1):
                    stack.enter_context(truncated(part, bits + (number == raised)))
                found = log_probs(model, text, _LAST_TOKENS)
            losses[raised] += (np.exp(whole) * (whole - found)).sum(dtype=np.float64) / len(whole)
        advance(1)
    extra = share_of_bytes(dtype, bits + 1) - share_of_bytes(dtype, bits)
    costs = extra * np.array([sizes.others, *sizes.layers], np.float64)
    left = max_bytes - share_of_bytes(dtype, bits) * sizes.total
    by_part = [bits] * len(parts)
    for number in np.argsort((losses[1:] - losses[0]) / np.maximum(costs, 1)):
        if costs[number] <= left:
            by_part[number] += 1
            left -= costs[number]
    return replace(plan, mantissa_bits=by_part[0], layer_bits=() if len(set(by_part)) == 1 else tuple(by_part[1:]))
