"""What the engine itself wastes: its scheduler and pool over a trace's lengths, on a runner that computes nothing.

The other half of `quire bench memory`: there arithmetic over lengths, here the statistics of real steps, with requests
beside each other, chunked prompts, and blocks that come and go.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.bench.workload import Lengths, make_workload
from quire.config import SchedulerConfig
from quire.engine.engine import Engine
from quire.runner.batch import InputBatch
from quire.runner.null_runner import NullRunner
from quire.sampling_params import SamplingParams

_VOCAB_SIZE = 32000


@dataclass(frozen=True)
class EngineWaste:
    """Shares over all steps of a run."""

    block_size: int
    num_requests: int
    num_steps: int
    wasted: float  #: slots of used blocks that hold no token
    peak_usage: float  #: the most of the pool that was in use
    preemptions: int


def measure_engine_waste(
    lengths: Lengths, *, block_size: int = 16, pool_tokens: int = 131072, max_num_seqs: int = 256
) -> EngineWaste:
    """Run requests of these lengths, all queued at once, and count what their blocks hold.

    Args:
        pool_tokens: slots of the pool; the requests take turns in it.
    """
    longest = max(p + o for p, o in zip(lengths.prompt, lengths.output, strict=True))
    num_blocks = -(-max(pool_tokens, longest) // block_size)
    config = SchedulerConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=2048,
        max_model_len=longest,
        watermark_blocks=num_blocks // 100,
    )
    engine = Engine(config, NullRunner(InputBatch(max_num_seqs, longest, block_size)), vocab_size=_VOCAB_SIZE)
    for request in make_workload("trace", lengths).requests:
        engine.add_request(request.prompt_token_ids, SamplingParams(max_tokens=request.max_tokens, ignore_eos=True))
    num_steps = held = allocated = preemptions = peak = 0
    while engine.has_unfinished():
        engine.step()
        stats = engine.last_stats
        assert stats is not None
        num_steps += 1
        held += stats.num_kv_tokens
        allocated += stats.num_used_blocks * block_size
        preemptions += stats.preemptions
        peak = max(peak, stats.num_used_blocks)
    return EngineWaste(block_size, len(lengths), num_steps, 1 - held / allocated, peak / num_blocks, preemptions)
