"""Compare the tokens that the Triton kernel draws with the host's, before requests depend on them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

from quire.ops.arrays import to_host
from quire.outputs import NewSequence
from quire.runner.row_state import RowState
from quire.runner.sampler import Sampler
from quire.runner.token_mask import ALL
from quire.runner.triton_drawing import draw_rows
from quire.sampling_params import SamplingParams
from quire.structured.bits import words_of

_LIKELY = 100  #: tokens of a row; with more of them, rounding might choose another
_CASES: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1.5, "top_p": 0.6},
    {"top_k": 7, "min_p": 0.01},
)
_EDITS: tuple[dict[str, Any], ...] = ({}, {"logit_bias": {1: 3}, "repetition_penalty": 1.3, "frequency_penalty": 0.5})


def check_drawing(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Draw from random logits, with and without biases and bans. ValueError if the kernel fails or differs.

    Its variants are compiled here, or read from Triton's cache: seconds, once per machine.
    """
    generator = torch.Generator().manual_seed(0)
    likely = torch.randperm(vocab_size, generator=generator)[:_LIKELY]
    logits = torch.full((len(_CASES), vocab_size), -100.0)
    logits[:, likely] = 3 * torch.randn(len(_CASES), len(likely), generator=generator)
    logits = logits.to(device, dtype)
    for edits, bans in product(_EDITS, ((), ((0,), (2,)))):
        asked = [SamplingParams(**case, **edits, bad_words_token_ids=bans) for case in _CASES]
        states = [RowState(NewSequence(0, 0, [1, 0, 1], 1, 0, [], each, seed=0)) for each in asked]
        masks = {row: np.full(words_of(vocab_size), ALL) for row in range(len(states) if bans else 0)}
        for row, words in masks.items():
            states[row].restrict(words)
        expected = dict(enumerate(Sampler(vocab_size).sample(to_host(logits), states)[0]))
        try:
            if (found := draw_rows(logits, dict(enumerate(states)), masks)) != expected:
                raise ValueError(f"it draws {found}, and the host {expected}")
        except Exception as error:
            advice = "set QUIRE_KERNELS=none to draw on the host"
            raise ValueError(f"the Triton kernel for sampling fails here: {error}; {advice}") from error
