"""Draw tokens from logits.

A token is drawn by inverting the cumulative distribution at one addressed random number. The nucleus (top_p) needs no
sort: a draw is kept if the more likely tokens weigh less than top_p. Otherwise all tokens that are no more likely are
excluded and the next number is drawn. Kept draws follow exactly the distribution of the nucleus (rejection with a
rising threshold, as in FlashInfer's sorting-free sampler). Tokens tied with the nucleus's last one belong to it.
"""

from __future__ import annotations

import math

import numpy as np

from quire.runner.random import uniform
from quire.runner.row_state import RowState
from quire.runner.top_tokens import top_values

_COLD = 0.5  # temperature below which a usual row has exponents that underflow
_LEAST_EXPONENT, _LEAST_WEIGHT = np.float32(-87.0), np.float32(2e-38)  # exp of the first is normal, below the second
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_CHUNK = 512  # tokens per partial sum of the cumulative distribution
_MAX_DRAWS = 100  # a usual row takes less than five


class TokenDrawer:
    """Draws tokens for rows of up to `vocab_size` logits; reuses its working memory."""

    def __init__(self, vocab_size: int) -> None:
        self._work = np.empty(_in_chunks(vocab_size), dtype=np.float32)

    def draw(self, row: np.ndarray, top: np.float32, state: RowState, num_samples: int) -> list[int]:
        """Draw positions from the softmax of a float32 row, whose largest value is `top`. FloatingPointError if its
        weights have no finite sum."""
        kept = _cut(row, top, state)
        weights = self._weights(row if kept is None else row[kept], top, state)
        sums = _chunk_sums(weights)
        if not 0 < sums[-1] < math.inf:
            raise FloatingPointError(f"the weights of the tokens add up to {sums[-1]}; no token can be drawn")
        drawn = [_draw_one(weights, sums, state, state.info.index + sample) for sample in range(num_samples)]
        return drawn if kept is None else kept[drawn].tolist()

    def _weights(self, row: np.ndarray, top: np.float32, state: RowState) -> np.ndarray:
        """Unnormalised probabilities, in whole chunks with zeros at the end."""
        params, size = state.params, len(row)
        weights = self._work[: _in_chunks(size)]
        weights[size:] = 0.0
        exponents = np.subtract(row, top, out=weights[:size])
        if params.temperature != 1.0:
            exponents *= np.float32(1.0 / params.temperature)  # after the difference, which is exact where it matters
        if state.has_bans or params.logit_bias or params.temperature < _COLD:  # `exp` is slow where it underflows
            np.exp(np.clip(exponents, _LEAST_EXPONENT, _ZERO, out=exponents), out=exponents)
            exponents -= _LEAST_WEIGHT  # changes no other weight that counts
            np.clip(exponents, _ZERO, _ONE, out=exponents)
        else:
            np.exp(exponents, out=exponents)
        return weights


def _in_chunks(size: int) -> int:
    return -(-size // _CHUNK) * _CHUNK


def _cut(row: np.ndarray, top: np.float32, state: RowState) -> np.ndarray | None:
    """Return the positions that top_k and min_p keep, or None for all."""
    params = state.params
    floor = -math.inf
    if params.min_p > 0:
        floor = float(top + np.float32(math.log(params.min_p) * params.temperature))
    if 0 < params.top_k < len(row):
        floor = max(floor, float(top_values(row, params.top_k)[0][-1]))
    return None if floor == -math.inf else np.flatnonzero(row >= floor)


def _draw_one(weights: np.ndarray, sums: np.ndarray, state: RowState, index: int) -> int:
    """Draw the position of one sample; `index` is its sequence index."""
    least = state.params.top_p * float(sums[-1])
    kept = None  # positions of the candidates' weights, if they are not all
    for draw in range(_MAX_DRAWS):
        at = _invert(weights, sums, uniform(state.info.seed, index, state.num_output_tokens, draw))
        if state.params.top_p >= 1.0:
            return at
        is_above = weights > weights[at]
        count = int(np.count_nonzero(is_above))
        if 8 * count > len(weights):
            candidates, above = weights * is_above, None  # takes less time than a selection
        else:
            candidates, above = np.zeros(_in_chunks(count), dtype=np.float32), np.flatnonzero(is_above)
            candidates[:count] = weights[above]
        sums = _chunk_sums(candidates)
        if not count or sums[-1] < least:
            break
        weights = candidates
        if above is not None:
            kept = above if kept is None else kept[above]
    else:
        at = int(weights.argmax())
    return at if kept is None else int(kept[at])


def _chunk_sums(weights: np.ndarray) -> np.ndarray:
    """Return the cumulative weight at the end of each chunk: float64 [num_chunks]."""
    chunks = weights.reshape(-1, _CHUNK)
    sums: np.ndarray = np.cumsum(np.einsum("ij->i", chunks), dtype=np.float64)  # three times as fast as `sum`
    return sums


def _invert(weights: np.ndarray, sums: np.ndarray, number: float) -> int:
    """Return the first position at which the cumulative weight exceeds the share `number` of the total."""
    target = number * float(sums[-1])
    chunk = min(int(np.searchsorted(sums, target, side="right")), len(sums) - 1)
    before = float(sums[chunk - 1]) if chunk else 0.0
    inside = np.cumsum(weights[chunk * _CHUNK : (chunk + 1) * _CHUNK], dtype=np.float64)
    at = chunk * _CHUNK + min(int(np.searchsorted(inside, target - before, side="right")), _CHUNK - 1)
    if weights[at]:
        return at
    # Rounding put the target behind the last weight or on a token without weight: use the last one with weight.
    earlier = np.flatnonzero(weights[:at])
    return int(earlier[-1]) if len(earlier) else at + int(np.flatnonzero(weights[at:])[0])
