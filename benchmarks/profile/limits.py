"""Limits of the parts of a step: the longer of bytes over the read rate and operations over the best product's rate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.limits import random_array
from benchmarks.profile.parts import (
    ATTENTION,
    ELEMENTWISE,
    EMBEDDING,
    HEAD,
    NORMS,
    QKV,
    ROTARY,
    SAMPLING,
    linear_layers,
)
from quire.models.base import CausalLM
from quire.models.linear.panel_weight import pack_weight
from quire.ops.arrays import as_numpy, as_tensor, widen
from quire.system.memory_reader import MemoryReader

_RATE_ROWS = 512


class Machine:
    """The best measured rates, measured between the timed steps.

    Args:
        model: its linear layers give the shapes of the products.
    """

    def __init__(self, model: CausalLM) -> None:
        self.read_bytes_s = 0.0
        self.operations_s = 0.0
        self._memory = MemoryReader()
        self._dtype = model.dtype
        shapes = {(m.out_features, m.in_features) for part, m in linear_layers(model) if part != HEAD}
        self._shapes = sorted(shapes)
        self._turn = 0

    def measure(self) -> None:
        """Read memory once, and multiply by a weight of the next shape."""
        self.read_bytes_s = max(self.read_bytes_s, self._memory.measure())
        out_features, in_features = self._shapes[self._turn % len(self._shapes)]
        self._turn += 1
        weight = random_array((out_features, in_features), self._dtype)
        x = random_array((_RATE_ROWS, in_features), self._dtype)
        products: list[Callable[[], object]] = [partial(np.matmul, widen(as_numpy(x)), widen(as_numpy(weight)).T)]
        with suppress(RuntimeError, ImportError):  # oneDNN is torch's, and has no kernel of some dtypes
            from benchmarks.onednn import OneDnnWeight

            products.append(partial(OneDnnWeight(as_tensor(weight)).product, as_tensor(x), None))
        if (packed := pack_weight(weight)) is not None:
            products.append(partial(packed.product, x, None))
        for product in products * 3:
            started = time.perf_counter()
            product()
            rate = 2 * _RATE_ROWS * out_features * in_features / (time.perf_counter() - started)
            self.operations_s = max(self.operations_s, rate)


@dataclass(frozen=True)
class Work:
    """Necessary bytes and operations of a step, by part."""

    num_bytes: Counter[str]
    operations: Counter[str]

    def limit(self, part: str, machine: Machine) -> float | None:
        """Seconds; None for a part without such work."""
        if part not in self.num_bytes:
            return None
        return max(self.num_bytes[part] / machine.read_bytes_s, self.operations[part] / machine.operations_s)


def work_of_step(model: CausalLM, num_tokens: int, contexts: Sequence[tuple[int, int]]) -> Work:
    """Work of a step: weights and KV are read once, and values between operations are read and written once.

    Args:
        num_tokens: tokens of the step.
        contexts: for each sequence, its tokens after the step and the tokens computed in it.
    """
    config, itemsize = model.config, model.dtype.itemsize
    layers = config.num_layers
    num_bytes: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    last_layer = set(model.layers[-1].modules())
    for part, module in linear_layers(model):
        is_late = part == HEAD or (module in last_layer and part != QKV)  # computed for the last tokens alone
        elements = module.out_features * module.in_features
        num_bytes[part] += elements * itemsize if module.packed is None else module.packed.num_bytes
        operations[part] += 2 * elements * (len(contexts) if is_late else num_tokens)
    kv_size, q_size, hidden = config.kv_size, config.q_size, config.hidden_size
    for end, count in contexts:
        num_bytes[ATTENTION] += layers * 2 * kv_size * end * itemsize
        operations[ATTENTION] += layers * 4 * q_size * count * (2 * end - count + 1) // 2
    row = num_tokens * itemsize
    num_bytes[NORMS] = row * hidden * 2 * (2 * layers + config.final_norm)
    if config.rope is not None:
        num_bytes[ROTARY] = row * (q_size + kv_size) * 2 * layers
    inner = (3 if config.gated_mlp else 2) * config.intermediate_size
    num_bytes[ELEMENTWISE] = row * (6 * hidden + inner) * layers
    num_bytes[EMBEDDING] = row * 2 * config.embedding_dim
    num_bytes[SAMPLING] = len(contexts) * config.vocab_size * itemsize
    return Work(num_bytes, operations)
