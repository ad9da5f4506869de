"""The memory of a model under `--memory-limit`, known before it is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quire.config import QUANTIZATIONS, EngineConfig, format_size

if TYPE_CHECKING:
    from quire.models.base import CausalLM

_PROCESS = 256 * 2**20  # of an engine's process, beside weights and KV
_POOL_SHARE = 0.5  # of the memory that the weights leave, as without a limit


def fit_memory(name: str, config: EngineConfig, limit: int, *, share: float) -> tuple[EngineConfig, int]:
    """Return the options with a KV pool within `limit`, and the bytes that the model takes in all. A pool without an
    option takes half of the memory beside the weights, times `share`. ValueError if the model needs more."""
    from quire.attention.interface import KVLayout

    weight_bytes, model = _weights_of(config, config.model, config.quantization)
    if (draft := config.speculative_model) is not None:
        weight_bytes += _draft_bytes(config, draft, model)
    used = weight_bytes + _PROCESS * config.tensor_parallel_size + (config.swap_space or 0) * (config.swap_dir is None)
    block_bytes = KVLayout(model.attention_layers(), config.block_size).block_bytes(model.kv_dtype.itemsize)
    if config.num_kv_blocks is not None:
        pool_bytes = config.num_kv_blocks * block_bytes
    elif config.kv_cache_memory is not None:
        pool_bytes = config.kv_cache_memory
    else:
        longest = -(-(config.max_model_len or model.config.context_length) // config.block_size)
        pool_bytes = min(int(_POOL_SHARE * share * (limit - used)), config.max_num_seqs * longest * block_bytes)
        config = replace(config, kv_cache_memory=max(pool_bytes, 1024))
    if used + pool_bytes > limit or pool_bytes < 2 * block_bytes:
        raise ValueError(
            f"{name} does not fit into memory_limit={format_size(limit)}: without its KV pool it takes "
            f"{format_size(used)}, and a block of KV {format_size(block_bytes)}; raise the limit, or use a quantization"
        )
    return config, used + pool_bytes


def _draft_bytes(config: EngineConfig, draft: str, model: CausalLM) -> int:
    """Return the memory of a draft model's weights."""
    from quire.loading.modules.draft_head import draft_head_bytes
    from quire.loading.source import resolve_model

    if draft not in QUANTIZATIONS:
        own = config.model if draft == "mtp" else draft
        source = resolve_model(own, load_format=config.load_format, hub=config.hub)
        if draft == "mtp" or source.is_assistant:
            return draft_head_bytes(source, model)
    return _weights_of(config, *((config.model, draft) if draft in QUANTIZATIONS else (draft, "none")))[0]


def _weights_of(config: EngineConfig, name: str, quantization: str) -> tuple[int, CausalLM]:
    """Return the memory of a model's weights, and the model without them."""
    from quire.loading.layer_loader import LayerLoader
    from quire.loading.source import resolve_model

    source = resolve_model(name, load_format=config.load_format, hub=config.hub)
    device = "cuda" if config.device == "cuda" else "cpu"
    form = config.load_format
    with LayerLoader(source, dtype=config.dtype, device=device, quantization=quantization, load_format=form) as loader:
        loader.lay_out(config.weights)
        loader.model.set_kv_dtype(config.kv_cache_dtype)
        return loader.pending_memory(), loader.model
