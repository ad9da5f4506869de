"""Load a model that drafts from a served model's hidden states: the draft head of its checkpoint, or its assistant."""

from __future__ import annotations

import logging

from quire.config import format_size
from quire.gguf_header import is_gguf
from quire.loading.checkpoint import TensorEntry
from quire.loading.errors import ModelLoadError
from quire.loading.modules.fill import fill_random, load_tensors
from quire.loading.modules.fitting import by_model_names, match_entries
from quire.loading.modules.units import Unit, finish_tables
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.loading.source import ModelSource
from quire.models.architectures.llama import LlamaForCausalLM
from quire.models.base import CausalLM
from quire.models.draft_head import DraftHead, HiddenStateReader

logger = logging.getLogger("quire")


def draft_head_bytes(source: ModelSource, served: CausalLM) -> int:
    """Return the memory of a draft head's weights; raises ValueError as `load_draft_head`."""
    return sum(unit.packed_bytes for unit in _units(_make_head(source, served)))


def load_draft_head(
    source: ModelSource, served: CausalLM, *, is_random: bool = False, seed: int = 0
) -> HiddenStateReader:
    """Load an assistant, or the draft head of the checkpoint of a model in memory, in the dtype and quantization of the
    model. It may be `is_random`. ValueError if there is none."""
    head = _make_head(source, served)
    matched = None if is_random or source.path is None else _match(head, source)
    units = _units(head)
    for unit in units:
        views = {name: unit.view(name, served.device) for name in unit.tensors}
        if matched is None:
            fill_random(views, std=head.config.initializer_range, seed=seed, shares=head.checkpoint_shares())
        else:
            load_tensors({name: matched[name] for name in views}, views, lambda num_bytes: None)
        views.clear()  # packing frees them
        for name in unit.tensors:
            unit.finish(name)
        finish_tables(head, unit)
    assert isinstance(served, LlamaForCausalLM)
    head.connect(served)
    logger.info("drafts: the draft head of %s, %s", source.name, format_size(sum(unit.packed_bytes for unit in units)))
    return head


def _make_head(source: ModelSource, served: CausalLM) -> HiddenStateReader:
    head: HiddenStateReader
    if source.is_assistant:
        from quire.models.architectures.gemma4_assistant import Gemma4Assistant

        head = Gemma4Assistant(served, source.hf_config)
    else:
        head = DraftHead(served)
    head.device = served.device
    head.quantize(served.quantization)
    head.lay_out(served.weights)
    return head


def _units(head: HiddenStateReader) -> list[Unit]:
    return [Unit(part, getattr(head, part), name) for part, name in head.checkpoint_names.items()]


def _match(head: HiddenStateReader, source: ModelSource) -> dict[str, TensorEntry]:
    assert source.path is not None
    if is_gguf(source.path):
        raise ModelLoadError(
            f"speculative_model=mtp: {source.name} is a GGUF file, whose draft head is not read; serve safetensors "
            "files, or leave it out"
        )
    entries, names = read_checkpoint(source.path).entries, tuple(head.checkpoint_tensors())
    prefixes = tuple(f"{name}." for name in head.checkpoint_names.values())
    own = {name: entry for name, entry in entries.items() if name.startswith(prefixes)}
    if not own:
        raise ModelLoadError(
            f"speculative_model=mtp: {source.name} has no draft head, of {names[0]} and {len(names) - 1} more tensors; "
            "take the original checkpoint with all its files, or name a smaller model of the same family"
        )
    return match_entries(head, dict(by_model_names(head.config, own)))
