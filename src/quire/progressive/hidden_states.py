"""A model's hidden states between its layers, for plans and linear maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quire.models.base import CausalLM
from quire.models.layers import Sum
from quire.models.stages import ServableStage
from quire.ops.arrays import Array, as_numpy, as_tensor, cast, is_numpy, takes_tensors, widen


def hidden_states(model: CausalLM, token_ids: Sequence[int]) -> list[np.ndarray]:
    """Return the input of each layer and the last one's output for one text: float32 [num_tokens, hidden_size].

    `model` is in main memory. ValueError if a state is not finite.
    """
    states: list[np.ndarray] = []
    layers: list[Any] = [_ObservedLayer(layer, states) for layer in model.layers]
    model.switch_to(ServableStage(1, layers))
    ids, positions = np.array(token_ids, np.int64), np.arange(len(token_ids))
    given = (ids, positions) if is_numpy(model.dtype) else (as_tensor(ids), as_tensor(positions))
    with np.errstate(invalid="ignore"):
        model(given[0], given[1], _attend)
    if not all(np.isfinite(state).all() for state in states):
        raise ValueError("some activations are not finite; compute in float32, or check the model's weights")
    return [*states[::2], states[-1]]


class _ObservedLayer:
    """A layer that adds its input and its output to `states`."""

    def __init__(self, layer: Any, states: list[np.ndarray]) -> None:
        self._layer, self._states = layer, states

    def __call__(self, x: Array | Sum, *args: Any, **kwargs: Any) -> Array | Sum:
        self._states.append(_float32(x))
        y: Array | Sum = self._layer(x, *args, **kwargs)
        self._states.append(_float32(y))
        return y


def _float32(x: Array | Sum) -> np.ndarray:
    return np.array(widen(as_numpy(x.x + x.y if isinstance(x, Sum) else x)))  # a copy, since memory is used again


@takes_tensors
def _attend(index: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Compute causal attention over one whole text; see `models.base.Attend`."""
    queries, keys, values = (widen(each).transpose(1, 0, 2) for each in (q, k, v))  # [num_heads, num_tokens, head_dim]
    keys, values = (each.repeat(len(queries) // len(each), axis=0) for each in (keys, values))
    scores = queries @ keys.transpose(0, 2, 1) * q.shape[-1] ** -0.5
    scores[:, ~np.tri(len(q), dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = weights @ values / weights.sum(axis=-1, keepdims=True)
    return cast(np.ascontiguousarray(out.transpose(1, 0, 2)), q.dtype)
