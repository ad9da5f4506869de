"""Match a checkpoint's tensors to a model on the meta device, before any weights are read."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from quire.loading.checkpoint import ScatteredEntry, TensorEntry, are_equal, checkpoint_dtype, match_tensors
from quire.loading.errors import ModelLoadError
from quire.loading.gguf_tensors import in_model_names
from quire.models.base import CausalLM
from quire.models.encodings import BLOCKS, FLOATS, HEAD_PARTS
from quire.models.latent_attention import HeadRows, LatentProjection
from quire.models.linear.quantized_tensors import MXFP4Tensors, QuantizedTensors
from quire.models.linear.stored_weight import EncodedRows, StoredParts
from quire.models.model_config import DTYPE_BYTES, ModelConfig
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.models.parallel.split import TensorShare
from quire.models.registry import ARCHITECTURES, build_model, text_name
from quire.ops.arrays import DType, name_of

logger = logging.getLogger(__name__)

HEAD_NAME = "lm_head.weight"
_STACKED = re.compile(
    r"(?P<experts>.*\.experts)\.(?P<kind>gate_up_proj|gate_proj|up_proj|down_proj)[._]?(?P<part>weight|bias|blocks|scales)?"
)

ChooseDtype = Callable[[ModelConfig, "str | None"], DType]  #: from the config and the dtype in the files

_MAX_EXCESS = 8  # below it, the missing and misshapen tensors are named


def fit_model(
    config: ModelConfig, entries: Mapping[str, TensorEntry], choose: ChooseDtype, group: ParallelGroup = ALONE
) -> tuple[CausalLM, dict[str, TensorEntry]]:
    """Build this rank's part of the model on the meta device, with its entries by the model's names. All ranks call
    this. ModelLoadError if tensors do not match, ValueError if dtype or split is not supported."""
    own = dict(entries)
    if config.text_of:
        own = _text_part(own)
        logger.info("%s is served for text only: %d of its %d tensors", config.text_of, len(own), len(entries))
        config = replace(config, tie_word_embeddings=config.tie_word_embeddings or HEAD_NAME not in own)
    own = dict(by_model_names(config, own))
    config = resolve_head(config, own, group)
    _check_size(config, own)
    model = build_model(config, choose(config, checkpoint_dtype(own)), "meta", group)
    return model, match_entries(model, in_model_names(own, model.checkpoint_tensors()))


def match_entries(model: CausalLM, entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """Return the entries of this rank's part of a model on the meta device, whose layers become stored as in the files.
    ModelLoadError if tensors do not match."""
    stored = _store_as_files(model, entries)
    quantized = model.config.quantized
    superfluous = () if quantized is None else (quantized.superfluous,)
    shares = model.checkpoint_shares()
    shapes = {name: tuple(view.shape) for name, view in model.checkpoint_tensors().items()}
    matched = match_tensors(
        entries,
        shapes | {name: share.whole_shape for name, share in shares.items()},
        optional_prefix=model.optional_prefix,
        ignored=re.compile("|".join((model.ignored_tensors.pattern, *superfluous))),
        stored=stored,
    )
    return {name: part_of(entry, shares.get(name)) for name, entry in matched.items()}


def _text_part(entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    names = {name: text_name(name) for name in entries}
    return {own: entries[name] for name, own in names.items() if own != name or name.startswith("lm_head.")}


def by_model_names(config: ModelConfig, entries: Mapping[str, TensorEntry]) -> Iterator[tuple[str, TensorEntry]]:
    """Yield the entries by the model's names, with stacked experts apart."""
    model_class = ARCHITECTURES[config.architecture].model_class
    for name, entry in entries.items():
        name = model_class.model_name(name)
        match = _STACKED.fullmatch(name)
        if match and config.experts and len(entry.shape) > 1 and entry.shape[0] == config.experts.count:
            yield from _experts_of(entry, match, model_class.pairs_expert_rows)
        else:
            yield name, entry


def _experts_of(stack: TensorEntry, match: re.Match[str], is_paired: bool) -> Iterator[tuple[str, TensorEntry]]:
    """Yield the tensors of a stack's experts. Rows of gate and up alternate if `is_paired`, else they are apart."""
    kinds = ("gate_proj", "up_proj") if match["kind"] == "gate_up_proj" else (match["kind"],)
    part = match["part"] or "weight"
    is_transposed = is_paired and part == "weight"
    rows, *columns = stack.shape[:0:-1] if is_transposed else stack.shape[1:]
    if rows % len(kinds):
        raise ModelLoadError(f"{stack.name} in {stack.file} has {rows} rows of gate and up; download it again")
    shape = (rows // len(kinds), *([math.prod(columns)] if columns else ()))
    size = stack.num_bytes // stack.shape[0]
    for i in range(stack.shape[0]):
        for place, kind in enumerate(kinds):
            start, end = stack.start + i * size, stack.start + (i + 1) * size
            own = replace(stack, shape=shape, start=start, end=end, whole=stack, is_transposed=is_transposed)
            if is_paired:
                own = replace(own, every=len(kinds), first=place)
            else:
                start += place * size // len(kinds)
                own = replace(own, start=start, end=start + size // len(kinds))
            yield f"{match['experts']}.{i}.{kind}.{part}", own


def _store_as_files(model: CausalLM, entries: Mapping[str, TensorEntry]) -> dict[str, str]:
    """Give each layer with an encoded projection the arrays of the files, and return their dtypes by tensor."""
    stored: dict[str, str] = {}
    form = model.config.quantized
    layers: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in entries.items():
        layer_name, _, kind = name.rpartition(".")
        layers.setdefault(layer_name, {})[kind] = entry
    for path, layer in model.weighted_layers():
        parts = StoredParts()
        for name, _, outputs in layer.parts(path):
            tensors = layers.get(name) or layers.get(name.removeprefix(model.optional_prefix), {})
            weight = tensors.get("weight")
            if isinstance(layer, LatentProjection) and tensors.keys() >= {*HEAD_PARTS}:
                parts.append(HeadRows(layer.latent, outputs, [tensors[kind].dtype for kind in HEAD_PARTS]))
                continue
            if (
                form is not None
                and tensors
                and (weight is None or weight.dtype not in FLOATS)
                and not form.ignores(name)
            ):
                scale = tensors.get(form.scale_name)
                of_form = MXFP4Tensors if form.method == "mxfp4" else QuantizedTensors
                parts.append(of_form(name, form, outputs, layer.inputs, scale and scale.shape))
                continue
            shape = (outputs.total, layer.inputs.total)
            if weight is None or weight.shape != shape or weight.dtype not in FLOATS | BLOCKS:
                break  # `match_tensors` will report it
            parts.append(EncodedRows(name, weight.dtype, outputs, layer.inputs, weight.column_tiles))
        else:
            if any(part.encoding not in FLOATS or getattr(part, "tiles", None) for part in parts):
                layer.store_as(parts)
                stored.update((name, name_of(array.dtype)) for name, array in layer.checkpoint_tensors(path))
    return stored


def _check_size(config: ModelConfig, entries: Mapping[str, TensorEntry]) -> None:
    """Raise ModelLoadError before anything is built from a config that describes a far larger model than the files."""
    described, stored = config.num_parameters, sum(math.prod(entry.shape) for entry in entries.values())
    if config.num_layers > len(entries) or described > _MAX_EXCESS * stored:
        where = next((entry.file.parent for entry in entries.values()), "the checkpoint")
        raise ModelLoadError(
            f"{where} does not fit its config.json, which describes {config.num_layers} layers with {described} "
            f"parameters in all; the files have {stored} in {len(entries)} tensors"
        )


def part_of(entry: TensorEntry, share: TensorShare | None) -> TensorEntry:
    """Return a rank's part of a tensor in a file; all of it without a share."""
    if share is None:
        return entry
    assert entry.array_shape == share.whole_shape
    if entry.tiles is not None:
        tiles, ranges = entry.tiles.of(share.ranges)
        entry, share = replace(entry, tiles=tiles), replace(share, ranges=ranges)
    if entry.is_transposed:
        stored = TensorShare(share.whole_shape[::-1], 1 - share.dim, share.ranges)
        return replace(
            part_of(replace(entry, shape=stored.whole_shape, is_transposed=False), stored),
            shape=share.shape,
            is_transposed=True,
        )
    itemsize = entry.num_bytes // math.prod(share.whole_shape)
    values, num_bytes = BLOCKS.get(entry.dtype, (1, 1))
    shape = (*share.shape[:-1], share.shape[-1] // num_bytes * values)
    columns = tuple((start * itemsize, end * itemsize) for start, end in share.columns)
    if share.dim == 0 and len(columns) == 1:
        ((start, end),) = columns
        return replace(entry, shape=shape, start=entry.start + start, end=entry.start + end)
    return ScatteredEntry(
        entry.file,
        entry.name,
        shape,
        entry.dtype,
        entry.start,
        entry.start + math.prod(share.shape) * itemsize,
        share.row_size * itemsize,
        columns,
        every=entry.every,
        first=entry.first,
        is_rate=entry.is_rate,
        tiles=entry.tiles,
    )


def resolve_head(config: ModelConfig, entries: dict[str, TensorEntry], group: ParallelGroup = ALONE) -> ModelConfig:
    """Tie the head as transformers 5 does: drop an equal one from `entries`; any rank's difference counts."""
    head = entries.get(HEAD_NAME)
    if head is None or not config.tie_word_embeddings:
        return config
    model_class = ARCHITECTURES[config.architecture].model_class
    name = model_class.checkpoint_names["embed_tokens"] + ".weight"
    embedding = entries.get(name) or entries.get(name.removeprefix(model_class.optional_prefix))
    if embedding is None:
        entries[name] = head
    elif not _are_equal(head, embedding, ModelSplit(config, group)):
        logger.warning(
            "%s: config.json ties the head to the embedding, but the files contain a different head, which is used; "
            "set tie_word_embeddings to false in config.json",
            head.file.parent,
        )
        return replace(config, tie_word_embeddings=False)
    del entries[HEAD_NAME]
    return config


def _are_equal(head: TensorEntry, embedding: TensorEntry, split: ModelSplit) -> bool:
    if (head.shape, head.dtype) != (embedding.shape, embedding.dtype) or split.vocab.is_whole:
        return are_equal(head, embedding)
    if head.shape[:1] != (split.vocab.total,):
        return False  # match_tensors will report the shape
    share = TensorShare(head.shape, 0, split.vocab.ranges)
    differs = np.array([not are_equal(part_of(head, share), part_of(embedding, share))], np.float32)
    return not split.group.all_reduce(differs)[0]


def choose_dtype(dtype: str, config: ModelConfig, in_files: str | None) -> str:
    """Resolve auto: the config's dtype, else the files', else float32. Raises ValueError for other dtypes."""
    if dtype == "auto":
        dtype = config.dtype or in_files or "float32"
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise ValueError(
                f"config.json gives the weights' dtype as {dtype!r:.100}, which is not supported; if they are ordinary "
                f"floats, choose a dtype yourself: {', '.join(DTYPE_BYTES)}"
            )
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not one of auto, {', '.join(DTYPE_BYTES)}")
    return dtype


def choose_served_dtype(dtype: str, config: ModelConfig, in_files: str | None, device: str) -> str:
    """As `choose_dtype` for serving: kernels for CPUs have no float16, so auto widens it to float32."""
    name = choose_dtype(dtype, config, in_files)
    if dtype == "auto" and name == "float16" and device == "cpu":
        logger.info("float16 weights are served in float32 on a CPU; dtype=bfloat16 takes half the memory")
        return "float32"
    return name
