"""Reading safetensors: which tensors a checkpoint holds, whether they are what the model needs, and their bytes.

Everything that can be told from the files' headers is checked before a byte of weights is read. Never unpickles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.source import read_json_object

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAP_BYTES = 256 * 2**20  # a file is mapped anew after so many bytes: mapped pages count as resident
_FLOAT_TYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_TORCH_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as a file's header describes it."""

    file: Path
    name: str  #: in the file
    shape: tuple[int, ...]
    dtype: str  #: as safetensors calls it: F32, BF16, ...

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * _FLOAT_TYPES.get(self.dtype, 1)


def weight_files(directory: Path) -> list[Path]:
    """The files that hold a checkpoint's weights, in the order of their names: one, or the shards of its index.

    Raises:
        ModelLoadError: no weights, an index that cannot be read, or a shard that is missing.
    """
    return _find_files(directory)[0]


def _find_files(directory: Path) -> tuple[list[Path], Mapping[str, str]]:
    """The files, and what the index promises of them: tensors by name, and the file of each."""
    if not (directory / INDEX_FILE).is_file():
        file = directory / SINGLE_FILE
        if not file.is_file():
            raise ModelLoadError(_no_weights(directory))
        return [file], {}
    promised = read_json_object(directory / INDEX_FILE).get("weight_map") or {}
    if not isinstance(promised, Mapping) or not promised or not all(isinstance(f, str) for f in promised.values()):
        raise ModelLoadError(
            f"{directory / INDEX_FILE} has no weight_map from tensors to files; copy the file again from its origin"
        )
    files = [directory / name for name in sorted(set(promised.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelLoadError(
            f"{directory} lacks {len(missing)} of {len(files)} shards that {INDEX_FILE} names: "
            f"{_some(missing)}; download them"
        )
    return files, promised


def read_headers(directory: Path) -> dict[str, TensorEntry]:
    """All tensors of a checkpoint by name, in the order of files and offsets, from the headers alone.

    Raises:
        ModelLoadError: no weights, a shard that is missing or cut off, or an index that does not match its shards.
    """
    entries: dict[str, TensorEntry] = {}
    files, promised = _find_files(directory)
    for file in files:
        with _open(file) as handle:
            for name in handle.offset_keys():
                part = handle.get_slice(name)
                entries[name] = TensorEntry(file, name, tuple(part.get_shape()), part.get_dtype())
    absent = [name for name in promised if name not in entries]
    if absent:
        raise ModelLoadError(
            f"{directory / INDEX_FILE} promises {_some(absent)}, which its shards do not hold; the index and the "
            "shards are from different checkpoints"
        )
    return entries


def _open(file: Path) -> safe_open:
    try:
        return safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        try:
            with file.open("rb"):  # safe_open takes one that it may not read for one that is not there
                size = file.stat().st_size
        except OSError as reason:
            raise unreadable(file, reason) from None
        raise ModelLoadError(
            f"{file} ({size} bytes) is cut off or no safetensors file ({error}); download it again"
        ) from None


def _no_weights(directory: Path) -> str:
    if any(directory.glob("*.gguf")):
        return f"{directory} holds GGUF weights, which are not supported; use the original safetensors checkpoint"
    if any(directory.glob("*.bin")) or any(directory.glob("*.pt*")):
        return (
            f"{directory} holds pickled weights only (*.bin), which can run code when they are read and are not "
            "supported; convert them once, where you trust them, with transformers: "
            "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR), tokenizer likewise"
        )
    others = sorted(file.name for file in directory.glob("*.safetensors"))
    if others:
        return (
            f"{directory} has neither {SINGLE_FILE} nor {INDEX_FILE}, only {_some(others)}; rename a single file to "
            f"{SINGLE_FILE}, or add the index of the shards"
        )
    return (
        f"{directory} holds no weights ({SINGLE_FILE}, or shards with {INDEX_FILE}; pickled *.bin files are not read); "
        "download them, or serve random ones of the same shapes with load_format='random'"
    )


def match_tensors(
    entries: Mapping[str, TensorEntry],
    expected: Mapping[str, tuple[int, ...]],
    *,
    optional_prefix: str = "",
    ignored: re.Pattern[str],
) -> dict[str, TensorEntry]:
    """Which entry goes where: expected names to entries, in the files' order.

    Args:
        expected: the model's tensors and their shapes.
        optional_prefix: files saved from the headless model name their tensors without it.
        ignored: tensors that a checkpoint may have and nobody needs.
    """
    found: dict[str, TensorEntry] = {}
    unexpected = []
    for name, entry in entries.items():
        if name in expected:
            found[name] = entry
        elif optional_prefix + name in expected:
            found[optional_prefix + name] = entry
        elif not ignored.fullmatch(name):
            unexpected.append(name)
    missing = [name for name in expected if name not in found]
    where = next(iter(entries.values())).file.parent if entries else Path()
    problems = []
    if missing:
        problem = f"{len(missing)} of {len(expected)} tensors are missing: {_some(missing)}"
        if missing == ["lm_head.weight"]:
            problem += " (if the model ties its head to the embedding, config.json must say tie_word_embeddings: true)"
        problems.append(problem)
    wrong_shapes = [
        f"{name} is {list(entry.shape)}, expected {list(expected[name])}"
        for name, entry in found.items()
        if entry.shape != tuple(expected[name])
    ]
    wrong_types = [f"{name} is {entry.dtype}" for name, entry in found.items() if entry.dtype not in _FLOAT_TYPES]
    wrong = {
        "are unexpected": unexpected,
        "have another shape": wrong_shapes,
        "are quantized or not numbers": wrong_types,
    }
    problems += [f"{len(names)} tensors {what}: {_some(names)}" for what, names in wrong.items() if names]
    if problems:
        raise ModelLoadError(f"{where} does not fit its config.json: " + "; ".join(problems))
    return found


def load_tensors(
    matched: Mapping[str, TensorEntry], views: Mapping[str, Tensor], advance: Callable[[int], None]
) -> None:
    """Copy each entry into its view, converting to the view's dtype, tensor by tensor.

    Args:
        advance: told the bytes of every tensor once it is in place.
    """
    handle: safe_open | None = None
    file: Path | None = None
    mapped = 0
    for name, entry in matched.items():
        if handle is None or entry.file != file or mapped > MAP_BYTES:
            handle, file, mapped = _open(entry.file), entry.file, 0
        try:
            tensor = handle.get_tensor(entry.name)
        except SafetensorError as error:
            raise ModelLoadError(
                f"{entry.name} cannot be read from {entry.file} ({error}); download it again"
            ) from None
        view = views[name]
        view.copy_(tensor)
        check_finite(view, entry)
        mapped += entry.num_bytes
        advance(entry.num_bytes)


def check_finite(view: Tensor, entry: TensorEntry) -> None:
    """Raise ModelLoadError if the tensor, as it was loaded, holds NaN or infinity."""
    if torch.isfinite(view.sum()):  # NaN and infinity survive a sum, which is much cheaper than looking at each value
        return
    bad = int((~torch.isfinite(view)).sum())
    if bad:
        dtype = str(view.dtype).removeprefix("torch.")
        converted = f" once converted from {entry.dtype} to {dtype}" if _TORCH_TYPES.get(entry.dtype) != dtype else ""
        raise ModelLoadError(
            f"{entry.name} in {entry.file} has {bad} of {view.numel()} values that are NaN or infinite{converted}; "
            "download it again" + (", or choose another dtype" if converted else "")
        )


def checkpoint_dtype(entries: Mapping[str, TensorEntry]) -> str | None:
    """The dtype of the first floating point tensor; None where there is none that can be served."""
    return next((_TORCH_TYPES[e.dtype] for e in entries.values() if e.dtype in _TORCH_TYPES), None)


def are_equal(a: TensorEntry, b: TensorEntry) -> bool:
    """Whether two tensors hold the same values; compared in slices, so that neither is in memory whole."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    parts_a, parts_b = _open(a.file).get_slice(a.name), _open(b.file).get_slice(b.name)
    step = max(1, MAP_BYTES // 8 // max(1, a.shape[-1] * 4))
    return all(
        torch.equal(parts_a[start : start + step], parts_b[start : start + step])
        for start in range(0, a.shape[0], step)
    )


def _some(names: list[str], limit: int = 3) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
