"""Latency and throughput of workloads on an engine, repeated with other token ids. Several engines share one loaded
model and take turns; each repetition makes them anew, one KV pool at a time."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import LatencySettings, ThroughputSettings
from quire.bench.plots import PlotRow, draw_rows
from quire.bench.progress import progress
from quire.bench.report import TIMING_COLUMNS, Column, Repetition, Report, timing_figures
from quire.bench.workload import (
    Workload,
    fixed_lengths,
    make_workload,
    read_trace,
    read_workload,
    token_range,
    uniform_lengths,
    write_workload,
)
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.sampling_params import SamplingParams
from quire.system.threads import num_threads

_WARM_UP = make_workload("warm-up", fixed_lengths(2, 64, 8), seed=1)


def play(engine: Engine, workload: Workload, *, keep_arrivals: bool = False) -> tuple[Repetition, list[list[int]]]:
    """Run a workload once. Returns the times and each request's tokens. ValueError if a request does not fit."""
    sampling = SamplingParams(
        temperature=0.0 if workload.greedy else 1.0, ignore_eos=workload.ignore_eos, detokenize=False
    )
    params = [replace(sampling, max_tokens=request.max_tokens) for request in workload.requests]
    order = list(range(len(params)))
    if keep_arrivals:
        order.sort(key=lambda i: workload.requests[i].arrival_s)
    answers: dict[int, RequestState] = {}
    started = engine.clock()
    try:
        while len(answers) < len(order) or engine.has_unfinished():
            while len(answers) < len(order):
                i = order[len(answers)]
                wait = workload.requests[i].arrival_s - (engine.clock() - started) if keep_arrivals else 0.0
                if wait <= 0:
                    answers[i] = engine.add_request(workload.requests[i].prompt_token_ids, params[i])
                elif engine.has_unfinished():
                    break
                else:
                    time.sleep(wait)
            engine.step()
        wall_s = engine.clock() - started
    finally:
        for answer in answers.values():
            engine.abort(answer.request.request_id)
    outputs = [answers[i].to_output() for i in range(len(order))]
    for output in outputs:
        if output.error is not None:
            raise RuntimeError(f"request {output.request_id} failed: {output.error}")
    tokens = [output.outputs[0].token_ids for output in outputs]
    ttft_s, tpot_s = [], []
    for output, ids in zip(outputs, tokens, strict=True):
        metrics = output.metrics
        assert metrics is not None
        assert metrics.first_token_time is not None
        assert metrics.last_token_time is not None
        # Without arrivals, all requests count as submitted at the start.
        ttft_s.append(metrics.first_token_time - (metrics.arrival_time if keep_arrivals else started))
        if len(ids) > 1:
            tpot_s.append((metrics.last_token_time - metrics.first_token_time) / (len(ids) - 1))
    return Repetition(wall_s, workload.num_prompt_tokens, sum(map(len, tokens)), ttft_s, tpot_s), tokens


def warm_up(engine: Engine, repetition: int = 0) -> None:
    """Run a small workload, if it fits."""
    if engine.max_model_len >= 64 + 8:
        play(engine, _WARM_UP.shifted(repetition, token_range(engine.vocab_size)))


def measure(
    configs: Sequence[EngineConfig], workloads: Sequence[Workload], runs: int, *, keep_arrivals: bool = False
) -> list[dict[str, Any]]:
    """Measure each engine on each workload. The configs differ in settings, not in the model."""
    repetitions: dict[tuple[int, int], list[Repetition]] = {}
    facts: dict[tuple[int, int], dict[str, Any]] = {}
    labels = _labels(configs)
    with progress(runs * len(configs) * len(workloads), "runs") as show:
        for repetition, at, engine in _alternate(configs, runs):
            ids = token_range(engine.vocab_size)
            for w, workload in enumerate(workloads):
                result, tokens = play(engine, workload.shifted(repetition, ids), keep_arrivals=keep_arrivals)
                repetitions.setdefault((w, at), []).append(result)
                facts.setdefault((w, at), {**_facts(configs[at], engine), "first_tokens": tokens[0][:8]})
                show(sum(map(len, repetitions.values())), workload.name)
    return [
        {
            "peer": "quire",
            "label": labels[at],
            "workload": workloads[w].name,
            **facts[w, at],
            "requests": len(workloads[w].requests),
            "out": workloads[w].num_output_tokens,
            **timing_figures(results),
        }
        for (w, at), results in sorted(repetitions.items())
    ]


def run_latency(
    config: EngineConfig, settings: LatencySettings, json_path: Path | None = None, plot_path: Path | None = None
) -> None:
    """`quire bench latency`."""
    lengths = settings.input_len, settings.output_len
    workloads = [make_workload(f"{n} at once", fixed_lengths(n, *lengths), seed=7) for n in settings.batch_size]
    columns = (Column("workload", "requests"), *TIMING_COLUMNS)
    report = Report("latency", f"Latency of {config.model}: {lengths[0]} in, {lengths[1]} out", columns)
    report.settings = {**settings.as_json(), "engine": config.as_json()}
    report.figures = measure([config], workloads, settings.runs)
    report.notes = _cut_short(report)
    panels = {"ttft_s": ("time to the first token, ms", 1e3), "tpot_s": ("time per output token, ms", 1e3)}
    title = f"{report.title}\nLeft is better; median over {settings.runs} runs, and their range"
    report.publish(json_path, plot_path, lambda figure: _draw(figure, report, title, panels))


def run_throughput(
    configs: Sequence[EngineConfig],
    settings: ThroughputSettings,
    json_path: Path | None = None,
    plot_path: Path | None = None,
) -> None:
    """`quire bench throughput`; several configs are compared."""
    workloads = _workloads(settings)
    if settings.save_workload is not None:
        write_workload(workloads[0], settings.save_workload)
    if settings.compare_prefix_caching:
        configs = [replace(config, enable_prefix_caching=on) for config in configs for on in (True, False)]
    label = (Column("label", "engine"),) if len(configs) > 1 else ()
    columns = (Column("workload", "workload"), *label, *TIMING_COLUMNS)
    report = Report("throughput", f"Throughput of {configs[0].model}", columns)
    report.settings = {**settings.as_json(), "engines": [config.as_json() for config in configs]}
    report.figures = measure(configs, workloads, settings.runs, keep_arrivals=settings.arrivals)
    report.notes = _cut_short(report)
    if len(configs) > 1:
        report.notes.append("The engines ran in one process: peak MiB is the largest of all engines so far.")
    panels = {"out_tok_s": ("output tokens/s", 1.0)}
    title = f"{report.title}\nRight is better; median over {settings.runs} runs, and their range"
    report.publish(json_path, plot_path, lambda figure: _draw(figure, report, title, panels))


def _cut_short(report: Report) -> list[str]:
    """Return notes about workloads whose answers are shorter than asked for."""
    return [
        f"{figure['workload']}: {figure['out_got']} of {figure['out']} tokens were generated; answers end at "
        "max_model_len, and without ignore_eos at an end token."
        for figure in report.figures
        if figure["out_got"] != figure["out"]
    ]


def _workloads(settings: ThroughputSettings) -> list[Workload]:
    if settings.workload:
        return [read_workload(path) for path in settings.workload]
    if settings.trace is not None:
        name, lengths = settings.trace.stem, read_trace(settings.trace).first(settings.num_requests)
    else:
        name, lengths = "uniform", uniform_lengths(settings.num_requests, settings.input_len, settings.output_len)
    return [make_workload(name, lengths, shared_prefix=settings.shared_prefix)]


def _alternate(configs: Sequence[EngineConfig], runs: int) -> Iterator[tuple[int, int, Engine]]:
    """Yield (repetition, engine number, warm engine), with one KV pool in memory at a time."""
    from quire.assembly import load, make_engine  # only when something runs

    loaded = load(configs[0])
    engine: Engine | None = None
    for repetition in range(runs):
        for at, config in enumerate(configs):
            if engine is None or len(configs) > 1:
                engine = None
                gc.collect()  # frees the last pool
                engine = make_engine(config, loaded)
                warm_up(engine)
            yield repetition, at, engine


def _labels(configs: Sequence[EngineConfig]) -> list[str]:
    """The settings in which the engines differ."""
    rows = [asdict(config) for config in configs]
    differing = [f.name for f in fields(EngineConfig) if len({str(row[f.name]) for row in rows}) > 1]
    return [", ".join(f"{name}={row[name]}" for name in differing) for row in rows]


def _facts(config: EngineConfig, engine: Engine) -> dict[str, Any]:
    return {
        "model": config.model,
        "threads": num_threads(),
        "prefix_cache": config.enable_prefix_caching,
        "block_size": config.block_size,
        "max_model_len": engine.max_model_len,
    }


def _draw(figure: Any, report: Report, title: str, panels: dict[str, tuple[str, float]]) -> None:
    """A panel per quantity, with its label and scale; a row per figure: median and range of the runs."""
    figure.suptitle(title)
    for axes, (key, (label, scale)) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        rows = []
        for found in report.figures:
            name = ", ".join(filter(None, (found["workload"], found["label"])))
            if found[key] is not None:
                rows.append(PlotRow(name, *(found[key][of] * scale for of in ("median", "min", "max"))))
        draw_rows(axes, rows, label)
