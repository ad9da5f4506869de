"""Models on this machine: the hub's cache, directories, and the GGUF files of ollama and LM Studio."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quire.gguf_header import gguf_models, gguf_parts, quantization_of

_OLLAMA_MODEL, _OLLAMA_LIBRARY = "application/vnd.ollama.image.model", "registry.ollama.ai/library/"
_LM_STUDIO = ("~/.lmstudio/models", "~/.cache/lm-studio/models")


@dataclass(frozen=True)
class StoredModel:
    name: str  #: accepted wherever a model is named
    path: Path  #: its directory or GGUF file
    num_bytes: int  #: of the weights
    format: str  #: such as "GGUF Q4_K_M" or "safetensors bfloat16"
    place: str  #: who put it there


def stored_models(hub_cache: str | None, directories: Iterable[Path]) -> Iterator[StoredModel]:
    """Find all models in the hub's cache (None: its usual place), in `directories`, and of ollama and LM Studio."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        repositories = scan_cache_dir(hub_cache).repos
    except (CacheNotFound, ValueError):
        repositories = frozenset()
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            snapshot = max(repository.revisions, key=lambda each: each.last_modified).snapshot_path
            yield from models_in(snapshot, "hub", repository.repo_id)
    for directory in directories:
        yield from models_in(directory, "directory")
    yield from ollama_models()
    for name in _LM_STUDIO:
        yield from models_in(Path(name).expanduser(), "LM Studio")


def models_in(directory: Path, place: str, repository: str | None = None) -> Iterator[StoredModel]:
    """Find the checkpoints and GGUF files in a directory and below, named by their paths, or by a hub's repository."""
    files = {file.relative_to(directory).as_posix(): file for file in sorted(directory.rglob("*")) if file.is_file()}
    for name in gguf_models(files):
        path, quantization = files[name], quantization_of(name)
        try:
            size = sum(part.stat().st_size for part in gguf_parts(path))
            kind = f"GGUF {quantization}".rstrip()
        except (OSError, ValueError):
            size, kind = path.stat().st_size, "GGUF, incomplete"
        yield StoredModel(f"{repository}:{quantization}" if repository else str(path), path, size, kind, place)
    for file in files.values():
        weights = [each for each in file.parent.glob("*.safetensors") if each.is_file()]
        if file.name == "config.json" and weights:
            size = sum(each.stat().st_size for each in weights)
            yield StoredModel(repository or str(file.parent), file.parent, size, _checkpoint_format(file), place)


def _checkpoint_format(config_file: Path) -> str:
    from quire.loading.checkpoint import weight_files
    from quire.loading.errors import ModelLoadError

    try:
        weight_files(config_file.parent)
        config = json.loads(config_file.read_text(encoding="utf-8"))
        method = (config.get("quantization_config") or {}).get("quant_method")
        return f"safetensors {method or config.get('dtype') or config.get('torch_dtype') or ''}".rstrip()
    except ModelLoadError:
        return "safetensors, incomplete"
    except (OSError, ValueError, AttributeError):
        return "safetensors, damaged config.json"


def ollama_models() -> Iterator[StoredModel]:
    """Find ollama's models by their manifests, in OLLAMA_MODELS or ~/.ollama/models."""
    root = Path(os.environ.get("OLLAMA_MODELS") or "~/.ollama/models").expanduser()
    for manifest in sorted(each for each in (root / "manifests").rglob("*") if each.is_file()):
        try:
            content = json.loads(manifest.read_text(encoding="utf-8"))
            digest = next(each["digest"] for each in content["layers"] if each["mediaType"] == _OLLAMA_MODEL)
            path = root / "blobs" / digest.replace(":", "-")
            size = path.stat().st_size
            settings = json.loads((root / "blobs" / content["config"]["digest"].replace(":", "-")).read_text())
            kind = settings.get("file_type", "")
        except (OSError, ValueError, LookupError, StopIteration, AttributeError, TypeError):
            continue  # not a model, or one whose download has not ended
        name, _, tag = manifest.relative_to(root / "manifests").as_posix().rpartition("/")
        yield StoredModel(f"{name.removeprefix(_OLLAMA_LIBRARY)}:{tag}", path, size, f"GGUF {kind}".rstrip(), "ollama")
