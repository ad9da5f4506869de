"""Draw tokens on a GPU, by a Triton kernel: with the host's random numbers (`drawing.py`), and so the same tokens
except where the rounding of sums decides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
import triton
from torch import Tensor

from quire.kernels.triton import sampling as kernels
from quire.ops.arrays import as_tensor
from quire.runner.random import address
from quire.runner.row_state import RowState
from quire.runner.token_mask import ALL
from quire.structured.bits import words_of

_TILE = 4096  # tokens
_STEPS = {torch.float32: 1, torch.float16: 2**13, torch.bfloat16: 2**16}  # between neighbours, in float32's last bits
_DRAW = "i8,i8,i8,u8,u8,f8,f8"  # see `draw_tokens`


def draw_rows(logits: Tensor, states: Mapping[int, RowState], masks: Mapping[int, np.ndarray]) -> dict[int, list[int]]:
    """Draw the tokens of rows of logits [num_rows, vocab_size], some of which have a mask of allowed tokens. Returns
    them by row, without rows from which none can be drawn: the host finds the error."""
    size = logits.shape[1]
    if any(not state.is_plain for state in states.values()):
        logits = _edited(logits, states)
    elif logits.stride(1) != 1:
        logits = logits.contiguous()
    words = [np.full(words_of(size), ALL), *masks.values()]
    mask_of = {row: place for place, row in enumerate(masks, 1)}
    draws = np.array([draw for row in states for draw in _draws(row, states[row], mask_of.get(row, 0), size)], _DRAW)
    tokens = torch.empty(len(draws), dtype=torch.int32, device=logits.device)
    tile = min(_TILE, triton.next_power_of_2(size))
    kernels.draw_tokens[len(draws),](
        logits, _joined(words, logits).view(torch.int32) if masks else None,
        _joined([draws.view(np.int64)], logits), tokens, logits.stride(0), SIZE=size, WORDS=words_of(size), TILE=tile,
        TILES=triton.next_power_of_2(triton.cdiv(size, tile)), STEP=_STEPS[logits.dtype], num_warps=max(1, tile // 256),
    )  # fmt: skip
    each = iter(tokens.tolist())
    drawn = {row: [next(each) for _ in range(state.num_samples)] for row, state in states.items()}
    return {row: tokens for row, tokens in drawn.items() if -1 not in tokens}


def _draws(row: int, state: RowState, mask: int, size: int) -> Iterable[tuple[float, ...]]:
    """Return the arguments of `draw_tokens` for each sample of a row."""
    params, info = state.params, state.info
    scale = 0.0 if params.is_greedy else 1 / params.temperature
    distance = math.log(params.min_p) * params.temperature if params.min_p > 0 else -math.inf
    share = max(0, math.ceil(math.ldexp(params.top_p, 64)) - 1)
    for index in range(info.index, info.index + state.num_samples):
        number = address(info.seed, index, state.num_output_tokens)
        yield row, mask, params.top_k if params.top_k < size else 0, share, number, scale, distance


def _edited(logits: Tensor, states: Mapping[int, RowState]) -> Tensor:
    """Return the logits in float32 with the biases and penalties of rows, as `sampler._apply_biases` computes them."""
    edited = logits.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    flat, size = edited.view(-1), edited.shape[1]
    if biased := [(row, *state.rules.bias()) for row, state in states.items() if state.params.logit_bias]:
        places = _joined([row * size + tokens for row, tokens, _ in biased], flat)
        flat[places] += _joined([bias for *_, bias in biased], flat)
    if seen := [(row, state.params, *state.seen()) for row, state in states.items() if state.has_penalties]:
        places = _joined([row * size + tokens for row, _, tokens, _ in seen], flat)
        values = flat[places]
        factor = _joined([np.full_like(counts, params.repetition_penalty) for _, params, _, counts in seen], flat)
        values = torch.where(values > 0, values / factor, values * factor)
        values -= _joined([counts * np.float32(params.frequency_penalty) for _, params, _, counts in seen], flat)
        values -= _joined([(counts > 0) * np.float32(params.presence_penalty) for _, params, _, counts in seen], flat)
        flat[places] = values
    return edited


def _joined(arrays: list[np.ndarray], beside: Tensor) -> Tensor:
    """Return arrays in one, on the device of a tensor."""
    return as_tensor(np.concatenate(arrays)).to(beside.device, non_blocking=True)
