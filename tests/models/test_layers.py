"""A packed linear layer computes the same as a plain one, and a packed model stores every weight once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from checkpoints import ARCHITECTURES, make_reference
from quire.loading.modules.units import tied_head_bytes
from quire.models.latent_attention import LatentProjection
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.linear.panel_weight import panel_kernels
from quire.models.registry import build_model, read_model_config
from weights import pack


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [0, 1, 7, 40])
def test_a_packed_layer_computes_what_a_plain_one_does(dtype: torch.dtype, has_bias: bool, num_rows: int) -> None:
    torch.manual_seed(0)
    layer = Linear(48, 80, bias=has_bias, dtype=dtype, device="cpu")
    for _, parameter in layer.named_parameters():
        parameter.normal_()
    x = torch.randn(num_rows, 48).to(dtype)
    expected = layer(x)
    layer.pack()
    assert (layer.packed is not None) == (panel_kernels(dtype) is not None)
    torch.testing.assert_close(layer(x), expected)
    wide = torch.randn(num_rows, 96).to(dtype)  # a strided input, such as a slice of a merged output
    torch.testing.assert_close(layer(wide[:, :48]), layer(wide[:, :48].contiguous()))


def test_packing_frees_the_plain_weight_and_may_be_asked_twice() -> None:
    layer = Linear(64, 32, bias=False, dtype=torch.float32, device="cpu")
    layer.pack()
    layer.pack()
    if panel_kernels(torch.float32) is not None:
        assert layer.weight is None
        assert not list(layer.named_parameters())


def test_float16_falls_back_to_the_plain_product_where_it_cannot_be_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
    layer = Linear(64, 32, bias=False, dtype=torch.float32, device="cpu")
    assert layer.weight is not None
    layer.weight.normal_()
    x = torch.randn(3, 64)
    layer.pack()
    assert layer.packed is None
    torch.testing.assert_close(layer(x), x @ layer.weight.T)


def test_merged_projections_show_the_checkpoint_its_own_tensors() -> None:
    layer = MergedLinear(8, {"q_proj": 6, "k_proj": 2}, bias=True, dtype=torch.float32, device="cpu")
    views = dict(layer.checkpoint_tensors("layers.0.attn.qkv_proj"))
    assert {name: tuple(view.shape) for name, view in views.items()} == {
        "layers.0.attn.q_proj.weight": (6, 8),
        "layers.0.attn.q_proj.bias": (6,),
        "layers.0.attn.k_proj.weight": (2, 8),
        "layers.0.attn.k_proj.bias": (2,),
    }
    x, weight = torch.randn(3, 8), {name: torch.randn(view.shape) for name, view in views.items()}
    for name, view in views.items():
        view.copy_(weight[name])
    expected = [
        F.linear(x, weight[f"layers.0.attn.{part}.weight"], weight[f"layers.0.attn.{part}.bias"])
        for part in ("q_proj", "k_proj")
    ]
    torch.testing.assert_close(layer(x), torch.cat(expected, -1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_packed_model_holds_every_weight_once_and_a_tied_head_apart_only_where_it_must(name: str) -> None:
    config = read_model_config(make_reference(name).config.to_dict())
    model = build_model(config, torch.float32, "cpu")
    assert model.weight_bytes() == config.weight_bytes("float32")
    pending = tied_head_bytes(model)
    pack(model)
    layers = [each for each in model.modules() if isinstance(each, Linear)]
    padded = [each for each in layers if each.out_features % 32 or isinstance(each, LatentProjection)]
    padding = sum(each.packed.num_bytes - 4 * each.in_features * each.out_features for each in padded if each.packed)
    assert model.weight_bytes() == config.weight_bytes("float32") + pending + padding
    assert pending == 0
