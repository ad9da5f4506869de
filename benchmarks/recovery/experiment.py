"""The CPS paper's experiment on the real engine.

A pool of fixed size without a watermark, all requests at once, and every policy on the same requests in turns. Each
policy has a new engine over one loaded model, with the same prior costs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.recovery.crossing import bandwidth_for_crossing, crossings_at
from benchmarks.recovery.load import make_mix
from benchmarks.recovery.run import SLOWER, LinkPlan, RecoveryRun, first_difference, run_once, transfer_worker_of
from benchmarks.recovery.settings import RecoverySettings
from quire.bench.calibrate import format_rate
from quire.bench.plots import COLOURS
from quire.bench.report import Column, Report, summarise
from quire.bench.timing import warm_up
from quire.bench.workload import Workload, token_range
from quire.config import EngineConfig, SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine
from quire.ops.arrays import name_of
from quire.simulate.hardware import HardwareProfile, read_profile
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from quire.simulate.token_times import value_of

POOL_BLOCKS = 512  #: the paper's
LONGEST = 2048  #: tokens of a request
_SWAP_SPACE = 4 * 2**30
_DYNAMIC = "cost"
_WAYS_BACK = ("recompute", "swap", "mixed", "fell back")


COLUMNS = (
    Column("policy", "policy"),
    Column("recovery_s", "recovery s", digits=3),
    Column("ttft_s", "mean TTFT ms", scale=1e3, digits=0),
    Column("tpot_s", "mean TPOT ms", scale=1e3, digits=1),
    Column("tpot_p99_s", "P99 TPOT ms", scale=1e3, digits=1),
    Column("wall_s", "wall s"),
    Column("preemptions", "preempted", digits=0),
    Column("modes", "by mode"),
    Column("recomputed_tokens", "wasted tokens", digits=0),
    Column("error_median", "error median", scale=100, digits=1, unit=" %"),
    Column("error_p90", "p90", scale=100, digits=1, unit=" %"),
)
RATIO_COLUMNS = (
    Column("name", "cost against the best static policy"),
    Column("best", "best"),
    Column("ratio", "ratio", digits=3),
)
FORECAST_COLUMNS = (
    Column("name", "the engine's run, predicted"),
    Column("engine", "engine s", digits=4),
    Column("simulator", "simulator s", digits=4),
    Column("error", "error", scale=100, digits=1, unit=" %"),
)
_COMPARED = {
    "recovery_s": "seconds spent on recovery",
    "ttft_s": "mean TTFT",
    "ttft_p99_s": "P99 TTFT",
    "tpot_s": "mean TPOT",
    "tpot_p99_s": "P99 TPOT",
    "wall_s": "wall time",
}
_QUANTITIES = {
    **{name: name for name in ("recovery_s", "save_s", "load_s", "compute_s")},
    "ttft_s": "ttft_s.mean",
    "ttft_p99_s": "ttft_s.p99",
    "tpot_s": "tpot_s.mean",
    "tpot_p99_s": "tpot_s.p99",
    "wall_s": "makespan_s",
    "preemptions": "num_preemptions",
    "recomputed_tokens": "num_recomputed_tokens",
    "error_median": "errors.p50",
    "error_p90": "errors.p90",
}


def run(
    config: EngineConfig, settings: RecoverySettings, json_path: Path | None = None, plot_path: Path | None = None
) -> bool:
    """Run every policy and publish.

    Returns:
        Whether all outputs are equal under every policy.

    Raises:
        ValueError: a setting is invalid, or the model cannot be served.
    """
    check(config, settings)
    from quire.assembly import load

    config = experiment_config(config)
    loaded = load(config)
    config = _with_swap_space(config, loaded)
    prior, notes = measure_prior(config, loaded, settings)
    config, more = choose_bandwidth(config, loaded, prior, settings)
    prior = learn_link(config, loaded, prior, settings)
    factor, period_s = settings.alternate_link or (1.0, 0.0)
    plan = LinkPlan(config.swap_bandwidth, factor, period_s, *settings.slow_link_at or ())
    runs: dict[str, list[RecoveryRun]] = {policy: [] for policy in settings.policies}
    differences = []
    for repetition in range(settings.runs):
        for policy in settings.policies:
            found = _run_policy(policy, repetition, config, loaded, prior, settings, plan)
            first = runs[settings.policies[0]][repetition] if runs[settings.policies[0]][repetition:] else found
            if (difference := first_difference(found.tokens, first.tokens)) is not None:
                differences.append((policy, repetition, *difference))
            runs[policy].append(found)
    report = make_report(config, settings, runs)
    report.notes = [*notes, *more, *report.notes, *_describe_differences(settings, differences)]
    report.settings |= {"differences": differences}
    report.publish(json_path, plot_path, lambda figure: draw(figure, report.title, runs))
    _show_more(report.figures)
    return not differences


def check(config: EngineConfig, settings: RecoverySettings) -> None:
    """Raise ValueError for invalid settings before anything is loaded."""
    for policy in settings.policies:
        make_compared_policy(policy)
    make_mix(settings.mix, settings.num_requests, LONGEST)
    if config.swap_space == 0:
        raise ValueError("swap_space=0 is no swap tier, and this compares swapping with computing again; leave it out")
    if settings.crossing_at is not None and config.swap_bandwidth is not None:
        raise ValueError("--crossing-at and --swap-bandwidth both say how fast the link is; give one of them")
    has_bandwidth = settings.crossing_at is not None or config.swap_bandwidth is not None
    for option, value in (("--alternate-link", settings.alternate_link), ("--slow-link-at", settings.slow_link_at)):
        if value is not None and not has_bandwidth:
            raise ValueError(f"{option} changes the link's bandwidth; give it one by --swap-bandwidth or --crossing-at")


def experiment_config(config: EngineConfig) -> EngineConfig:
    """Defaults: the paper's pool, no watermark, and float32, so outputs can be compared."""
    values: dict[str, Any] = {"watermark": 0.0, "skip_tokenizer_init": True}
    if config.dtype == "auto":
        values["dtype"] = "float32"
    if config.num_kv_blocks is None and config.kv_cache_memory is None:
        values["num_kv_blocks"] = POOL_BLOCKS
    return replace(config, **values)


def _with_swap_space(config: EngineConfig, loaded: Any) -> EngineConfig:
    from quire.memory_plan import free_memory

    values: dict[str, Any] = {"max_model_len": config.max_model_len or min(LONGEST, loaded.model.config.context_length)}
    if config.swap_space is None and config.swap_dir is None:
        values["swap_space"] = min(_SWAP_SPACE, free_memory("cpu") // 4)
    return replace(config, **values)


def measure_prior(config: EngineConfig, loaded: Any, settings: RecoverySettings) -> tuple[CostModel, list[str]]:
    """Costs of steps and of the link at full speed, from a profile or measured now."""
    if settings.profile is not None:
        costs = read_profile(settings.profile).costs
        assert isinstance(costs, CostModel)
        return costs, [f"Costs to begin with: {settings.profile}."]
    return _calibrate(replace(config, swap_bandwidth=None), loaded, settings, settings.repeats), []


def _calibrate(
    config: EngineConfig, loaded: Any, settings: RecoverySettings, repeats: int, *, decodes: bool = True
) -> CostModel:
    from quire.calibration.calibrate import calibrate_engine

    engine = _make(config, loaded, settings, "recompute")
    longest = engine.max_model_len
    powers = [*(64 << power for power in range(32) if 64 << power < longest), longest]
    lengths = [length for length in powers if length >= config.block_size]
    found = calibrate_engine(engine, lengths=lengths, repeats=repeats, decodes=decodes).cost_model
    _close(engine)
    return found


def choose_bandwidth(
    config: EngineConfig, loaded: Any, prior: CostModel, settings: RecoverySettings
) -> tuple[EngineConfig, list[str]]:
    """Set the bandwidth at which the modes cross at `crossing_at` tokens."""
    if settings.crossing_at is None:
        return config, []
    model = loaded.model
    size = model.config.kv_bytes(name_of(model.dtype))
    chunk = config.tokens_beside_streams or config.tokens_per_step(model.config.num_parameters, loaded.device)
    bandwidth = bandwidth_for_crossing(prior, size, settings.crossing_at, chunk=chunk)
    lengths = range(config.block_size, (config.max_model_len or LONGEST) + 1, config.block_size)
    points = crossings_at(bandwidth, prior, size, lengths, chunk=chunk)
    text = ", ".join(f"{point:,}" for point in points) or "nowhere else than there"
    note = (
        f"A link of {format_rate(bandwidth)} (--swap-bandwidth {bandwidth:.0f}) makes both modes cost the same at "
        f"{settings.crossing_at:,} tokens; by the cost model the cheaper one changes at: {text}."
    )
    return replace(config, swap_bandwidth=max(1, round(bandwidth))), [note]


def learn_link(config: EngineConfig, loaded: Any, prior: CostModel, settings: RecoverySettings) -> CostModel:
    """The prior with transfers measured on the final link."""
    if config.swap_bandwidth is None:
        return prior
    found = _calibrate(config, loaded, settings, min(settings.repeats, 2), decodes=False)
    learnt = CostModel.from_dict(prior.to_dict())
    learnt.links = found.links
    return learnt


def _run_policy(
    policy: str,
    repetition: int,
    config: EngineConfig,
    loaded: Any,
    prior: CostModel,
    settings: RecoverySettings,
    plan: LinkPlan,
) -> RecoveryRun:
    gc.collect()  # the last engine's pool, before there is this one's
    engine = _make(config, loaded, settings, policy)
    ids = token_range(engine.vocab_size)
    seed = settings.seed + repetition * settings.redraw
    load = make_mix(settings.mix, settings.num_requests, engine.max_model_len, seed=seed, ids=ids)
    load = load.shifted(repetition, ids)
    warm_up(engine, repetition)
    engine.costs.model.take_over(prior.to_dict())
    found = run_once(engine, load, plan, prior)
    if settings.forecast:
        predicted = predict(engine.scheduler.config, policy, prior, load)
        found.forecast = compare(found, predicted, {name: _QUANTITIES[name] for name in _COMPARED})
    _close(engine)
    return found


def compare(engine: Any, simulated: Any, names: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Compare the engine's and the simulator's figures.

    Args:
        engine: figures of the engine's run.
        simulated: figures of the same requests in the simulator.
        names: the figure (`value_of`) of each comparison.
    """
    pairs = {name: (value_of(engine, of), value_of(simulated, of)) for name, of in names.items()}
    return {
        name: {"engine": took, "simulator": predicted, "error": predicted / took - 1.0}
        for name, (took, predicted) in pairs.items()
        if took and predicted is not None
    }


def predict(config: SchedulerConfig, policy: str, prior: CostModel, workload: Workload) -> SimulationFigures:
    """Simulate the load. The policy begins with the engine's prior and learns."""
    costs, learner = (CostModel.from_dict(prior.to_dict()) for _ in range(2))
    size = config.block_bytes // config.block_size
    hardware = HardwareProfile("measured", "this machine", "this model", costs, bytes_per_token=size)
    arrivals = [Arrival(0.0, len(r.prompt_token_ids), r.max_tokens, r.prompt_token_ids) for r in workload.requests]
    return simulate(arrivals, hardware, config, make_compared_policy(policy), learner=learner)


def _make(config: EngineConfig, loaded: Any, settings: RecoverySettings, policy: str) -> Engine:
    from quire.assembly import make_engine

    costs = CostModel()
    recovery = make_compared_policy(policy)
    engine = make_engine(config, loaded, cost_model=costs, recovery=recovery)
    if settings.processor_time:
        engine.clock = time.thread_time
    return engine


def _close(engine: Engine) -> None:
    link = transfer_worker_of(engine)
    if link is not None:
        link.close()


def make_report(config: EngineConfig, settings: RecoverySettings, runs: dict[str, list[RecoveryRun]]) -> Report:
    num_blocks = f"{config.num_kv_blocks:,}" if config.num_kv_blocks is not None else "as many as fit"
    report = Report(
        "recovery",
        f"Recovery: {config.model} in {config.dtype}, {num_blocks} blocks of {config.block_size} tokens, "
        f"{settings.num_requests} requests, {settings.mix}",
        COLUMNS,
        [figure(policy, done) for policy, done in runs.items()],
    )
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    add_ratios(report.figures, runs)
    report.notes = [_describe_link(config, settings)]
    if _DYNAMIC in runs and settings.slow_link_at is not None:
        report.notes += _describe_turnovers(runs[_DYNAMIC])
    report.notes.append(
        "recovery s: seconds of the link (saving and loading victims' blocks) and of steps that computed again; "
        "what share of a step that is, is judged by the same calibrated costs under every policy. fell back: a "
        "block that was to be swapped was computed after all. error: of what cost predicted for the mode that it "
        "took."
    )
    if settings.processor_time:
        report.notes.append("Seconds of the engine are the processor's; the link's are those of its bandwidth.")
    return report


def figure(policy: str, done: Sequence[RecoveryRun]) -> dict[str, Any]:
    """Figures of one policy over all repetitions, with the decisions of the first."""
    modes = {mode: fmean(run.by_mode.get(mode, 0) for run in done) for mode in _WAYS_BACK}
    first = done[0]
    return {
        "policy": policy,
        "runs": len(done),
        "requests": len(first.tokens),
        "in": first.repetition.num_prompt_tokens,
        "out_got": first.repetition.num_output_tokens,
        **{
            name: summarise(value for run in done if (value := value_of(run, of)) is not None)
            for name, of in _QUANTITIES.items()
        },
        "by_mode": modes,
        "modes": ", ".join(f"{mode} {count:.0f}" for mode, count in modes.items() if count) or "–",
        "turnovers": [run.turnovers() for run in done],
        "phases": [asdict(phase) for phase in first.phases],
        "forecast": first.forecast,
        "crossings": [asdict(crossing) for crossing in first.crossings],
        "decisions": [
            {
                "request": r.request_id,
                "step": r.step_id,
                "tokens": r.num_tokens,
                "mode": r.mode.value,
                "predicted_s": r.predicted,
                "actual_s": r.seconds,
                "is_complete": r.is_complete,
                "fell_back": r.fell_back,
            }
            for r in first.recoveries
        ],
    }


def add_ratios(figures: Sequence[dict[str, Any]], runs: dict[str, list[RecoveryRun]]) -> None:
    """Add the ratios of cost to the best static policy in each quantity, run by run."""
    by_policy = {found["policy"]: found for found in figures}
    static = [policy for policy in runs if policy != _DYNAMIC]
    if _DYNAMIC not in by_policy or not static:
        return
    ratios = {}
    for name in _COMPARED:
        known = [policy for policy in static if by_policy[policy][name] is not None]
        best = min(known, key=lambda policy: by_policy[policy][name]["median"], default=None)
        if best is None:
            continue
        of = _QUANTITIES[name]
        pairs = zip(*([value_of(run, of) for run in runs[policy]] for policy in (_DYNAMIC, best)), strict=True)
        ratio = summarise(ours / theirs for ours, theirs in pairs if ours is not None and theirs)
        if ratio is not None:
            ratios[name] = {"best": best, **ratio}
    by_policy[_DYNAMIC]["against_best_static"] = ratios


def _show_more(figures: Sequence[dict[str, Any]]) -> None:
    ratios = [
        {"name": _COMPARED[name], "best": ratio["best"], "ratio": ratio}
        for found in figures
        for name, ratio in found.get("against_best_static", {}).items()
    ]
    forecasts = [
        {"policy": found["policy"], "name": _COMPARED[name], **values}
        for found in figures
        for name, values in found["forecast"].items()
    ]
    for columns, rows in ((RATIO_COLUMNS, ratios), ((COLUMNS[0], *FORECAST_COLUMNS), forecasts)):
        if rows:
            Report("recovery", "", columns, rows=rows).show()


def _describe_link(config: EngineConfig, settings: RecoverySettings) -> str:
    place = "host memory" if config.swap_dir is None else config.swap_dir
    if config.swap_bandwidth is None:
        return f"The link to {place} is as fast as it goes."
    text = f"The link to {place} moves {format_rate(config.swap_bandwidth)}"
    if settings.alternate_link is not None:
        factor, seconds = settings.alternate_link
        text += f", and {factor:g} times less in every second {seconds:g} s"
    if settings.slow_link_at is not None:
        text += f", {SLOWER} times less from preemption {' on to preemption '.join(map(str, settings.slow_link_at))}"
        text += " on" if len(settings.slow_link_at) == 1 else ""
    return text + "."


def _describe_turnovers(done: Sequence[RecoveryRun]) -> list[str]:
    lines = []
    for number, run in enumerate(done, start=1):
        counts = [(at, "not before the next change" if n is None else f"by the {n}. one") for at, n in run.turnovers()]
        words = "; ".join(f"after preemption {at} {count}" for at, count in counts)
        lines.append(f"Run {number}: decisions turned over {words or 'never, since the link did not change'}.")
    return lines


def _describe_differences(settings: RecoverySettings, differences: Sequence[tuple[str, int, int, int]]) -> list[str]:
    if not differences:
        return [f"Outputs are the same, token for token, under {', '.join(settings.policies)}."]
    return [
        f"OUTPUTS DIFFER: {policy}, run {repetition + 1}: request {request} from its output token {token} on."
        for policy, repetition, request, token in differences
    ]


def draw(figure: Any, title: str, runs: dict[str, list[RecoveryRun]]) -> None:
    """Seconds by policy, and each decision of the first run of cost with the model's crossing points."""
    dynamic = runs.get(_DYNAMIC)
    has_others = len(runs) > 1 or not dynamic
    question = "Which recovery costs least?" if has_others else "What does cost choose?"
    figure.suptitle(f"{question} {title.removeprefix('Recovery: ')}", x=0.01, ha="left")
    count = has_others + bool(dynamic)
    panels = figure.subplots(1, count, squeeze=False, width_ratios=(1, 2)[:count])[0]
    if has_others:
        _draw_seconds(panels[0], runs)
    if dynamic:
        _draw_decisions(panels[-1], dynamic[0])


def _draw_seconds(axes: Any, runs: dict[str, list[RecoveryRun]]) -> None:
    left = [0.0] * len(runs)
    places = range(len(runs))
    for name, label in (("save_s", "saving"), ("load_s", "loading"), ("compute_s", "computing again")):
        widths = [fmean(getattr(run, name) for run in done) for done in runs.values()]
        axes.barh(places, widths, 0.5, left=left, label=label)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    for place, done in zip(places, runs.values(), strict=True):
        own = [run.recovery_s for run in done]
        axes.plot(own, [place - 0.35] * len(own), "o", color="0.2", ms=4, label="a single run")
    axes.set_yticks(places, runs)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="seconds spent on recovery", title="Recovery: left is better")


def _draw_decisions(axes: Any, run: RecoveryRun) -> None:
    fastest = max((phase.bandwidth for phase in run.phases if phase.bandwidth is not None), default=None)
    ends = [*(phase.from_preemption for phase in run.phases[1:]), len(run.recoveries)]
    for phase, end in zip(run.phases, ends, strict=True):
        if phase.bandwidth is not None and phase.bandwidth != fastest:
            axes.axvspan(phase.from_preemption, end, color="0.9", lw=0, label="the link is slowed down")
    for mode, colour in zip(("swap", "recompute", "mixed"), COLOURS[3:], strict=False):
        own = [(at, r.num_tokens) for at, r in enumerate(run.recoveries) if r.mode.value == mode]
        if own:
            axes.scatter(*zip(*own, strict=True), s=12, color=colour, label=f"chose {mode}")
    most = max((len(crossing.points) for crossing in run.crossings), default=0)
    places = [crossing.at_preemption for crossing in run.crossings]
    for rank in range(most):
        points = [c.points[rank] if len(c.points) > rank else float("nan") for c in run.crossings]
        label = "crossing, by the model" if rank == 0 else None
        axes.plot(places, points, color="black", lw=1, marker=".", ms=3, drawstyle="steps-post", label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(
        xlabel="preemption",
        ylabel="tokens",
        title="What cost chose, first run",
    )
