"""Angular distances of blocks of layers (Gromov et al., 2024, arXiv 2403.17887, eq. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from quire.models.base import CausalLM
from quire.progressive.hidden_states import hidden_states


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
    last_states: np.ndarray = field(compare=False, repr=False)  #: the last layer's output by text, of length 1

    def of(self, start: int, end: int) -> LayerBlock:
        return LayerBlock(start, end, self.values[end - start - 1][start])

    def best(self, size: int) -> LayerBlock:
        """The first block of `size` layers with the least distance."""
        row = self.values[size - 1]
        start = min(range(len(row)), key=row.__getitem__)
        return LayerBlock(start, start + size, row[start])


def measure_distances(
    model: CausalLM, texts: Iterable[Sequence[int]], advance: Callable[[int], None] = lambda num_texts: None
) -> AngularDistances:
    """Average arccos(cos(x_l, x_(l+n))) / π over texts, for every start l and size n, in float64; x_l is the input of
    layer l at a text's last token. ValueError without texts, or if activations are not finite."""
    num_layers = model.config.num_layers
    total = np.zeros((num_layers + 1, num_layers + 1))
    last: list[np.ndarray] = []
    for text in texts:
        x = np.stack([state[-1] for state in hidden_states(model, text)]).astype(np.float64)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        total += np.arccos((x @ x.T).clip(-1, 1)) / np.pi
        last.append(x[-1])
        advance(1)
    if not last:
        raise ValueError("distances need at least one text")
    mean = (total / len(last)).tolist()
    values = tuple(
        tuple(mean[start][start + size] for start in range(num_layers - size + 1)) for size in range(1, num_layers + 1)
    )
    return AngularDistances(num_layers, len(last), values, np.stack(last))
