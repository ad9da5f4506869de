"""LoRA adapters in PEFT's format (Hu et al., arXiv:2106.09685): y = x W^T + (x A^T) B^T * scaling. W is never
changed."""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, structure
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear, Projection
from quire.models.linear.panel_weight import SERIAL_PRODUCTS, PanelWeight, panel_kernels
from quire.models.model_config import ConfigReader, ModelConfigError
from quire.models.parallel.split import Share
from quire.models.registry import text_name
from quire.models.tensor_file import read_small_file, read_tensors, wrong_file
from quire.ops.arrays import FLOAT32, Array, DType, as_numpy, as_tensor, name_of, widen
from quire.system.threads import num_threads

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

_NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<factor>[AB])\.weight")
# Accepted patterns of layers' names: a subset of regular expressions without backtracking, except for one `.*`.
_PATTERN = re.compile(r"(\^|\$|\||[\w-]|\.\*?|\\\.|\\d\+?|\[\^?[\w-]+\])+", re.ASCII)
# Fields of PEFT's config that are read here or do not change how a trained adapter computes. Any other is refused.
# fmt: off
_KNOWN_FIELDS = frozenset((
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "init_lora_weights",
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out",
    "loftq_config", "eva_config", "megatron_config", "megatron_core", "runtime_config", "qalora_group_size",
))
# fmt: on
_PLAIN_INITIALIZERS = (True, False, "gaussian", "orthogonal", "eva")

_LowRank = structure(
    "QuireLowRank",
    "pointer x",
    "int64 x_stride num_rows in_features rank out_features",
    "pointer down up y",
    "int32 num_threads",
)  # csrc/linear.h


class PanelAdapter:
    """The adapter of one linear layer, (x down^T) up, or of stacked projections: stacked A, and scaled B in their own
    rows and columns of `up`. As in PEFT, arithmetic is in float32; the sum with the layer's output is rounded once."""

    def __init__(self, down: np.ndarray, up: np.ndarray, dtype: str, library: ctypes.CDLL) -> None:
        """`down` [rank, in_features] and `up` [rank, out_features] are float32."""
        self._down, self._up = PanelWeight(down, library), PanelWeight(np.ascontiguousarray(up.T), library)
        self._add = getattr(library, f"quire_low_rank_{dtype}")
        self._write = getattr(library, f"quire_write_low_rank_{dtype}")
        self._add.restype = self._write.restype = None
        self._products_per_row = down.size + up.size
        self.out_features = up.shape[1]
        self.num_bytes = self._down.num_bytes + self._up.num_bytes

    def add_to(self, y: Array, x: Array) -> Array:
        self._call(self._add, as_numpy(y), as_numpy(x))
        return y

    def output(self, x: Array) -> Array:
        out = new_output((len(x), self.out_features), FLOAT32)
        self.write_to(out, x)
        return out

    def write_to(self, out: np.ndarray, x: Array) -> None:
        self._call(self._write, out, as_numpy(x))

    def write_zeros(self, out: np.ndarray) -> None:
        """Write zeros in place of `output`, as part of a pass."""
        call_kernel(self._write, _LowRank(num_rows=len(out), out_features=self.out_features, y=address(out)))

    def _call(self, function: Any, to: np.ndarray, x: np.ndarray) -> None:
        given = dense_rows(x)
        call = _LowRank(
            address(given),
            given.strides[0] // given.itemsize,
            len(given),
            self._down.in_features,
            self._down.out_features,
            self._up.out_features,
            self._down.address,
            self._up.address,
            address(to),
            1 if len(given) * self._products_per_row <= SERIAL_PRODUCTS else num_threads(),
        )
        call_kernel(function, call)


class TensorAdapter:
    """A `PanelAdapter` of tensors, on a GPU or without kernels. A GPU computes in bfloat16 in a model of bfloat16."""

    def __init__(self, down: Array, up: Array, dtype: DType) -> None:
        is_narrow = down.is_cuda and name_of(dtype) == "bfloat16"
        self._down, self._up = (each.to(dtype) if is_narrow else each for each in (down.t(), up))
        self.num_bytes = self._down.nbytes + self._up.nbytes

    def add_to(self, y: Array, x: Array) -> Array:
        if y.dtype == self._down.dtype:
            return y.addmm_(x @ self._down, self._up)
        return y.add_(self.output(x))  # rounded once

    def output(self, x: Array) -> Array:
        return x.to(self._down.dtype) @ self._down @ self._up


class LoraAdapter:
    """A model's adapter; see `models.stages.Adapter`. Refers to the layers that it changes, and no others."""

    def __init__(self, layers: Mapping[Linear, PanelAdapter | TensorAdapter], digest: str) -> None:
        self.digest = digest
        self._layers = list(layers.items())

    def attach(self) -> None:
        for linear, adapter in self._layers:
            linear.adapter = adapter

    def detach(self) -> None:
        for linear, _ in self._layers:
            linear.adapter = None

    def items(self) -> Iterable[tuple[Linear, PanelAdapter | TensorAdapter]]:
        return self._layers

    @property
    def num_bytes(self) -> int:
        return sum(adapter.num_bytes for _, adapter in self._layers)


def read_adapter(
    directory: Path,
    model: CausalLM,
    *,
    dtype: DType,
    device: Any,
    digest: str,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> LoraAdapter:
    """Read an adapter in PEFT's format, with files by `read` and the `digest` for the namespace. Layers replaced later
    do not get it. ModelConfigError for a file that cannot be read or does not fit, or another kind of adapter."""
    config = _read_config(directory / CONFIG_FILE, read)
    weights = directory / WEIGHTS_FILE
    projections = model.projections()
    parts: dict[Linear, list[_AdapterPart]] = {}
    for name, factors in _pair(weights, read_tensors(weights, read)).items():
        linear, rows, outputs = _find(weights, name, model, projections)
        expected = {"A": [config.rank(name), linear.inputs.total], "B": [outputs.total, config.rank(name)]}
        for factor, shape in expected.items():
            _check_shape(weights, name, factor, list(factors[factor].shape), shape)
        down, up = _slice(factors["A"], linear.inputs, 1), _slice(factors["B"], outputs, 0)
        parts.setdefault(linear, []).append(_AdapterPart(widen(down), widen(up).T * config.scaling(name), rows))
    return LoraAdapter({linear: _stack(linear, found, dtype, device) for linear, found in parts.items()}, digest)


def _slice(factor: np.ndarray, share: Share, dim: int) -> np.ndarray:
    if share.is_whole:
        return factor
    return np.concatenate([factor.take(range(*each), axis=dim) for each in share.ranges], axis=dim)


@dataclass(frozen=True)
class _AdapterPart:
    down: np.ndarray  #: float32 [rank, in_features]
    up: np.ndarray  #: float32 [rank, rows]
    rows: slice  #: its rows in the layer's output


def _stack(linear: Linear, parts: list[_AdapterPart], dtype: DType, device: Any) -> PanelAdapter | TensorAdapter:
    down = np.concatenate([part.down for part in parts])
    up = np.zeros((len(down), linear.out_features), np.float32)
    start = 0
    for part in parts:
        up[start : start + len(part.up), part.rows] = part.up
        start += len(part.up)
    library = panel_kernels(dtype)
    if str(device) == "cpu" and library is not None:
        return PanelAdapter(down, up, name_of(dtype), library)
    return TensorAdapter(as_tensor(down).to(device), as_tensor(up).to(device), dtype)


def _pair(file: Path, tensors: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    pairs: dict[str, dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise wrong_file(file, f"contains {name}, which is not the lora_A or lora_B of a linear layer")
        pairs.setdefault(match["layer"], {})[match["factor"]] = tensor
    for name, pair in pairs.items():
        if len(pair) < 2:
            raise wrong_file(file, f"contains only lora_{next(iter(pair))} of {name}; both are needed")
    if not pairs:
        raise wrong_file(file, "contains no tensors")
    return pairs


def _find(file: Path, name: str, model: CausalLM, projections: Mapping[str, Projection]) -> Projection:
    name = model.model_name(text_name(name) if model.config.text_of else name)
    found = projections.get(name) or projections.get(model.optional_prefix + name)
    if found is None:
        architecture, num_layers = model.config.architecture, model.config.num_layers
        reason = f"this {architecture} of {num_layers} layers has no such linear layer"
        if name == "lm_head" or "embed" in name:
            reason = "adapters of the head or the embedding are not supported"
        elif ".experts." in name:
            reason = "adapters of experts are not supported"
        elif name.endswith(".kv_b_proj"):
            reason = "adapters of kv_b_proj are not supported"
        raise wrong_file(file, f"is for {name}, but {reason}")
    return found


def _check_shape(file: Path, name: str, factor: str, shape: list[int], expected: list[int]) -> None:
    if shape == expected:
        return
    rank_at = "AB".index(factor)
    if len(shape) == 2 and shape[rank_at] != expected[rank_at]:
        reason = f"is of rank {shape[rank_at]} at {name}, but {CONFIG_FILE} says {expected[rank_at]}"
    else:
        reason = "was made for another model"
    raise wrong_file(file, f"{reason}: lora_{factor} of {name} is {shape}, expected {expected}")


@dataclass(frozen=True)
class _LoraConfig:
    """The relevant fields of adapter_config.json. Patterns match the ends of layers' names."""

    r: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: Mapping[re.Pattern[str], int]
    alpha_pattern: Mapping[re.Pattern[str], float]

    def rank(self, name: str) -> int:
        return _by_pattern(self.rank_pattern, name, self.r)

    def scaling(self, name: str) -> float:
        rank = self.rank(name)
        return _by_pattern(self.alpha_pattern, name, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def _by_pattern(patterns: Mapping[re.Pattern[str], Any], name: str, default: Any) -> Any:
    return next((value for pattern, value in patterns.items() if pattern.fullmatch(name)), default)


def _read_config(file: Path, read: Callable[[Path], bytes]) -> _LoraConfig:
    content = read_small_file(file, read)
    try:
        values = json.loads(content)
    except ValueError as error:
        raise wrong_file(file, f"is not JSON: {error}") from None
    except RecursionError:
        raise wrong_file(file, "is nested too deeply") from None
    if not isinstance(values, dict):
        raise wrong_file(file, f"is {type(values).__name__}; expected an object")
    try:
        return _check_config(ConfigReader(values))
    except ModelConfigError as error:
        raise type(error)(f"{file}: {error}") from None


def _check_config(reader: ConfigReader) -> _LoraConfig:
    peft_type = reader.get("peft_type")
    reader.refuse_if(peft_type != "LORA", f"an adapter of the type {peft_type!r}", "LoRA adapters are")
    reader.refuse_if(reader.get("bias", "none") != "none", f"LoRA with bias={reader.get('bias')!r}")
    initial = reader.get("init_lora_weights", True)
    reader.refuse_if(
        initial not in _PLAIN_INITIALIZERS,
        f"an adapter with init_lora_weights={initial!r}, which may change the model's own weights",
        "PEFT's save_pretrained converts it with path_initial_model_for_weight_conversion",
    )
    for name, value in reader.values.items():
        reader.refuse_if(value and name not in _KNOWN_FIELDS, f"LoRA with {name}={value!r}")
    return _LoraConfig(
        reader.integer("r"),
        reader.number("lora_alpha"),
        reader.flag("use_rslora", False),
        *(_read_patterns(reader, name) for name in ("rank_pattern", "alpha_pattern")),
    )


def _read_patterns(reader: ConfigReader, name: str) -> dict[re.Pattern[str], Any]:
    values = reader.get(name, {})
    if not isinstance(values, dict):
        raise ModelConfigError(f"the config's {name} is {values!r}; expected an object")
    numbers = ConfigReader(values)
    return {
        _compile(key, name): numbers.integer(key) if name == "rank_pattern" else numbers.number(key) for key in values
    }


def _compile(pattern: str, name: str) -> re.Pattern[str]:
    """Compile a key of rank_pattern or alpha_pattern; refuse patterns that `re` could take forever to match."""
    expected = r"names of layers with the regular expressions ^ $ | . \. \d+ [abc] and one .*"
    if not _PATTERN.fullmatch(pattern) or pattern.count(".*") > 1:
        raise ModelConfigError(f"the config's {name} has {pattern!r}; expected {expected}")
    try:
        return re.compile(rf"(.*\.)?({pattern})")
    except re.error as error:
        raise ModelConfigError(f"the config's {name} has {pattern!r} ({error}); expected {expected}") from None
