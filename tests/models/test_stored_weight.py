"""Weights stay in the encoding of their file until packing: any mix of encodings, whole or a rank's part."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from quire.kernels.loaded import load_kernels
from quire.loading.checkpoint import TensorEntry
from quire.loading.errors import ModelLoadError
from quire.loading.modules.fill import load_tensors
from quire.loading.modules.fitting import fit_model
from quire.loading.presets import preset_config
from quire.models.base import CausalLM
from quire.models.encodings import BLOCKS, FLOATS
from quire.models.linear import stored_weight
from quire.models.linear.block_weight import TYPES, BlockWeight
from quire.models.linear.panel_weight import PanelWeight
from quire.models.linear.stored_weight import EncodedRows, decode_rows
from quire.models.model_config import ModelConfig, UnsupportedModelError
from quire.models.parallel import ALONE, ParallelGroup
from quire.models.parallel.split import Share
from quire.models.registry import build_model, read_model_config
from quire.ops.arrays import numpy_dtype
from weights import pack

SHAPE = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 257}
MIXED = {"v_proj": "Q8_0", "q_proj": "Q4_0", "k_proj": "F16", "down_proj": "Q5_0", "norm": "F32", "embed": "Q4_1"}
RANK = ParallelGroup(1, 2)


def encode(encoding: str, values: np.ndarray) -> np.ndarray:
    if encoding in FLOATS:
        return values.astype(numpy_dtype(FLOATS[encoding]))
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[encoding])


def write(path: Path, *, tied: bool = False) -> tuple[ModelConfig, dict[str, TensorEntry], dict[str, np.ndarray]]:
    """Write a model of mixed encodings; return its entries, and the decoded tensors."""
    config = read_model_config(preset_config("random:tiny") | SHAPE | {"tie_word_embeddings": tied})
    generator = np.random.default_rng(0)
    entries, tensors = {}, {}
    with path.open("wb") as file:
        for name, view in build_model(config, np.dtype(np.float32), "meta").checkpoint_tensors().items():
            encoding = next((each for part, each in MIXED.items() if part in name), "Q8_0")
            data = encode(encoding, generator.normal(0, 0.3, view.shape).astype(np.float32))
            start = file.tell()
            file.write(data.tobytes())
            entries[name] = TensorEntry(path, name, view.shape, encoding, start, file.tell())
            tensors[name] = decode_rows(encoding, data)
    return config, entries, tensors


def load(config: ModelConfig, entries: dict[str, TensorEntry], group: ParallelGroup = ALONE) -> CausalLM:
    model, matched = fit_model(config, entries, lambda config, dtype: np.dtype(np.float32), group)
    for module in model.modules():
        for name, array in list(module.named_parameters()):
            setattr(module, name, np.empty(array.shape, array.dtype))
    views = model.checkpoint_tensors()
    load_tensors(matched, views, lambda num_bytes: None)
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_each_layer_decodes_to_the_weights_of_its_file(tmp_path: Path, tied: bool) -> None:
    config, entries, tensors = write(tmp_path / "weights", tied=tied)
    model = load(config, entries)
    attention = model.layers[0].self_attn
    assert [part.encoding for part in attention.qkv_proj.stored] == ["Q4_0", "F16", "Q8_0"]
    assert model.layers[0].mlp.down_proj.plain_bytes() == 64 * 96 // 32 * 22
    for path, layer in model.weighted_layers():
        expected = np.concatenate([tensors[f"{name}.weight"] for name, *_ in layer.parts(path)])
        np.testing.assert_array_equal(layer.stored.decode(np.dtype(np.float32), "cpu"), expected)
        layer.pack()
    ids = np.array([0, 256, 17])
    np.testing.assert_array_equal(model.embed_tokens(ids), tensors["model.embed_tokens.weight"][ids])
    x = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    qkv = np.concatenate([tensors[f"model.layers.0.self_attn.{part}_proj.weight"] for part in "qkv"])
    np.testing.assert_allclose(attention.qkv_proj(x), x @ qkv.T, rtol=1e-4, atol=1e-4)


def test_a_rank_reads_its_rows_and_its_whole_blocks_of_columns(tmp_path: Path) -> None:
    config, entries, tensors = write(tmp_path / "weights")
    config = replace(config, intermediate_size=64)
    for part, shape in (("gate", (64, 64)), ("up", (64, 64)), ("down", (64, 64))):  # halves of whole blocks
        name = f"model.layers.0.mlp.{part}_proj.weight"
        encoding = entries[name].dtype
        start = entries[name].start
        values, num_bytes = BLOCKS[encoding]
        data = encode(encoding, np.random.default_rng(3).normal(size=shape).astype(np.float32))
        with (tmp_path / "weights").open("r+b") as file:
            file.seek(start)
            file.write(data.tobytes())
        size = math.prod(shape) // values * num_bytes
        entries[name] = TensorEntry(tmp_path / "weights", name, shape, encoding, start, start + size)
        tensors[name] = decode_rows(encoding, data)
    model = load(config, entries, RANK)
    down = model.layers[0].mlp.down_proj.stored.decode(np.dtype(np.float32), "cpu")
    np.testing.assert_array_equal(down, tensors["model.layers.0.mlp.down_proj.weight"][:, 32:])
    up = model.layers[0].mlp.up_proj.stored.decode(np.dtype(np.float32), "cpu")
    np.testing.assert_array_equal(up, tensors["model.layers.0.mlp.up_proj.weight"][32:])


def test_a_share_that_would_cut_blocks_is_refused(tmp_path: Path) -> None:
    config, entries, _ = write(tmp_path / "weights")  # 96 features of the MLP, halves of 48
    with pytest.raises(UnsupportedModelError, match=r"down_proj is in blocks of 32 values \(Q5_0\)"):
        load(config, entries, RANK)
    with pytest.raises(UnsupportedModelError, match="blocks of 256"):
        EncodedRows("x", "Q4_K", Share.of(4), Share.of(320))


def test_a_block_with_an_infinite_scale_is_an_error(tmp_path: Path) -> None:
    config, entries, _ = write(tmp_path / "weights")
    entry = entries["model.layers.0.self_attn.v_proj.weight"]
    with (tmp_path / "weights").open("r+b") as file:
        file.seek(entry.start + 34)
        file.write(np.array([np.inf], np.float16).tobytes())
    with pytest.raises(ModelLoadError, match=r"v_proj.weight in .*has scales in 1 of \d+ blocks"):
        load(config, entries)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    config, entries, _ = write(tmp_path / "weights")
    name = "model.layers.0.mlp.up_proj.weight"
    entries[name] = replace(entries[name], shape=(64, 96))
    with pytest.raises(ModelLoadError, match=r"up_proj.weight is \[64, 96\], expected \[96, 64\]"):
        load(config, entries)


@pytest.mark.skipif(load_kernels().functions is None, reason="without kernels, weights are decoded")
def test_layers_compute_with_encoded_rows_where_a_kernel_takes_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, entries, tensors = write(tmp_path / "weights", tied=True)
    model = load(config, entries)
    pack(model)
    mlp, attention = model.layers[0].mlp, model.layers[0].self_attn
    assert model.embed_tokens.packed is model.lm_head.packed
    packed = [layer.packed for layer in (model.lm_head, mlp.gate_proj, mlp.down_proj, attention.o_proj)]
    assert all(isinstance(each, BlockWeight) for each in packed)
    assert isinstance(attention.qkv_proj.packed, PanelWeight), "k_proj is in float16"
    x = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    gate, up = (x @ tensors[f"model.layers.0.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
    expected = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(mlp.gate_proj.gated(x, mlp.up_proj), expected, atol=0.02 * np.abs(expected).max())

    monkeypatch.delitem(TYPES, "Q5_0")
    stored_weight._say_decoded.cache_clear()
    model = load(config, entries)
    with caplog.at_level("INFO", "quire"):
        pack(model)
    assert [each.message for each in caplog.records] == [
        "weights in Q4_0, F16, Q8_0 are decoded to float32: no kernel takes them",
        "weights in Q5_0 are decoded to float32: no kernel takes them",
    ]
    assert isinstance(model.layers[0].mlp.down_proj.packed, PanelWeight)
