"""Tables, notes and pictures of `quire bench serve`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quire.bench.plots import COLOURS
from quire.bench.report import Column
from quire.bench.serving.latencies import e2el_s, itl_s, tpot_s, ttft_s
from quire.bench.serving.load_client import LoadResult

LOST = {"connect", "disconnected"}  #: errors of a server that ended
BREAKS_BELOW = 0.9  #: a load breaks the goodput if a smaller share of requests is within the limits
_NOTABLE_LAG_S = 0.01  #: a later client measures itself

_METRICS = {
    "ttft_s": "TTFT, ms",
    "tpot_s": "TPOT, ms",
    "itl_s": "ITL, ms",
    "e2el_s": "E2EL, ms",
    "normalised_latency_s": "normalised, ms/token",
}
_STATISTICS = ("mean", "p50", "p90", "p99")

SWEEP_COLUMNS = (
    Column("rate", "req/s"),
    Column("label", "server"),
    Column("completed", "done", digits=0),
    Column("failed", "failed", digits=0),
    Column("ttft_s.p50", "TTFT p50 ms", scale=1e3, digits=0),
    Column("ttft_s.p99", "p99", scale=1e3, digits=0),
    Column("tpot_s.p50", "TPOT p50 ms", scale=1e3, digits=1),
    Column("tpot_s.p99", "p99", scale=1e3, digits=1),
    Column("itl_s.p99", "ITL p99 ms", scale=1e3, digits=1),
    Column("normalised_latency_s.mean", "normalised ms/token", scale=1e3, digits=1),
    Column("out_tok_s", "out tok/s", digits=1),
    Column("goodput.req_s", "goodput req/s"),
    Column("goodput.share", "within limits", scale=100, digits=0, unit=" %"),
)


def metric_table(figure: Mapping[str, Any]) -> tuple[tuple[Column, ...], list[dict[str, Any]]]:
    """Table of one load: a row per metric."""
    columns = (Column("metric", ""), *(Column(name, name, scale=1e3, digits=1) for name in _STATISTICS))
    rows = [{"metric": heading, **(figure[key] or {})} for key, heading in _METRICS.items()]
    return columns, rows


def sweep_rows(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Table of several loads: a row per load."""
    return [
        {**figure, "rate": _shown_rate(figure), "failed": figure["requests"] - figure["completed"]}
        for figure in figures
    ]


def notes(
    figures: Sequence[Mapping[str, Any]], results: Sequence[LoadResult], limits: Mapping[str, float]
) -> list[str]:
    """Sentences below the table, with every kind of error."""
    found = []
    if len(figures) == 1:
        found += _summary(figures[0])
    for figure, result in zip(figures, results, strict=True):
        where = "" if len(figures) == 1 else f"{figure['label']} at {_rate(figure):g}/s: "
        found += _errors(figure, result, where)
    if limits and len(figures) > 1:
        found += _breaking_points(figures, limits)
    found += _token_counts(figures)
    found += _client_lag(figures)
    return found


def _summary(figure: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{figure['completed']} of {figure['requests']} requests were answered in {_median(figure, 'wall_s'):.1f} s: "
        f"{_median(figure, 'req_s'):.2f} requests/s, {_median(figure, 'out_tok_s'):.1f} output tokens/s, "
        f"{_median(figure, 'total_tok_s'):.0f} tokens/s in and out."
    ]
    if goodput := figure.get("goodput"):
        lines.append(
            f"Goodput under {_named(goodput['limits_s'])}: {goodput['req_s']:.2f} requests/s, "
            f"{goodput['share']:.0%} of all requests."
        )
    return lines


def _errors(figure: Mapping[str, Any], result: LoadResult, where: str) -> list[str]:
    lines = []
    for kind, count in sorted(figure["errors"].items()):
        first = next(outcome.error_message for outcome in result.outcomes if outcome.error == kind)
        lines.append(f"{where}{count} of {figure['requests']} requests failed: {kind}. The first: {first}")
    if lost := [outcome for outcome in result.outcomes if outcome.error in LOST]:
        since_s = min(outcome.arrival_s for outcome in lost)
        lines.append(
            f"{where}connections broke or were refused, of requests from {since_s:.1f} s on: has the server ended?"
        )
    if lines and figure["completed"]:
        lines.append(f"{where}latencies are those of the {figure['completed']} requests that were answered.")
    if figure["out_got"] < figure["out"]:
        lines.append(f"{where}{figure['out_got']:,} of {figure['out']:,} output tokens came; some answers ended early.")
    return lines


def _breaking_points(figures: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> list[str]:
    """For each server, the highest rate up to which nearly all requests were within the limits."""
    lines = []
    for label, measured in _by_label(figures).items():
        own = sorted(measured, key=_rate)
        broken = next((f for f in own if f["goodput"]["share"] < BREAKS_BELOW), None)
        held = [f for f in own if broken is None or _rate(f) < _rate(broken)]
        words = f"{label}: {BREAKS_BELOW:.0%} of the requests are within {_named(limits)}"
        words += f" up to {_rate(held[-1]):g} requests/s" if held else " at no rate"
        lines.append(f"{words}, and no more at {_rate(broken):g}." if broken is not None and held else f"{words}.")
    return lines


_COUNTED = {
    "usage": "token counts are the server's usage",
    "chunks": "the server gives no usage, so each chunk counts as one token",
    "both": "token counts are the server's usage, or chunks without it",
}


def _token_counts(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for label, own in _by_label(figures).items():
        counted = {figure["token_counts"] for figure in own} - {None}
        if counted:
            words = own[0]["tokens_per_word"]
            form = "prompts are token ids" if words is None else f"prompts are words of {words:.2f} tokens"
            lines.append(f"{label}: {_COUNTED['both' if len(counted) > 1 else counted.pop()]}; {form}.")
    return lines


def _client_lag(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    lags = [figure["client"]["send_lag_s"] for figure in figures if figure["client"]["send_lag_s"]]
    loops = [figure["client"]["loop_lag_s"] for figure in figures if figure["client"]["loop_lag_s"]]
    if not lags:
        return []
    p99, loop = max(lag["p99"] for lag in lags), max((lag["p99"] for lag in loops), default=0.0)
    share = max(figure["client"]["cpu_share"] for figure in figures)
    words = (
        f"The client sent {p99 * 1e3:.1f} ms late (p99) and read {loop * 1e3:.1f} ms late (p99 of its loop), with "
        f"{share:.0%} of a core; latencies count from when a request was due, so this is part of them."
    )
    if max(p99, loop) > _NOTABLE_LAG_S:
        words += " That is a lot: give the client its own core, or a lower rate."
    return [words]


def draw_sweep(figure: Any, figures: Sequence[Mapping[str, Any]]) -> None:
    """Normalised latency against request rate, a line per server; and goodput, if requested."""
    figures = [f for f in figures if math.isfinite(_rate(f))]
    figure.suptitle("How do latency and goodput follow the request rate?", x=0.01, ha="left")
    has_goodput = any("goodput" in f for f in figures)
    panels = figure.subplots(1, 1 + has_goodput, squeeze=False)[0]
    for label, measured in _by_label(figures).items():
        own = sorted(measured, key=_rate)
        known = [f for f in own if f["normalised_latency_s"] is not None]
        latencies = [f["normalised_latency_s"]["mean"] for f in known]
        panels[0].plot([_rate(f) for f in known], latencies, marker="o", label=label)
        if has_goodput:
            panels[1].plot([_rate(f) for f in own], [f["goodput"]["req_s"] for f in own], marker="o", label=label)
    panels[0].set(
        xlabel="request rate, requests/s", ylabel="normalised latency, s/token", title="Latency: lower is better"
    )
    if has_goodput:
        rates = sorted({_rate(f) for f in figures})
        panels[1].plot(rates, rates, color="0.4", linestyle=":", linewidth=1, label="all requests")
        limits = next(f["goodput"]["limits_s"] for f in figures if "goodput" in f)
        panels[1].set(xlabel="request rate, requests/s", ylabel=f"requests/s within {_named(limits)}")
        panels[1].set_title("Goodput: higher is better")
    for axes in panels:
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)


def draw_distributions(figure: Any, result: LoadResult, limits: Mapping[str, float]) -> None:
    """Cumulative distribution of each latency of one load."""
    done = [outcome for outcome in result.outcomes if outcome.is_complete]
    drawn = (
        ("ttft", "TTFT", [ttft_s(outcome) for outcome in done]),
        ("tpot", "TPOT", [value for outcome in done if (value := tpot_s(outcome)) is not None]),
        ("itl", "ITL", [gap for outcome in done for gap in itl_s(outcome)]),
        ("e2el", "E2EL", [e2el_s(outcome) for outcome in done]),
    )
    figure.suptitle(f"Latencies of the {len(done):,} requests that were answered: the further left a line, the better")
    panels = figure.subplots(1, len(drawn), sharey=True)
    for axes, (name, heading, values) in zip(panels, drawn, strict=True):
        if values:
            shares = [(i + 1) / len(values) for i in range(len(values))]
            axes.step([value * 1e3 for value in sorted(values)], shares, where="post")
        if name in limits:
            axes.axvline(limits[name] * 1e3, color=COLOURS[1], linestyle="--", linewidth=1, label="limit")
        axes.set(xlabel=f"{heading}, ms", ylim=(0, 1))
        axes.set_xlim(left=0)
    panels[0].set_ylabel("share of requests (ITL: of gaps)")


def _shown_rate(figure: Mapping[str, Any]) -> float | str | None:
    return figure["request_rate"] if figure["request_rate"] is not None else figure["offered_rate"]


def _rate(figure: Mapping[str, Any]) -> float:
    return float(_shown_rate(figure) or 0.0)


def _by_label(figures: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for figure in figures:
        found.setdefault(figure["label"], []).append(figure)
    return found


def _named(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {limit * 1e3:g} ms" for name, limit in limits.items())


def _median(figure: Mapping[str, Any], key: str) -> float:
    return float(figure[key]["median"])
