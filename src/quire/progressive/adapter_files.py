"""Adapters and maps as files: whether they are what a stage can use, by their configs and headers alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from quire.loading.errors import ModelLoadError
from quire.loading.source import read_json_object
from quire.loading.stage_manifest import ADAPTER_FILES, PackedFile
from quire.models.model_config import ModelConfig
from quire.progressive.group_file import TensorOrder

_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
#: Fields of adapter_config.json for kinds of LoRA that are not served, and the values by which they are off.
_PLAIN = {"use_dora": (False,), "bias": ("none",), "modules_to_save": ([],), "alora_invocation_tokens": ([],)}


def check_adapter(directory: Path, order: TensorOrder, layers: Sequence[int]) -> None:
    """Raise ModelLoadError, which names the file, unless this is a LoRA adapter of these layers.

    Args:
        directory: as PEFT's `save_pretrained` leaves it.
        layers: those in place at the adapter's stage.
    """
    weights, config_path = (directory / name for name in ADAPTER_FILES)
    if not weights.is_file():
        raise ModelLoadError(f"{weights} is missing; give the directory where PEFT's save_pretrained left an adapter")
    config = read_json_object(config_path)
    if config.get("peft_type") != "LORA":
        raise ModelLoadError(f"{config_path} is of type {config.get('peft_type')!r}; only LORA is served")
    for name, plain in _PLAIN.items():
        if config.get(name) is not None and config[name] not in plain:
            raise ModelLoadError(f"{config_path} has {name}={config[name]!r}, which is not served; train it without")
    pairs: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in _read_shapes(weights).items():
        found = _TENSOR.fullmatch(name)
        if found is None:
            raise ModelLoadError(f"{weights} has {name}, which is no part of a LoRA adapter of linear layers")
        pairs.setdefault(found["module"], {})[found["part"]] = shape
    if not pairs:
        raise ModelLoadError(f"{weights} holds no tensors")
    for module, parts in pairs.items():
        _check_module(weights, module, parts, _rank(config_path, config, module), order, layers)


def check_map(file: Path, config: ModelConfig) -> None:
    """Raise ModelLoadError, which names the file, unless it is a linear map of this model's hidden states."""
    size = config.hidden_size
    if (shapes := _read_shapes(file)) != {"weight": (size, size), "bias": (size,)}:
        held = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ModelLoadError(
            f"{file} holds {held or 'nothing'}; a map of this model holds weight [{size}, {size}] and bias [{size}], "
            "as `quire stages map` writes them"
        )


def adapter_digest(files: Sequence[PackedFile]) -> str:
    """The digest of an adapter's weights and config, by those of its files, in the order of `ADAPTER_FILES`."""
    return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()


def _check_module(
    weights: Path,
    module: str,
    parts: dict[str, tuple[int, ...]],
    rank: int,
    order: TensorOrder,
    layers: Sequence[int],
) -> None:
    shape, layer = order.shapes.get(f"{module}.weight"), order.layer_of(module)
    if shape is None or len(shape) != 2 or layer is None:
        raise ModelLoadError(f"{weights} adapts {module}, which is no linear layer of this model's layers")
    if layer not in layers:
        raise ModelLoadError(
            f"{weights} adapts {module}, and layer {layer} is not in place at this stage, which has {list(layers)}"
        )
    if parts.keys() != {"A", "B"}:
        raise ModelLoadError(f"{weights} has lora_{next(iter(parts))} of {module} without its other half")
    out_features, in_features = shape[::-1] if order.is_transposed else shape
    expected = {"A": (rank, in_features), "B": (out_features, rank)}
    for part, expected_shape in expected.items():
        if parts[part] != expected_shape:
            raise ModelLoadError(
                f"{weights}: lora_{part} of {module} is {list(parts[part])}, where {list(expected_shape)} was expected "
                f"by rank {rank} in {ADAPTER_FILES[1]} and the model's shape"
            )


def _rank(path: Path, config: dict[str, Any], module: str) -> int:
    """PEFT's rule: a pattern that matches a module's name or its end, else the rank of all."""
    patterns = config.get("rank_pattern") or {}
    ranks = [rank for pattern, rank in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", module)]
    rank = ranks[0] if ranks else config.get("r")
    if type(rank) is not int or rank < 1:
        raise ModelLoadError(f"{path} has r={rank!r}, where a positive whole number was expected")
    return rank


def _read_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(file, framework="pt", device="cpu") as handle:
            return {name: tuple(handle.get_slice(name).get_shape()) for name in handle.offset_keys()}
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{file} cannot be read as safetensors ({error}); copy or make it again") from None
