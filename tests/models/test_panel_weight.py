"""Our linear layers match float64 at every level of this processor, and their weight is a table."""

from __future__ import annotations

import ctypes

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from checkpoints import make_config
from kernel_levels import LEVELS, library_of
from quire.models.linear import panel_weight
from quire.models.linear.panel_weight import PanelWeight, pack_weight, panel_kernels
from quire.models.registry import build_model, read_model_config
from weights import pack

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


@pytest.fixture(params=LEVELS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library_of(request.param)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    num_rows=st.sampled_from([0, 1, 2, 5, 13, 33, 70]),
    in_features=st.one_of(st.sampled_from([64, 480]), st.integers(1, 150)),
    out_features=st.one_of(st.sampled_from([32, 96]), st.integers(1, 150)),
    dtype=st.sampled_from(DTYPES),
    has_bias=st.booleans(),
    is_strided=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_products_are_those_of_float64(
    library: ctypes.CDLL, num_rows: int, in_features: int, out_features: int, dtype: torch.dtype, has_bias: bool,
    is_strided: bool, seed: int,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    width = in_features + 3 if is_strided else in_features
    x = numbers(num_rows, width)
    x[:, in_features:] = torch.nan  # a neighbour's, which must not be read
    x = x[:, :in_features]
    weight, up = (numbers(out_features, in_features) / in_features**0.5 for _ in range(2))
    bias, up_bias = (numbers(out_features) if has_bias else None for _ in range(2))
    ids = torch.randint(out_features, (num_rows,), generator=generator)
    taken = weight[ids]

    def expected(weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x.double(), weight.double(), None if bias is None else bias.double())

    plain, gate_up = expected(weight, bias), F.silu(expected(weight, bias)) * expected(up, up_bias)
    packed, packed_up = PanelWeight(weight, library), PanelWeight(up, library)
    for found, exact in (
        (packed.product(x, bias), plain),
        (packed.product(x, bias, "silu"), F.silu(plain)),
        (packed.gated_product(x, bias, packed_up, up_bias), gate_up),
    ):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert torch.equal(packed.rows(ids), taken)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_neighbours_do_not_change_a_bit(
    library: ctypes.CDLL, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More and deeper rows than a thread packs at once, in panels shared by threads."""
    torch.manual_seed(0)
    weight, up = (torch.randn(80, 4864).to(dtype) / 70 for _ in range(2))
    x = torch.randn(140, 4864).to(dtype)
    exact = F.silu(F.linear(x.double(), weight.double())) * F.linear(x.double(), up.double())
    packed, packed_up = PanelWeight(weight, library), PanelWeight(up, library)
    monkeypatch.setattr(panel_weight, "num_threads", lambda: 3)
    together = packed.gated_product(x, None, packed_up, None)
    torch.testing.assert_close(together.double(), exact, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    monkeypatch.setattr(panel_weight, "num_threads", lambda: 1)
    assert torch.equal(packed.gated_product(x, None, packed_up, None), together)
    for few in (1, 4, 7, 16, 40):  # packed as a whole
        assert torch.equal(packed.gated_product(x[:few], None, packed_up, None), together[:few])
    others = torch.randn(140, 4864).to(dtype)
    others[7] = x[7]
    others[8] = torch.nan
    assert torch.equal(packed.gated_product(others, None, packed_up, None)[7], together[7])


def test_a_weight_of_whole_panels_is_packed_where_it_lies(library: ctypes.CDLL) -> None:
    weight = torch.randn(64, 96).to(torch.bfloat16)
    plain = weight.clone()
    packed = PanelWeight(weight, library)
    assert packed.num_bytes == 64 * 96 * 2
    assert torch.equal(packed.rows(torch.arange(64)), plain)
    assert not torch.equal(weight, plain)


def test_a_weight_without_inputs_is_left_to_torch() -> None:
    assert pack_weight(torch.empty(64, 0)) is None


def test_rows_that_there_are_not_are_refused(library: ctypes.CDLL) -> None:
    packed = PanelWeight(torch.zeros(33, 8), library)
    for wrong in (-1, 33):
        with pytest.raises(IndexError, match="33 rows"):
            packed.rows(torch.tensor([0, wrong]))


@pytest.mark.skipif(panel_kernels(torch.float32) is None, reason="torch's products are used here")
def test_a_tied_head_and_the_embedding_are_one_table() -> None:
    config = read_model_config(make_config("llama-tied").to_dict())
    model = build_model(config, torch.float32, "cpu")
    for parameter in model.checkpoint_tensors().values():
        parameter.data.normal_()
    ids = torch.tensor([3, 0, config.vocab_size - 1])
    expected = model.embed_tokens(ids)
    logits = model.compute_logits(expected)
    num_bytes = model.weight_bytes()
    pack(model)
    assert model.weight_bytes() == num_bytes
    assert model.embed_tokens.weight is None
    assert torch.equal(model.embed_tokens(ids), expected)
    torch.testing.assert_close(model.compute_logits(expected), logits)
