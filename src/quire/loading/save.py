"""Write a preset or a checkpoint in the Hugging Face format, in the order of use, one tensor in memory."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from quire.loading.checkpoint import DTYPE_NAMES, INDEX_FILE, SINGLE_FILE, TensorEntry, read_headers
from quire.loading.errors import check_inside
from quire.loading.modules.fill import fill_random, load_tensors
from quire.loading.modules.fitting import choose_dtype, fit_model
from quire.loading.progress import bytes_progress
from quire.loading.source import ModelSource
from quire.models.base import CausalLM
from quire.models.model_config import ModelConfig
from quire.models.registry import build_model, text_config
from quire.ops.arrays import cast, name_of, numpy_dtype

SHARD_BYTES = 5 * 10**9
_WRITE_BYTES = 16 * 2**20
#: Files of a checkpoint beside its weights and config.
_COMPANIONS = ("token*.json", "special_tokens_map.json", "vocab.json", "merges.txt", "generation*.json", "*.jinja")


#: With experts, which transformers does not stack while it loads.
_WITH_STACKS = ("Gemma4ForCausalLM", "GraniteMoeHybridForCausalLM")
_EXPERT = re.compile(r"(.*\.experts)\.\d+\.(gate|up|down)_proj\.(weight|bias)")


@dataclass(frozen=True)
class _SavedTensor:
    parts: tuple[str, ...]  #: the model's tensors: one, or those of all experts
    saved_name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    shard: int
    num_bytes: int


def save_model(
    source: ModelSource,
    directory: Path,
    *,
    dtype: str = "auto",
    seed: int = 0,
    use_tqdm: bool = True,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write config.json, weights (dtype auto is that of loading; shards of `shard_bytes`) and a checkpoint's tokenizer
    files to a new or empty directory. They are removed after an error. ValueError if the checkpoint cannot be read or
    the directory not be used."""
    entries: dict[str, TensorEntry] = {}
    if source.path is None:
        model = build_model(source.config, _choose(dtype, source.config, None), "meta")
    else:
        if source.config.quantized is not None:
            method = source.config.quantized.method
            raise ValueError(f"{source.name} is quantized ({method}) and cannot be saved; copy its files instead")
        if getattr(source.config.state, "inputs_apart", False) or source.config.gate_and_up_apart:
            raise ValueError(f"{source.name} cannot be saved: transformers expects joint inputs of its layers")
        if source.config.experts is not None and source.config.architecture in _WITH_STACKS:
            raise ValueError(f"{source.name} cannot be saved: transformers expects stacked experts; copy its files")
        model, entries = fit_model(source.config, read_headers(source.path), partial(_choose, dtype))
    dtype = name_of(model.dtype)
    plain = build_model(model.config, model.dtype, "meta")
    views = plain.checkpoint_tensors()
    shapes = {name: tuple(view.shape) for name, view in views.items()}
    wide = {name for name, view in views.items() if name_of(view.dtype) == "float32"}
    wide &= {name for name, entry in entries.items() if entry.dtype == "F32"}  # routers keep their digits
    dtypes = {name: numpy_dtype("float32" if name in wide else dtype) for name in shapes}
    parts = _pair_experts(shapes) if model.pairs_expert_rows else {name: [name] for name in shapes}
    tensors = _plan_shards(parts, shapes, dtypes, model.checkpoint_name, shard_bytes)
    make = _maker(model, entries, seed)
    total = sum(tensor.num_bytes for tensor in tensors)
    _make_directory(directory, total)
    made: list[Path] = []
    try:
        with bytes_progress("Saving weights", total, use_tqdm) as advance:
            _write_shards(directory, tensors, make, advance, made)
        text, text_of = text_config(source.hf_config)
        config = {key: value for key, value in text.items() if key != "torch_dtype"}
        config |= {"dtype": dtype, "tie_word_embeddings": model.config.tie_word_embeddings}
        config |= {"architectures": [model.config.architecture]} if text_of else {}
        made.append(directory / "config.json")
        made[-1].write_text(json.dumps(config, indent=2) + "\n")
        if source.path is not None:
            for file in sorted({file for pattern in _COMPANIONS for file in source.path.glob(pattern)}):
                check_inside(source.path, file)
                made.append(directory / file.name)
                shutil.copyfile(file, made[-1])
    except BaseException as error:
        for file in made:
            file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ValueError(f"{directory} cannot be written: {error.strerror or error}") from None
        raise


def _choose(dtype: str, config: ModelConfig, in_files: str | None) -> np.dtype:
    return numpy_dtype(choose_dtype(dtype, config, in_files))


def _make_directory(directory: Path, num_bytes: int) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ValueError(f"{directory} is not empty; name a new directory, or empty it yourself")
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise ValueError(f"{directory} cannot be written: {error.strerror or error}") from None
    if free < num_bytes:
        raise ValueError(f"{directory} has room for {free} bytes, and the weights take {num_bytes}")


def _pair_experts(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the model's tensors by the names of gpt-oss, which stacks experts."""
    found: dict[str, list[str]] = {}
    for name in names:
        if match := _EXPERT.fullmatch(name):
            stack = f"{match[1]}.{'down' if match[2] == 'down' else 'gate_up'}_proj"
            found.setdefault(stack if match[3] == "weight" else f"{stack}_bias", []).append(name)
        else:
            found[name] = [name]
    return found


def _plan_shards(
    parts: dict[str, list[str]],
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, np.dtype],
    saved_name: Callable[[str], str],
    shard_bytes: int,
) -> list[_SavedTensor]:
    tensors: list[_SavedTensor] = []
    shard = in_shard = 0
    for name, own in parts.items():
        shape = shapes[own[0]]
        if name not in shapes:
            kinds, (rows, *columns) = 2 if "gate_up" in name else 1, shape
            shape = (len(own) // kinds, *columns, kinds * rows)
        dtype = dtypes[own[0]]
        num_bytes = math.prod(shape) * dtype.itemsize
        if in_shard and in_shard + num_bytes > shard_bytes:
            shard, in_shard = shard + 1, 0
        in_shard += num_bytes
        tensors.append(_SavedTensor(tuple(own), saved_name(name), shape, dtype, shard, num_bytes))
    return tensors


def _maker(model: CausalLM, entries: dict[str, TensorEntry], seed: int) -> Callable[[_SavedTensor], np.ndarray]:
    layers = ((layer.parts(path), layer.stored) for path, layer in model.weighted_layers() if layer.stored)
    stored = {name: part for parts, of_layer in layers for (name, *_), part in zip(parts, of_layer, strict=True)}

    def make(tensor: _SavedTensor) -> np.ndarray:
        if len(tensor.parts) == 1:
            return make_part(tensor.parts[0], tensor.shape, tensor.dtype)
        experts, *columns, outputs = tensor.shape
        rows = outputs * experts // len(tensor.parts)
        stack = np.stack([make_part(part, (rows, *columns), tensor.dtype) for part in tensor.parts])
        paired = stack.reshape(experts, -1, rows, *columns).swapaxes(1, 2).reshape(experts, outputs, *columns)
        return np.ascontiguousarray(np.moveaxis(paired, 1, -1))

    def make_part(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and layer in stored:
            part = copy(stored[layer])
            views = {kind: np.empty(array.shape, array.dtype) for kind, array in part.named_parameters()}
            of_layer = {f"{layer}.{kind}": view for kind, view in views.items()}
            load_tensors({each: entries[each] for each in of_layer}, of_layer, lambda num_bytes: None)
            vars(part).update(views)
            return cast(part.decode(slice(0, part.out_features)), dtype)
        views = {name: np.empty(shape, dtype)}
        if entries:
            load_tensors({name: entries[name]}, views, lambda num_bytes: None)
        else:
            fill_random(views, std=model.config.initializer_range, seed=seed)
        return views[name]

    return make


def _write_shards(
    directory: Path,
    tensors: list[_SavedTensor],
    make: Callable[[_SavedTensor], np.ndarray],
    advance: Callable[[int], None],
    made: list[Path],
) -> None:
    """Write the weights, and append the files to `made`."""
    stored_as = {numpy_dtype(known): name for name, known in DTYPE_NAMES.items()}
    count = tensors[-1].shard + 1
    weight_map: dict[str, str] = {}
    for shard, group in groupby(tensors, key=lambda tensor: tensor.shard):
        name = SINGLE_FILE if count == 1 else f"model-{shard + 1:05}-of-{count:05}.safetensors"
        of_shard = list(group)
        weight_map |= {tensor.saved_name: name for tensor in of_shard}
        with (directory / name).open("xb") as file:
            made.append(directory / name)
            rows = ((each.saved_name, stored_as[each.dtype], each.shape, each.num_bytes) for each in of_shard)
            file.write(tensors_header(rows))
            for tensor in of_shard:
                for piece in _pieces(make(tensor)):
                    file.write(piece)
                    advance(len(piece))
            file.flush()
            os.fsync(file.fileno())
    if count > 1:
        index = {"metadata": {"total_size": sum(tensor.num_bytes for tensor in tensors)}, "weight_map": weight_map}
        made.append(directory / INDEX_FILE)
        made[-1].write_text(json.dumps(index, indent=2) + "\n")


def tensors_header(tensors: Iterable[tuple[str, str, Sequence[int], int]]) -> bytes:
    """Return the header of a safetensors file, for names, dtypes, shapes and sizes in bytes of tensors in order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape, num_bytes in tensors:
        start, end = end, end + num_bytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _pieces(tensor: np.ndarray) -> Iterator[Any]:
    data: Any = tensor.reshape(-1).view(np.uint8)
    for start in range(0, len(data), _WRITE_BYTES):
        yield data[start : start + _WRITE_BYTES]
