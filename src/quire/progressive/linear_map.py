"""Fit a linear map that replaces absent layers, by least squares from their input to their output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from quire.models.base import CausalLM
from quire.models.tensor_file import read_tensors
from quire.ops.arrays import widen
from quire.progressive.hidden_states import hidden_states

HELD_OUT_EVERY = 8  # every eighth text is held out to measure the fit


@dataclass(frozen=True)
class GapMap:
    """y = x W^T + b, in float32."""

    weight: np.ndarray  #: [hidden_size, hidden_size]
    bias: np.ndarray  #: [hidden_size]

    @classmethod
    def load(cls, path: Path, hidden_size: int) -> GapMap:
        """Read a file with `weight` and `bias`. Raises ValueError for other files and other widths."""
        try:
            tensors = read_tensors(path)
        except ValueError as error:
            raise ValueError(f"{path} is not a linear map: {error}; make one with `quire stages map`") from None
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        wanted = {"weight": (hidden_size, hidden_size), "bias": (hidden_size,)}
        if shapes != wanted:
            raise ValueError(f"{path} holds {shapes}; a map for this model has {wanted}")
        return cls(widen(tensors["weight"]), widen(tensors["bias"]))

    def save(self, path: Path, **facts: str) -> None:
        """Write both tensors in float32, and `facts` into the file's header."""
        save_file({"weight": self.weight, "bias": self.bias}, path, facts)


@dataclass(frozen=True)
class MapFit:
    """Quality of a map on held-out texts."""

    num_tokens: int  #: tokens fitted
    num_held_out: int
    error: float  #: mean squared error relative to the identity's


class _Sums:
    """Sums for the normal equations, of x with an appended 1 and of d = y - x."""

    def __init__(self, hidden_size: int) -> None:
        self.count = 0
        self.xx = np.zeros((hidden_size + 1, hidden_size + 1))
        self.xd = np.zeros((hidden_size + 1, hidden_size))
        self.dd = 0.0

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """x, y: float32 [num_tokens, hidden_size]"""
        d = (y - x).astype(np.float64)
        x = np.append(x.astype(np.float64), np.ones((len(x), 1)), axis=1)
        self.count += len(x)
        self.xx += x.T @ x
        self.xd += x.T @ d
        self.dd += float((d * d).sum())

    def missed(self, a: np.ndarray) -> float:
        """Sum of squares of d - x a, where a is [hidden_size + 1, hidden_size]."""
        return self.dd - 2 * float((a * self.xd).sum()) + float((a * (self.xx @ a)).sum())


def fit_linear_map(
    model: CausalLM,
    texts: Iterable[Sequence[int]],
    start: int,
    end: int,
    *,
    ridge: float = 1e-4,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> tuple[GapMap, MapFit]:
    """Fit the map from the input of layer `start` to the output of layer `end - 1` over texts, by normal equations in
    float64. The ridge, relative to the inputs' mean square, pulls the map to the identity, so directions missing in the
    texts pass unchanged. ValueError for no such block, too little text, or activations that are not finite."""
    num_layers, hidden_size = model.config.num_layers, model.config.hidden_size
    if not 0 <= start < end <= num_layers:
        raise ValueError(f"there is no block {start}:{end} in {num_layers} layers")
    if ridge <= 0:
        raise ValueError(f"ridge={ridge:g} must be above 0")
    learned, held_out = _Sums(hidden_size), _Sums(hidden_size)
    num_texts = 0
    for text in texts:
        states = hidden_states(model, text)
        num_texts += 1
        (learned if num_texts % HELD_OUT_EVERY else held_out).add(states[start], states[end])
        advance(1)
    if learned.count <= hidden_size or not held_out.count:
        raise ValueError(
            f"{learned.count} tokens in {num_texts} texts are too few for a map of width {hidden_size}; give at least "
            f"{HELD_OUT_EVERY} texts and several times as many tokens as that"
        )
    scale = float(learned.xx.diagonal()[:-1].mean()) * ridge
    penalty = np.full(hidden_size + 1, scale)
    penalty[-1] = 0  # the bias is free
    a = np.linalg.solve(learned.xx + np.diag(penalty), learned.xd)  # [hidden_size + 1, hidden_size]
    weight = (a[:-1].T + np.eye(hidden_size)).astype(np.float32)
    fit = MapFit(learned.count, held_out.count, held_out.missed(a) / max(held_out.dd, 1e-300))
    return GapMap(np.ascontiguousarray(weight), a[-1].astype(np.float32)), fit
