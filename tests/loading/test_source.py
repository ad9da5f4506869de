"""A model's name leads to its config, or to an error with a remedy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from checkpoints import make_checkpoint
from quire.loading import ModelLoadError, resolve_model
from quire.models.model_config import ModelConfigError, UnsupportedModelError
from unprivileged import open_folder, unprivileged


def write_config(directory: Path, **fields: Any) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(fields))
    return directory


def test_a_directory_is_read_with_its_sampling_defaults(tmp_path: Path) -> None:
    make_checkpoint("qwen2", tmp_path)
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"temperature": 0.7, "top_p": None, "eos_token_id": 5, "do_sample": True})
    )
    source = resolve_model(str(tmp_path))
    assert source.path == tmp_path
    assert source.config.architecture == "Qwen2ForCausalLM"
    assert source.generation_config == {"temperature": 0.7, "eos_token_id": [5], "do_sample": True}
    assert source.eos_token_ids == (5,)


def test_without_a_generation_config_the_model_config_names_the_end_token(tmp_path: Path) -> None:
    make_checkpoint("qwen2", tmp_path)
    (tmp_path / "generation_config.json").unlink()
    source = resolve_model(str(tmp_path))
    assert source.generation_config == {}
    assert source.eos_token_ids == (2,)


def test_a_directory_that_is_none_of_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"is empty; a model directory contains config.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(ModelLoadError, match=r"has no config.json"):
        resolve_model(str(tmp_path))
    for quant in ("Q4_K_M", "Q8_0"):
        (tmp_path / f"model.{quant}.gguf").touch()
    with pytest.raises(ModelLoadError, match=r"contains 2 GGUF models; name one: model.Q4_K_M.gguf, model.Q8_0.gguf"):
        resolve_model(str(tmp_path))


def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub() -> None:
    for name in ("/no/such/directory", "./nothing", "a/b/c"):
        with pytest.raises(ModelLoadError, match="no such directory"):
            resolve_model(name)


def test_unreadable_files_are_distinguished_from_missing_ones(tmp_path: Path) -> None:
    with open_folder() as folder:
        make_checkpoint("llama", folder / "closed")
        make_checkpoint("llama", folder / "config")
        (folder / "closed").chmod(0)
        (folder / "config" / "config.json").chmod(0)
        (folder / "listed").mkdir(mode=0o311)
        for name, what in (("closed", ""), ("closed/model", ""), ("config", "/config.json"), ("listed", "")):
            with (
                unprivileged(),
                pytest.raises(ModelLoadError, match=rf"{name}\S* cannot be read: Permission denied; give") as error,
            ):
                resolve_model(str(folder / name))
            assert what in str(error.value)


def test_a_home_that_there_is_not_is_no_directory() -> None:
    with pytest.raises(ModelLoadError, match="no such home directory"):
        resolve_model("~nobody-has-this-name/model")


@pytest.mark.parametrize("name", ["model.gguf", "/somewhere/model.Q4_0.GGUF"])
def test_a_gguf_file_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"{name}: no such file"):
        resolve_model(name)


def test_a_file_in_place_of_its_directory_is_refused(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path)
    with pytest.raises(ModelLoadError, match="or the directory with"):
        resolve_model(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("text", ["", "{not json", "[1]", "\xff"])
def test_a_broken_config_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        resolve_model(str(tmp_path))


def test_missing_config_entries_are_reported_with_the_model(tmp_path: Path) -> None:
    source = resolve_model(str(write_config(tmp_path, architectures=["LlamaForCausalLM"])))
    with pytest.raises(ModelConfigError, match=rf"{tmp_path.name}: the config has no 'hidden_size'"):
        _ = source.config


def test_a_model_is_described_before_it_is_loaded() -> None:
    config = resolve_model("random:qwen2.5-0.5b").config
    assert config.num_parameters == 494_032_768
    assert [config.weight_bytes(dtype) for dtype in ("float32", "bfloat16")] == [1_976_131_072, 988_065_536]
    assert config.kv_bytes("bfloat16") == 12 * 1024
    assert config.context_length == 32768


class TestHub:
    @pytest.fixture
    def remote(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, list[list[str]]]:
        """Return a directory that stands for a hub repository, and the patterns of every download."""
        asked: list[list[str]] = []

        def snapshot_download(
            name: str, allow_patterns: list[str], *, dry_run: bool = False, **options: Any
        ) -> str | list[Any]:
            if dry_run:
                return []
            asked.append(allow_patterns)
            return str(tmp_path)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return tmp_path, asked

    def fail_with(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def snapshot_download(*args: Any, **options: Any) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)

    def test_the_config_is_fetched_before_the_weights(self, remote: tuple[Path, list[list[str]]]) -> None:
        directory, asked = remote
        make_checkpoint("qwen3", directory)
        assert resolve_model("Qwen/Qwen3-0.6B").path == directory
        assert [any("safetensors" in pattern for pattern in patterns) for patterns in asked] == [False, True]

    def test_an_unsupported_model_is_refused_before_its_weights_are_fetched(
        self, remote: tuple[Path, list[list[str]]]
    ) -> None:
        directory, asked = remote
        write_config(directory, architectures=["MambaForCausalLM"])
        with pytest.raises(UnsupportedModelError, match=r"org/mamba: MambaForCausalLM"):
            resolve_model("org/mamba")
        assert len(asked) == 1

    def test_random_weights_need_none_fetched(self, remote: tuple[Path, list[list[str]]]) -> None:
        directory, asked = remote
        make_checkpoint("qwen3", directory)
        resolve_model("Qwen/Qwen3-0.6B", load_format="random")
        assert len(asked) == 1

    def test_a_missing_network_is_reported_with_a_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        self.fail_with(monkeypatch, LocalEntryNotFoundError("no snapshot"))
        with pytest.raises(ModelLoadError, match=r"the hub cannot be reached.*quire pull.*quire-mini.*random:tiny"):
            resolve_model("org/model")
        self.fail_with(monkeypatch, httpx.ConnectError("refused"))
        with pytest.raises(ModelLoadError, match=r"ConnectError: refused\); download it on a machine"):
            resolve_model("org/model")

    def test_offline_mode_looks_at_the_cache_alone(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(ModelLoadError, match="HF_HUB_OFFLINE is set"):
            resolve_model("org/model")
        cached = tmp_path / "models--org--model"
        shutil.copytree(make_checkpoint("llama", tmp_path / "made"), cached / "snapshots" / "abc")
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text("abc")
        assert resolve_model("org/model").config.architecture == "LlamaForCausalLM"

    def test_an_unknown_repository_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        response = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co"))
        self.fail_with(monkeypatch, RepositoryNotFoundError("404", response=response))
        with pytest.raises(ModelLoadError, match="nor a model on the hub"):
            resolve_model("org/model")

    def test_a_preset_without_its_prefix_is_recognised(self) -> None:
        with pytest.raises(ModelLoadError, match=r"use random:qwen2.5-0.5b"):
            resolve_model("qwen2.5-0.5b")
