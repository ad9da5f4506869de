"""Passes over tensors as CUDA graphs: one launch in place of hundreds, each of which takes Python some microseconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("quire")

#: Larger passes are not recorded: their products take longer than their launches.
MAX_TOKENS = 256


def recorded_size(num_tokens: int) -> int:
    """Round up a number of tokens: exact up to 8, with at most a quarter of padding from there on."""
    step = 1 << max(0, (num_tokens - 1).bit_length() - 3)
    return -(-num_tokens // step) * step


def _fill(kept: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    for to, given in zip(kept, inputs, strict=True):
        to[: len(given)].copy_(given)


class GraphedPass:
    """A pass over up to `size` tokens that a CUDA graph repeats, on the memory of its first run."""

    def __init__(self, graph: Any, inputs: Sequence[Tensor], output: Tensor) -> None:
        self._graph, self._inputs, self._output = graph, inputs, output

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Compute the rows of these tokens. Rows behind them are of earlier passes, and finite."""
        _fill(self._inputs, inputs)
        self._graph.replay()
        return self._output[: len(inputs[0])].clone()  # graphs share memory


class GraphRecorder:
    """Records passes that share memory, since they run one at a time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def record(
        self, compute: Callable[..., Tensor], inputs: Sequence[Tensor], size: int
    ) -> tuple[Tensor, GraphedPass | None]:
        """Compute a pass over inputs, [num_tokens, ...], and record it for up to `size` tokens. Returns its output, and
        None if a graph cannot repeat it."""
        kept = [each.new_zeros((size, *each.shape[1:])) for each in inputs]
        _fill(kept, inputs)
        output = compute(*kept)[: len(inputs[0])]  # compiles and loads kernels, which a recording must not
        try:
            graph, recorded = self._capture(lambda: compute(*kept))
        except RuntimeError as error:
            logger.warning("a pass of %d tokens is not recorded as a CUDA graph: %s", size, error)
            return output, None
        return output, GraphedPass(graph, kept, recorded)

    def _capture(self, run: Callable[[], Tensor]) -> tuple[Any, Tensor]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Threads of links queue copies meanwhile, on streams of their own.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = run()
        return graph, output
