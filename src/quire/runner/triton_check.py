"""Compare the tokens that the Triton kernel draws with the host's, before requests depend on them."""

from __future__ import annotations

from itertools import product

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
_CASES = (
    {"temperature": 0.0}, {"temperature": 1.5}, {"top_p": 0.6}, {"top_k": 7, "min_p": 0.01, "temperature": 0.7},
)  # fmt: skip
_EDITS = {"logit_bias": {1: 3.0}, "repetition_penalty": 1.3, "frequency_penalty": 0.5}


def check_drawing(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Draw from random logits, with and without biases and bans. ValueError if the kernel fails or differs.

    Its variants are compiled here, or read from Triton's cache: seconds, once per machine.
    """
    generator = np.random.default_rng(0)
    logits = np.full((len(_CASES), vocab_size), -100, np.float32)
    for each in logits:
        likely = generator.permutation(vocab_size)[:_LIKELY]
        each[likely] = 3 * generator.standard_normal(len(likely))
    tensor = torch.from_numpy(logits).to(device, dtype)
    for edits, bans in product(({}, _EDITS), ({}, {"bad_words_token_ids": ((0,), (2,))})):
        asked = [SamplingParams(**(case | edits | bans)) for case in _CASES]  # type: ignore[arg-type]
        states = [RowState(NewSequence(0, 0, [1, 0, 1], 1, 0, [], each, seed=0)) for each in asked]
        masks = {row: np.full(words_of(vocab_size), ALL) for row in range(len(states) if bans else 0)}
        for row, words in masks.items():
            states[row].restrict(words)
        expected = Sampler(vocab_size).sample(to_host(tensor), states)[0]
        try:
            found = draw_rows(tensor, dict(enumerate(states)), masks)
        except Exception as error:
            raise ValueError(_advise(f"fails here: {error}")) from error
        if found != dict(enumerate(expected)):
            raise ValueError(_advise(f"draws {[*found.values()]}, and the host {expected}"))


def _advise(what: str) -> str:
    return f"the Triton kernel for sampling {what}; set QUIRE_KERNELS=none to draw on the host"
