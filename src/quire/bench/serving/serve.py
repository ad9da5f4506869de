"""`quire bench serve`: latencies of OpenAI-compatible servers under an open loop of requests, at one rate or a
sweep."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from quire.bench.progress import progress
from quire.bench.report import Report
from quire.bench.serving.arrivals import OpenLoop, scale_trace
from quire.bench.serving.latencies import serving_figures
from quire.bench.serving.load_client import LoadClient, LoadResult
from quire.bench.serving.load_target import Target, find_target, prepare
from quire.bench.serving.serve_report import (
    LOST,
    SWEEP_COLUMNS,
    draw_distributions,
    draw_sweep,
    metric_table,
    notes,
    sweep_rows,
)
from quire.bench.serving.serve_settings import ServeSettings
from quire.bench.workload import (
    Lengths,
    Workload,
    make_workload,
    read_trace,
    read_workload,
    token_range,
    uniform_lengths,
)

DEFAULT_DURATION_S = 60.0


def run_serve(settings: ServeSettings, json_path: Path | None = None, plot_path: Path | None = None) -> bool:
    """Measure and publish. Returns whether every load had an answered request, and no connection was refused or lost.
    Raises ValueError if a setting is invalid, or a server does not answer."""
    targets = [
        find_target(url, settings.api_key, settings.model, is_chat=settings.chat, extra=settings.extra_body or {})
        for url in settings.urls
    ]
    label, count = Counter(target.label for target in targets).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} servers are called {label}; name them: --url a=http://... --url b=http://...")
    sizes = [target.vocab_size or 0 for target in targets]
    vocab_size = settings.vocab_size or min(sizes) or None  # the smallest, if all servers report theirs
    as_text = settings.text or settings.chat or (vocab_size is None and settings.workload is None)
    ids = token_range(vocab_size)
    load = make_load(settings, ids)
    rates = settings.sweep or (settings.request_rate,)  # None is a recording's own rate
    limits = dict(settings.goodput or {})
    workloads = [load.at(rate) for rate in rates]
    for target in targets:
        for workload in workloads:
            target.check_fit(workload)
    targets = [_prepare(target, workloads[0], as_text, settings.timeout_s) for target in targets]

    report = Report("serve", _title(targets, workloads, rates), SWEEP_COLUMNS, settings=settings.as_json())
    results: list[LoadResult] = []
    gone: set[str] = set()
    for rate, workload in zip(rates, workloads, strict=True):
        for target in targets:
            if target.label in gone:
                continue
            # Other token ids each time: no cache carries over to the next load.
            shifted = workload.shifted(len(results), ids)
            results.append(play(target, shifted, settings.timeout_s, rate))
            measured = serving_figures(results[-1], limits)
            report.figures.append({**_facts(target, workload, rate, settings), **measured})
            if measured["errors"].get("connect") == measured["requests"]:
                gone.add(target.label)
    report.notes = notes(report.figures, results, limits)
    if gone and len(rates) > 1:
        report.notes.append(f"{', '.join(sorted(gone))} refused all connections; later rates are left out.")
    draw: Callable[[Any], None]
    if len(results) == 1:
        report.columns, report.rows = metric_table(report.figures[0])
        draw = partial(draw_distributions, result=results[0], limits=limits)
    else:
        report.rows = sweep_rows(report.figures)
        draw = partial(draw_sweep, figures=report.figures)
    report.publish(json_path, plot_path, draw)
    return all(figure["completed"] and not LOST & figure["errors"].keys() for figure in report.figures)


def _prepare(target: Target, workload: Workload, as_text: bool, timeout_s: float) -> Target:
    with progress(1, target.label) as show:
        show(0, "waiting for the first answer")
        return asyncio.run(prepare(target, workload, as_text=as_text, timeout_s=timeout_s))


def make_load(settings: ServeSettings, ids: range) -> OpenLoop:
    def make(name: str, lengths: Lengths) -> Workload:
        shared, seed = settings.shared_prefix, settings.seed
        made = make_workload(name, lengths, shared_prefix=shared, seed=seed, ids=ids)
        return replace(made, ignore_eos=settings.ignore_eos)

    def draw(count: int) -> Workload:
        return make("uniform", uniform_lengths(count, settings.input_len, settings.output_len, seed=settings.seed))

    drawn = OpenLoop(draw, (), settings.num_requests, settings.duration_s, settings.burstiness, settings.seed)
    if settings.workload is not None:
        workload = read_workload(settings.workload)
        requests = sorted(workload.requests[: settings.num_requests], key=lambda request: request.arrival_s)
        workload = replace(workload, requests=requests, ignore_eos=workload.ignore_eos and settings.ignore_eos)
        arrivals = [request.arrival_s for request in requests]
        drawn = replace(drawn, make=lambda count: workload, count=len(requests))
        return replace(drawn, arrival_s=arrivals) if any(arrivals) else drawn
    if settings.trace is not None:
        name = settings.trace.stem
        lengths = scale_trace(
            read_trace(settings.trace).first(settings.num_requests),
            time_scale=settings.time_scale,
            length_scale=settings.length_scale,
            max_input_len=settings.max_input_len,
            max_output_len=settings.max_output_len,
        )
        return replace(drawn, make=lambda count: make(name, lengths.first(count)), arrival_s=lengths.arrival_s)
    if settings.duration_s is None and settings.num_requests is None:
        return replace(drawn, duration_s=DEFAULT_DURATION_S)
    return drawn


def play(target: Target, workload: Workload, timeout_s: float, rate: float | None = None) -> LoadResult:
    """Run one load on one server."""
    requests = [target.write(request, workload) for request in workload.requests]
    with progress(len(requests), target.label if rate is None else f"{target.label}, {rate:g}/s") as show:

        def watch(client: LoadClient) -> None:
            failed = f", {client.num_failed} failed" if client.num_failed else ""
            show(client.num_ended, f"done, {client.num_sent} sent{failed}")

        return asyncio.run(LoadClient(target.endpoint, target.url, timeout_s=timeout_s, watch=watch).run(requests))


def _facts(target: Target, workload: Workload, rate: float | None, settings: ServeSettings) -> dict[str, Any]:
    words = target.word_length
    return {
        "peer": target.label,
        "label": target.label,
        "url": target.url,
        "model": target.model,
        "workload": workload.name,
        "request_rate": "inf" if rate == math.inf else rate,  # JSON has no infinity
        "burstiness": settings.burstiness if settings.trace is None else None,
        "prompts": "token ids" if words is None else "words",
        "tokens_per_word": None if words is None else words.tokens_per_word,
    }


def _title(targets: Sequence[Target], workloads: Sequence[Workload], rates: Sequence[float | None]) -> str:
    names = ", ".join(target.label for target in targets)
    count = workloads[0].requests
    if len(rates) > 1:
        return f"Serving {workloads[0].name} by {names}"
    rate = f"{rates[0]:g} requests/s" if rates[0] is not None else "its own rate"
    return f"Serving {workloads[0].name} by {names}: {len(count)} requests at {rate}"
