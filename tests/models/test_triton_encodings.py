"""Weights as Triton's kernels read them: what they decode to, and products in each form, on a GPU or interpreted."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from encoded_rows import decoded_integers, encode_integers, random_rows
from parameters import quick
from quire.models.linear import triton_weight
from quire.models.linear.block_weight import TYPES, BlockRows
from quire.models.linear.triton_encodings import compact_weight, open_blocks
from quire.models.linear.triton_weight import StackedWeight, TritonWeight, compact, pack_blocks, quantize
from quire.ops.on_triton import gated_product

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OF_FILES = [name for name in TYPES if not name.startswith("INT")]


@pytest.fixture(autouse=True)
def _short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_weight, "_SPAN", 256)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def check(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2**-6}[found.dtype]
    assert (found.double() - exact).abs().max() <= tolerance * exact.abs().max()


@pytest.mark.parametrize("name", quick(["Q4_K", "Q6_K", "IQ4_XS", "MXFP4"], OF_FILES))
def test_blocks_of_files_decode_and_multiply_as_they_should(name: str) -> None:
    depth = 512 if gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][0] == 256 else 352
    rows = random_rows(name, 40, depth)
    weight = torch.from_numpy(gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])).to(DEVICE)
    encoded = open_blocks(name, torch.from_numpy(rows).to(DEVICE), depth, 0)
    assert torch.equal(encoded.decode(), weight)
    ids = torch.tensor([39, 0, 7, 0], device=DEVICE)
    assert torch.equal(TritonWeight(encoded, torch.float32).rows(ids), weight[ids])
    packed = pack_blocks([BlockRows(name, rows)], depth, torch.float32, DEVICE)
    for num_rows, dtype in ((1, torch.float32), (20, torch.bfloat16)):
        x, bias = draw(num_rows, depth, seed=1, dtype=dtype), draw(40, seed=2, dtype=dtype)
        check(packed.product(x, bias), x, weight, bias)


@pytest.mark.parametrize(
    ("kind", "group", "depth", "has_zeros"),
    [("INT4", 32, 96, False), ("INT4", 96, 192, True), ("INT4", 256, 768, True), ("INT8", 128, 300, False)],
)
def test_integers_of_checkpoints(kind: str, group: int, depth: int, has_zeros: bool) -> None:
    random, num_groups = np.random.default_rng(0), -(-depth // group)
    middle = 8 if kind == "INT4" else 128
    integers = random.integers(0, 2 * middle, (40, depth), np.uint8)
    scales = random.standard_normal((40, num_groups), np.float32)
    zeros = random.integers(0, 16, scales.shape, np.uint8) if has_zeros else np.full(scales.shape, middle, np.uint8)
    weight = torch.from_numpy(decoded_integers(integers, scales, zeros, group)).to(DEVICE)
    part = BlockRows(kind, encode_integers(integers, scales, zeros, group), group)
    x = draw(5, depth)
    check(pack_blocks([part], depth, torch.float32, DEVICE).product(x, None), x, weight)


def test_fp8_is_multiplied_by_the_scales_of_its_blocks() -> None:
    random, (width, depth) = np.random.default_rng(0), (40, 256)
    numbers = torch.from_numpy(random.integers(0, 256, (width, depth), np.uint8))
    numbers[(numbers & 127) == 127] = 3  # not a number
    scales = random.standard_normal((width, 2), np.float32)
    blocks = encode_integers(numbers.numpy(), scales, np.zeros(scales.shape, np.uint8), 128)
    weight = numbers.view(torch.float8_e4m3fn).float() * torch.from_numpy(scales).repeat_interleave(128, 1)
    x = draw(5, depth)
    check(
        pack_blocks([BlockRows("FP8", blocks, 128)], depth, torch.float32, DEVICE).product(x, None),
        x,
        weight.to(DEVICE),
    )


@pytest.mark.parametrize(("width", "depth"), [(70, 300), (40, 768)])
def test_12_bits_lose_nothing(width: int, depth: int) -> None:
    weight = 0.02 * draw(width, depth, dtype=torch.bfloat16)
    weight[3], weight[4, 4], weight[5, 5], weight[6, 6], weight[width - 1, depth - 1] = 0, 3e4, 1e-38, -0.0, -1e-7
    encoded = compact_weight(weight)
    assert encoded is not None
    assert torch.equal(encoded.decode().to(torch.bfloat16), weight)
    assert encoded.starts is not None
    assert encoded.starts[-1] >= 3
    packed = compact(weight)
    assert packed is not None
    ids = torch.tensor([4, width - 1, 5, 3], device=DEVICE)
    assert torch.equal(packed.rows(ids), weight[ids])
    for num_rows in (1, 20, 70):
        x, bias = draw(num_rows, depth, seed=1, dtype=torch.bfloat16), draw(width, seed=2, dtype=torch.bfloat16)
        check(packed.product(x, bias), x, weight, bias)
    alone = packed.product(x[:16], bias)
    x[1:] = torch.nan
    assert torch.equal(packed.product(x[:16], bias)[0], alone[0])
    assert depth == 300 or packed.num_bytes < 0.76 * weight.nbytes
    assert compact(draw(width, depth, dtype=torch.float32).exp().mul(20).exp().to(torch.bfloat16)) is None


def test_stacked_parts_of_several_types_take_their_inputs_in_another_order() -> None:
    depth, order = 256, np.random.default_rng(0).permutation(256).astype(np.int32)
    names, widths = ("Q4_K", "Q4_K", "Q6_K"), (40, 9, 30)
    parts = [
        BlockRows(name, random_rows(name, width, depth, seed=width), order=order)
        for name, width in zip(names, widths, strict=True)
    ]
    decoded = [gguf.quants.dequantize(each.rows, gguf.GGMLQuantizationType[each.type]) for each in parts]
    packed = pack_blocks(parts, depth, torch.float32, DEVICE)
    assert isinstance(packed, StackedWeight)
    assert [each.encoded.width for each in packed._parts] == [49, 30]
    x, bias = draw(5, depth), draw(79, seed=1)
    weight = torch.from_numpy(np.concatenate(decoded)).to(DEVICE)
    for given in (bias, None):
        check(packed.product(x, given), x[:, torch.from_numpy(order).long()], weight, given)
    assert packed.num_bytes < 0.4 * 2 * weight.numel()


@pytest.mark.parametrize(
    ("num_rows", "dtype"), [(0, torch.bfloat16), (1, torch.bfloat16), (16, torch.float32), (20, torch.bfloat16)]
)
def test_a_gated_product_has_the_bits_of_its_parts(num_rows: int, dtype: torch.dtype) -> None:
    gate, up = (quantize(draw(70, 600, seed=seed), 4) for seed in range(2))
    x, bias, up_bias = (draw(*shape, seed=9, dtype=dtype) for shape in ((num_rows, 600), (70,), (70,)))
    expected = gated_product(gate.product(x, bias), up.product(x, up_bias))
    assert torch.equal(gate.gated_product(x, bias, up, up_bias), expected)
    assert torch.equal(
        gate.gated_product(x, None, up, up_bias), gated_product(gate.product(x, None), up.product(x, up_bias))
    )
    assert gate._counts is not None
    assert not gate._counts.any()


def test_kernels_are_compared_with_torch_once_for_each_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_weight, "_CHECKED", set())
    rows = BlockRows("Q8_0", random_rows("Q8_0", 8, 64))
    pack_blocks([rows], 64, torch.float32, DEVICE)
    monkeypatch.setattr(TritonWeight, "product", lambda self, x, bias: 2 * x[:, :1].expand(-1, 8))
    pack_blocks([rows], 64, torch.float32, DEVICE)
    with pytest.raises(ValueError, match="differs by"):  # in spans
        pack_blocks([BlockRows("Q8_0", random_rows("Q8_0", 8, 768))], 768, torch.float32, DEVICE)
    with pytest.raises(ValueError, match=r"weights of 8 bits differs by .*set QUIRE_KERNELS=none to decode"):
        pack_blocks([rows], 64, torch.bfloat16, DEVICE)
