"""Angular distances of blocks of layers (Gromov et al., 2024, arXiv 2403.17887, eq. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quire.progressive.calibration_text import TokenBatch
from quire.progressive.reference import decoder_layers


@dataclass(frozen=True)
class LayerBlock:
    """Layers [start, end), and the mean angular distance between their input and output."""

    start: int
    end: int
    distance: float


@dataclass(frozen=True)
class AngularDistances:
    """Distances between 0 (same direction) and 1: `values[n - 1][start]` is that of the n layers from `start` on."""

    num_layers: int
    num_texts: int
    values: tuple[tuple[float, ...], ...]

    def of(self, start: int, end: int) -> LayerBlock:
        return LayerBlock(start, end, self.values[end - start - 1][start])

    def best(self, size: int) -> LayerBlock:
        """The first block of `size` layers with the least distance."""
        row = self.values[size - 1]
        start = min(range(len(row)), key=row.__getitem__)
        return LayerBlock(start, start + size, row[start])


def measure_distances(
    model: Any, batches: Iterable[TokenBatch], advance: Callable[[int], None] = lambda num_texts: None
) -> AngularDistances:
    """Average arccos(cos(x_l, x_(l+n))) / π over texts, for every start l and size n, in float64; x_l is the input of
    layer l at a text's last token. ValueError without texts, or if activations are not finite."""
    num_layers = len(decoder_layers(model))
    total = torch.zeros(num_layers + 1, num_layers + 1, dtype=torch.float64)
    num_texts = 0
    for batch in batches:
        x = _last_states(model, batch)
        if not x.isfinite().all():
            raise ValueError("some activations are not finite; compute in float32, or check the model's weights")
        x = torch.nn.functional.normalize(x, dim=-1)
        total += torch.arccos((x @ x.mT).clamp(-1, 1)).sum(0) / torch.pi
        num_texts += len(x)
        advance(len(x))
    if not num_texts:
        raise ValueError("distances need at least one text")
    mean = (total / num_texts).tolist()
    values = tuple(
        tuple(mean[start][start + size] for start in range(num_layers - size + 1)) for size in range(1, num_layers + 1)
    )
    return AngularDistances(num_layers, num_texts, values)


def _last_states(model: Any, batch: TokenBatch) -> Tensor:
    """Return states at each text's last token: float64 [num_texts, num_layers + 1, hidden_size]."""
    rows = torch.arange(len(batch.lengths))
    states: dict[int, Tensor] = {}

    def see(index: int, x: Tensor) -> None:
        states[index] = x[rows, batch.lengths - 1].double()

    with hidden_states(model, see):
        run(model, batch)
    return torch.stack([states[index] for index in sorted(states)], dim=1)


@contextmanager
def hidden_states(model: Any, see: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `see(index, x)` with each layer's input and the last output, [num_texts, num_tokens, hidden_size]."""
    layers = decoder_layers(model)

    def enter(index: int) -> Callable[..., None]:
        def hook(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            see(index, args[0] if args else kwargs["hidden_states"])

        return hook

    def leave(layer: Any, args: Any, output: Any) -> None:
        see(len(layers), output[0] if isinstance(output, tuple) else output)

    handles = [layer.register_forward_pre_hook(enter(i), with_kwargs=True) for i, layer in enumerate(layers)]
    handles.append(layers[-1].register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(model: Any, batch: TokenBatch) -> None:
    """Run a forward pass without logits."""
    with torch.inference_mode():
        model.base_model(input_ids=batch.token_ids, use_cache=False)
