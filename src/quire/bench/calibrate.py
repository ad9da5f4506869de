"""`quire calibrate`: the CPS paper's table for this machine, the crossing point, and a profile for `quire simulate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import CalibrateSettings
from quire.bench.plots import COLOURS
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.calibration.calibrate import Calibration, LengthRow, calibrate_engine
from quire.config import EngineConfig, format_size
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs
from quire.ops.arrays import name_of

COLUMNS = (
    Column("num_tokens", "input length", digits=0),
    Column("swap_out_s", "swap out ms", scale=1e3, digits=3),
    Column("swap_prep_s", "prep ms", scale=1e3, digits=3),
    Column("swap_in_s", "swap in ms", scale=1e3, digits=3),
    Column("swap_s", "swap latency ms", scale=1e3),
    Column("swap_waits_s", "of it steps wait ms", scale=1e3),
    Column("recompute_s", "recompute latency ms", scale=1e3),
)


def run(
    config: EngineConfig, settings: CalibrateSettings, json_path: Path | None = None, plot_path: Path | None = None
) -> None:
    """Measure, save the profile, and publish. Raises ValueError if the model or a length does not fit."""
    from quire.assembly import load, make_engine
    from quire.calibration.profiles import profile_place

    if config.swap_space == 0:
        raise ValueError("swap_space=0 disables the swap tier, which is to be measured; leave it out")
    loaded = load(replace(config, skip_tokenizer_init=True))
    config = with_swap_tier(config, loaded)
    engine = make_engine(config, loaded, cost_model=CostModel())
    with progress(None, "measurements") as show:
        count = itertools.count(1)
        calibration = calibrate_engine(
            engine, lengths=settings.lengths, repeats=settings.repeats, on_trial=lambda trial: show(next(count), trial)
        )
    engine.scheduler.check_integrity()
    report = make_report(config, calibration, settings.repeats)
    place = profile_place(config, loaded.model, loaded.device)
    try:
        place.save(calibration.cost_model)
        report.notes.append(f"Engines like this one find these costs in {place.path}.")
    except OSError as error:
        report.notes.append(f"The costs could not be saved in {place.path}: {error.strerror or error}.")
    report.more = profile_json(config, calibration, name_of(loaded.model.kv_dtype))
    report.publish(json_path, plot_path, lambda figure: draw(figure, calibration, report.title))


def with_swap_tier(config: EngineConfig, loaded: Any) -> EngineConfig:
    """Add a swap tier in host memory for one sequence of full length, if there is none."""
    from quire.memory_plan import free_memory

    if config.swap_space is not None or config.swap_dir is not None:
        return config
    shape = loaded.model.config
    block_bytes = shape.kv_bytes(name_of(loaded.model.dtype)) * config.block_size
    num_blocks = -(-(config.max_model_len or shape.context_length) // config.block_size)
    if config.num_kv_blocks is not None:
        num_blocks = min(num_blocks, config.num_kv_blocks)
    room = free_memory("cpu") // 4 // block_bytes
    return replace(config, swap_space=max(1, min(num_blocks, room)) * block_bytes)


def make_report(config: EngineConfig, calibration: Calibration, repeats: int) -> Report:
    report = Report(
        "calibrate",
        f"Resumption after preemption: {config.model}, blocks of {calibration.block_size} tokens",
        COLUMNS,
        [_figure(row) for row in calibration.rows],
    )
    report.settings = {"repeats": repeats, "engine": config.as_json(), "chunk": calibration.chunk}
    report.notes = [*describe_crossing(calibration), describe_dependence(calibration)]
    if not calibration.cost_model.is_calibrated:
        report.notes.append("Too few measurements for a calibrated cost model: give more --lengths or --repeats.")
    return report


def profile_json(config: EngineConfig, calibration: Calibration, kv_dtype: str) -> dict[str, Any]:
    """This machine as a profile for the simulator (`simulate.hardware.read_profile`)."""
    return {
        "model": config.model,
        "bytes_per_token": calibration.bytes_per_token,
        "kv_dtype": kv_dtype,
        "state_bytes": calibration.state_bytes,
        "block_size": calibration.block_size,
        "max_tokens": calibration.max_tokens,
        "crossing_points": calibration.crossing_points(),
        "cost_model": calibration.cost_model.to_dict(),
        "limits": {
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": calibration.chunk,
            "enable_prefix_caching": config.enable_prefix_caching,
        },
        "decodes": [asdict(decode) for decode in calibration.decodes],
    }


def describe_crossing(calibration: Calibration) -> list[str]:
    """Describe the crossing points, or the link that would have one."""
    points = calibration.crossing_points()
    costs, size, chunk = calibration.cost_model, calibration.block_size, calibration.chunk
    num_bytes = size * calibration.bytes_per_token
    swaps_first = costs.save(num_bytes) + costs.load(num_bytes) < costs.recompute(size, chunk=chunk)
    first, second = ("swap", "recompute") if swaps_first else ("recompute", "swap")
    if points:
        return [
            f"Crossing point: {point:,} tokens, below it {below} is cheaper and from it on {above}."
            for point, (below, above) in zip(points, cycle([(first, second), (second, first)]), strict=False)
        ]
    lengths = range(size, calibration.max_tokens + 1, size)
    slowest, fastest = crossing_range(costs, calibration.bytes_per_token, lengths, chunk=chunk)
    condition, (bandwidth, at) = ("slower", fastest) if swaps_first else ("faster", slowest)
    return [
        f"There is no crossing point up to {calibration.max_tokens:,} tokens: {first} is cheaper at every length. "
        f"One begins to exist at {at:,} tokens, with a link {condition} than {format_rate(bandwidth)} each way."
    ]


def crossing_range(
    costs: Costs, bytes_per_token: int, lengths: Sequence[int], *, chunk: int
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return the slowest and the fastest symmetric link (bytes per second) with a crossing point, and its length."""
    even = [(2 * n * bytes_per_token / costs.recompute(n, chunk=chunk), n) for n in lengths]
    return min(even), max(even)


def describe_dependence(calibration: Calibration) -> str:
    row = calibration.rows[-1]
    out, into = (format_rate(row.num_bytes / max(1e-9, each.median)) for each in (row.swap.out, row.swap.into))
    prefill = row.num_tokens / max(1e-9, row.recompute.median)
    return (
        f"It depends on the KV of a token ({format_size(calibration.bytes_per_token)}), the link ({out} out and {into} "
        f"in, at {row.num_tokens:,} tokens) and prefill ({prefill:,.0f} tokens/s there, in steps of at most "
        f"{calibration.chunk:,})."
    )


def format_rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e6:,.1f} MB/s" if bandwidth < 1e9 else f"{bandwidth / 1e9:,.2f} GB/s"


def _figure(row: LengthRow) -> dict[str, Any]:
    swap = row.swap
    spreads = {"recompute": row.recompute, "swap_out": swap.out, "swap_prep": swap.prepare, "swap_in": swap.into}
    spreads |= {"swap": swap.latency, "swap_waits": swap.waits}
    figure = {f"{name}_s": asdict(spread) for name, spread in spreads.items()}
    return {"num_tokens": row.num_tokens, "num_bytes": row.num_bytes, **figure}


def draw(figure: Any, calibration: Calibration, title: str) -> None:
    """Both modes by length: measurements with their range, the cost model's curves, and their crossing points."""
    axes = figure.subplots()
    rows = calibration.rows
    lengths = [row.num_tokens for row in rows]
    costs, size = calibration.cost_model, calibration.bytes_per_token
    fine = range(calibration.block_size, calibration.max_tokens + 1, calibration.block_size)
    swap = [costs.save(n * size) + costs.load(n * size) for n in fine]
    recompute = [costs.recompute(n, chunk=calibration.chunk) for n in fine]
    for name, colour, spreads, curve in (
        ("swap", COLOURS[0], [row.swap.latency for row in rows], swap),
        ("recompute", COLOURS[1], [row.recompute for row in rows], recompute),
    ):
        bounds = [(s.median - s.min) * 1e3 for s in spreads], [(s.max - s.median) * 1e3 for s in spreads]
        medians = [s.median * 1e3 for s in spreads]
        axes.errorbar(lengths, medians, yerr=bounds, fmt="o", ms=4, capsize=3, color=colour, label=name)
        axes.plot(fine, [value * 1e3 for value in curve], color=colour, lw=1)
    for point in calibration.crossing_points():
        axes.axvline(point, color="0.4", ls="--", lw=1)
        axes.annotate(f" {point:,}", (point, 1), xycoords=("data", "axes fraction"), fontsize=8, va="top")
    axes.set(xlabel="tokens of the preempted request", ylabel="latency, ms", xscale="log", yscale="log")
    axes.set_xticks([], minor=True)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45, fontsize=8)
    axes.set_title(f"{title}\nLower is better; points: median and range of the repetitions, lines: the cost model")
