"""Weights of 8 and 4 bits for a GPU: products against float64, there or by Triton's interpreter."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from checkpoints import make_checkpoint
from kernel_levels import needs_kernels
from quire.assembly import make_namespace, runner
from quire.kernels.loaded import load_kernels
from quire.loading import resolve_model
from quire.models import base
from quire.models.linear import quantized_weight
from quire.models.linear.layer import Linear
from quire.models.registry import build_model
from quire.ops.arrays import as_tensor
from ranks import load, logits_of, on_ranks

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.models.linear import triton_weight
from quire.models.linear.triton_weight import TritonWeight, quantize
from triton_weights import decoded

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Relative to the largest value: sums' order, and a rounding of weights and one of the result to the dtype.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}
each_bits = pytest.mark.parametrize("bits", [8, 4])
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@pytest.fixture(autouse=True)
def _quantize_for_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    monkeypatch.setattr(quantized_weight, "uses_triton", lambda device: True)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def check(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found.double() - expected).abs().max() <= TOLERANCE[found.dtype] * expected.abs().max()


def check_shape(bits: int, dtype: torch.dtype, num_rows: int, depth: int, columns: int, seed: int = 0) -> None:
    weight, bias = draw(columns, depth, dtype=dtype, seed=seed), draw(columns, dtype=dtype, seed=seed + 1)
    x = draw(num_rows, depth + 3, dtype=dtype, seed=seed + 2)[:, :depth]  # rows lie apart
    packed = quantize(weight, bits)
    exact = x.double() @ decoded(packed).T
    check(packed.product(x, None), exact)
    check(packed.product(x, bias), exact + bias)
    check(packed.product(x.T.contiguous().T, bias), exact + bias)


@each_bits
@pytest.mark.parametrize(
    ("num_rows", "depth", "columns"),
    [(1, 200, 70), (3, 300, 65), (70, 300, 9), (70, 300, 130)],
    ids=["a row", "spans", "spans of a prompt", "a prompt"],
)
def test_products_are_those_of_the_decoded_weights(
    bits: int, num_rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_weight, "_SPAN", 128)
    monkeypatch.setattr(triton_weight, "_FEW_TILES", 1)
    check_shape(bits, torch.float32, num_rows, depth, columns)
    check_shape(bits, torch.bfloat16, num_rows, depth, columns)


@pytest.mark.slow
@each_bits
@each_dtype
@pytest.mark.parametrize("seed", range(12))
def test_products_of_random_shapes(bits: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def size(most: int) -> int:
        return int(torch.randint(1, most, (), generator=generator))

    check_shape(bits, dtype, size(71), size(3000 if seed % 2 else 300), size(150), seed)


def test_kv_of_a_gpu_is_not_that_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "describe_arithmetic", lambda device: "the same")
    facts = {"weights": "w", "dtype": "bfloat16", "block_size": 16}
    config = resolve_model("random:tiny").config
    roots = {
        make_namespace(config, **facts, quantization=quantization, device=device).root()
        for quantization in ("int8", "int4")
        for device in ("cpu", "cuda")
    }
    assert len(roots) == 4


def test_a_gpu_needs_triton_and_takes_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(resolve_model("random:tiny").config, torch.float16, "meta")
    model.device = "cuda"
    monkeypatch.setattr(base, "uses_triton", lambda device: True)
    model.quantize("int4")
    assert model.lm_head.quantization == "int8"
    monkeypatch.setattr(base, "uses_triton", lambda device: False)
    with pytest.raises(ValueError, match=r"int4 on cuda needs Triton's kernels: pip install triton"):
        model.quantize("int4")


@each_bits
def test_a_rows_bits_depend_on_no_other_row(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_weight, "_SPAN", 128)
    weight = quantize(draw(70, 300, dtype=torch.bfloat16), bits)
    assert weight._num_spans == 2
    x, bias = draw(70, 300, dtype=torch.bfloat16, seed=1), draw(70, dtype=torch.bfloat16, seed=2)
    together = weight.product(x, bias)
    for counts in ((1, 16), (17, 64), (65, 70)):  # of a size of tiles; numpy sums in another order for others
        few, more = (weight.product(x[:count], bias) for count in counts)
        assert torch.equal(few, more[: len(few)])
        assert DEVICE == "cpu" or torch.equal(more, together[: len(more)])
    others = x.clone()
    others[1:] = torch.nan
    assert torch.equal(weight.product(others, bias)[:1], together[:1])
    assert weight.product(x[:0], bias).shape == (0, 70)


@needs_kernels
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU rounds other ties")
@each_bits
def test_weights_are_those_of_a_cpu(bits: int) -> None:
    weight = draw(37, 700)
    weight[5], weight[6] = 0.0, 0.25  # a single value: a grid without width
    library = load_kernels().functions
    assert library is not None
    found = decoded(quantize(weight, bits))
    rows = torch.eye(700)  # whose integers are exact
    expected = as_tensor(quantized_weight.QuantizedWeight(weight, bits, library).product(rows, None)).T
    torch.testing.assert_close(found.float(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[5:7].float(), weight[5:7], atol=1e-6, rtol=1e-2)
    assert (found - weight).norm() / weight.norm() < {8: 0.008, 4: 0.09}[bits]


def test_kernels_are_compared_with_torch_before_weights_depend_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = draw(8, 64)
    monkeypatch.setattr(triton_weight, "_CHECKED", set())
    monkeypatch.setattr(triton_weight, "_SPAN", 128)
    multiply = triton_weight.TritonWeight.product
    monkeypatch.setattr(triton_weight.TritonWeight, "product", lambda self, x, bias: 1.01 * multiply(self, x, bias))
    with pytest.raises(ValueError, match=r"weights of 8 bits differs by 0\.0.*leave out the quantization"):
        quantized_weight.quantize_weight(weight, "int8")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="or a GPU with Triton"):
        quantized_weight.quantize_weight(weight.cpu().half(), "int8")


@needs_kernels
@pytest.mark.slow
def test_two_ranks_are_as_close_to_the_weights_as_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, multiply = threading.RLock(), TritonWeight.write_product

    def write_product(*arguments: Any) -> Tensor:
        with lock:  # ranks are threads, which the interpreter does not know
            return multiply(*arguments)

    monkeypatch.setattr(TritonWeight, "write_product", write_product)
    directory = make_checkpoint("llama", tmp_path)
    options = {"device": DEVICE, "quantization": "int4"}
    exact, alone = (logits_of(load(directory, **each), 16) for each in ({"device": DEVICE}, options))
    found = on_ranks(2, lambda group: logits_of(load(directory, group, **options), 16))[0]
    assert 0 < (found - exact).pow(2).mean() < 1.5 * (alone - exact).pow(2).mean()


@needs_kernels
def test_experts_are_computed_with_quantized_weights(tmp_path: Path) -> None:
    directory = make_checkpoint("qwen3-moe", tmp_path)
    plain, quantized = (load(directory, device=DEVICE, quantization=each) for each in ("none", "int8"))
    layers = [layer for _, layer in quantized.weighted_layers() if isinstance(layer, Linear) and layer.is_quantizable]
    assert {type(layer.packed) for layer in layers} == {TritonWeight}
    assert F.cosine_similarity(logits_of(plain, 8), logits_of(quantized, 8)).mean() > 0.99
    assert quantized.weight_bytes() < 0.7 * plain.weight_bytes()
