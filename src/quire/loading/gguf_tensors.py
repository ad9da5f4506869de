"""The tensors of GGUF files: their entries, under the names in the files, and the names that a model gives them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.gguf_header import GGUFHeader, GGUFTensor, is_gguf
from quire.loading.checkpoint import TensorEntry
from quire.loading.errors import ModelLoadError
from quire.loading.gguf_config import gguf_head_dim, read_gguf
from quire.loading.reading.reader import position_in_use
from quire.models.encodings import BLOCKS, BY_NUMBER, HEAD_PARTS, Tiles

#: Architectures with rows of q and k in the order of rotated pairs; transformers rotates halves of heads.
_PAIRED = ("arcee", "deci", "granite", "granitehybrid", "granitemoe", "internlm2", "llama", "minicpm", "mistral3",
           "olmo", "smollm3")  # fmt: skip
#: Architectures whose norms have 1 added to their weights.
_SHIFTED = ("gemma", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")
#: Value heads' tensors, and the size of a head if it is 1.
_TILED = re.compile(r"blk\.\d+\.(?:(attn_qkv|attn_gate|ssm_conv1d|ssm_out)|ssm_(?:alpha|beta|a|dt))(?:\.\w+)?")
_FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_METADATA = re.compile(r"rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.attn_rot_embd\.weight")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)(\..*)")
#: Parts of names, and what the gguf package knows instead.
_KNOWN = ((".e_score_correction_bias", ".e_score_correction.bias"), (".dt_bias", ".dt_proj.bias"))
#: Names of Gemma 4's that the gguf package does not know.
_SCALE = re.compile(r"model\.layers\.(\d+)\.router\.(scale|per_expert_scale)")
_SCALES = {"scale": "ffn_gate_inp.scale", "per_expert_scale": "ffn_down_exps.scale"}


def read_gguf_entries(path: Path) -> dict[str, TensorEntry]:
    """Return the tensors of all parts of a file by their names there, in the order of files and offsets.
    Raises ModelLoadError for damaged files and unknown encodings."""
    headers = read_gguf(path)
    entries: dict[str, TensorEntry] = {}
    for header in headers:
        end = 0
        for tensor in sorted(header.tensors, key=lambda tensor: tensor.start):
            entry = _entry(headers[0], header, tensor)
            if entry.start < end or entry.name in entries:
                raise ModelLoadError(f"{header.path}: {entry.name} overlaps another tensor; download the file again")
            end = entry.end
            entries[entry.name] = entry
    return entries


def _entry(metadata: GGUFHeader, header: GGUFHeader, tensor: GGUFTensor) -> TensorEntry:
    where = f"{header.path}: {tensor.name}"
    if (encoding := BY_NUMBER.get(tensor.type)) is None:
        from gguf import GGMLQuantizationType

        name = {each.value: each.name for each in GGMLQuantizationType}.get(tensor.type, f"type {tensor.type}")
        supported = ", ".join(BY_NUMBER.values())
        raise ModelLoadError(f"{where} is encoded as {name}, which is not supported; supported: {supported}")
    values, num_bytes = BLOCKS.get(encoding) or (1, _FLOAT_BYTES[encoding])
    if tensor.shape[-1] % values:
        raise ModelLoadError(f"{where} has rows of {tensor.shape[-1]} values, which are no blocks of {values}")
    end = tensor.start + math.prod(tensor.shape) // values * num_bytes
    if end > header.size:
        raise ModelLoadError(f"{where} ends at byte {end} of {header.size}: the file is truncated; download it again")
    entry = TensorEntry(header.path, tensor.name, _shape_of(tensor), encoding, tensor.start, end)
    architecture = metadata.values.get("general.architecture")
    if architecture in _PAIRED and re.fullmatch(r"blk\.\d+\.attn_[qk]\.(weight|bias)", tensor.name):
        head_dim = gguf_head_dim(metadata)
        if head_dim % 2 or tensor.shape[0] % head_dim:
            raise ModelLoadError(f"{where} has {tensor.shape[0]} rows, which are no heads of {head_dim}")
        return replace(entry, head_dim=head_dim)
    if architecture in ("qwen35", "qwen35moe"):
        entry = _with_tiles(entry, metadata.values, architecture)
    is_shifted = architecture in _SHIFTED and re.search(r"(?<!ssm_)norm\.weight$", tensor.name)
    return replace(entry, addend=-1.0 if is_shifted else 0.0, is_rate=tensor.name.endswith(".ssm_a"))


def _shape_of(tensor: GGUFTensor) -> tuple[int, ...]:
    """Return a tensor's shape in other checkpoints."""
    shape, kind = tensor.shape, re.sub(r"^blk\.\d+\.", "", tensor.name)
    if kind == "ffn_gate_inp_shexp.weight":
        return (1, *shape)
    if kind in ("ssm_conv1d.weight", "shortconv.conv.weight"):
        return (shape[0], 1, *shape[1:])
    return (math.prod(shape),) if kind in ("ssm_a", "ssm_d", "ssm_norm.weight") else shape


def _with_tiles(entry: TensorEntry, values: Mapping[str, Any], prefix: str) -> TensorEntry:
    """Return an entry with the order of value heads, of which llama.cpp repeats key heads as a whole."""
    sizes = (values[f"{prefix}.ssm.{name}"] for name in ("group_count", "time_step_rank", "inner_size", "state_size"))
    num_keys, num_values, inner, key_dim = sizes
    if (match := _TILED.fullmatch(entry.name)) is None or num_keys == num_values:
        return entry
    first = 2 * num_keys * key_dim if match[1] in ("attn_qkv", "ssm_conv1d") else 0
    tiles = Tiles(first, num_keys, num_values // num_keys, inner // num_values if match[1] else 1)
    rows = entry.shape[1 if match[1] == "ssm_out" else 0]
    if rows != first + num_keys * tiles.groups * tiles.size:
        raise ModelLoadError(f"{entry.file}: {entry.name} has {rows} features, which are no {num_values} value heads")
    return replace(entry, column_tiles=tiles) if match[1] == "ssm_out" else replace(entry, tiles=tiles)


def in_model_names(entries: Mapping[str, TensorEntry], names: Iterable[str]) -> Mapping[str, TensorEntry]:
    """Return entries by the names that a model gives them, and stacked experts one by one. Names without a tensor are
    left out; tensors without a name keep theirs, except those that repeat metadata. Other files' entries stay."""
    first = next(iter(entries.values()), None)
    if first is None or not is_gguf(first.file):
        return entries
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map  # takes 40 ms

    values = read_gguf(first.file)[0].values
    prefix = values["general.architecture"]
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == prefix)
    known = get_tensor_name_map(MODEL_ARCH(number), values[f"{prefix}.block_count"])
    found: dict[str, TensorEntry] = {}
    used: set[str] = set()
    for name in names:
        match = _EXPERT.fullmatch(name)
        given = functools.reduce(lambda given, pair: given.replace(*pair), _KNOWN, name)
        base, _, kind = (f"{match[1]}{match[3]}" if match else given).rpartition(".")
        own, of_base = str(known.get_name(f"{base}.{kind}")), str(known.get_name(base))
        owns = [f"{of_base}.{kind}", f"{own}.weight", own]  # some have no suffix
        if prefix == "granitehybrid":  # has no shared expert without others
            owns.append(f"{of_base.removesuffix('_shexp')}.{kind}")
        if scale := _SCALE.fullmatch(name):
            owns = [f"blk.{scale[1]}.{_SCALES[scale[2]]}"]
        halves = {f"{base}.{part}": f"{known.get_name(base.replace('kv_b', part))}.weight" for part in HEAD_PARTS}
        if base.endswith("kv_b_proj") and all(own in entries for own in halves.values()):
            found |= {part: entries[own] for part, own in halves.items()}
            used |= {*halves.values(), *owns}
            continue
        for own in owns:
            entry = entries.get(own)
            if entry is not None and (match is None or (int(match[2]) < entry.shape[0] and len(entry.shape) > 1)):
                found[name] = entry if match is None else _expert(entry, int(match[2]))
                used.add(own)
        both = f"{known.get_name(re.sub('(gate|up)_proj$', 'gate_up_proj', base))}.{kind}"
        if match and name not in found and (entry := entries.get(both)) is not None and entry.shape[1] % 2 == 0:
            found[name] = _expert(entry, int(match[2]), base.endswith("up_proj"), 2)
            used.add(both)
    last = values[f"{prefix}.block_count"] - values.get(f"{prefix}.nextn_predict_layers", 0) - 1
    unused = (name for name in entries if name not in used and not _METADATA.fullmatch(name))
    return found | {name: entries[name] for name in unused if not last < position_in_use(name) < math.inf}


def _expert(stack: TensorEntry, index: int, part: int = 0, num_parts: int = 1) -> TensorEntry:
    """Return an expert's matrix or bias, or a part of its rows."""
    count, rows, *columns = stack.shape
    size = stack.num_bytes // count // num_parts
    start = stack.start + (index * num_parts + part) * size
    return replace(stack, shape=(rows // num_parts, *columns), start=start, end=start + size, whole=stack)
