"""Presets have the shapes of their models; their weights depend on name and seed only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from checkpoints import make_checkpoint
from quire.loading import ModelLoadError, load_model, resolve_model
from quire.loading.checkpoint import TensorEntry
from quire.loading.modules.fill import CHUNK, TensorFill, fill_random
from quire.loading.presets import preset_names
from quire.models.base import CausalLM
from quire.ops.arrays import as_numpy, numpy_dtype, torch_dtype
from quire.text.tokenizer import Tokenizer
from tensors import logits_of_tokens, tensors_of

# From their model cards, and the number of parameters on the hub.
PUBLISHED_PARAMETERS = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-0.6b-32-layers": 658_973_696,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-30b-a3b-4-layers": 2_559_593_472,
    "qwen3.5-0.8b": 752_393_024,
    "qwen3.5-35b-a3b-4-layers": 3_431_459_904,
    "lfm2-1.2b": 1_170_340_608,
    "granite-4.0-h-micro": 3_191_396_096,
    "granite-4.0-h-tiny": 6_939_037_248,
    "granite-4.0-h-tiny-10-layers": 1_721_391_120,
    "deepseek-v2-lite-4-layers": 1_902_661_632,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-20b-4-layers": 3_387_122_624,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "mistral-7b": 7_248_023_552,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "dialogpt-small": 124_439_808,
    "dialogpt-medium": 354_823_168,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
}


def load_tiny(**options: object) -> CausalLM:
    return load_model(resolve_model("random:tiny"), use_tqdm=False, **options)  # type: ignore[arg-type]


@pytest.fixture
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)


def test_every_preset_has_the_parameters_of_its_model() -> None:
    found = {name.removeprefix("random:"): resolve_model(name).config.num_parameters for name in preset_names()}
    assert max(found.pop("tiny"), found.pop("tiny-moe")) < 2_000_000
    assert found == PUBLISHED_PARAMETERS


def test_an_unknown_preset_lists_close_matches_and_all_names() -> None:
    with pytest.raises(ModelLoadError, match=r"did you mean random:qwen2\.5-1\.5b.*Presets: random:tiny, "):
        resolve_model("random:qwen2.5-1.4b")
    with pytest.raises(ModelLoadError, match="no preset 'random:zzz'; Presets: random:tiny"):
        resolve_model("random:zzz")


def test_a_preset_ends_where_the_byte_level_tokenizer_does() -> None:
    tokenizer = Tokenizer.byte_level(512)  # its special tokens have the same ids in every size
    for name in preset_names():
        config = resolve_model(name).config
        assert config.eos_token_ids == (tokenizer.eos_token_id,)


def test_a_preset_has_no_files_to_read() -> None:
    with pytest.raises(ModelLoadError, match="preset without files"):
        load_tiny(load_format="safetensors")


def test_the_tiny_preset_computes_varied_tokens() -> None:
    model = load_tiny()
    with torch.inference_mode():
        logits = logits_of_tokens(model, torch.arange(100), torch.arange(100), lambda layer_index, q, k, v: q)
    assert logits.shape == (100, 512)
    assert len(logits.argmax(-1).unique()) > 20


@pytest.mark.usefixtures("_plain")
def test_the_same_seed_gives_the_same_weights_in_every_dtype() -> None:
    first, again, other = (tensors_of(load_tiny(seed=seed)) for seed in (0, 0, 1))
    narrow = tensors_of(load_tiny(dtype="bfloat16"))
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        assert torch.equal(tensor.bfloat16(), narrow[name])
        assert tensor.dim() == 1 or not torch.equal(tensor, other[name])


@pytest.mark.usefixtures("_plain")
def test_a_directorys_shapes_may_be_filled_with_random_weights(tmp_path: Path) -> None:
    make_checkpoint("gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    views = tensors_of(load_model(resolve_model(str(tmp_path)), load_format="random", use_tqdm=False))
    weight = views["transformer.h.1.mlp.c_fc.weight"]
    assert weight.std() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(views["transformer.h.1.mlp.c_fc.bias"], torch.zeros(256))
    assert torch.equal(views["transformer.ln_f.weight"], torch.ones(64))


def test_a_tensors_values_depend_on_neither_order_nor_layout() -> None:
    shapes = {"a.weight": (30, 20), "b.weight": (7, 9)}

    def fill(names: list[str], is_transposed: bool = False) -> dict[str, Tensor]:
        views = {n: torch.empty(shapes[n][::-1]).t() if is_transposed else torch.empty(shapes[n]) for n in names}
        fill_random(views, std=0.02, seed=3)
        return views

    expected = fill(["a.weight", "b.weight"])
    for views in (fill(["b.weight", "a.weight"]), fill(["a.weight", "b.weight"], is_transposed=True)):
        assert all(torch.equal(views[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_tensors_of_a_gpu_get_the_weights_of_arrays(
    dtype: str, is_transposed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("quire.loading.modules.fill._in_place", lambda view: view)  # as for a tensor on a GPU
    stored = np.random.default_rng(0).standard_normal((70, 90), np.float32)
    entry = TensorEntry(tmp_path, "a.weight", stored.shape, "F32", 0, stored.nbytes)
    found = []
    for array in (np.zeros((90, 70), numpy_dtype(dtype)), torch.zeros(90, 70, dtype=torch_dtype(dtype))):
        view = array.T if is_transposed else array.reshape(70, 90)
        fill_random({"a.weight": view}, std=0.02, seed=0)
        drawn = as_numpy(view).copy()
        fill = TensorFill(view, entry)
        fill.add(0, memoryview(stored).cast("B"))
        fill.finish()
        found.append((drawn.tobytes(), as_numpy(view).tobytes()))
    assert found[0] == found[1]
    assert found[0][1] == stored.astype(numpy_dtype(dtype)).tobytes()


def test_a_large_tensor_has_no_two_equal_rows() -> None:
    weight = torch.empty(2100, 1024)
    assert weight.numel() > 2 * CHUNK
    fill_random({"weight": weight}, std=0.02, seed=0)
    assert len({row.numpy().tobytes() for row in weight}) == len(weight)
    assert weight.std() == pytest.approx(0.02, rel=0.01)
