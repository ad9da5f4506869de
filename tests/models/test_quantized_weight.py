"""Weights of 8 and 4 bits: exact integers in every kernel, and models with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from checkpoints import ONE_OF_EACH_KIND, make_checkpoint
from kernel_levels import LEVELS as ALL_LEVELS
from kernel_levels import library_of
from quire import LLM, SamplingParams
from quire.kernels.loaded import load_kernels, load_library, runnable_levels
from quire.loading import load_model, resolve_model
from quire.loading.layer_loader import LayerLoader
from quire.loading.modules.units import memory_of
from quire.models.linear import layer as linear
from quire.models.linear.layer import Linear
from quire.models.linear.quantized_weight import QuantizedWeight
from quire.ops.arrays import Array, is_numpy
from quire.progressive.hidden_states import WholeText
from tensors import logits_of_tokens

LEVELS = runnable_levels()
pytestmark = pytest.mark.skipif(load_kernels().functions is None, reason="quantized weights need kernels")


def integers_of(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return a row's integers by the definition, and its scale."""
    rows = x.float().numpy()
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return np.rint(rows * (np.float32(127) / largest)).astype(np.int64), (largest / np.float32(127)).astype(np.float64)


def decoded(weight: QuantizedWeight) -> np.ndarray:
    """Decode the packed bytes: [out_features, in_features]."""
    groups = -(-weight.in_features // 64)
    packed = weight._packed
    if weight.bits == 8:
        integers = packed.reshape(-1, groups * 16, 32, 4).transpose(0, 2, 1, 3).astype(np.float64) - 128
        values = integers.reshape(-1, groups * 64) * weight._scales.astype(np.float64)[:, None]
    else:
        blocks = packed.reshape(-1, groups, 1152)
        grids = torch.from_numpy(blocks[..., :128].copy()).view(torch.bfloat16).double().numpy()
        scales, lows = (grids[..., half : half + 32].transpose(0, 2, 1)[..., None] for half in (0, 32))
        nibbles = blocks[..., 128:].reshape(-1, groups, 8, 32, 4).transpose(0, 3, 1, 2, 4).reshape(-1, 32, groups, 32)
        values = np.concatenate((nibbles & 15, nibbles >> 4), axis=-1) * scales + lows
    return values.reshape(-1, groups * 64)[: weight.out_features, : weight.in_features]


@settings(max_examples=12, deadline=None)
@given(
    num_rows=st.sampled_from((0, 1, 2, 5, 13, 40)),
    depth=st.integers(1, 300),
    columns=st.integers(1, 100),
    bits=st.sampled_from((8, 4)),
    dtype=st.sampled_from((torch.float32, torch.bfloat16)),
    seed=st.integers(0, 99),
)
def test_products_are_those_of_integers(
    num_rows: int, depth: int, columns: int, bits: int, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight, up = (torch.randn(columns, depth, generator=generator).to(dtype) for _ in range(2))
    x = torch.randn(num_rows, depth + 3, generator=generator).to(dtype)[:, :depth]  # rows lie apart
    bias = torch.randn(columns, generator=generator).to(dtype)
    outputs = []
    for level in LEVELS:
        packed, packed_up = (QuantizedWeight(each, bits, load_library(level)) for each in (weight, up))
        outputs.append(packed.product(x, bias))
        assert outputs[-1].shape == (num_rows, columns)
        if not num_rows:
            continue
        integers, scales = integers_of(x)
        exact = [integers @ decoded(each).T * scales for each in (packed, packed_up)]
        expected = torch.from_numpy(exact[0]) + bias.double()
        tolerance = {"rtol": 2**-7 if dtype == torch.bfloat16 else 1e-5, "atol": 1e-4}
        torch.testing.assert_close(outputs[-1].double(), expected, **tolerance)
        torch.testing.assert_close(packed.product(x, bias, "silu").double(), F.silu(expected), **tolerance)
        gated = packed.gated_product(x, bias, packed_up, None)
        torch.testing.assert_close(gated.double(), F.silu(expected) * torch.from_numpy(exact[1]), **tolerance)
        rows = torch.cat([packed.product(row[None], bias) for row in x])
        assert torch.equal(outputs[-1], rows), "a row depends on nothing but itself"
    for other in outputs[1:] if bits == 8 else ():
        torch.testing.assert_close(outputs[0], other, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-4)


@pytest.mark.parametrize("level", ALL_LEVELS)
@pytest.mark.parametrize("bits", [8, 4])
def test_the_number_of_rows_does_not_change_a_bit(level: str, bits: int) -> None:
    torch.manual_seed(0)
    weight, up = (QuantizedWeight(torch.randn(80, 200).bfloat16(), bits, library_of(level)) for _ in range(2))
    x, bias = torch.randn(80, 200).bfloat16(), torch.randn(80).bfloat16()
    together = weight.gated_product(x, bias, up, bias)
    for rows in range(1, 80):
        assert torch.equal(weight.gated_product(x[:rows], bias, up, bias), together[:rows])
        assert torch.equal(weight.gated_product(x[rows : rows + 1], bias, up, bias), together[rows : rows + 1])


@pytest.mark.parametrize(("bits", "error"), [(8, 0.008), (4, 0.09)])
def test_weights_stay_near(bits: int, error: float) -> None:
    weight = torch.randn(96, 700, generator=torch.Generator().manual_seed(0))
    weight[5] = 0.0
    weight[6] = 0.25  # a single value: a grid without width
    found = torch.from_numpy(decoded(QuantizedWeight(weight, bits, load_library(LEVELS[-1]))))
    assert (found - weight).norm() / weight.norm() < error
    torch.testing.assert_close(found[5:7].float(), weight[5:7], atol=1e-6, rtol=1e-2)


def test_nan_is_not_hidden() -> None:
    packed = QuantizedWeight(torch.randn(33, 64), 8, load_library(LEVELS[-1]))
    x = torch.randn(3, 64)
    x[1, 7], x[2, 60] = torch.nan, torch.inf
    assert packed.product(x, None).isnan().all(dim=1).tolist() == [False, True, True]


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_architecture(name: str, tmp_path: Path) -> None:
    source = resolve_model(str(make_checkpoint(name, tmp_path)))
    ids = torch.arange(3, 40)
    logits = []
    for quantization in ("none", "int8"):
        model = load_model(source, quantization=quantization, dtype="float32", use_tqdm=False)
        with torch.inference_mode():
            attend = WholeText(model.attention_layers()).attend
            logits.append(logits_of_tokens(model, ids, torch.arange(len(ids)), attend))
    assert all(linear.weight is None for linear in model.modules() if isinstance(linear, Linear))
    assert F.cosine_similarity(*logits).mean() > 0.8, "their wide weights make much of little; of a wrong layer it is 0"


def is_in_memory(array: Array) -> bool:
    return array.flags.writeable if is_numpy(array) else not array.is_meta


def test_a_layer_at_a_time_and_no_more_memory_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: list[int] = []
    loader = LayerLoader(resolve_model("random:tiny"), quantization="int4", dtype="bfloat16")

    def quantize(weight: Tensor, quantization: str) -> object:
        units = [*loader.model.layers, loader.model.lm_head]
        in_memory = [
            any(
                array.ndim == 2 and is_in_memory(array)
                for module in unit.modules()
                for _, array in module.named_parameters()
            )
            for unit in units[: len(units) - 1]
        ]
        plain.append(sum(in_memory))
        return original(weight, quantization)

    original = linear.quantize_weight
    monkeypatch.setattr(linear, "quantize_weight", quantize)
    pending = loader.pending_memory()
    with loader:
        loader.start()
        loader.wait_stage(1)
        model = loader.model
    assert max(plain) == 1, "plain weights of one layer"
    assert memory_of(model.config, "bfloat16", "int4") == pending
    assert pending <= model.weight_bytes() <= 1.05 * pending
    assert model.weight_bytes() < 0.6 * load_model(resolve_model("random:tiny"), dtype="bfloat16").weight_bytes()


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_tokens_depend_on_no_other_request(quantization: str) -> None:
    options = {"dtype": "float32", "device": "cpu", "use_tqdm": False, "quantization": quantization}
    prompts = [{"prompt_token_ids": [(7 * i + j * j) % 250 for j in range(3 + 9 * i)]} for i in range(5)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    alone = LLM("random:tiny", num_kv_blocks=64, **options)
    crowded = LLM("random:tiny", num_kv_blocks=11, block_size=8, max_num_batched_tokens=8, watermark=0, **options)
    expected = [alone.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids for prompt in prompts]
    found = crowded.generate(prompts, params, use_tqdm=False)
    assert [each.outputs[0].token_ids for each in found] == expected
    assert len({tuple(each) for each in expected}) > 1
    plain = LLM("random:tiny", num_kv_blocks=64, **options | {"quantization": "none"})
    roots = {llm.engine.root for llm in (alone, plain)}
    assert len(roots) == 2, "KV of other weights is never taken"


def test_what_cannot_be_quantized_is_refused() -> None:
    for device in ("cpu",) if torch.cuda.is_available() else ("cpu", "auto"):
        with pytest.raises(ValueError, match="float16"):
            LLM("random:tiny", quantization="int8", dtype="float16", device=device)
    with pytest.raises(ValueError, match="none, int8, int4"):
        LLM("random:tiny", quantization="int3")
