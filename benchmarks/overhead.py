"""Cost of a step beside the model.

Scheduling, batch building and updating are timed on a runner that computes nothing. Sampling, and the masks of
structured output, are timed within real steps of a model.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.null_runner import NullRunner
from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig, SchedulerConfig
from quire.core.request import EndRules, Order, Request
from quire.core.scheduler import Scheduler
from quire.runner.batch import InputBatch
from quire.sampling_params import SamplingParams, StructuredOutputsParams
from quire.settings import Settings, setting
from quire.structured.matcher import Matcher

if TYPE_CHECKING:
    from quire.engine.engine import Engine

BLOCK_SIZE = 16
_TURNS = 3  # with masks and without


@dataclass(frozen=True)
class OverheadSettings(Settings):
    """Options of the overhead benchmark."""

    num_requests: int = setting(256, "Running requests, for the cost of scheduling.", at_least=1)
    context: int = setting(2048, "Tokens of each.", at_least=2)
    rows: int = setting(32, "Sequences per step, for the cost of sampling.", at_least=1)


def measure_overhead(num_requests: int = 256, context: int = 2048, steps: int = 100) -> dict[str, float]:
    """Time decode steps of requests with `context` tokens. Returns medians, the slowest step, and `fixed_ms`, the cost
    of a step of one request."""
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
    """A scheduler with requests of `context` tokens that decode for `steps` more."""
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
        requests.append(Request(f"request-{i}", prompt, params, order=Order(0, i), ends=EndRules(max_model_len)))
        scheduler.add(requests[-1])
    while any(not request.sequences[0].num_output_tokens for request in requests):
        scheduler.update(runner.execute(scheduler.schedule()))
    return scheduler, runner


def _time_steps(num_requests: int, context: int, steps: int) -> list[tuple[float, float, float]]:
    warm_up = steps // 10 + 1
    # Prompts are computed a few requests per step, so the first requests are some tokens ahead of the last.
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


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_TEXT = {"type": "string"}
#: Schemas whose answers do not end while they are timed.
_LANGUAGES = tuple(
    StructuredOutputsParams(json={"type": "array", "minItems": 10_000, "items": item})  # type: ignore[arg-type]
    for item in (
        _closed(steps={"type": "array", "items": _closed(explanation=_TEXT, output=_TEXT)}, final_answer=_TEXT),
        _closed(name=_TEXT, date={"type": "string", "format": "date"}, participants={"type": "array", "items": _TEXT}),
        _closed(is_violating={"type": "boolean"}, category={"enum": ["violence", "self_harm", None]}, why=_TEXT),
        _closed(username={"type": "string", "pattern": "^@[a-zA-Z0-9_]+$"}, age={"type": "integer"}),
        _closed(unit={"enum": ["C", "F"]}, temperature={"type": "number", "minimum": -130, "maximum": 130}),
    )
)


class _Sampling:
    """Times sampling within decode steps of `rows` sequences with `context` tokens."""

    def __init__(self, engine: Engine, rows: int, context: int, steps: int) -> None:
        from quire.runner.model_runner import ModelRunner

        assert isinstance(engine.runner, ModelRunner)
        self._engine, self._rows, self._context, self._steps = engine, rows, context, steps
        self._spent_s = 0.0
        self._names = itertools.count()
        sampler = engine.runner.sampler
        sampler.sample = self._timed(sampler.sample)  # type: ignore[method-assign]

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args)
            finally:
                self._spent_s += time.perf_counter() - started

        return call

    def times(self, params: SamplingParams, languages: Sequence[StructuredOutputsParams] = ()) -> list[_Times]:
        """Seconds of sampling and of the whole step, per step."""
        engine, size = self._engine, self._engine.vocab_size
        params = replace(params, max_tokens=self._steps + 2, ignore_eos=not languages, detokenize=False)
        for row in range(self._rows):
            prompt = [(7 * row + at) % size for at in range(self._context)]
            wanted = languages[row % len(languages)] if languages else None
            engine.add_request(prompt, replace(params, structured_outputs=wanted), request_id=f"{next(self._names)}")
        found = []
        with self._matchers_timed():
            while engine.has_unfinished():
                self._spent_s = 0.0
                started = time.perf_counter()
                engine.step()
                step_s = time.perf_counter() - started
                stats = engine.last_stats
                if stats is not None and stats.num_scheduled_tokens == stats.num_sampled_tokens == self._rows:
                    found.append((self._spent_s, step_s))
        return found

    @contextmanager
    def _matchers_timed(self) -> Iterator[None]:
        usual = Matcher.advance
        Matcher.advance = self._timed(usual)  # type: ignore[method-assign]
        try:
            yield
        finally:
            Matcher.advance = usual  # type: ignore[method-assign]


_Times = tuple[float, float]


def measure_sampling(config: EngineConfig, rows: int = 32, context: int = 128, steps: int = 20) -> list[dict[str, Any]]:
    """Time sampling within decode steps. Returns a figure per kind of sampling; with a grammar also `mask_share`, the
    added time over the step without one, in turns."""
    from quire.assembly import load, make_engine

    config = replace(config, max_num_seqs=max(rows, config.max_num_seqs))
    timed = _Sampling(make_engine(config, load(config)), rows, context, steps)
    figures = [_figure(name, rows, timed.times(params)) for name, params in SAMPLINGS.items()]
    for name in ("greedy", "temperature"):
        timed.times(SAMPLINGS[name], _LANGUAGES)  # compiles the grammars
        plain, masked, shares = [], [], []
        for _ in range(_TURNS):
            without, within = timed.times(SAMPLINGS[name]), timed.times(SAMPLINGS[name], _LANGUAGES)
            more_s = median(sampling for sampling, _ in within) - median(sampling for sampling, _ in without)
            shares.append(more_s / median(step for _, step in without))
            plain += without
            masked += within
        figures.append(_figure(f"{name}, again", rows, plain))
        figures.append(_figure(f"{name}, in a grammar", rows, masked) | {"mask_share": summarise(shares)})
    return figures


def _figure(name: str, rows: int, times: Sequence[_Times]) -> dict[str, Any]:
    return {
        "sampling": name,
        "rows": rows,
        "sampling_s": summarise(sampling for sampling, _ in times),
        "step_s": summarise(step for _, step in times),
        "share": summarise(sampling / step for sampling, step in times),
    }


@options()
def main(engine: EngineConfig, settings: OverheadSettings, json: Json = None) -> None:
    """Cost of a step beside the model: scheduling, batch building, sampling."""
    num_requests, context = settings.num_requests, settings.context
    deciding = measure_overhead(num_requests, context)
    report = Report(
        "overhead",
        f"Sampling within steps of {settings.rows} rows: {engine.model}",
        (
            Column("sampling", "sampling"),
            Column("sampling_s", "sampling, ms", scale=1e3, digits=1),
            Column("step_s", "whole step, ms", scale=1e3, digits=1),
            Column("share", "share, %", scale=100, digits=1),
            Column("mask_share", "masks, % of a step", scale=100, digits=1),
        ),
        figures=measure_sampling(engine, settings.rows),
        notes=[
            f"Scheduling, {num_requests} requests at {context:,} tokens: {deciding['us_per_request']:.2f} µs each, "
            f"{deciding['step_ms']:.2f} ms a step (schedule {deciding['schedule_ms']:.2f}, "
            f"batch {deciding['build_ms']:.2f}, update {deciding['update_ms']:.2f}; "
            f"slowest {deciding['worst_step_ms']:.2f}), a step of one request {deciding['fixed_ms']:.3f} ms."
        ],
        settings={**asdict(engine), **settings.as_json(), "deciding": deciding},
    )
    report.publish(json)


if __name__ == "__main__":
    start(main)
