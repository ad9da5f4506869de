"""Each architecture computes what `transformers` computes from the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from checkpoints import ARCHITECTURES, make_checkpoint, make_reference
from torch import Tensor
from transformers import AutoModelForCausalLM

from quire.loading import load_model, resolve_model

NUM_TOKENS = 200  # longer than the tiny RoPE scalings' original context


def attend_to_one_sequence(layer_index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention over a single sequence: the simplest thing a model may be given."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


def reference_logits(directory: Path, ids: Tensor) -> Tensor:
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        return reference(ids[None]).logits[0]


def our_logits(directory: Path, ids: Tensor, **options: str) -> Tensor:
    model = load_model(resolve_model(str(directory)), use_tqdm=False, **options)
    with torch.inference_mode():
        return model.compute_logits(model(ids, torch.arange(len(ids)), attend_to_one_sequence))


def assert_same_logits(ours: Tensor, theirs: Tensor) -> None:
    value_range = theirs.max() - theirs.min()
    assert (ours - theirs).abs().max() / value_range < 1e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 256, (NUM_TOKENS,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    theirs = reference_logits(directory, ids)
    assert len(theirs.argmax(-1).unique()) > 20, "a model that repeats itself could not tell right from wrong"
    assert_same_logits(our_logits(directory, ids), theirs)
