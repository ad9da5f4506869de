"""A saved model loads unchanged, here and in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from checkpoints import make_checkpoint, make_multimodal
from gguf_files import write_gguf
from loading.test_gguf import VARIANTS
from parameters import quick
from quire.loading import load_model, resolve_model
from quire.loading.save import save_model
from quire.loading.source import ModelSource
from quire.ops.arrays import as_tensor
from quire.text.tokenizer import Tokenizer

#: Whose metadata is most unlike config.json.
OF_ANOTHER_CONFIG = (
    "mixtral",
    "deepseek2",
    "deepseek3",
    "exaone4",
    "gemma4",
    "gemma4-shared",
    "glm4_moe_lite",
    "gpt-oss-window",
    "qwen3-moe",
)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)


def tensors_of(name: Any, **options: Any) -> dict[str, torch.Tensor]:
    source = name if isinstance(name, ModelSource) else resolve_model(str(name))
    views = load_model(source, use_tqdm=False, **options).checkpoint_tensors()
    return {name: as_tensor(view) for name, view in views.items()}


@pytest.mark.parametrize("preset", ["tiny", "gpt2"])
def test_a_preset_loads_equal_from_its_files(preset: str, tmp_path: Path) -> None:
    few = {"vocab_size": 300, "n_layer": 2, "n_embd": 48} if preset == "gpt2" else {}
    source = resolve_model(f"random:{preset}")
    source = ModelSource(source.name, None, {**source.hf_config, **few})
    save_model(source, tmp_path, seed=3, use_tqdm=False, shard_bytes=100_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    expected, found = tensors_of(source, seed=3), tensors_of(tmp_path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").state_dict()
    assert all(torch.equal(reference[name], tensor) for name, tensor in expected.items())
    with pytest.raises(ValueError, match="is not empty"):
        save_model(source, tmp_path)


def test_a_checkpoint_is_saved_in_another_dtype_with_what_lies_beside_it(tmp_path: Path) -> None:
    source = resolve_model(str(make_checkpoint("opt-350m", tmp_path / "from")))
    Tokenizer.byte_level(300).save(tmp_path / "from")
    save_model(source, tmp_path / "to", dtype="bfloat16", use_tqdm=False)
    expected, found = tensors_of(source, dtype="bfloat16"), tensors_of(tmp_path / "to")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert json.loads((tmp_path / "to" / "config.json").read_text())["dtype"] == "bfloat16"
    tokenizer, reference = Tokenizer.byte_level(300), transformers.AutoTokenizer.from_pretrained(tmp_path / "to")
    text = "Zoë said: <|im_end|> 1"
    assert Tokenizer.from_dir(tmp_path / "to").encode(text) == reference.encode(text) == tokenizer.encode(text)
    assert reference.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("variant", quick(["mixtral", "deepseek2"], OF_ANOTHER_CONFIG))
def test_transformers_opens_what_is_saved_of_a_gguf_file(variant: str, tmp_path: Path) -> None:
    directory = make_checkpoint(variant, tmp_path / "model", **VARIANTS[variant])
    source = resolve_model(str(write_gguf(directory, tmp_path / "model.gguf")))
    save_model(source, tmp_path / "saved", use_tqdm=False)
    ids = torch.arange(3, 60)[None]
    expected, found = (
        transformers.AutoModelForCausalLM.from_pretrained(each, dtype=torch.float32)(ids).logits
        for each in (directory, tmp_path / "saved")
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("variant", quick(["glm4_moe"], ["glm4_moe", "deepseek3", "lfm2-moe"]))
def test_routers_keep_the_digits_of_their_file(variant: str, tmp_path: Path) -> None:
    directory = make_checkpoint(variant, tmp_path / "from")
    tensors = load_file(directory / "model.safetensors")
    tensors = {name: each if "_bias" in name else each.bfloat16() for name, each in tensors.items()}
    save_file(tensors, directory / "model.safetensors")
    save_model(resolve_model(str(directory)), tmp_path / "to", dtype="bfloat16", use_tqdm=False)
    found = load_file(tmp_path / "to" / "model.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], each) and found[name].dtype == each.dtype for name, each in tensors.items())


def test_the_text_part_of_a_multimodal_model_is_saved_as_a_model_of_text(tmp_path: Path) -> None:
    text = make_checkpoint("gemma3", tmp_path / "text")
    both = make_multimodal(text, tmp_path / "both")
    save_model(resolve_model(str(both)), tmp_path / "saved", use_tqdm=False)
    expected, found = tensors_of(text), tensors_of(tmp_path / "saved")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype="auto").state_dict()
    assert all(torch.equal(reference[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_save_leaves_an_empty_directory(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", Mock(side_effect=error))
    source = resolve_model("random:tiny")
    with pytest.raises((KeyboardInterrupt, ValueError)):
        save_model(source, tmp_path, use_tqdm=False)
    monkeypatch.undo()
    save_model(source, tmp_path, use_tqdm=False)


def test_a_save_that_fails_leaves_what_others_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another_writes(_: int) -> None:
        (tmp_path / "notes.txt").write_text("kept")
        raise OSError("full")

    monkeypatch.setattr("os.fsync", another_writes)
    with pytest.raises(ValueError, match="cannot be written"):
        save_model(resolve_model("random:tiny"), tmp_path, use_tqdm=False)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("variant", ["granite4-moe", "gemma4-moe"])
def test_a_model_whose_experts_transformers_stacks_is_refused(variant: str, tmp_path: Path) -> None:
    source = resolve_model(str(make_checkpoint(variant, tmp_path / "model")))
    with pytest.raises(ValueError, match="expects stacked experts"):
        save_model(source, tmp_path / "saved")
