"""Find a model by directory, GGUF file, hub id, embedded name or preset, and read its config."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from quire.config import HubOptions
from quire.gguf_header import gguf_models, is_gguf
from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.gguf_config import gguf_config, read_gguf
from quire.loading.hub import NotDownloadedError, download_files, download_gguf
from quire.loading.on_disk import ollama_models
from quire.loading.presets import PRESET_PREFIX, preset_config, preset_names
from quire.loading.remote import check_url, fetch_directory, is_remote
from quire.models.model_config import ModelConfig, ModelConfigError
from quire.models.registry import find_architecture, read_model_config

EMBEDDED_MODELS = {
    "quire-chat": "Small talk in full sentences (GPT-2 architecture).",
    "quire-mini": "Reads a passage and answers a question about it in a few words (Llama architecture).",
}
"""Models from `train/` with their purpose, in the order of serving by default."""
_EMBEDDED = Path(__file__).parent.parent / "embedded"

_MAX_JSON_BYTES = 100 * 10**6
HUB_CONFIG_FILES = ["*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]
HUB_WEIGHT_FILES = ["model.safetensors", "model-*.safetensors"]


@dataclass(frozen=True)
class ModelSource:
    """A model's directory and JSON files, or its GGUF file and metadata."""

    name: str  #: as given by the user
    path: Path | None  #: None for a preset
    hf_config: Mapping[str, Any] = field(repr=False)
    generation_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """generation_config.json; eos_token_id is always a list."""

    @cached_property
    def config(self) -> ModelConfig:
        try:
            return read_model_config(self.hf_config)
        except ModelConfigError as error:
            raise type(error)(f"{self.name}: {error}") from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise ModelConfigError(f"{self.name}: config.json has a value of another kind: {error}") from None

    @property
    def is_assistant(self) -> bool:
        """Whether it only drafts, for a Gemma 4."""
        return self.hf_config.get("architectures") == ["Gemma4AssistantForCausalLM"]

    def check_architecture(self) -> None:
        """Refuse an unknown architecture. Unlike `config`, this imports no models."""
        try:
            find_architecture(self.hf_config)
        except ModelConfigError as error:
            raise type(error)(f"{self.name}: {error}") from None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an output, from generation_config or else the config."""
        return tuple(self.generation_config.get("eos_token_id", ())) or self.config.eos_token_ids


def resolve_model(
    name: str, *, load_format: str = "auto", hub: HubOptions | None = None, with_weights: bool = True
) -> ModelSource:
    """Find a model by embedded name (first), path of a directory or GGUF file, preset (`random:NAME`), URL or hub id,
    whose weights are downloaded once the config is checked. A hub id may name a GGUF file by its quantization, as in
    OWNER/NAME:Q4_K_M, and ollama's models have their names there. Raises ModelLoadError or UnsupportedModelError; for a
    GGUF file that is not downloaded, without `with_weights`, NotDownloadedError."""
    if is_remote(name):
        if is_gguf(Path(name)):
            raise ModelLoadError(f"{name}: GGUF files are read from local disks only; download it")
        return read_directory(name, fetch_directory(name))
    with_weights = with_weights and load_format != "random"
    return find_model(name) or _download(name, with_weights, hub or HubOptions())


def find_model(name: str) -> ModelSource | None:
    """Find a model on this machine; None for a hub id or a URL. Raises ModelLoadError as `resolve_model`."""
    if is_remote(name):
        check_url(name)
        return None
    if name.startswith(PRESET_PREFIX):
        return ModelSource(name, None, preset_config(name))
    if (embedded := embedded_path(name)) is not None:
        return read_directory(name, embedded)
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise ModelLoadError(f"{name}: no such home directory; write the full path") from None
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        return read_directory(name, path)
    if is_gguf(path):
        if not mode:
            raise ModelLoadError(f"{name}: no such file")
        return read_directory(name, path)
    if stat.S_ISREG(mode):
        raise ModelLoadError(f"{name} is a file; give a GGUF file, or the directory with config.json and the weights")
    if ":" in name and (blob := next((each.path for each in ollama_models() if each.name == name), None)) is not None:
        return read_directory(name, blob)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+(:[\w.-]+)?)?", name) or name.startswith((".", "/")):
        hint = "; ollama has none of that name, and a hub id is OWNER/NAME[:QUANTIZATION]" if ":" in name else ""
        raise ModelLoadError(f"{name}: no such directory{hint}")
    if close := difflib.get_close_matches(name, EMBEDDED_MODELS, 1, 0.8):
        raise ModelLoadError(f"{name}: no such directory; did you mean {close[0]}?")
    if "/" not in name and PRESET_PREFIX + name.lower() in preset_names():
        raise ModelLoadError(
            f"{name}: no such directory; for random weights of these shapes, use {PRESET_PREFIX}{name}"
        )
    return None


def embedded_path(name: str) -> Path | None:
    """Return the directory of an embedded model; None for other names."""
    return _EMBEDDED / name if name in EMBEDDED_MODELS else None


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise unreadable(path, error) from None


def read_directory(name: str, path: Path) -> ModelSource:
    """Read the JSON files of a model's directory, or a GGUF file's metadata; raises ModelLoadError."""
    if is_gguf(path):
        header = read_gguf(path)[0]
        return ModelSource(name, header.path, gguf_config(header))
    config_path = path / "config.json"
    if not stat.S_ISREG(_mode(config_path)):
        try:
            names = os.listdir(path)
        except OSError as error:
            raise unreadable(path, error) from None
        if models := gguf_models(names):
            if len(models) == 1:
                return read_directory(name, path / models[0])
            raise ModelLoadError(f"{path} contains {len(models)} GGUF models; name one: {', '.join(models[:5])}")
        what = "has no config.json" if names else "is empty"
        raise ModelLoadError(
            f"{path} {what}; a model directory contains config.json, *.safetensors and tokenizer.json, as "
            "`hf download` and `save_pretrained` write them"
        )
    generation_config: dict[str, Any] = {}
    if (file := path / "generation_config.json").is_file():
        generation_config = {name: value for name, value in read_json_object(file).items() if value is not None}
    if isinstance(eos := generation_config.get("eos_token_id", []), int):
        generation_config["eos_token_id"] = eos = [eos]
    if not isinstance(eos, list) or not all(type(each) is int for each in eos):
        raise ModelLoadError(f"{file}: eos_token_id is {eos!r:.100}; expected a token id or a list of them")
    return ModelSource(name, path, read_json_object(config_path), generation_config)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise ModelLoadError for anything else."""
    try:
        if (size := path.stat().st_size) > _MAX_JSON_BYTES:
            raise ValueError(f"{size} bytes are more than {_MAX_JSON_BYTES}")
        value = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError as error:
        raise unreadable(path, error) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} cannot be read as JSON ({error}); copy the file again from its origin") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} contains a {type(value).__name__}, not an object")
    return value


def _download(name: str, with_weights: bool, hub: HubOptions) -> ModelSource:
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, quantization = name.partition(":")
    try:
        directory = download_files(repository, HUB_CONFIG_FILES, hub)
        if not quantization and (directory / "config.json").is_file():
            source = read_directory(name, directory)
            if not with_weights:
                return source
            _ = source.is_assistant or source.config  # refuse unsupported models before the download
            directory = download_files(repository, HUB_CONFIG_FILES + HUB_WEIGHT_FILES, hub)
            if any(directory.glob("*.safetensors")):
                return read_directory(name, directory)
        return read_directory(name, download_gguf(repository, quantization, directory, hub, is_local=not with_weights))
    except (ModelConfigError, NotDownloadedError):
        raise
    except ModelLoadError as error:
        raise ModelLoadError(f"{name} from the hub: {error}") from None
    except GatedRepoError:
        raise ModelLoadError(
            f"{name} is gated on the hub: accept its licence there, then pass --hf-token, set HF_TOKEN or run "
            "`hf auth login`"
        ) from None
    except LocalEntryNotFoundError:
        offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
        reason = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        raise ModelLoadError(
            f"{name} is neither a directory here nor in the hub's cache, and {reason}; download it on a machine with "
            f"network access (`quire pull {name}`) and give its directory, or use an embedded model "
            f"({', '.join(EMBEDDED_MODELS)}) or a preset such as {PRESET_PREFIX}tiny"
        ) from None
    except RevisionNotFoundError:
        raise ModelLoadError(f"{name} has no revision {hub.revision!r} on the hub; give a branch or commit") from None
    except RepositoryNotFoundError:
        raise ModelLoadError(
            f"{name} is neither a directory here nor a model on the hub; a private one needs --hf-token or HF_TOKEN"
        ) from None
    except PermissionError as error:
        raise ModelLoadError(
            f"{name} could not be fetched from the hub ({error}); name a writable --download-dir or HF_HOME"
        ) from None
    except Exception as error:  # huggingface_hub passes on its HTTP client's errors
        raise ModelLoadError(
            f"{name} could not be fetched from the hub ({type(error).__name__}: {error}); download it on a machine "
            f"with network access (`quire pull {name}`) and give its directory"
        ) from error
