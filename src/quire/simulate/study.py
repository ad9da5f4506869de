"""`quire simulate`: compare recovery policies, or document KV with and without a disk, on a virtual clock. Every policy
gets the same load of each seed, so comparisons are paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from quire.bench.plots import ENOUGH, FEW, PlotRow, draw_rows
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.bench.workload import read_trace
from quire.config import BlockWindow, SchedulerConfig
from quire.simulate import document_study as documents
from quire.simulate.hardware import PAPER, HardwareProfile, find_profile, with_disk
from quire.simulate.loads import (
    CHAT_LONGEST_PROMPT,
    CHAT_MEANS,
    arrive,
    ask_about_documents,
    draw_chat,
    draw_short_long,
    speed_up,
)
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulate_settings import CHAT, SHORT_LONG, SimulateSettings
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from quire.simulate.token_times import interval, paired_changes, value_of

DEFAULT_SEEDS = 20

#: Seconds of the CPS paper's own policy (section 4.2.2).
PAPERS_FIGURES = {"ttft_mean_s": 1.64835, "tpot_mean_s": 0.03655, "tpot_p99_s": 0.07057}
PAPERS_CLAIM = (
    "The paper's CPS (threshold:1024 on vLLM 0.2.4): P99 TPOT 13.1 % below swap and 20.1 % below recompute. Absolute "
    "times are comparable only where rate, pool and decode steps are fitted: the paper does not give all of them."
)

_COMPARED = ("ttft_mean_s", "tpot_mean_s", "tpot_p99_s")
_COMPARED_ON_DISK = ("ttft_mean_s", "ttft_p99_s", "tpot_mean_s")
_HEADINGS = {"ttft_mean_s": "mean TTFT", "ttft_p99_s": "P99 TTFT", "tpot_mean_s": "mean TPOT", "tpot_p99_s": "P99 TPOT"}


@dataclass
class Case:
    """Runs of one policy on one profile, one per seed."""

    policy: str
    decode_scale: float
    runs: list[SimulationFigures] = field(default_factory=list)
    has_kv_dir: bool = False  #: document KV is kept on disk

    def values(self, name: str) -> list[float]:
        """A figure of each seed, by its name in the table."""
        return [found for run in self.runs if (found := value_of(run, _VALUES[name])) is not None]


_VALUES = {
    **{f"{name}_{of}_s": f"{name}_s.{of}" for name in ("ttft", "tpot", "itl") for of in ("mean", "p50", "p99")},
    "preemptions": "num_preemptions",
    "recomputed_tokens": "num_recomputed_tokens",
    **{name: name for name in ("makespan_s", "recomputed_share", "recovery_s", "recompute_s", "save_s", "load_s")},
    **{name: name for name in ("stall_s", "wait_s")},
}


def run(settings: SimulateSettings, json_path: Path | None = None, plot_path: Path | None = None) -> None:
    """Simulate every policy and publish. Raises ValueError for invalid settings or unreadable files."""
    profiles = {scale: make_profile(settings, scale) for scale in settings.decode_scale}
    first = next(iter(profiles.values()))
    config = scheduler_config(settings, first)
    for policy in settings.policies:
        make_compared_policy(policy)  # refuses unknown names
    loads = make_loads(settings)
    cases = play(settings, profiles, config, loads)
    columns = COLUMNS if settings.documents is None else documents.COLUMNS
    report = Report("simulate", _title(settings, loads, first), columns)
    report.settings = {**settings.as_json(), "scheduler": asdict(config)}
    report.figures = figures(cases)
    if settings.documents is not None:
        for case, figure in zip(cases, report.figures, strict=True):
            figure |= documents.figures(case.runs, has_kv_dir=case.has_kv_dir)
    report.rows = [{**figure, "decode": _scale_cell(figure["decode_scale"], settings)} for figure in report.figures]
    if _is_papers(settings, first):
        shown = {name: f"{value * 1e3:,.2f}" for name, value in PAPERS_FIGURES.items()}
        report.rows = [*report.rows, {"policy": "(the paper's CPS)", **shown}]
    report.notes = notes(settings, first, config, cases)
    report.publish(json_path, plot_path, lambda figure: draw(figure, cases))
    if any(case.has_kv_dir for case in cases):
        documents.show_changes(report.rows, {name: _HEADINGS[name] for name in _COMPARED_ON_DISK})
    if len(settings.policies) > 1:
        _show_changes(report)


def make_profile(settings: SimulateSettings, decode_scale: float) -> HardwareProfile:
    """The machine of the settings, with their disk. Raises ValueError as `find_profile`."""
    found = find_profile(settings.profile, decode_scale=decode_scale, swap_is_synchronous=settings.swap_is_synchronous)
    return found if settings.kv_dir_bandwidth is None else with_disk(found, settings.kv_dir_bandwidth)


def _is_papers(settings: SimulateSettings, profile: HardwareProfile) -> bool:
    """Whether this is the CPS paper's experiment."""
    return profile.name == PAPER and settings.trace is None and settings.documents is None


def scheduler_config(settings: SimulateSettings, profile: HardwareProfile) -> SchedulerConfig:
    """Limits of the settings, else of the profile."""

    def chosen(name: str) -> Any:
        given = getattr(settings, name)
        return getattr(profile.limits, name) if given is None else given

    block_bytes = profile.bytes_per_token * settings.block_size
    window, num_blocks, longest = None, settings.num_blocks, settings.num_blocks
    if profile.state_bytes:
        window = BlockWindow.with_states(1 - -profile.state_bytes // block_bytes)
        num_blocks //= window.num_records
        longest = window.longest(num_blocks)
        if num_blocks < window.num_whole:
            raise ValueError(
                f"--num-blocks {settings.num_blocks} hold too few recurrent states, each as large as "
                f"{window.num_records - 1} blocks; give at least {window.num_whole * window.num_records}"
            )
    num_spare = 0 if settings.engine == "quire" else 1 + int(settings.watermark * settings.num_blocks)
    has_caching = chosen("enable_prefix_caching")
    if settings.documents and settings.enable_prefix_caching is None:
        has_caching = True  # documents are shared by prefix caching
    return SchedulerConfig(
        num_blocks=num_blocks,
        block_size=settings.block_size,
        max_num_seqs=chosen("max_num_seqs"),
        max_num_batched_tokens=chosen("max_num_batched_tokens"),
        max_model_len=settings.max_model_len or (longest - num_spare) * settings.block_size,
        enable_prefix_caching=has_caching,
        watermark_blocks=int(settings.watermark * settings.num_blocks),
        num_swap_slots=settings.swap_space // block_bytes,
        block_bytes=block_bytes,
        enable_lookahead=settings.enable_lookahead,
        window=window,
    )


def make_loads(settings: SimulateSettings) -> list[list[Arrival]]:
    """One load per seed; a trace differs between seeds only in its documents. Raises ValueError for contradictions."""
    plain, num_documents = _make_plain_loads(settings), settings.documents
    if num_documents is None:
        return plain
    if settings.trace is not None:
        plain *= settings.seeds or 1
    num_tokens = settings.document_tokens
    return [ask_about_documents(load, num_documents, num_tokens, seed) for seed, load in enumerate(plain)]


def _make_plain_loads(settings: SimulateSettings) -> list[list[Arrival]]:
    if settings.trace is not None:
        for name in settings.changed("lengths", "rate"):
            raise ValueError(f"--trace and --{name} exclude each other; give one of them")
        if settings.seeds not in (None, 1) and settings.documents is None:
            raise ValueError(f"--seeds {settings.seeds}: a trace is one load; leave it out")
        lengths = read_trace(settings.trace).first(settings.num_requests)
        trace = [Arrival(*each) for each in zip(lengths.arrival_s, lengths.prompt, lengths.output, strict=True)]
        return [speed_up(trace, settings.speed_up)]
    if settings.lengths not in (None, SHORT_LONG, CHAT):
        raise ValueError(
            f"lengths={settings.lengths!r} is not known; there are {SHORT_LONG} and {CHAT} (or give --trace FILE)"
        )
    if settings.speed_up != 1:
        raise ValueError("--speed-up is for a trace's arrivals; drawn requests have a --rate")
    return [_draw(settings, seed) for seed in range(settings.seeds or DEFAULT_SEEDS)]


def _draw(settings: SimulateSettings, seed: int) -> list[Arrival]:
    num_requests = 200 if settings.num_requests is None else settings.num_requests
    if settings.lengths == CHAT:
        load = draw_chat(num_requests, seed)
    else:
        load = draw_short_long(num_requests, seed, prompt_share=settings.prompt_share)
    return load if settings.rate is None else arrive(load, settings.rate, seed)


def play(
    settings: SimulateSettings,
    profiles: Mapping[float, HardwareProfile],
    config: SchedulerConfig,
    loads: Sequence[Sequence[Arrival]],
) -> list[Case]:
    """Run every load under every policy on every profile, with document KV on disk and without."""
    has_disk = settings.documents is not None and next(iter(profiles.values())).has_disk
    ways = (False, True) if has_disk else (False,)
    cases = [Case(policy, scale, has_kv_dir=way) for scale, policy, way in product(profiles, settings.policies, ways)]
    with progress(len(cases) * len(loads)) as show:
        for number, (case, load) in enumerate(product(cases, loads), start=1):
            profile = profiles[case.decode_scale]
            policy = make_compared_policy(case.policy)
            limits = replace(config, has_disk_tier=case.has_kv_dir)
            case.runs.append(simulate(load, profile, limits, policy, engine=settings.engine))
            show(number, "")
    return cases


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
    *(Column(name, _HEADINGS[name], scale=100, unit=" %", is_change=True) for name in _COMPARED),
)


def figures(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """One figure per case: means over the seeds with bounds, and paired changes."""
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
            base.policy: _changes(case, base, _COMPARED)
            for base in cases
            if base.policy != case.policy
            and (base.decode_scale, base.has_kv_dir) == (case.decode_scale, case.has_kv_dir)
        }
        if (without := _without_kv_dir(case, cases)) is not None:
            figure["change_by_kv_dir"] = _changes(case, without, _COMPARED_ON_DISK)
        figure["runs"] = [asdict(run) for run in case.runs]
        found.append(figure)
    return found


def _without_kv_dir(case: Case, cases: Sequence[Case]) -> Case | None:
    if not case.has_kv_dir:
        return None
    whose = (case.policy, case.decode_scale, False)
    return next(each for each in cases if (each.policy, each.decode_scale, each.has_kv_dir) == whose)


def _changes(case: Case, base: Case, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    pairs = {name: (case.values(name), base.values(name)) for name in names}
    return {name: asdict(interval(found)) for name, pair in pairs.items() if (found := paired_changes(*pair))}


def _by_mode(case: Case) -> dict[str, float]:
    modes = sorted({mode for run in case.runs for mode in run.preemptions_by_mode})
    return {mode: sum(run.preemptions_by_mode.get(mode, 0) for run in case.runs) / len(case.runs) for mode in modes}


def _show_changes(report: Report) -> None:
    """Print each policy against those before it, on the same requests."""
    alike = ("decode", "kv_dir")
    rows = [
        {**{name: row.get(name) for name in (*alike, "policy")}, "base": other, **row["changes"][other]}
        for at, row in enumerate(report.rows)
        for base in report.rows[:at]
        if (other := base["policy"]) in row.get("changes", ())
        and all(row.get(name) == base.get(name) for name in alike)
    ]
    title = "Each policy against the others on the same requests, mean over the seeds with 95 % bounds"
    columns = [*CHANGE_COLUMNS]
    if any(row["kv_dir"] for row in rows):
        columns.insert(1, documents.KV_DIR_COLUMN)
    Report("simulate", title, columns, rows=rows).show()


def _scale_cell(scale: float, settings: SimulateSettings) -> str:
    return f"×{scale:g}" if len(settings.decode_scale) > 1 or scale != 1 else ""


def notes(
    settings: SimulateSettings, profile: HardwareProfile, config: SchedulerConfig, cases: Sequence[Case]
) -> list[str]:
    """Sources and assumptions, below the table."""
    lines = profile.sources()
    if settings.trace is None:
        lines.append(_describe_load(settings))
    if settings.documents is not None:
        lines += documents.notes(settings, profile)
    slots = f"{config.num_swap_slots:,} blocks in the swap tier" if config.num_swap_slots else "no swap tier"
    caching = "on" if config.enable_prefix_caching else "off"
    lines.append(
        f"The engine: {config.num_blocks:,} blocks of {config.block_size} tokens, {config.watermark_blocks} of them "
        f"left free by admission; {slots}; at most {config.max_num_seqs} sequences and "
        f"{config.max_num_batched_tokens:,} tokens a step; prefix caching {caching}. The scheduler is "
        f"{_SCHEDULERS[settings.engine]}. The policy cost asks the profile itself, so its predictions are exact."
    )
    if len(cases[0].runs) > 1:
        wasted = " Wasted: tokens computed again." if settings.documents is None else ""
        lines.append(f"±: 95 % of the mean over {len(cases[0].runs)} seeds (Student's t).{wasted}")
    refused, cut = cases[0].runs[0].num_refused, cases[0].runs[0].num_cut
    if refused or cut:
        lines.append(
            f"max_model_len={config.max_model_len}: {refused:,} requests were refused, since their prompts do not fit, "
            f"and {cut:,} answers were cut."
        )
    if _is_papers(settings, profile):
        lines.append(PAPERS_CLAIM)
    return lines


_SCHEDULERS = {
    "quire": "Quire's own",
    "vllm-0.2.4": "the discipline of vLLM 0.2.4, whose copies stop the steps; padding costs nothing",
}


def _describe_load(settings: SimulateSettings) -> str:
    when = "all at once" if settings.rate is None else f"{settings.rate:g} a second (Poisson)"
    about = f"The load: 128 to 2,048 tokens a request, half of them short (published), {when}"
    if settings.lengths == CHAT:
        prompt, answer = CHAT_MEANS
        return (
            f"{about}; prompts and answers exponential with ShareGPT's means of {prompt:g} and {answer:g} tokens "
            f"(PagedAttention, SOSP '23, figure 11), prompts of at most {CHAT_LONGEST_PROMPT:,}."
        )
    low, high = settings.prompt_share
    return f"{about}; lengths even within short and long, of which {low:.0%} to {high:.0%} are the prompt (assumed)."


def _title(settings: SimulateSettings, loads: Sequence[Sequence[Arrival]], profile: HardwareProfile) -> str:
    about = (
        ""
        if settings.documents is None
        else f" on {settings.documents} documents of {settings.document_tokens:,} tokens"
    )
    if settings.trace is None:
        lengths = settings.lengths or SHORT_LONG
        return f"{len(loads[0])} requests{about}, {lengths}, {len(loads)} seeds, simulated on {profile.name}"
    tempo = "" if settings.speed_up == 1 else f", {settings.speed_up:g} times as fast"
    seeds = f", {len(loads)} seeds" if len(loads) > 1 else ""
    return f"{settings.trace.stem}: {len(loads[0]):,} requests{about}{tempo}{seeds}, simulated on {profile.name}"


def draw(figure: Any, cases: Sequence[Case]) -> None:
    """A panel per metric, a row per policy: its change against the first one or without a disk, or its own seconds."""
    base = cases[0].policy
    title, compared = f"Against {base} on the same requests: left of the line is better", _COMPARED
    pairs = [(case, without) for case in cases if (without := _without_kv_dir(case, cases)) is not None]
    if pairs:
        title = "Documents' KV also on disk, against the device's cache alone: left of the line is better"
        compared = _COMPARED_ON_DISK
    else:
        bases = {case.decode_scale: case for case in cases if case.policy == base}
        pairs = [(case, bases[case.decode_scale]) for case in cases if case.policy != base]
        title = title if pairs else f"{base}: left is better"
    figure.suptitle(f"{title}\n{_describe_rows(len(cases[0].runs))}")
    for axes, name in zip(figure.subplots(1, len(compared), sharey=True), compared, strict=True):
        if pairs:
            found = [(case, paired_changes(case.values(name), other.values(name))) for case, other in pairs]
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


def _row(case: Case, values: Sequence[float], cases: Sequence[Case]) -> PlotRow:
    """A row, with bounds from `ENOUGH` values on."""
    has_scales = len({each.decode_scale for each in cases}) > 1
    name = f"{case.policy}, decode ×{case.decode_scale:g}" if has_scales else case.policy
    found = interval(values)
    bounds = (found.low, found.high) if len(values) >= ENOUGH else (None, None)
    return PlotRow(name, found.mean, *bounds, points=values)
