"""Measure the memory of the largest step on a GPU, before the KV pool takes the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable

from quire.assembly.model import LoadedModel
from quire.attention.interface import AttentionBackend, KVLayout
from quire.config import EngineConfig, format_size
from quire.memory_plan import explained_if_full
from quire.outputs import NewSequence, SchedulerOutput
from quire.runner.batch import InputBatch
from quire.runner.kv_cache import make_cache
from quire.runner.model_runner import ModelRunner
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")

_MARGIN = 128 * 2**20  # for gaps between the allocator's pieces, and what kernels take themselves
_SAMPLED = SamplingParams(temperature=1.0, repetition_penalty=1.1)  # which copies all logits


def measure_step(
    config: EngineConfig,
    loaded: LoadedModel,
    layout: KVLayout,
    num_tokens: int,
    make_attention: Callable[..., AttentionBackend],
) -> int | None:
    """Run a step of `num_tokens` tokens on a GPU, on all ranks. Returns the bytes that it takes beside weights and KV;
    None if an option sizes the pool, or layers are still to come.

    One prompt takes most of the tokens, and as many sequences as can run draw a token. All write to one block.
    ValueError, with remedies, if the GPU has too little memory.
    """
    is_whole = not config.load_overlap and loaded.manifest is None  # alike on all ranks
    if loaded.device != "cuda" or config.sizes_pool or not is_whole:
        return None
    import torch

    model = loaded.model
    longest = min(num_tokens, config.max_model_len or model.config.context_length)
    lengths = _lengths(num_tokens, config.max_num_seqs, longest)
    cache = make_cache(1, layout.num_records, layout, model.kv_dtype, loaded.device)
    attention = make_attention(cache.blocks, layout, model.dtype, cache.records)
    batch = InputBatch(len(lengths), longest, config.block_size)
    runner = ModelRunner(model, cache, attention, batch, model.config.vocab_size, draws=loaded.group.rank == 0)
    sequences = [
        NewSequence(seq_id, 0, [0] * length, length, 0, [0] * -(-length // config.block_size), _SAMPLED, seed=0)
        for seq_id, length in enumerate(lengths)
    ]
    step = SchedulerOutput(0, new_sequences=sequences, seq_ids=[*range(len(lengths))], num_scheduled_tokens=lengths)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with explained_if_full(config, f"run a step of {num_tokens} tokens", "a lower max_num_batched_tokens"):
        runner.execute(step)
        torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - before
    torch.cuda.empty_cache()
    logger.info("memory: a step of %d tokens takes %s beside weights and KV", sum(lengths), format_size(taken))
    return taken + taken // 10 + _MARGIN


def _lengths(num_tokens: int, max_num_seqs: int, longest: int) -> list[int]:
    """Divide tokens among sequences: one each, and the rest to the first ones."""
    lengths: list[int] = []
    for num_others in reversed(range(min(max_num_seqs, num_tokens))):
        lengths.append(min(longest, num_tokens - num_others))
        num_tokens -= lengths[-1]
    return lengths
