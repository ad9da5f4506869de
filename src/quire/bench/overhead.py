"""What deciding costs: microseconds of schedule, update and batch building, on a runner that computes nothing.

Knows nothing about models: the figures are the same for all of them.
"""

from __future__ import annotations

import gc
import time
from statistics import median

from quire.config import SchedulerConfig
from quire.core.scheduler import Scheduler
from quire.request import Request
from quire.runner.batch import InputBatch
from quire.runner.null_runner import NullRunner
from quire.sampling_params import SamplingParams

BLOCK_SIZE = 16


def measure_overhead(num_requests: int = 256, context: int = 2048, steps: int = 100) -> dict[str, float]:
    """Time decode steps of `num_requests` requests, each at `context` tokens when the timing begins.

    Returns:
        Medians over `steps`: `schedule_ms`, `build_ms`, `update_ms`, their sum `step_ms`, that sum for each request
        `us_per_request`, the slowest step `worst_step_ms`, and `fixed_ms`, what a step of one request costs.
    """
    times = _time_steps(num_requests, context, steps)
    alone = _time_steps(1, context, steps)
    totals = [sum(parts) for parts in times]
    names = ("schedule_ms", "build_ms", "update_ms")
    result = {name: 1e3 * median(parts[i] for parts in times) for i, name in enumerate(names)}
    result["step_ms"] = 1e3 * median(totals)
    result["us_per_request"] = 1e6 * median(totals) / num_requests
    result["worst_step_ms"] = 1e3 * max(totals)
    result["fixed_ms"] = 1e3 * median(sum(parts) for parts in alone)
    return result


def prepare(num_requests: int, context: int, steps: int) -> tuple[Scheduler, NullRunner]:
    """A scheduler whose requests have `context` tokens and will bring one a step for `steps` more."""
    max_model_len = context + steps + 1
    config = SchedulerConfig(
        num_blocks=num_requests * -(-max_model_len // BLOCK_SIZE),
        block_size=BLOCK_SIZE,
        max_num_seqs=num_requests,
        max_num_batched_tokens=max(8192, num_requests),
        max_model_len=max_model_len,
    )
    scheduler = Scheduler(config)
    runner = NullRunner(InputBatch(num_requests, max_model_len, BLOCK_SIZE))
    params = SamplingParams(max_tokens=max_model_len)
    requests = []
    for i in range(num_requests):
        prompt = [i + 1, *range(context - 2)]  # no two share a prefix
        requests.append(Request(f"request-{i}", prompt, params, arrival=i, max_tokens=max_model_len))
        scheduler.add(requests[-1])
    while any(not request.sequences[0].num_output_tokens for request in requests):
        scheduler.update(runner.execute(scheduler.schedule()))
    return scheduler, runner


def _time_steps(num_requests: int, context: int, steps: int) -> list[tuple[float, float, float]]:
    """Seconds of schedule, batch building and update, a step."""
    warm_up = steps // 10 + 1
    # Prompts are computed a few requests a step; the first ones are that many tokens further than the last.
    scheduler, runner = prepare(num_requests, context, steps + warm_up + -(-num_requests * context // 8192) + 1)
    times = []
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(warm_up + steps):
            built = runner.build_s
            started = time.perf_counter()
            out = scheduler.schedule()
            scheduled = time.perf_counter()
            result = runner.execute(out)
            executed = time.perf_counter()
            scheduler.update(result)
            ended = time.perf_counter()
            assert len(out.seq_ids) == num_requests == out.total_tokens, "not every request took one step"
            times.append((scheduled - started, runner.build_s - built, ended - executed))
    finally:
        if was_enabled:
            gc.enable()
    return times[warm_up:]
