"""`quire bench overhead`: what a step costs beside the model.

Deciding (schedule, update, batch building) is timed on a runner that computes nothing: its figures are the same for
all models. Sampling is timed within real steps of a model, as a share of them.
"""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from quire.bench.report import Column, Report, summarise
from quire.bench.settings import OverheadSettings
from quire.config import EngineConfig, SchedulerConfig
from quire.core.request import Request
from quire.core.scheduler import Scheduler
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
    totals = [sum(parts) for parts in times]
    schedule, build, update = (1e3 * median(part) for part in zip(*times, strict=True))
    return {
        "schedule_ms": schedule,
        "build_ms": build,
        "update_ms": update,
        "step_ms": 1e3 * median(totals),
        "us_per_request": 1e6 * median(totals) / num_requests,
        "worst_step_ms": 1e3 * max(totals),
        "fixed_ms": 1e3 * median(map(sum, _time_steps(1, context, steps))),
    }


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


SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(temperature=0.8),
    "top_p": SamplingParams(temperature=0.8, top_p=0.9),
    "top_p, penalties": SamplingParams(
        temperature=0.8, top_p=0.9, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.5
    ),
    "top_k, top_p": SamplingParams(temperature=0.8, top_k=50, top_p=0.9),
    "greedy, 5 logprobs": SamplingParams(temperature=0.0, logprobs=5),
}


def measure_sampling(config: EngineConfig, rows: int = 32, context: int = 128, steps: int = 20) -> list[dict[str, Any]]:
    """Time sampling within decode steps of `rows` sequences, each at `context` tokens when the timing begins.

    Returns:
        One figure a kind of sampling: milliseconds of sampling and of the whole step, and the share, each with median,
        minimum and maximum over the steps.
    """
    from quire.build import load, make_engine
    from quire.runner.model_runner import ModelRunner

    config = replace(config, skip_tokenizer_init=True, max_num_seqs=max(rows, config.max_num_seqs))
    engine = make_engine(config, load(config))
    assert isinstance(engine.runner, ModelRunner)
    sampler = engine.runner.sampler
    draw = sampler.sample
    spent = 0.0

    def timed(*args: Any) -> Any:
        nonlocal spent
        started = time.perf_counter()
        try:
            return draw(*args)
        finally:
            spent = time.perf_counter() - started

    sampler.sample = timed  # type: ignore[method-assign, assignment]
    figures = []
    for name, params in SAMPLINGS.items():
        params = replace(params, max_tokens=steps + 2, ignore_eos=True, detokenize=False)
        for i in range(rows):
            prompt = [(7 * i + j) % engine.vocab_size for j in range(context)]
            engine.add_request(prompt, params, request_id=f"{name}-{i}")
        times = []
        while engine.has_unfinished():
            started = time.perf_counter()
            engine.step()
            step_s = time.perf_counter() - started
            stats = engine.last_stats
            if stats is not None and stats.num_scheduled_tokens == stats.num_sampled_tokens == rows:
                times.append((spent, step_s))
        figures.append(
            {
                "sampling": name,
                "rows": rows,
                "sampling_s": summarise(sampling for sampling, _ in times),
                "step_s": summarise(step for _, step in times),
                "share": summarise(sampling / step for sampling, step in times),
            }
        )
    return figures


def run(config: EngineConfig, settings: OverheadSettings, json: Path | None) -> None:
    """Measure both and publish the tables."""
    num_requests, context = settings.num_requests, settings.context
    deciding = measure_overhead(num_requests, context)
    report = Report(
        "overhead",
        f"Sampling within steps of {settings.rows} rows: {config.model}",
        (
            Column("sampling", "sampling"),
            Column("sampling_s", "sampling, ms", scale=1e3, digits=1),
            Column("step_s", "whole step, ms", scale=1e3, digits=1),
            Column("share", "share, %", scale=100, digits=1),
        ),
        figures=measure_sampling(config, settings.rows),
        notes=[
            f"Deciding, {num_requests} requests at {context:,} tokens: {deciding['us_per_request']:.2f} µs a request, "
            f"{deciding['step_ms']:.2f} ms a step (schedule {deciding['schedule_ms']:.2f}, "
            f"batch {deciding['build_ms']:.2f}, update {deciding['update_ms']:.2f}; "
            f"slowest {deciding['worst_step_ms']:.2f}), a step of one request {deciding['fixed_ms']:.3f} ms."
        ],
        settings={**asdict(config), **settings.as_json(), "deciding": deciding},
    )
    report.publish(json)
