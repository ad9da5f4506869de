"""Fit a linear map that replaces absent layers, by least squares from their input to their output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quire.progressive.angular_distance import hidden_states, run
from quire.progressive.calibration_text import TokenBatch
from quire.progressive.reference import decoder_layers

HELD_OUT_EVERY = 8  # every eighth text is held out to measure the fit


class GapMap(nn.Module):
    """y = x W^T + b. Its tensors are buffers, so neither training nor adapters change them."""

    weight: Tensor  #: [hidden_size, hidden_size]
    bias: Tensor  #: [hidden_size]

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))

    @classmethod
    def load(cls, path: Path, hidden_size: int) -> GapMap:
        """Read a file with `weight` and `bias`. Raises ValueError for other files and other widths."""
        try:
            tensors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is not a linear map: {error}; make one with `quire stages map`") from None
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wanted = {"weight": (hidden_size, hidden_size), "bias": (hidden_size,)}
        if shapes != wanted:
            raise ValueError(f"{path} holds {shapes}; a map for this model has {wanted}")
        return cls(tensors["weight"].float(), tensors["bias"].float())

    def save(self, path: Path, **facts: str) -> None:
        """Write both tensors in float32, and `facts` into the file's header."""
        save_file({"weight": self.weight.float(), "bias": self.bias.float()}, path, facts)


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
        self.xx = torch.zeros(hidden_size + 1, hidden_size + 1, dtype=torch.float64)
        self.xd = torch.zeros(hidden_size + 1, hidden_size, dtype=torch.float64)
        self.dd = 0.0

    def add(self, x: Tensor, y: Tensor) -> None:
        """x, y: [num_tokens, hidden_size]"""
        x, d = x.double(), (y - x).double()
        x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        self.count += len(x)
        self.xx += x.T @ x
        self.xd += x.T @ d
        self.dd += float(d.square().sum())

    def missed(self, a: Tensor) -> float:
        """Sum of squares of d - x a, where a is [hidden_size + 1, hidden_size]."""
        return self.dd - 2 * float((a * self.xd).sum()) + float((a * (self.xx @ a)).sum())


def fit_linear_map(
    model: Any,
    batches: Iterable[TokenBatch],
    start: int,
    end: int,
    *,
    ridge: float = 1e-4,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> tuple[GapMap, MapFit]:
    """Fit the map from the input of layer `start` to the output of layer `end - 1` over texts, by normal equations in
    float64. The ridge, relative to the inputs' mean square, pulls the map to the identity, so directions missing in the
    texts pass unchanged. ValueError for no such block, too little text, or activations that are not finite."""
    num_layers, hidden_size = len(decoder_layers(model)), model.config.hidden_size
    if not 0 <= start < end <= num_layers:
        raise ValueError(f"there is no block {start}:{end} in {num_layers} layers")
    if ridge <= 0:
        raise ValueError(f"ridge={ridge:g} must be above 0")
    learned, held_out = _Sums(hidden_size), _Sums(hidden_size)
    num_texts = 0
    for batch in batches:
        x, y = _ends(model, batch, start, end)
        is_held_out = (torch.arange(len(batch.lengths)) + num_texts) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        for sums, rows in ((learned, ~is_held_out), (held_out, is_held_out)):
            here = batch.is_token & rows[:, None]
            sums.add(x[here], y[here])
        num_texts += len(batch.lengths)
        advance(len(batch.lengths))
    if learned.count <= hidden_size or not held_out.count:
        raise ValueError(
            f"{learned.count} tokens in {num_texts} texts are too few for a map of width {hidden_size}; give at least "
            f"{HELD_OUT_EVERY} texts and several times as many tokens as that"
        )
    if not (learned.xx.isfinite().all() and learned.xd.isfinite().all()):
        raise ValueError("some activations are not finite; compute in float32, or check the model's weights")
    scale = float(learned.xx.diagonal()[:-1].mean()) * ridge
    penalty = torch.full((hidden_size + 1,), scale, dtype=torch.float64)
    penalty[-1] = 0  # the bias is free
    a = torch.linalg.solve(learned.xx + penalty.diag(), learned.xd)  # [hidden_size + 1, hidden_size]
    weight = a[:-1].T + torch.eye(hidden_size, dtype=torch.float64)
    fit = MapFit(learned.count, held_out.count, held_out.missed(a) / max(held_out.dd, 1e-300))
    return GapMap(weight.float().contiguous(), a[-1].float().contiguous()), fit


def _ends(model: Any, batch: TokenBatch, start: int, end: int) -> tuple[Tensor, Tensor]:
    seen: dict[int, Tensor] = {}

    def see(index: int, x: Tensor) -> None:
        if index in (start, end):
            seen[index] = x

    with hidden_states(model, see):
        run(model, batch)
    return seen[start], seen[end]
