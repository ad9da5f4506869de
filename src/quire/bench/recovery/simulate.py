"""`quire simulate`: recovery policies on a virtual clock, on the same requests, against a machine that is a table.

Every seed draws one load, and every policy gets that same load, so that policies are compared in pairs. The virtual
clock knows no noise: what differs from seed to seed is the load. How far to trust it: docs/simulate.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from quire.bench.plots import ENOUGH, FEW, Row, draw_rows
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.bench.settings import SimulateSettings
from quire.bench.workload import read_trace
from quire.config import SchedulerConfig
from quire.core.recovery.policies import make_policy
from quire.simulate.figures import interval, paired_changes, value_of
from quire.simulate.hardware import PAPER, HardwareProfile, find_profile
from quire.simulate.loads import draw_short_long, speed_up
from quire.simulate.simulation import Arrival, SimulationFigures, simulate

SHORT_LONG = "short-long"
DEFAULT_SEEDS = 20

#: What the CPS paper reports of its own policy (section 4.2.2), in seconds; and P99 TPOT against the static ones.
PAPERS_FIGURES = {"ttft_mean_s": 1.64835, "tpot_mean_s": 0.03655, "tpot_p99_s": 0.07057}
PAPERS_CLAIM = (
    "The paper's CPS (threshold:1024 on vLLM 0.2.4): P99 TPOT 13.1 % below swap and 20.1 % below recompute. Its "
    "absolute times are no target: it gives neither its decode steps nor how its requests split into prompt and answer."
)

_COMPARED = ("ttft_mean_s", "tpot_mean_s", "tpot_p99_s")
_HEADINGS = {"ttft_mean_s": "mean TTFT", "tpot_mean_s": "mean TPOT", "tpot_p99_s": "P99 TPOT"}


@dataclass
class Case:
    """One policy on one profile, over all seeds."""

    policy: str
    decode_scale: float
    runs: list[SimulationFigures] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        """One figure a seed, by the name that it has in the table."""
        return [found for run in self.runs if (found := value_of(run, _VALUES[name])) is not None]


_VALUES = {
    **{f"{name}_{of}_s": f"{name}_s.{of}" for name in ("ttft", "tpot", "itl") for of in ("mean", "p50", "p99")},
    "preemptions": "num_preemptions",
    "recomputed_tokens": "num_recomputed_tokens",
    **{name: name for name in ("makespan_s", "recomputed_share", "recovery_s", "recompute_s", "save_s", "load_s")},
    **{name: name for name in ("stall_s", "wait_s")},
}


def run(settings: SimulateSettings, json_path: Path | None = None, plot_path: Path | None = None) -> None:
    """Simulate every policy, print, and write what was asked for.

    Raises:
        ValueError: a setting makes no sense, or a file cannot be read.
    """
    profiles = {
        scale: find_profile(settings.profile, decode_scale=scale, swap_is_synchronous=settings.swap_is_synchronous)
        for scale in settings.decode_scale
    }
    first = next(iter(profiles.values()))
    config = scheduler_config(settings, first)
    for policy in settings.policies:
        make_policy(policy, first.costs)  # a name that is none is noticed before anything runs
    loads = make_loads(settings)
    cases = play(settings, profiles, config, loads)
    report = Report("simulate", _title(settings, loads, first), COLUMNS)
    report.settings = {**settings.as_json(), "scheduler": asdict(config)}
    report.figures = figures(cases)
    report.rows = [{**figure, "decode": _scale_cell(figure["decode_scale"], settings)} for figure in report.figures]
    if first.name == PAPER and settings.trace is None:
        shown = {name: f"{value * 1e3:,.2f}" for name, value in PAPERS_FIGURES.items()}
        report.rows = [*report.rows, {"policy": "(the paper's CPS)", **shown}]
    report.notes = notes(settings, first, config, cases)
    report.publish(json_path, plot_path, lambda figure: draw(figure, cases))
    if len(settings.policies) > 1:
        _show_changes(report)


def scheduler_config(settings: SimulateSettings, profile: HardwareProfile) -> SchedulerConfig:
    """The limits: what was asked for, else the profile's own."""

    def chosen(name: str) -> Any:
        given = getattr(settings, name)
        return getattr(profile.limits, name) if given is None else given

    block_bytes = profile.bytes_per_token * settings.block_size
    return SchedulerConfig(
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        max_num_seqs=chosen("max_num_seqs"),
        max_num_batched_tokens=chosen("max_num_batched_tokens"),
        max_model_len=settings.max_model_len or settings.num_blocks * settings.block_size,
        enable_prefix_caching=chosen("enable_prefix_caching"),
        watermark_blocks=int(settings.watermark * settings.num_blocks),
        num_swap_slots=settings.swap_space // block_bytes,
        block_bytes=block_bytes,
    )


def make_loads(settings: SimulateSettings) -> list[list[Arrival]]:
    """One load a seed; a trace is one load.

    Raises:
        ValueError: the settings contradict each other.
    """
    if settings.trace is not None:
        if settings.lengths is not None:
            raise ValueError("--trace and --lengths both say what is asked; give one of them")
        if settings.seeds not in (None, 1):
            raise ValueError(f"--seeds {settings.seeds}: a trace is one load, and nothing of it is drawn; leave it out")
        lengths = read_trace(settings.trace).first(settings.num_requests)
        trace = [Arrival(*each) for each in zip(lengths.arrival_s, lengths.prompt, lengths.output, strict=True)]
        return [speed_up(trace, settings.speed_up)]
    if settings.lengths not in (None, SHORT_LONG):
        raise ValueError(f"lengths={settings.lengths!r} is not known; there is {SHORT_LONG} (or give --trace FILE)")
    if settings.speed_up != 1:
        raise ValueError("--speed-up is for a trace's arrivals; drawn requests come all at once")
    num_requests = 200 if settings.num_requests is None else settings.num_requests
    share = settings.prompt_share
    return [draw_short_long(num_requests, seed, prompt_share=share) for seed in range(settings.seeds or DEFAULT_SEEDS)]


def play(
    settings: SimulateSettings,
    profiles: Mapping[float, HardwareProfile],
    config: SchedulerConfig,
    loads: Sequence[Sequence[Arrival]],
) -> list[Case]:
    """Every load under every policy, on every profile."""
    cases = [Case(policy, scale) for scale, policy in product(profiles, settings.policies)]
    with progress(len(cases) * len(loads)) as show:
        for number, (case, load) in enumerate(product(cases, loads), start=1):
            profile = profiles[case.decode_scale]
            case.runs.append(simulate(load, profile, config, make_policy(case.policy, profile.costs)))
            show(number, "")
    return cases


# -- what it comes to --------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("decode", "decode"),
    Column("policy", "policy"),
    Column("ttft_mean_s", "mean TTFT ms", scale=1e3, digits=1),
    Column("tpot_mean_s", "mean TPOT ms", scale=1e3),
    Column("tpot_p99_s", "P99 TPOT ms", scale=1e3),
    Column("itl_p99_s", "P99 ITL ms", scale=1e3),
    Column("makespan_s", "makespan s"),
    Column("preemptions", "preempted", digits=1),
    Column("modes", "by mode"),
    Column("recomputed_share", "wasted", scale=100, digits=1, unit=" %"),
    Column("recovery_s", "recovery s", digits=3),
)
CHANGE_COLUMNS = (
    Column("decode", "decode"),
    Column("policy", "policy"),
    Column("base", "against"),
    *(Column(name, heading, scale=100, unit=" %", is_change=True) for name, heading in _HEADINGS.items()),
)


def figures(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """One figure a case: each quantity with its mean over the seeds and the bounds of that, and the paired changes."""
    found = []
    for case in cases:
        figure: dict[str, Any] = {"policy": case.policy, "decode_scale": case.decode_scale, "seeds": len(case.runs)}
        figure |= {name: asdict(interval(values)) if (values := case.values(name)) else None for name in _VALUES}
        figure["by_mode"] = _by_mode(case)
        figure["modes"] = ", ".join(f"{mode} {count:.1f}" for mode, count in figure["by_mode"].items()) or "–"
        figure["refused"] = sum(run.num_refused for run in case.runs)
        figure["cut"] = sum(run.num_cut for run in case.runs)
        figure["requests"] = sum(run.num_requests for run in case.runs)
        figure["changes"] = {
            base.policy: _changes(case, base)
            for base in cases
            if base is not case and base.decode_scale == case.decode_scale
        }
        figure["runs"] = [asdict(run) for run in case.runs]
        found.append(figure)
    return found


def _changes(case: Case, base: Case) -> dict[str, dict[str, Any]]:
    pairs = {name: (case.values(name), base.values(name)) for name in _COMPARED}
    return {name: asdict(interval(found)) for name, pair in pairs.items() if (found := paired_changes(*pair))}


def _by_mode(case: Case) -> dict[str, float]:
    modes = sorted({mode for run in case.runs for mode in run.preemptions_by_mode})
    return {mode: sum(run.preemptions_by_mode.get(mode, 0) for run in case.runs) / len(case.runs) for mode in modes}


def _show_changes(report: Report) -> None:
    """Each policy against those named before it, on the same requests."""
    rows = [
        {**{name: row[name] for name in ("decode", "policy")}, "base": base["policy"], **row["changes"][base["policy"]]}
        for at, row in enumerate(report.rows)
        for base in report.rows[:at]
        if "changes" in row and row["decode"] == base["decode"]
    ]
    title = "Each policy against the others on the same requests, mean over the seeds with 95 % bounds"
    Report("simulate", title, CHANGE_COLUMNS, rows=rows).show()


def _scale_cell(scale: float, settings: SimulateSettings) -> str:
    return f"×{scale:g}" if len(settings.decode_scale) > 1 or scale != 1 else ""


def notes(
    settings: SimulateSettings, profile: HardwareProfile, config: SchedulerConfig, cases: Sequence[Case]
) -> list[str]:
    """What must be read with the table."""
    lines = profile.sources()
    if settings.trace is None:
        low, high = settings.prompt_share
        lines.append(
            "The load: 128 to 2,048 tokens a request, half of them short, all at once (published); lengths even within "
            f"short and long, of which {low:.0%} to {high:.0%} are the prompt (assumed)."
        )
    slots = f"{config.num_swap_slots:,} blocks in the swap tier" if config.num_swap_slots else "no swap tier"
    caching = "on" if config.enable_prefix_caching else "off"
    lines.append(
        f"The engine: {config.num_blocks:,} blocks of {config.block_size} tokens, {config.watermark_blocks} of them "
        f"left free by admission; {slots}; at most {config.max_num_seqs} sequences and "
        f"{config.max_num_batched_tokens:,} tokens a step; prefix caching {caching}. The scheduler is Quire's own. "
        "The policy cost asks the profile itself, so its predictions are exact."
    )
    if len(cases[0].runs) > 1:
        lines.append(
            f"±: 95 % of the mean over {len(cases[0].runs)} seeds (Student's t). Wasted: tokens computed again."
        )
    refused, cut = cases[0].runs[0].num_refused, cases[0].runs[0].num_cut
    if refused or cut:
        lines.append(
            f"max_model_len={config.max_model_len}: {refused:,} requests were refused, since their prompts do not fit, "
            f"and {cut:,} answers were cut."
        )
    if profile.name == PAPER and settings.trace is None:
        lines.append(PAPERS_CLAIM)
    return lines


def _title(settings: SimulateSettings, loads: Sequence[Sequence[Arrival]], profile: HardwareProfile) -> str:
    if settings.trace is None:
        return f"{len(loads[0])} requests, {SHORT_LONG}, {len(loads)} seeds, simulated on {profile.name}"
    tempo = "" if settings.speed_up == 1 else f", {settings.speed_up:g} times as fast"
    return f"{settings.trace.stem}: {len(loads[0]):,} requests{tempo}, simulated on {profile.name}"


def draw(figure: Any, cases: Sequence[Case]) -> None:
    """A panel a metric, a row a policy: its change against the first one, seed by seed; a lone policy's own seconds."""
    base = cases[0].policy
    others = [case for case in cases if case.policy != base]
    seeds = len(cases[0].runs)
    title = f"Against {base} on the same requests: left of the line is better" if others else f"{base}: left is better"
    figure.suptitle(f"{title}\n{_describe_rows(seeds)}")
    for axes, name in zip(figure.subplots(1, len(_COMPARED), sharey=True), _COMPARED, strict=True):
        if others:
            bases = {case.decode_scale: case.values(name) for case in cases if case.policy == base}
            found = [(case, paired_changes(case.values(name), bases[case.decode_scale])) for case in others]
            rows = [_row(case, [100 * change for change in each], cases) for case, each in found if each]
            draw_rows(axes, rows, f"{_HEADINGS[name]}, change in %", is_change=True)
        else:
            rows = [_row(case, [1e3 * value for value in each], cases) for case in cases if (each := case.values(name))]
            draw_rows(axes, rows, f"{_HEADINGS[name]}, ms")


def _describe_rows(seeds: int) -> str:
    if seeds == 1:
        return "one load"
    points = f"small: each of {seeds} seeds; large: their mean" if seeds <= FEW else f"mean over {seeds} seeds"
    return points + (", and its 95 % interval" if seeds >= ENOUGH else "")


def _row(case: Case, values: Sequence[float], cases: Sequence[Case]) -> Row:
    """Student's t over fewer than `ENOUGH` values bounds nothing that the values do not show."""
    has_scales = len({each.decode_scale for each in cases}) > 1
    name = f"{case.policy}, decode ×{case.decode_scale:g}" if has_scales else case.policy
    found = interval(values)
    bounds = (found.low, found.high) if len(values) >= ENOUGH else (None, None)
    return Row(name, found.mean, *bounds, points=values)
