"""Ranks that share a model compute the same as one rank, for any sizes of its parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from checkpoints import ARCHITECTURES, KINDS, make_checkpoint
from parameters import quick
from quire.kernels.loaded import load_kernels
from quire.loading import resolve_model
from quire.models.adapter import read_adapter
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from ranks import load, logits_of, on_ranks

#: Rotary positions do not depend on ranks.
NAMES = [name for name in ARCHITECTURES if "rope" not in name or name == "ministral3-rope"]
#: Sizes indivisible by any number of ranks: MLP, vocabulary and positions are split into parts of two sizes.
ODD = {
    "gpt2": {"vocab_size": 253, "n_inner": 90, "n_positions": 61},
    "opt": {"vocab_size": 253, "ffn_dim": 90, "max_position_embeddings": 61},
    "llama": {"vocab_size": 253, "intermediate_size": 90},
    "granite4": {"vocab_size": 253, "mamba_n_groups": 4},
}


@pytest.mark.parametrize("name", quick(KINDS, NAMES))
def test_two_and_four_ranks_give_one_ranks_logits(name: str, tmp_path: Path) -> None:
    family = name if name in ODD else name.partition("-")[0]
    directory = make_checkpoint(name, tmp_path, **ODD.get(family, ODD["llama"]))
    expected = logits_of(load(directory))
    for size in (2, 4) if name in ("llama", "gpt2", "opt-350m") else (4,):  # four ranks share two KV heads
        found = on_ranks(size, lambda group: logits_of(load(directory, group)))
        assert all(torch.equal(found[0], each) for each in found), "they would draw different tokens"
        assert (found[0] - expected).abs().max() < 1e-5 * (expected.max() - expected.min())
        assert torch.equal(found[0].argmax(-1), expected.argmax(-1))


@pytest.mark.skipif(load_kernels().functions is None, reason="quantized weights need kernels")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantized_ranks_are_as_close_to_the_weights_as_one_is(quantization: str, tmp_path: Path) -> None:
    for name in ("llama", "gpt2"):
        directory = make_checkpoint(name, tmp_path / name)
        exact, alone = logits_of(load(directory)), logits_of(load(directory, quantization=quantization))
        found = on_ranks(2, lambda group, at=directory: logits_of(load(at, group, quantization=quantization)))[0]
        assert 0 < (found - exact).pow(2).mean() < 1.5 * (alone - exact).pow(2).mean()


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("llama", {"self_attn.q_proj": (64, 64), "self_attn.o_proj": (64, 64), "mlp.down_proj": (96, 64)}),
        ("gpt2", {"attn.c_attn": (64, 192), "attn.c_proj": (64, 64), "mlp.c_fc": (64, 256)}),
    ],
)
def test_each_rank_adds_its_part_of_an_adapter(name: str, layers: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    directory = make_checkpoint(name, tmp_path)
    prefix = "base_model.model." + ("transformer.h.1" if name == "gpt2" else "model.layers.1")
    torch.manual_seed(0)
    factors = {
        f"{prefix}.{layer}.lora_{factor}.weight": 0.2 * torch.randn((4, sizes[0]) if factor == "A" else (sizes[1], 4))
        for layer, sizes in layers.items()
        for factor in "AB"
    }
    save_file(factors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))

    def run(group: ParallelGroup) -> list[Tensor]:
        model = load(directory, group)
        plain = logits_of(model)
        read_adapter(tmp_path, model, dtype=model.dtype, device="cpu", digest="").attach()
        return [plain, logits_of(model)]

    expected = run(ALONE)
    assert not torch.allclose(*expected, rtol=0.1)
    for found in on_ranks(2, run):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_model_that_cannot_be_shared_out_is_refused_with_the_numbers() -> None:
    config = resolve_model("random:qwen2.5-0.5b").config  # 14 heads, 2 of them for KV
    for size in (1, 2, 14):
        assert ModelSplit(config, ParallelGroup(size - 1, size)).num_kv_heads == max(1, 2 // size)
    with pytest.raises(
        UnsupportedModelError, match=r"14 attention heads cannot .* tensor_parallel_size=4 .* 1, 2, 14$"
    ):
        ModelSplit(config, ParallelGroup(0, 4))
    with pytest.raises(UnsupportedModelError, match=r"2 KV heads can neither be split nor repeated .*=7 "):
        ModelSplit(config, ParallelGroup(0, 7))
