"""The paper's figures: which loads to run, the table beside the paper's figures, and the picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.paged_attention.machine import NUM_SLOTS, SEQUENCE_S, a100
from benchmarks.paged_attention.reservation import SYSTEMS
from benchmarks.paged_attention.service import Decoding
from benchmarks.paged_attention.study import Load, Sweep, serve_all, sweep_all
from quire.bench.plots import COLOURS
from quire.bench.report import Column, Report
from quire.settings import Settings, integers, setting

_SHARES = (0.4, 0.7, 0.85, 0.95, 1.05, 1.2)
_SAMPLES = tuple(Decoding(width, is_beam) for is_beam in (False, True) for width in (2, 4, 6))
_BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FIXED_RATES = {"sharegpt": 2.0, "alpaca": 30.0}  #: requests per second in Figures 13 and 18
_NAMES = {
    "paged": "paged", "oracle": "Orca (Oracle)", "pow2": "Orca (Pow2)", "max": "Orca (Max)", "static": "static batches"
}  # fmt: skip
_OF = dict(zip(_NAMES.values(), COLOURS, strict=False))

#: Figures 12, 14, 16 and 17: how much more requests a second vLLM sustains than each system (sections 6.2 to 6.5).
_PAPERS_RATIOS = {
    ("12", "sharegpt", "oracle"): "1.7–2.7", ("12", "sharegpt", "max"): "2.7–8", ("12", "sharegpt", "static"): "≤ 22",
    ("12", "alpaca", "oracle"): "1.3", ("14", "6 beams", "oracle"): "2.3",
    ("16", "wmt-1-shot", "oracle"): "1.67", ("16", "wmt-5-shot", "oracle"): "3.58",
    ("17", "chatbot", "oracle"): "2", ("17", "chatbot", "pow2"): "2", ("17", "chatbot", "max"): "2",
}  # fmt: skip
_PAPERS_BATCHED = {  # Figure 13
    ("sharegpt", "max"): 7.00, ("sharegpt", "pow2"): 9.81, ("sharegpt", "oracle"): 13.62, ("sharegpt", "paged"): 30.42,
    ("alpaca", "max"): 7.00, ("alpaca", "pow2"): 43.24, ("alpaca", "oracle"): 72.75, ("alpaca", "paged"): 132.44,
}  # fmt: skip
_PAPERS_FILLED = {"max": 0.204, "pow2": 0.268, "oracle": 0.382, "paged": 0.963}  # Figure 2


@dataclass(frozen=True)
class PagedAttentionSettings(Settings):
    """Options of the PagedAttention figures."""

    figure: tuple[int, ...] = setting("12,13,14,16,17,18", "Figures to run.", read=integers)
    latency: float = setting(0.2, "Normalised latency at which rates are compared, in seconds per token.", above=0)
    scale: float = setting(1.0, "Factor of the simulated time.", above=0)
    num_slots: int = setting(NUM_SLOTS, "Tokens of KV memory.", at_least=2048)
    sequence_cost: float = setting(SEQUENCE_S * 1e3, "Milliseconds a step takes per sequence besides kernels.", above=0)
    workers: int = setting(2, "Processes.", at_least=1)
    load_seed: int = setting(0, "Seed of lengths and arrivals.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := sorted(set(self.figure) - set(FIGURES)):
            raise ValueError(f"figure={unknown[0]} is not known; there are {', '.join(map(str, FIGURES))}")

    def load(self, system: str, lengths: str, duration_s: float) -> Load:
        return Load(
            system,
            lengths,
            duration_s=duration_s * self.scale,
            num_slots=self.num_slots,
            sequence_s=self.sequence_cost / 1e3,
            seed=self.load_seed,
        )


_RATE_COLUMNS = (
    Column("panel", "load"),
    Column("name", "memory"),
    Column("capacity", "req/s of a long queue"),
    Column("sustained", "req/s at the latency"),
    Column("ratio", "paged sustains", unit=" ×"),
    Column("papers", "the paper"),
    Column("saved", "blocks shared", scale=100, digits=1, unit=" %"),
)


def rates_report(settings: PagedAttentionSettings, number: str, title: str, panels: dict[str, list[Load]]) -> Report:
    """Sweep the loads of all panels. The first load of a panel is the one to compare with."""
    sweeps = iter(
        sweep_all([load for loads in panels.values() for load in loads], _SHARES, settings.scale, settings.workers)
    )
    figures = []
    for panel, loads in panels.items():
        base: Sweep | None = None
        for load in loads:
            sweep = next(sweeps)
            base = base or sweep
            own, best = sweep.sustained(settings.latency), base.sustained(settings.latency)
            is_first = sweep is base
            figures.append(
                {
                    "panel": panel,
                    "system": load.system,
                    "name": _NAMES[load.system]
                    + (", nothing shared" if load.system == "paged" and not is_first else ""),
                    "capacity": sweep.capacity,
                    "sustained": own,
                    "ratio": best / own if own and best and not is_first else None,
                    "papers": _PAPERS_RATIOS.get((number, panel, load.system), "–"),
                    "saved": sweep.points[0]["saved"] if load.system == "paged" else None,
                    "points": sweep.points,
                }
            )
    report = _report(settings, title, _RATE_COLUMNS, figures)
    models = "of 13 to 175 billion weights" if number == "12" else "of 13 billion weights"
    report.notes.append(
        f"Rates are compared at {settings.latency:g} s/token of normalised latency, the mean of each request's latency "
        f"over its output tokens. The paper's ratios: at similar latencies, {models}."
    )
    return report


def _report(settings: PagedAttentionSettings, title: str, columns: Any, figures: list[dict[str, Any]]) -> Report:
    report = Report("paged_attention", title, columns, figures, settings=settings.as_json())
    report.notes = a100(settings.sequence_cost / 1e3).sources()[:-1]
    return report


def figure_12(settings: PagedAttentionSettings) -> Report:
    durations = {"sharegpt": 900, "alpaca": 240}
    panels = {name: [settings.load(each, name, seconds) for each in SYSTEMS] for name, seconds in durations.items()}
    return rates_report(settings, "12", "Normalised latency against request rate (Figure 12)", panels)


def figure_13(settings: PagedAttentionSettings) -> Report:
    loads = [settings.load(each, name, 1200 / rate) for name, rate in _FIXED_RATES.items() for each in SYSTEMS]
    figures = [
        {
            "panel": load.lengths,
            "system": load.system,
            "name": _NAMES[load.system],
            "papers": _PAPERS_BATCHED.get((load.lengths, load.system)),
            "papers_filled": _PAPERS_FILLED.get(load.system) if load.lengths == "sharegpt" else None,
            "wasted": 1 - served["filled"] / served["held"] if load.system == "paged" else None,
            **served,
        }
        for load, served in zip(
            loads, serve_all([(load, _FIXED_RATES[load.lengths]) for load in loads], settings.workers), strict=True
        )
    ]
    columns = (
        Column("panel", "load"),
        Column("rate", "req/s", digits=0),
        Column("name", "memory"),
        Column("batched", "batched requests"),
        Column("papers", "the paper"),
        Column("filled", "memory with tokens", scale=100, digits=1, unit=" %"),
        Column("papers_filled", "the paper (Figure 2)", scale=100, digits=1, unit=" %"),
        Column("wasted", "of used blocks wasted", scale=100, digits=1, unit=" %"),
        Column("preemptions", "preemptions", digits=0),
    )
    return _report(settings, "Batched requests (Figure 13)", columns, figures)


def figure_14(settings: PagedAttentionSettings) -> Report:
    panels = {
        decoding.name: [
            replace(settings.load(each, "alpaca", 180 / decoding.width), decoding=decoding)
            for each in ("paged", "oracle", "pow2", "max")
        ]
        for decoding in _SAMPLES
    }
    return rates_report(settings, "14", "Parallel samples and beams, Alpaca-like lengths (Figure 14)", panels)


def figure_16(settings: PagedAttentionSettings) -> Report:
    panels = {}
    for name in ("wmt-1-shot", "wmt-5-shot"):
        loads = [settings.load(each, name, 120) for each in ("paged", "paged", "oracle", "max")]
        panels[name] = [replace(loads[0], has_prefix_caching=True), *loads[1:]]
    return rates_report(settings, "16", "Translation with a shared prefix of 80 or 341 tokens (Figure 16)", panels)


def figure_17(settings: PagedAttentionSettings) -> Report:
    panels = {"chatbot": [settings.load(each, "chatbot", 900) for each in SYSTEMS[:-1]]}
    return rates_report(settings, "17", "Conversations of up to 1,024 tokens (Figure 17)", panels)


def figure_18(settings: PagedAttentionSettings) -> Report:
    loads = [
        replace(settings.load("paged", name, 1200 / rate), block_size=size)
        for name, rate in _FIXED_RATES.items()
        for size in _BLOCK_SIZES
    ]
    served = serve_all([(load, _FIXED_RATES[load.lengths]) for load in loads], settings.workers)
    figures = [
        {
            "panel": load.lengths,
            "block_size": load.block_size,
            "wasted": 1 - each["filled"] / each["held"],
            **each,
        }
        for load, each in zip(loads, served, strict=True)
    ]
    columns = (
        Column("panel", "load"),
        Column("rate", "req/s", digits=1),
        Column("block_size", "block size", digits=0),
        Column("normalised_s", "s/token", digits=4),
        Column("wasted", "of used blocks wasted", scale=100, digits=2, unit=" %"),
        Column("batched", "batched requests", digits=1),
        Column("preemptions", "preemptions", digits=0),
    )
    report = _report(settings, "Block size at a fixed rate (Figure 18b): memory alone", columns, figures)
    report.notes.append(
        "Kernels and block tables cost the same at every size here: benchmarks/block_size.py runs them."
    )
    return report


FIGURES: dict[int, Callable[[PagedAttentionSettings], Report]] = {
    12: figure_12, 13: figure_13, 14: figure_14, 16: figure_16, 17: figure_17, 18: figure_18
}  # fmt: skip


def draw(figure: Any, number: int, report: Report) -> None:
    """One panel per load."""
    figure.suptitle(report.title + {13: ": more is better"}.get(number, ": lower, and further right, is better"))
    panels = list(dict.fromkeys(each["panel"] for each in report.figures))
    num_rows = 2 if len(panels) > 3 else 1
    all_axes = figure.subplots(num_rows, len(panels) // num_rows, squeeze=False).flat
    for axes, panel in zip(all_axes, panels, strict=True):
        rows = [each for each in report.figures if each["panel"] == panel]
        axes.set_title(panel)
        if number == 13:
            _draw_bars(axes, rows)
        elif number == 18:
            _draw_block_sizes(axes, rows)
        else:
            _draw_rates(axes, rows, report.settings["latency"])


def _draw_rates(axes: Any, rows: Sequence[dict[str, Any]], latency_s: float) -> None:
    for row in rows:
        colour = _OF.get(row["name"], COLOURS[-1])
        at = [[point[name] for point in row["points"]] for name in ("rate", "normalised_s")]
        axes.plot(*at, marker=".", color=colour, label=row["name"])
    axes.axhline(latency_s, color="0.6", lw=1, ls=":")
    axes.set(xlabel="requests a second", ylabel="latency, s/token", ylim=(0, 3 * latency_s), xlim=(0, None))


def _draw_bars(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    for at, row in enumerate(rows):
        axes.bar(at, row["batched"], color=_OF[row["name"]], label=row["name"])
    papers = [(at, row["papers"]) for at, row in enumerate(rows) if row["papers"] is not None]
    axes.plot(*zip(*papers, strict=True), "D", color="black", ms=4, label="the paper")
    axes.set(ylabel="batched requests", xticks=[])


def _draw_block_sizes(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    at = range(len(rows))
    axes.plot(at, [row["normalised_s"] for row in rows], marker=".", color=COLOURS[0], label="latency, s/token")
    axes.set(xlabel="block size", ylabel="latency, s/token", xticks=list(at), ylim=(0, None))
    axes.set_xticklabels([row["block_size"] for row in rows])
