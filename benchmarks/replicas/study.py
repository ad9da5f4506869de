"""Goodput and cost of a fleet against its size, by routing policy.

Every replica is the real scheduler, behind the production router and, with cold starts, its autoscaler, on a virtual
clock. Every policy and size gets the same requests. Runs are spread over all cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.parallel_runs import Note, run_all
from benchmarks.replicas.conversations import draw_conversations
from benchmarks.replicas.replicas import FleetFigures, simulate_replicas
from benchmarks.replicas.virtual_replica import ColdStart
from quire.bench.bench_settings import parse_goodput, refuse_repeats
from quire.bench.plots import COLOURS
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.bench.workload import read_trace
from quire.config import SchedulerConfig
from quire.routing import SLO
from quire.routing.replicas import Autoscaling, ReplicaRouter
from quire.settings import Settings, integers, names, numbers, setting
from quire.simulate.hardware import HardwareProfile
from quire.simulate.loads import speed_up
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulate_settings import SimulateSettings
from quire.simulate.simulation import Arrival
from quire.simulate.study import make_profile, scheduler_config
from quire.system.threads import num_cores

_FEW = 20_000  #: requests of all runs together, for which starting processes does not pay

Case = tuple[int, str]  #: replicas, at most where their number follows the load; and how requests are routed

COLUMNS = (
    Column("replicas", "replicas"),
    Column("routing", "routing"),
    Column("goodput", "keep the SLO", scale=100, digits=1, unit=" %"),
    Column("ttft_s.mean", "mean TTFT s", digits=3),
    Column("ttft_s.p99", "P99 s", digits=3),
    Column("tpot_s.mean", "mean TPOT ms", scale=1e3, digits=2),
    Column("hit_share", "found", scale=100, digits=1, unit=" %"),
    Column("busiest", "busiest", digits=2),
    Column("makespan_s", "makespan s", digits=1),
    Column("replica_s", "replica-s", digits=0),
    Column("replica_ms_per_kept", "ms a kept request", digits=1),
)


@dataclass(frozen=True)
class ReplicaSettings(Settings):
    """Options of the replica benchmark."""

    profile: str = setting(
        "cps-paper", "A published machine, or a file that quire calibrate wrote.", metavar="cps-paper|FILE"
    )
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    num_requests: int | None = setting(None, "Requests to draw (default: 2000), or to take of a trace.", at_least=1)
    speed_up: float = setting(1.0, "A trace's requests come this many times as fast.")
    seed: int = setting(0, "Seed of the conversations.", name="load_seed")
    recovery: str = setting("cost", "Recovery policy of every replica.")
    num_blocks: int = setting(512, "KV blocks of each replica's pool.", at_least=1)
    replicas: tuple[int, ...] = setting(
        "1,2,4",
        "Fleets of so many replicas behind the router of quire serve --ray, compared by routing policy, instead of "
        "recovery policies on one engine.",
        read=integers,
        at_least=1,
        metavar="N[,N...]",
    )
    routing: tuple[str, ...] = setting(
        "round-robin,least-loaded,prefix,slo",
        "Routing policies: round-robin, least-loaded, prefix, slo.",
        read=names,
        metavar="POLICY[,POLICY...]",
    )
    slo: Mapping[str, float] = setting(
        "ttft:1000,tpot:50", "SLO of the requests, in ms.", read=parse_goodput, metavar="LIMITS"
    )
    conversations: float | None = setting(
        None,
        "Instead of --trace: conversations of several turns, of which so many begin in a second.",
        above=0,
    )
    cold_start: tuple[float, ...] | None = setting(
        None,
        "Their number follows the load from --min-replicas on; one serves after FIRST seconds, and "
        "all of its model is there after WHOLE.",
        read=numbers,
        at_least=0,
        metavar="FIRST[,WHOLE]",
    )
    first_stage_share: float = setting(
        0.75, "Cost of the first stage's steps, relative to the full model's.", above=0, at_most=1
    )
    min_replicas: int = setting(0, "With --cold-start: replicas that always stay.", at_least=0)
    target_requests: float = setting(16.0, "With --cold-start: requests that each replica is to have at once.", above=0)
    idle: float = setting(30.0, "With --cold-start: seconds after which a replica too many is given up.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeats(self, "routing")
        of_scaling = self.changed("first_stage_share", "min_replicas", "target_requests", "idle")
        if self.cold_start is None and of_scaling:
            raise ValueError(
                f"--{of_scaling[0].replace('_', '-')} is for a changing number of replicas; give --cold-start FIRST"
            )
        if self.cold_start is not None and len(self.cold_start) > 2:
            raise ValueError(f"--cold-start is FIRST or FIRST,WHOLE in seconds, got {len(self.cold_start)} numbers")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; the length of an answer is not known beforehand")
        if self.trace is not None and self.conversations is not None:
            raise ValueError("--trace and --conversations both give the load; give one of them")

    @property
    def engine(self) -> SimulateSettings:
        """The machine and the limits of each replica."""
        return SimulateSettings(profile=self.profile, num_blocks=self.num_blocks, enable_prefix_caching=True)


def run(settings: ReplicaSettings, json_path: Path | None = None, plot_path: Path | None = None) -> None:
    """Simulate every size and policy, and publish. Raises ValueError for invalid settings or files."""
    for routing in settings.routing:
        ReplicaRouter(routing)  # a name that is none is noticed before anything runs
    recovery = settings.recovery
    profile = make_profile(settings.engine, 1.0)
    make_compared_policy(recovery)
    config = scheduler_config(settings.engine, profile)
    arrivals = make_load(settings)
    found = play(settings, config, recovery, arrivals)
    report = Report("replicas", _title(settings, arrivals, profile), COLUMNS)
    report.settings = {**settings.as_json(), "scheduler": asdict(config)}
    report.figures = [_figure(case, found[case]) for case in cases(settings)]
    report.notes = notes(settings, config, profile, recovery, next(iter(found.values())))
    report.publish(json_path, plot_path, lambda figure: draw(figure, report.figures, settings))


def make_load(settings: ReplicaSettings) -> list[Arrival]:
    """The load of all runs: a trace, or drawn conversations."""
    if settings.trace is None:
        return draw_conversations(settings.num_requests or 2000, settings.conversations or 10.0, settings.seed)
    lengths = read_trace(settings.trace).first(settings.num_requests)
    trace = [Arrival(*each) for each in zip(lengths.arrival_s, lengths.prompt, lengths.output, strict=True)]
    return speed_up(trace, settings.speed_up)


def cases(settings: ReplicaSettings) -> list[Case]:
    return list(product(settings.replicas, settings.routing))


def play(
    settings: ReplicaSettings, config: SchedulerConfig, recovery: str, arrivals: Sequence[Arrival]
) -> dict[Case, FleetFigures]:
    """Run every size under every policy; equal cases (`_same`) run once."""
    wanted = cases(settings)
    same = {case: _same(case, settings, arrivals) for case in wanted}
    todo = sorted(set(same.values()), key=lambda case: (-case[0], settings.routing.index(case[1])))
    few = len(arrivals) * len(todo) < _FEW
    # Every process gets the load once more with each run: that takes hundredths of a second.
    runs = [_Run(settings, config, recovery, arrivals, case) for case in todo]
    with progress(len(todo) * len(arrivals)) as show:
        remark = f"requests of {len(todo)} runs"
        played = run_all(_play_one, runs, 1 if few else min(num_cores(), len(todo)), lambda done: show(done, remark))
    found = dict(zip(todo, played, strict=True))
    return {case: found[same[case]] for case in wanted}


def _same(case: Case, settings: ReplicaSettings, arrivals: Sequence[Arrival]) -> Case:
    """The case whose run has the same figures: one replica leaves no choice, and without shared prefixes `prefix` is
    `least-loaded`.
    """
    num_replicas, routing = case
    if num_replicas == 1 and settings.cold_start is None:
        return 1, settings.routing[0]
    shares = any(each.prompt_token_ids is not None for each in arrivals)
    if routing == "prefix" and "least-loaded" in settings.routing and not shares:
        return num_replicas, "least-loaded"
    return case


class _Run(NamedTuple):
    """One size under one policy, with its inputs."""

    settings: ReplicaSettings
    config: SchedulerConfig
    recovery: str
    arrivals: Sequence[Arrival]
    case: Case


def _play_one(run: _Run, note: Note) -> FleetFigures:
    settings, (num_replicas, routing) = run.settings, run.case
    profile, slo = make_profile(settings.engine, 1.0), SLO(settings.slo.get("ttft"), settings.slo.get("tpot"))
    cold_start = scaling = None
    if settings.cold_start is not None:
        first_s, *whole_s = settings.cold_start
        cold_start = ColdStart(first_s, whole_s[0] if whole_s else first_s, settings.first_stage_share)
        ttft_s = slo.ttft_s if routing == "slo" else None
        scaling = Autoscaling(
            min(settings.min_replicas, num_replicas), num_replicas, settings.target_requests, ttft_s, settings.idle
        )
    return simulate_replicas(
        run.arrivals,
        profile,
        run.config,
        num_replicas,
        routing=routing,
        recovery=run.recovery,
        slo=slo,
        cold_start=cold_start,
        scaling=scaling,
        note_ended=note,
    )


def _figure(case: Case, found: FleetFigures) -> dict[str, Any]:
    per_kept = found.replica_s_per_kept
    return {
        "replicas": str(case[0]),
        "routing": case[1],
        **asdict(found),
        "goodput": found.goodput,
        "busiest": found.busiest_share * len(found.by_replica),
        "replica_ms_per_kept": None if per_kept is None else 1e3 * per_kept,
    }


def notes(
    settings: ReplicaSettings,
    config: SchedulerConfig,
    profile: HardwareProfile,
    recovery: str,
    found: FleetFigures,
) -> list[str]:
    """Sources of the figures, below the table."""
    limits = ", ".join(f"{name.upper()} {limit * 1e3:g} ms" for name, limit in settings.slo.items())
    lines = [
        *profile.sources(),
        f"Each replica: a pool of {config.num_blocks:,} blocks of {config.block_size} tokens, at most "
        f"{config.max_num_seqs} sequences and {config.max_num_batched_tokens:,} tokens a step, recovery {recovery}. "
        "The router and the schedulers are Quire's own; what a replica tells is known when its step has ended.",
        f"SLO: {limits}. Found: of the prompts' tokens. Busiest: requests of the replica with the most, 1 is even. "
        "Replica-s: seconds of all replicas to the last token, the cost; the last column: over the requests within the "
        "SLO.",
    ]
    if settings.cold_start is not None:
        seconds = " and ".join(f"{each:g} s" for each in settings.cold_start)
        lines.append(
            f"Replicas: from {settings.min_replicas} up to the number in the row, one for every "
            f"{settings.target_requests:g} requests (slo: one more where the first token is predicted to be late), "
            f"given up after {settings.idle:g} s. A cold one serves, and is whole, after {seconds}; the first stage's "
            f"steps take {settings.first_stage_share:g} of the whole model's (assumed)."
        )
    if found.num_refused:
        lines.append(f"{found.num_refused:,} requests were refused: their prompts do not fit max_model_len.")
    return lines


def _title(settings: ReplicaSettings, arrivals: Sequence[Arrival], profile: HardwareProfile) -> str:
    span = f"{len(arrivals):,} requests in {arrivals[-1].time_s:.1f} s"
    if settings.trace is None:
        return f"{span}, turns of conversations, simulated on replicas of {profile.name}"
    tempo = "" if settings.speed_up == 1 else f", {settings.speed_up:g} times as fast"
    return f"{settings.trace.stem}{tempo}: {span}, simulated on replicas of {profile.name}"


def draw(figure: Any, figures: Sequence[dict[str, Any]], settings: ReplicaSettings) -> None:
    """Goodput and late first tokens over the number of replicas, a line per policy."""
    figure.suptitle("How many replicas, and which routing? Within the SLO (higher is better), and first tokens (lower)")
    left, right = figure.subplots(1, 2)
    for number, routing in enumerate(settings.routing):
        rows = [each for each in figures if each["routing"] == routing]
        sizes = [int(each["replicas"]) for each in rows]
        # Lines that lie on each other are all seen: the later ones are thinner.
        look = {"marker": "osD^"[number % 4], "lw": 4 - number * 0.8, "ms": 8 - number, "color": COLOURS[number]}
        left.plot(sizes, [100 * each["goodput"] for each in rows], label=routing, **look)
        right.plot(sizes, [1e3 * each["ttft_s"]["p99"] for each in rows], label=routing, **look)
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    for axes, label in ((left, "requests within the SLO, %"), (right, "P99 of the time to the first token, ms")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(settings.replicas, [str(each) for each in settings.replicas])
        axes.set_xlabel("replicas")
        axes.set_ylabel(label)
        axes.margins(y=0.08)
