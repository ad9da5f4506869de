"""Elementwise kernels against float64, at every level of this processor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import quire.runner.top_tokens as sampler
from quire.kernels.build import LEVELS
from quire.kernels.elementwise import Elementwise
from quire.kernels.loaded import load_kernels, load_library, runnable_levels
from quire.models.layers import RMSNorm, Sum
from quire.models.rotary import rotate_heads
from quire.ops import functions, on_torch
from quire.ops.arrays import as_numpy

#: Relative to the largest value: one rounding to the dtype, and differences of summation order.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2**-7}


@pytest.fixture(params=[(level, dtype) for level in LEVELS for dtype in TOLERANCE], ids=lambda each: str(each))
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elementwise]:
    level, dtype = request.param
    if level not in (levels := runnable_levels()):
        pytest.skip(f"this processor runs {', '.join(levels)}" if levels else f"kernels: {load_kernels()}")
    found = Elementwise(load_library(level), str(dtype).removeprefix("torch."))
    monkeypatch.setattr(functions, "elementwise", lambda _: found)
    monkeypatch.setattr(sampler, "elementwise", lambda _: found)
    for module in (functions, sampler):
        monkeypatch.setattr(module, "threads_for", lambda *_: 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield found


@pytest.fixture
def dtype(request: pytest.FixtureRequest, kernels: Elementwise) -> torch.dtype:
    return next(each for each in TOLERANCE if str(each) in request.node.name)


def make_norm(size: int, dtype: torch.dtype) -> RMSNorm:
    norm = RMSNorm(size, 1e-5, dtype=dtype, device="cpu")
    norm.weight.copy_(torch.randn(size))
    return norm


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.double() - expected).abs().max() <= TOLERANCE[found.dtype] * expected.abs().max()


@pytest.mark.parametrize("shape", [(1, 896), (7, 77), (300, 5), (0, 64)])
def test_norms_and_the_sums_before_them(kernels: Elementwise, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    norm = make_norm(shape[1], dtype)
    x, y = torch.randn(shape).to(dtype), (5 * torch.randn(shape)).to(dtype)
    total = x + y
    found, normed = norm.add_and_norm(Sum(x, y))
    assert torch.equal(found, total)
    if len(x):
        exact = F.rms_norm(total.double(), norm.weight.shape, norm.weight.double(), 1e-5)
        check(normed, exact)
        assert torch.equal(normed, norm(total))
        both = torch.cat((total, total), dim=1)[:, : shape[1]]  # rows with gaps
        assert torch.equal(normed, norm(both))
        assert torch.equal(normed[:1], norm(total[:1])), "a neighbour changed it"


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(6, 6), (20, 20), (64, 64), (64, 40), (20, 6), (24, 0)])
@pytest.mark.parametrize("norms_over", [None, "head", "all heads"])
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_heads_are_normed_and_turned_where_they_lie(
    kernels: Elementwise, dtype: torch.dtype, head_dim: int, rotary_dim: int, norms_over: str, is_interleaved: bool
) -> None:
    qkv = torch.randn(9, 8, head_dim).to(dtype)
    cos, sin = ((torch.randn(9, 1, rotary_dim // 2) * 3).to(dtype) for _ in range(2))
    scale = torch.rand(9).to(dtype) if is_interleaved else None
    rotation = (torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1), scale)
    sizes = {"head": (head_dim, head_dim), "all heads": (4 * head_dim, 2 * head_dim)}.get(norms_over)
    norms = None if sizes is None else (make_norm(sizes[0], dtype), make_norm(sizes[1], dtype))
    exact = qkv[:, :6].double()
    if norms is not None:
        parts = [
            F.rms_norm(part.reshape(9, -1, len(norm.weight)), norm.weight.shape, norm.weight.double(), 1e-5)
            for part, norm in zip(exact.split([4, 2], 1), norms, strict=True)
        ]
        exact = torch.cat([part.reshape(9, -1, head_dim) for part in parts], 1)
    turning = exact[..., :rotary_dim]
    left, right = turning.unflatten(-1, (-1, 2) if is_interleaved else (2, -1)).unbind(-1 if is_interleaved else -2)
    turned = (left * cos - right * sin, right * cos + left * sin)
    turned = torch.stack(turned, -1 if is_interleaved else -2).flatten(-2)
    exact = torch.cat((turned, exact[..., rotary_dim:]), -1)
    if scale is not None:
        exact[:, :4] *= scale[:, None, None]
    weights = (None, None, 0.0, 0.0) if norms is None else (norms[0].weight, norms[1].weight, 1e-5, 0.0)
    plain = on_torch.rotate_heads(qkv.clone(), *rotation, 4, 2, *weights, is_interleaved).split_with_sizes([4, 2, 2], 1)
    values = qkv[:, 6:].clone()
    found = rotate_heads(qkv, rotation, 4, 2, norms, is_interleaved)
    assert found[0].data_ptr() == qkv.data_ptr()
    for q, k, v in (found, plain):
        check(q, exact[:, :4])
        check(k, exact[:, 4:])
        assert torch.equal(v, values)


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_latents_are_normed_and_the_features_behind_them_turned(
    kernels: Elementwise, dtype: torch.dtype, count: int, is_interleaved: bool
) -> None:
    queries, keys, norm = torch.randn(count, 3, 25).to(dtype), torch.randn(count, 30).to(dtype), make_norm(24, dtype)
    cos, sin = ((torch.randn(count, 1, 3) * 3).to(dtype) for _ in range(2))
    angles = (torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))

    def turn(x: torch.Tensor) -> torch.Tensor:  # by a function that is tested above
        exact = (each.double() for each in (x, *angles))
        return on_torch.rotate_heads(*exact, None, x.shape[1], 0, None, None, 0.0, 0.0, is_interleaved)

    expected, turned = turn(queries[..., 19:]), turn(keys[:, None, 24:])
    latents = F.rms_norm(keys[:, :24].double(), (24,), norm.weight.double(), 1e-5)
    for compute in (functions.norm_latents, on_torch.norm_latents):
        q, k = queries.clone(), keys.clone()
        assert compute(q, k, norm.weight, *angles, 1e-5, is_interleaved).data_ptr() == q.data_ptr()
        assert torch.equal(q[..., :19], queries[..., :19])
        if count:
            check(q[..., 19:], expected)
            check(k, torch.cat((latents, turned[:, 0]), -1))


def test_some_heads_are_normed_into_an_array_of_their_own(kernels: Elementwise, dtype: torch.dtype) -> None:
    x = torch.randn(9, 7, 24).to(dtype)
    for found in (functions.norm_heads(x, 3, 2, 1e-5), on_torch.norm_heads(x, 3, 2, 1e-5)):
        assert found.is_contiguous()
        check(found, F.rms_norm(x[:, 3:5].double(), (24,), eps=1e-5))


def test_weights_of_norms_may_be_stored_less_one(kernels: Elementwise, dtype: torch.dtype) -> None:
    x, weight = torch.randn(7, 40).to(dtype), torch.randn(40).to(dtype)
    for found in (functions.rms_norm(x, weight, 1e-5, 1.0), on_torch.rms_norm(x, weight, 1e-5, 1.0)):
        check(found, F.rms_norm(x.double(), (40,), weight.double() + 1, 1e-5))


@pytest.mark.parametrize("shape", [(1, 33), (7, 40), (300, 5), (0, 64)])
def test_the_gate_and_up_of_a_fused_product(kernels: Elementwise, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x = torch.randn(shape[0], 2 * shape[1]).to(dtype)
    found, (gate, up) = functions.gate(x), x.double().chunk(2, -1)
    assert found.shape == shape
    if len(x):
        for each in (found, on_torch.gate(x)):
            check(each, F.silu(gate) * up)


@pytest.mark.parametrize("size", [1, 17, 1023, 5000])
def test_the_best_token_is_the_first_of_the_largest(kernels: Elementwise, dtype: torch.dtype, size: int) -> None:
    rows = torch.randn(8, size + 3).to(dtype)[:, 1 : size + 1]  # at odd addresses
    rows[1] = 0.5
    rows[2, -1] = 9
    rows[3, size // 2] = torch.nan
    rows[4] = -torch.inf
    rows[5, size // 3] = torch.inf
    values, places = sampler.best_tokens(as_numpy(rows))
    expected = rows.float().numpy()
    for i in (0, 1, 2, 4, 5, 6, 7):
        assert places[i] == int(np.argmax(expected[i])), i
        assert values[i] == expected[i].max(), i
    assert np.isnan(values[3])
