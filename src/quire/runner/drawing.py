"""Draw tokens from logits.

A token is drawn by inverting the cumulative distribution at one addressed random number. The nucleus (top_p) needs no
sort: a draw is kept if the more likely tokens weigh less than top_p. Otherwise all tokens that are no more likely are
excluded and the next number is drawn. Kept draws follow exactly the distribution of the nucleus (rejection with a
rising threshold, as in FlashInfer's sorting-free sampler). Tokens tied with the nucleus's last one belong to it.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from quire.runner.random import uniform
from quire.runner.row_state import RowState
from quire.runner.top_tokens import top_values

_COLD = 0.5  # temperature below which a usual row has exponents that underflow
_LEAST_EXPONENT, _LEAST_WEIGHT = -87.0, 2e-38  # exp of the first is a normal number below the second
_CHUNK = 512  # tokens per partial sum of the cumulative distribution
_MAX_DRAWS = 100  # a usual row takes less than five


class TokenDrawer:
    """Draws tokens for rows of one size; reuses its working memory."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._work: torch.Tensor | None = None

    def draw(
        self, row: torch.Tensor, top: torch.Tensor, state: RowState, num_samples: int, allowed: torch.Tensor | None
    ) -> list[int]:
        """Draw tokens from the softmax of a row with the largest value `top`, or of its few `allowed` tokens.
        FloatingPointError if their weights have no finite sum."""
        weights = self._weights(row, top, state, allowed)
        sums = _chunk_sums(weights)
        if not 0 < sums[-1] < math.inf:
            raise FloatingPointError(f"the weights of the tokens add up to {sums[-1]}; no token can be drawn")
        return [_draw_one(weights, sums, state, state.info.index + sample) for sample in range(num_samples)]

    def _weights(
        self, row: torch.Tensor, top: torch.Tensor, state: RowState, allowed: torch.Tensor | None
    ) -> torch.Tensor:
        """Unnormalised probabilities after temperature, top_k and min_p; zero beyond the vocabulary."""
        params, size = state.params, self._vocab_size
        if self._work is None or self._work.device != row.device:
            self._work = torch.zeros(-(-size // _CHUNK) * _CHUNK, dtype=torch.float32, device=row.device)
        weights = self._work
        sharpness = 1.0 / params.temperature
        if allowed is None:
            exponents = torch.sub(row, top, out=weights[:size])
        else:
            weights.zero_()
            exponents = row[allowed] - top
        if sharpness != 1.0:
            exponents *= sharpness  # after the difference, which is exact where it matters
        if state.has_bans or params.logit_bias or params.temperature < _COLD:
            # `exp` of minus infinity takes 20 times as long, and subnormal results 100 times.
            torch.threshold_(exponents.clamp_(min=_LEAST_EXPONENT).exp_(), _LEAST_WEIGHT, 0.0)
        else:
            exponents.exp_()
        if allowed is not None:
            weights[allowed] = exponents
        floor = None
        if params.min_p > 0:
            floor = top + float(np.log(params.min_p)) * params.temperature
        if 0 < params.top_k < size:
            kth = top_values(row, params.top_k)[0][-1]
            floor = kth if floor is None else torch.maximum(floor, kth)
        if floor is not None:
            weights[:size].masked_fill_(row < floor, 0.0)
        return weights


def _draw_one(weights: torch.Tensor, sums: np.ndarray, state: RowState, index: int) -> int:
    """Draw the token of one sample; `index` is its sequence index."""
    top_p = state.params.top_p
    total = float(sums[-1])
    candidates = weights
    for draw in range(_MAX_DRAWS):
        token = _invert(candidates, sums, uniform(state.info.seed, index, state.num_output_tokens, draw))
        if top_p >= 1.0:
            return token
        above = torch.threshold(candidates, float(weights[token]), 0.0)
        above_sums = _chunk_sums(above)
        if above_sums[-1] < top_p * total:
            return token
        candidates, sums = above, above_sums
    return int(candidates.argmax())


def _chunk_sums(weights: torch.Tensor) -> np.ndarray:
    """Return the cumulative weight at the end of each chunk: float64 [num_chunks]."""
    sums: np.ndarray = np.cumsum(weights.view(-1, _CHUNK).sum(-1).cpu().numpy(), dtype=np.float64)
    return sums


def _invert(weights: torch.Tensor, sums: np.ndarray, number: float) -> int:
    """Return the first token at which the cumulative weight exceeds the share `number` of the total."""
    target = number * float(sums[-1])
    chunk = int(np.searchsorted(sums, target, side="right"))
    chunk = min(chunk, len(sums) - 1)
    inside = weights[chunk * _CHUNK : (chunk + 1) * _CHUNK].cpu().numpy()
    before = float(sums[chunk - 1]) if chunk else 0.0
    at = int(np.searchsorted(np.cumsum(inside, dtype=np.float64), target - before, side="right"))
    # Rounding may put the target behind the last weight or on a token without weight: use the last one with weight.
    while at >= _CHUNK or inside[at] == 0.0:
        at -= 1
        if at < 0:
            return int(weights.nonzero()[-1]) if float(sums[chunk]) == 0.0 else _last_before(weights, chunk * _CHUNK)
    return chunk * _CHUNK + at


def _last_before(weights: torch.Tensor, end: int) -> int:
    """Return the last token with weight before `end`, else the first one after it."""
    before = weights[:end].nonzero()
    return int(before[-1]) if len(before) else end + int(weights[end:].nonzero()[0])
