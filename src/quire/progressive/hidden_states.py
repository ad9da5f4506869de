"""A model's hidden states between its layers, for plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quire.attention.interface import LayerAttention, LayerState, StateRule
from quire.attention.states import LayerStates, StatePlan
from quire.models.base import CausalLM
from quire.models.layers import Sum
from quire.models.stages import ServableStage
from quire.ops.arrays import Array, as_numpy, as_tensor, cast, is_numpy, takes_tensors, widen


def hidden_states(model: CausalLM, token_ids: Sequence[int], layers: Sequence[Any] | None = None) -> list[np.ndarray]:
    """Return the input of each layer and the last one's output for one text: float32 [num_tokens, hidden_size].

    `model` is in main memory. `layers` replaces its own. ValueError if a state is not finite.
    """
    states: list[np.ndarray] = []
    observed: list[Any] = [_ObservedLayer(layer, states) for layer in layers or model.layers]
    model.switch_to(ServableStage(1, observed))
    _compute(model, token_ids)
    if not all(np.isfinite(state).all() for state in states):
        raise ValueError("some activations are not finite; compute in float32, or check the model's weights")
    return [*states[::2], states[-1]]


def log_probs(model: CausalLM, token_ids: Sequence[int], count: int) -> np.ndarray:
    """Return the next token's log-probabilities after each of the last `count` tokens: float32 [count, vocab_size]."""
    model.switch_to(ServableStage(1, model.layers))
    logits = widen(as_numpy(model.compute_logits(_compute(model, token_ids)[-count:])))
    logits = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def _compute(model: CausalLM, token_ids: Sequence[int]) -> Array:
    ids, positions = np.array(token_ids, np.int64), np.arange(len(token_ids))
    given = (ids, positions) if is_numpy(model.dtype) else (as_tensor(ids), as_tensor(positions))
    with np.errstate(invalid="ignore"):
        return model(given[0], given[1], WholeText(model.attention_layers()).attend)


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


class WholeText:
    """Attention over one whole text without a cache; see `AttentionBackend`."""

    def __init__(self, layers: Sequence[LayerAttention | LayerState]) -> None:
        self._layers = layers
        self._stored: dict[int, tuple[np.ndarray, np.ndarray]] = {}  #: float32 K and V by layer

    def attend(
        self, index: int, q: Array, k: Array | None, v: Array | None, sinks: Array | StateRule | None = None
    ) -> Array:
        if callable(sinks):
            layer = self._layers[index]
            assert isinstance(layer, LayerState)
            state = np.zeros((1, layer.num_floats), np.float32)
            return sinks(LayerStates(state, 0, layer.num_floats, StatePlan.of_text(len(q))), q, k, v)
        return self._attend(q, k, v, sinks, index)

    @takes_tensors
    def _attend(
        self, q: np.ndarray, k: np.ndarray | None, v: np.ndarray | None, sinks: np.ndarray | None, index: int
    ) -> np.ndarray:
        layer = self._layers[index]
        assert isinstance(layer, LayerAttention)
        if k is not None:
            keys = widen(k).transpose(1, 0, 2)  # [num_kv_heads, num_tokens, head_dim]
            self._stored[index] = keys, keys[..., : layer.value_dim] if v is None else widen(v).transpose(1, 0, 2)
        read = index if layer.reads_layer is None else layer.reads_layer
        groups, at = layer.num_heads // layer.num_kv_heads, np.arange(len(q))
        keys, values = (each.repeat(groups, 0) for each in self._stored[read])
        scores = widen(q).transpose(1, 0, 2) @ keys.transpose(0, 2, 1) * np.float32(layer.scale)
        if layer.softcap:
            scores = layer.softcap * np.tanh(scores / layer.softcap)
        distance = at[:, None] - at
        scores[:, (distance < 0) | (distance >= (layer.window or len(q)))] = -np.inf
        highest = scores.max(axis=-1, keepdims=True)
        sink = 0.0
        if sinks is not None:
            highest = np.maximum(highest, widen(sinks)[:, None, None])
            sink = np.exp(widen(sinks)[:, None, None] - highest)
        weights = np.exp(scores - highest)
        out = weights @ values / (weights.sum(axis=-1, keepdims=True) + sink)
        return cast(np.ascontiguousarray(out.transpose(1, 0, 2)), q.dtype)
