"""The elementwise Triton kernels against float64: on a GPU, or on a CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from quire.ops import functions

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.ops import on_torch, on_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Relative to the largest value: two roundings to the dtype (the interpreter cuts bfloat16 off), and sums' order.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2**-6}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    if len(found):
        assert (found.double() - expected).abs().max() <= TOLERANCE[found.dtype] * expected.abs().max()


@each_dtype
@pytest.mark.parametrize("shape", [(7, 77), (0, 64), (2, 5000)])
def test_norms_and_the_sums_before_them(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight, x, y = draw(shape[1], dtype=dtype), draw(*shape, dtype=dtype, seed=1), 5 * draw(*shape, dtype=dtype, seed=2)
    total = x + y
    normed = on_triton.rms_norm(y, weight, 1e-5, 0.0, x)
    if DEVICE == "cuda" or dtype != torch.bfloat16:
        assert torch.equal(y, total)
    check(y, total.double())
    total = y
    check(normed, F.rms_norm(total.double(), weight.shape, weight.double(), 1e-5))
    both = torch.cat((total, total), dim=1)[:, : shape[1]]  # rows with gaps
    assert torch.equal(normed, on_triton.rms_norm(both, weight, 1e-5))
    assert torch.equal(normed[:1], on_triton.rms_norm(total[:1], weight, 1e-5)), "a neighbour changed it"


@each_dtype
def test_weights_of_norms_may_be_stored_less_one(dtype: torch.dtype) -> None:
    x, weight = draw(2, 3, 40, dtype=dtype), draw(40, dtype=dtype, seed=1)
    check(on_triton.rms_norm(x, weight, 1e-5, 1.0), F.rms_norm(x.double(), (40,), weight.double() + 1, 1e-5))


@each_dtype
@pytest.mark.parametrize("shape", [(7, 40), (0, 64), (2, 1100)])
def test_gates(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x = 4 * draw(shape[0], 2 * shape[1], dtype=dtype)
    left, right = x.double().chunk(2, -1)
    check(on_triton.gate(x), F.silu(left) * right)
    left, right = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    check(on_triton.gated_product(left, right), F.silu(left.double()) * right.double())


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(20, 20), (64, 40), (24, 0)])
@pytest.mark.parametrize("norms_over", [None, "head", "all heads"])
@pytest.mark.parametrize(
    ("is_interleaved", "query_step", "dtype"),
    [(False, 1, torch.float32), (True, 1, torch.bfloat16), (False, 2, torch.float32)],
)
def test_heads_are_normed_and_turned_where_they_lie(
    head_dim: int, rotary_dim: int, norms_over: str | None, is_interleaved: bool, query_step: int, dtype: torch.dtype
) -> None:
    if query_step > 1 and norms_over == "all heads":
        pytest.skip("no model has both")
    num_queries = 4 * query_step
    qkv = draw(5, num_queries + 4, head_dim, dtype=dtype)
    cos, sin = (3 * draw(5, 1, rotary_dim // 2, dtype=dtype, seed=seed) for seed in (1, 2))
    rotation = (torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)) if rotary_dim else (None, None)
    scale = draw(5, dtype=dtype, seed=3) if is_interleaved else None
    sizes = {"head": (head_dim, head_dim), "all heads": (4 * head_dim, 2 * head_dim)}.get(norms_over or "")
    weights = (
        (None, None) if sizes is None else (draw(sizes[0], dtype=dtype, seed=4), draw(sizes[1], dtype=dtype, seed=5))
    )
    more = (4, 2, *weights, 1e-5, 0.5, is_interleaved, query_step)
    exact = [None if each is None else each.double() for each in (qkv, *rotation, scale)]
    wide = tuple(None if each is None else each.double() for each in weights)
    expected = on_torch.rotate_heads(*exact, *more[:2], *wide, *more[4:])
    before = qkv.clone()
    found = on_triton.rotate_heads(qkv, *rotation, scale, *more)
    assert found.data_ptr() == qkv.data_ptr()
    check(found, expected)
    assert torch.equal(found[:, num_queries + 2 :], before[:, num_queries + 2 :])
    assert torch.equal(found[:, 1:num_queries:query_step], before[:, 1:num_queries:query_step]) or query_step == 1


def test_a_gpu_takes_them_and_torch_the_other_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    functions._of_tensors.cache_clear()
    monkeypatch.setattr(functions, "uses_triton", lambda device: device == "cuda")
    assert functions._of_tensors("gate", "cuda") is on_triton.gate
    assert functions._of_tensors("cap", "cuda") is on_torch.cap
    assert functions._of_tensors("gate", "cpu") is on_torch.gate
    functions._of_tensors.cache_clear()
