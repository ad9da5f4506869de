"""Each architecture computes what `transformers` computes from the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM

from checkpoints import ARCHITECTURES, make_checkpoint
from quire.loading import load_model, resolve_model

NUM_TOKENS = 200  # longer than the original context of the tiny RoPE scalings


def attend_to_one_sequence(layer_index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention over a single sequence: the simplest thing that a model may be given."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


def reference_logits(directory: Path, ids: Tensor) -> Tensor:
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        return reference(ids[None]).logits[0]


def our_logits(directory: Path, ids: Tensor, dtype: str = "auto") -> Tensor:
    model = load_model(resolve_model(str(directory)), dtype=dtype, use_tqdm=False)
    with torch.inference_mode():
        return model.compute_logits(model(ids, torch.arange(len(ids)), attend_to_one_sequence))


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / (theirs.max() - theirs.min())).item()


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 256, (NUM_TOKENS,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    ours, theirs = our_logits(directory, ids), reference_logits(directory, ids)
    assert relative_error(ours, theirs) < 2e-5
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_tiny_checkpoints_can_tell_right_from_wrong(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    changed = torch.cat(((ids[:16] + 7) % 256, ids[16:]))
    best, best_changed = (our_logits(directory, x).argmax(-1)[16:] for x in (ids, changed))
    assert len(best.unique()) > 50, "it repeats itself"
    assert (best != best_changed).float().mean() > 0.7, "it does not care what came before"


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name.startswith(("llama", "qwen", "mistral"))])
def test_a_config_in_the_dialect_of_transformers_4_means_the_same(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    expected = our_logits(directory, ids)
    config = json.loads((directory / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    config["rope_scaling"] = None if rope_type == "default" else {"type": rope_type, **rope}
    config["torch_dtype"] = config.pop("dtype")
    (directory / "config.json").write_text(json.dumps(config))
    assert torch.equal(our_logits(directory, ids), expected)


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "opt-350m"])
def test_bfloat16_stays_close_to_float32(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    logits = our_logits(directory, ids, dtype="bfloat16")
    assert logits.dtype == torch.bfloat16
    exact = reference_logits(directory, ids)
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        theirs = reference(ids[None]).logits[0]
    assert (logits.float() - exact).pow(2).mean() < 2 * (theirs.float() - exact).pow(2).mean()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_batch_is_flattened_without_padding(name: str, tmp_path: Path, ids: Tensor) -> None:
    """Two sequences side by side: only `positions` and `attend` know where one ends."""
    model = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False)
    lengths = [5, 11]

    def attend_to_each(layer_index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
        return torch.cat([attend_to_one_sequence(layer_index, *part) for part in parts])

    ids = ids[: sum(lengths)]
    with torch.inference_mode():
        alone = [model(part, torch.arange(len(part)), attend_to_one_sequence) for part in ids.split(lengths)]
        positions = torch.cat([torch.arange(n) for n in lengths])
        together = model(ids, positions, attend_to_each)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-4)
