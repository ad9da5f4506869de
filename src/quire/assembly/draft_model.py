"""Load the draft model of `speculative_model`."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from quire.attention.interface import KVLayout
from quire.config import DraftFacts, EngineConfig, format_size
from quire.kernels.loaded import has_exact_kernels
from quire.loading.layer_loader import LayerLoader, wait_with_progress
from quire.loading.modules.draft_head import load_draft_head
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.loading.source import ModelSource, resolve_model
from quire.models.base import CausalLM
from quire.models.draft_head import HiddenStateReader
from quire.ops.arrays import name_of
from quire.text.tokenizer import Tokenizer

logger = logging.getLogger("quire")

_FEWER_BITS = ("int4", "int8")
_MAX_OTHER_TOKENS = 0.01  # of the vocabulary


@dataclass(frozen=True)
class DraftModel:
    """A draft model in memory. Several engines may share it."""

    model: CausalLM
    has_own_kv: bool  #: else it computes on that of the served model

    def block_bytes(self, block_size: int) -> int:
        """Return the bytes of its KV that belong to a block of the served model's."""
        num_values = KVLayout(self.model.attention_layers(), block_size).block_numel if self.has_own_kv else 0
        if isinstance(self.model, HiddenStateReader):
            num_values += block_size * self.model.fc.in_features // 2
        return num_values * self.model.dtype.itemsize

    def facts(self, served: CausalLM) -> DraftFacts:
        return DraftFacts(self.model.weight_bytes() / max(1, served.weight_bytes()), self.has_own_kv)


def num_drafts(config: EngineConfig, device: str, served: CausalLM) -> int:
    """Return the most draft tokens of a sequence in a step; 0 without drafts."""
    is_exact = has_exact_kernels(device, name_of(served.dtype))
    wants_any = config.speculation == "lookup" or config.speculative_model is not None
    return config.speculative_tokens if wants_any or (config.speculation == "auto" and is_exact) else 0


def load_draft_model(
    config: EngineConfig, source: ModelSource, served: CausalLM, tokenizer: Tokenizer | None
) -> DraftModel | None:
    """Load the draft model, or this rank's part of it; None without one. ValueError if it cannot draft for the served
    model."""
    name = config.speculative_model
    if name is None:
        return None
    is_own = name in ("mtp", *_FEWER_BITS)
    other = source if is_own else resolve_model(name, load_format=config.load_format, hub=config.hub)
    if name == "mtp" or other.is_assistant:
        is_random = config.load_format == "random"
        head = load_draft_head(other, served, is_random=is_random, seed=config.seed)
        return DraftModel(head, has_own_kv=not head.reads_served_kv)
    if name in _FEWER_BITS:
        if any(layer.has_state for layer in served.config.layers):
            raise ValueError(
                f"speculative_model={name}: {source.name} has recurrent states, which cannot be shared; name another "
                "model without them"
            )
        if served.weight_kind not in ("plain", "packed12"):
            raise ValueError(
                f"speculative_model={name}: {source.name} has {served.weight_kind} weights; name a smaller model"
            )
        model = _load(config, source, served, quantization=name)
        model.kv_dtype = served.kv_dtype
        return DraftModel(model, has_own_kv=False)
    if served.split.group.rank == 0:  # others have no tokenizer
        _check_vocabulary(source, other, tokenizer)
    model = _load(config, other, served)
    if any(layer.has_state for layer in model.config.layers):
        raise ValueError(f"{name} has recurrent states, and cannot draft; name a model without them")
    return DraftModel(model, has_own_kv=True)


def _load(config: EngineConfig, source: ModelSource, served: CausalLM, *, quantization: str = "none") -> CausalLM:
    reading = None
    if source.path is not None and config.load_format != "random":
        reading = read_checkpoint(source.path, bandwidth=config.storage_bandwidth)
        reading.read_at_once()
    with LayerLoader(
        source,
        dtype=name_of(served.dtype),
        device=served.device,
        quantization=quantization,
        load_format=config.load_format,
        seed=config.seed,
        reading=reading,
        group=served.split.group,
    ) as loader:
        loader.lay_out(config.weights)
        wait_with_progress(loader, loader.last_stage, config.use_tqdm)
    model = loader.model
    logger.info("drafts: %s, %s of %s weights", source.name, format_size(model.weight_bytes()), model.weight_kind)
    return model


def _check_vocabulary(source: ModelSource, other: ModelSource, tokenizer: Tokenizer | None) -> None:
    if tokenizer is None or source.path is None or other.path is None:
        if other.config.vocab_size == source.config.vocab_size:
            return
    else:
        mine, theirs = (each.backend.get_vocab() for each in (tokenizer, Tokenizer.from_dir(other.path)))
        num_other = sum(theirs.get(token) != number for token, number in mine.items())
        if num_other <= _MAX_OTHER_TOKENS * len(mine):
            return
    raise ValueError(
        f"speculative_model={other.name} has another vocabulary than {source.name}; name a smaller model of the same "
        "family, or int4"
    )
