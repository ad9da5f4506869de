"""A checkpoint is loaded completely, or rejected with an error that names the file and the problem."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoints import ARCHITECTURES, make_checkpoint, make_reference
from quire.loading import ModelLoadError, load_model, resolve_model
from quire.loading.checkpoint import read_headers
from quire.models.base import CausalLM
from quire.ops.arrays import as_tensor, name_of
from tensors import tensors_of
from unprivileged import open_folder, unprivileged


def load(directory: Path, **options: Any) -> CausalLM:
    return load_model(resolve_model(str(directory)), use_tqdm=False, **options)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep models unpacked, so their weights can be inspected."""
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
    monkeypatch.setattr("quire.models.latent_attention.panel_kernels", lambda dtype: None)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint("llama", tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    make_reference("llama").save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    return tmp_path


def rewrite(directory: Path, changes: dict[str, Tensor | None], prefix: str = "") -> None:
    """Replace tensors of a single-file checkpoint, remove those given as None, and strip a prefix of names."""
    tensors = {**load_file(directory / "model.safetensors"), **changes}
    save_file(
        {name.removeprefix(prefix): t.contiguous() for name, t in tensors.items() if t is not None},
        directory / "model.safetensors",
    )


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_tensor_of_a_checkpoint_arrives_where_it_belongs(name: str, tmp_path: Path) -> None:
    model = load(make_checkpoint(name, tmp_path))
    views = tensors_of(model)
    saved = {model.model_name(name): each for name, each in load_file(tmp_path / "model.safetensors").items()}
    for stack in [each for each in saved if re.search(r"experts\.(gate_up|down)_proj(_bias)?$", each)]:
        parts, kind = ("gate", "up") if "gate_up" in stack else ("down",), "bias" if "bias" in stack else "weight"
        for index, expert in enumerate(saved.pop(stack)):
            rows = expert.chunk(len(parts))
            if name.startswith("gpt-oss"):
                rows = [(expert.T if expert.ndim > 1 else expert)[i :: len(parts)] for i in range(len(parts))]
            for part, tensor in zip(parts, rows, strict=True):
                saved[f"{stack.rpartition('.')[0]}.{index}.{part}_proj.{kind}"] = tensor
    assert views.keys() == saved.keys()
    for tensor_name, tensor in saved.items():
        assert torch.equal(views[tensor_name], tensor), tensor_name


@pytest.mark.usefixtures("plain")
def test_shards_and_a_single_file_load_the_same(sharded: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    single = tensors_of(load(make_checkpoint("llama", tmp_path_factory.mktemp("single"))))
    several = tensors_of(load(sharded))
    assert all(torch.equal(several[name], tensor) for name, tensor in single.items())


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("name", "prefix"), [("llama", "model."), ("gpt2", "transformer."), ("opt", "model.")])
def test_a_checkpoint_saved_from_the_headless_model_loads(name: str, prefix: str, tmp_path: Path) -> None:
    directory = make_checkpoint(name, tmp_path)
    expected = tensors_of(load(directory))
    rewrite(directory, {}, prefix)
    loaded = tensors_of(load(directory))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize(("dtype", "expected"), [("auto", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")])
def test_weights_are_converted_to_the_dtype_that_was_asked_for(dtype: str, expected: str, directory: Path) -> None:
    model = load(directory, dtype=dtype)
    assert name_of(model.dtype) == expected
    parameters = [array for module in model.modules() for _, array in module.named_parameters()]
    assert {name_of(array.dtype) for array in parameters} == {expected}
    with pytest.raises(ValueError, match="'int8' is not one of auto, float32"):
        load(directory, dtype="int8")


def test_auto_dtype_is_that_of_the_files_where_the_config_names_none(directory: Path) -> None:
    edit_config(directory, dtype=None)
    tensors = load_file(directory / "model.safetensors")
    rewrite(directory, {name: tensor.bfloat16() for name, tensor in tensors.items()})
    assert name_of(load(directory).dtype) == "bfloat16"


@pytest.mark.usefixtures("plain")
def test_buffers_of_old_checkpoints_are_ignored(tmp_path: Path) -> None:
    mask = torch.ones(1, 1, 8, 8)
    for name, buffers in {
        "gpt2": {"transformer.h.0.attn.bias": mask, "transformer.h.0.attn.masked_bias": torch.tensor(-1e4)},
        "llama": {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)},
    }.items():
        directory = make_checkpoint(name, tmp_path / name)
        expected = tensors_of(load(directory))
        rewrite(directory, buffers)
        found = tensors_of(load(directory))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.usefixtures("plain")
class TestTiedHead:
    """The config ties the head to the embedding, but the files may hold it as well."""

    @pytest.fixture
    def tied(self, tmp_path: Path) -> Path:
        return make_checkpoint("llama-tied", tmp_path)

    def embedding(self, directory: Path) -> Tensor:
        return load_file(directory / "model.safetensors")["model.embed_tokens.weight"]

    def test_an_absent_head_is_the_embedding(self, tied: Path) -> None:
        model = load(tied)
        assert model.lm_head.weight is model.embed_tokens.weight

    def test_an_equal_head_is_dropped(self, tied: Path) -> None:
        rewrite(tied, {"lm_head.weight": self.embedding(tied).clone()})
        assert load(tied).lm_head.weight is not None
        assert load(tied).config.tie_word_embeddings

    def test_a_head_that_differs_is_used_with_a_warning(self, tied: Path, caplog: pytest.LogCaptureFixture) -> None:
        head = self.embedding(tied) + 1
        rewrite(tied, {"lm_head.weight": head})
        with caplog.at_level(logging.WARNING):
            model = load(tied)
        assert torch.equal(as_tensor(model.lm_head.weight), head)
        assert "ties the head" in caplog.text

    def test_a_head_without_an_embedding_is_both(self, tied: Path) -> None:
        embedding = self.embedding(tied)
        rewrite(tied, {"lm_head.weight": embedding, "model.embed_tokens.weight": None})
        assert torch.equal(as_tensor(load(tied).embed_tokens.weight), embedding)

    def test_a_missing_head_of_an_untied_model_says_how_to_tie_it(self, directory: Path) -> None:
        rewrite(directory, {"lm_head.weight": None})
        with pytest.raises(ModelLoadError, match=r"missing: lm_head.weight .*tie_word_embeddings: true"):
            load(directory)


def test_a_missing_tensor_is_named(directory: Path) -> None:
    rewrite(directory, {"model.layers.1.mlp.up_proj.weight": None})
    with pytest.raises(ModelLoadError, match=r"1 of 30 tensors are missing: model.layers.1.mlp.up_proj.weight"):
        load(directory)


def test_an_unexpected_tensor_is_named(directory: Path) -> None:
    rewrite(directory, {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)})
    with pytest.raises(ModelLoadError, match=r"1 tensors are unexpected: model.layers.0.self_attn.q_proj.bias"):
        load(directory)


def test_another_shape_is_reported_with_the_expected_one(directory: Path) -> None:
    rewrite(directory, {"model.norm.weight": torch.ones(65)})
    with pytest.raises(ModelLoadError, match=r"model.norm.weight is \[65\], expected \[64\]"):
        load(directory)


def test_all_problems_are_reported_at_once_and_long_lists_are_cut(directory: Path) -> None:
    edit_config(directory, num_hidden_layers=5, vocab_size=300)
    with pytest.raises(ModelLoadError, match=r"18 of 48 tensors are missing: .* and 15 more; 2 tensors have another"):
        load(directory)


def test_a_quantized_tensor_is_refused(directory: Path) -> None:
    rewrite(directory, {"lm_head.weight": torch.zeros(256, 64, dtype=torch.int8)})
    with pytest.raises(ModelLoadError, match=r"have another type: lm_head.weight is I8"):
        load(directory)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_tensor_with_nan_or_infinity_is_refused(value: float, directory: Path) -> None:
    bad = torch.zeros(64, 96)
    bad[3, 5] = value
    rewrite(directory, {"model.layers.2.mlp.down_proj.weight": bad})
    with pytest.raises(ModelLoadError, match=r"layers.2.mlp.down_proj.weight in .* has 1 of 6144 values that are NaN"):
        load(directory)


def test_opposite_infinities_do_not_cancel_out(directory: Path) -> None:
    rewrite(directory, {"model.norm.weight": torch.tensor([float("inf"), float("-inf")] * 32)})
    with pytest.raises(ModelLoadError, match="64 of 64 values"):
        load(directory)


def test_large_finite_weights_are_fine_until_a_conversion_overflows(directory: Path) -> None:
    rewrite(directory, {"model.norm.weight": torch.full((64,), 3e38)})
    load(directory)
    with pytest.raises(ModelLoadError, match=r"once converted from F32 to float16.*another dtype"):
        load(directory, dtype="float16")


@pytest.mark.parametrize("kept", [0, 4, 100, 50_000])
def test_a_truncated_file_is_refused(kept: int, directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelLoadError, match=rf"model.safetensors \({kept} bytes\) is truncated or no safetensors"):
        load(directory)


def test_weights_that_this_user_may_not_read_are_not_called_broken() -> None:
    with open_folder() as folder:
        make_checkpoint("llama", folder)
        (folder / "model.safetensors").chmod(0)
        with (
            unprivileged(),
            pytest.raises(ModelLoadError, match=r"model.safetensors cannot be read: Permission denied"),
        ):
            read_headers(folder)


def test_a_truncated_shard_is_refused(sharded: Path) -> None:
    file = sorted(sharded.glob("*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelLoadError, match=rf"{file.name} .*is truncated"):
        load(sharded)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    file = sorted(sharded.glob("*.safetensors"))[1]
    file.unlink()
    with pytest.raises(ModelLoadError, match=rf"lacks 1 of \d+ shards that .*index.json names: {file.name}"):
        load(sharded)


def test_an_index_with_tensors_in_no_shard_is_refused(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.extra"] = next(iter(index["weight_map"].values()))
    path.write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match=r"lists model.extra"):
        load(sharded)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_a_broken_index_is_refused(text: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors\.index\.json"):
        load(sharded)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("pytorch_model.bin", "only pickled weights.*save_pretrained"),
        ("model.gguf", "name the GGUF file itself"),
        ("weights.safetensors", "only weights.safetensors; rename"),
        ("readme.md", "contains no weights.*load_format='random'"),
    ],
)
def test_other_kinds_of_weights_are_refused_with_a_way_out(file: str, message: str, directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / file)
    with pytest.raises(ModelLoadError, match=message):
        load(directory)


def test_a_progress_bar_is_drawn_on_stderr_only_if_asked_for(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(directory)
    assert capsys.readouterr() == ("", "")
    load_model(resolve_model(str(directory)))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Loading weights" in printed.err


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_a_dtype_that_is_not_served_is_refused_unless_another_is_chosen(directory: Path, name: str) -> None:
    edit_config(directory, dtype=None)
    edit_config(directory, **{name: "int4"})
    with pytest.raises(ValueError, match=r"weights' dtype as 'int4'.*choose a dtype yourself: float32, bfloat16"):
        load(directory)
    assert name_of(load(directory, dtype="float32").dtype) == "float32"
