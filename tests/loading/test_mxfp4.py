"""gpt-oss as its makers store it: experts in MXFP4."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from typer.testing import CliRunner

from checkpoints import make_checkpoint
from command_line import app
from gguf_files import write_gguf
from quire.kernels.loaded import load_kernels
from quire.loading import resolve_model
from quire.loading.layer_loader import LayerLoader
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.loading.save import save_model
from quire.models.linear.block_weight import BlockWeight
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from ranks import load, logits_of, on_ranks

QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
needs_kernels = pytest.mark.skipif(load_kernels().functions is None, reason="weights stay encoded for kernels")


def write(folder: Path) -> tuple[Path, Path]:
    """Write a checkpoint with experts in MXFP4, and the same one as transformers decodes it."""
    plain = make_checkpoint("gpt-oss-window", folder / "plain", intermediate_size=128, swiglu_limit=7.0)
    encoded = folder / "encoded"
    tensors, of_file = load_file(plain / "model.safetensors"), {}
    random = torch.Generator().manual_seed(0)
    for name, values in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            of_file[name] = values
            continue
        count, inputs, outputs = values.shape
        blocks = torch.randint(0, 256, (count, outputs, inputs // 32, 16), dtype=torch.uint8, generator=random)
        scales = torch.randint(123, 126, (count, outputs, inputs // 32), dtype=torch.uint8, generator=random)
        of_file |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        tensors[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        assert tensors[name].shape == values.shape
    save_file(tensors, plain / "model.safetensors")
    encoded.mkdir()
    save_file(of_file, encoded / "model.safetensors")
    config = json.loads((plain / "config.json").read_text())
    (encoded / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZATION}))
    return encoded, plain


def test_experts_have_the_weights_that_transformers_decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    encoded, plain = map(load, write(tmp_path))
    assert torch.equal(logits_of(encoded), logits_of(plain))
    expected = plain.checkpoint_tensors()
    for name, values in encoded.checkpoint_tensors().items():
        assert torch.equal(torch.as_tensor(values), torch.as_tensor(expected[name])), name


@needs_kernels
def test_experts_stay_encoded(tmp_path: Path) -> None:
    encoded, plain = map(load, write(tmp_path))
    for expert, decoded in zip(encoded.layers[1].mlp.experts, plain.layers[1].mlp.experts, strict=True):
        for name in ("gate_proj", "up_proj", "down_proj"):
            packed, exact = getattr(expert, name).packed, getattr(decoded, name).packed
            assert isinstance(packed, BlockWeight)
            assert packed.num_bytes == packed.in_features * packed.out_features * 17 // 32
            ids = np.arange(packed.out_features)
            np.testing.assert_array_equal(packed.rows(ids), exact.rows(ids))
    shown = CliRunner().invoke(app, ("info", str(tmp_path / "encoded")), catch_exceptions=False).output
    assert "weights stay encoded" in shown
    found, expected = logits_of(encoded), logits_of(plain)  # activations are rounded to 8 bits, which changes choices
    assert torch.nn.functional.cosine_similarity(found, expected).median() > 0.998


def test_a_gguf_file_computes_the_same(tmp_path: Path) -> None:
    encoded, plain = write(tmp_path)
    path = write_gguf(plain, tmp_path / "model.gguf", lambda name: "MXFP4" if "_exps." in name else "F32")
    assert torch.equal(logits_of(load(path, dtype="float32")), logits_of(load(encoded)))


def test_a_saved_checkpoint_opens_in_transformers(tmp_path: Path) -> None:
    encoded, plain = write(tmp_path)
    path = write_gguf(plain, tmp_path / "model.gguf", lambda name: "MXFP4" if "_exps." in name else "F32")
    for index, source in enumerate((plain, path)):
        directory = tmp_path / str(index)
        save_model(resolve_model(str(source)), directory, dtype="float32", use_tqdm=False)
        expected, found = (load_file(each / "model.safetensors") for each in (plain, directory))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    with pytest.raises(ValueError, match=r"is quantized \(mxfp4\) and cannot be saved"):
        save_model(resolve_model(str(encoded)), tmp_path / "not")


def test_ranks_have_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    encoded, plain = write(tmp_path)
    expected = logits_of(load(plain))
    for found in on_ranks(2, lambda group: logits_of(load(encoded, group))):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"down_proj_scales": torch.full((8, 64, 4), 255, dtype=torch.uint8)}, "scales of MXFP4 weights are NaN"),
        ({"down_proj_scales": torch.zeros((8, 64, 3), dtype=torch.uint8)}, "down_proj.scales is .64, 3., expected"),
        ({"gate_up_proj_scales": torch.zeros((8, 255, 2), dtype=torch.uint8)}, "has 255 rows of gate and up"),
        ({"gate_up_proj_bias": torch.zeros(8, 254)}, "proj.bias is .127., expected .128."),
        ({"down_proj_blocks": torch.zeros(8, 64, 4, 16)}, "down_proj.blocks is F32"),
    ],
)
def test_a_broken_checkpoint_is_one_error(change: dict[str, torch.Tensor], message: str, tmp_path: Path) -> None:
    encoded, _ = write(tmp_path)
    file = encoded / "model.safetensors"
    changed = {f"model.layers.1.mlp.experts.{name}": tensor for name, tensor in change.items()}
    save_file(load_file(file) | changed, file)
    with pytest.raises(ValueError, match=message):
        load(encoded)


def test_experts_are_whole_in_every_stage_by_precision(tmp_path: Path) -> None:
    encoded, _ = write(tmp_path)
    config, tensors = json.loads((encoded / "config.json").read_text()), load_file(encoded / "model.safetensors")
    (encoded / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    floats = {name: each.bfloat16() if each.is_floating_point() else each for name, each in tensors.items()}
    save_file(floats, encoded / "model.safetensors")
    pack(str(encoded), StagePlan(3, ((0, 1, 2),), 1), tmp_path / "pack", use_tqdm=False)
    source = resolve_model(str(tmp_path / "pack"))
    with LayerLoader(source, reading=read_checkpoint(tmp_path / "pack")) as loader:
        loader.start()
        loader.wait_stage(2)
        expert = loader.model.layers[1].mlp.experts[0]
        assert not any(layer.views for layer in (expert.gate_proj, expert.up_proj, expert.down_proj))
        first, last = loader.stage(1), loader.stage(2)
        loader.model.switch_to(first)
        less = logits_of(loader.model)
        loader.model.switch_to(last)
        whole = logits_of(loader.model)
    assert not torch.equal(less, whole)
    assert torch.equal(whole, logits_of(load(encoded, dtype="auto")))
