"""Does CPS gain by cheaper recovery, or by the order in which the old discipline resumes its victims?

The paper's experiment with other thresholds, and on a machine where both modes are free: what is left there is order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import fmean

from benchmarks.cps.map import NUM_BLOCKS, STATIC, change
from benchmarks.cps.runs import VLLM, Run, play
from benchmarks.parallel_runs import run_all
from benchmarks.script import start
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.cli.options import Json, options
from quire.settings import Settings, names, setting
from quire.simulate.hardware import HardwareProfile, cps_paper
from quire.simulate.simulate_settings import SHORT_LONG
from quire.simulate.table_costs import TableCosts

_FREE = ((1, 1e-9), (8192, 1e-9))


def _free() -> HardwareProfile:
    """The paper's machine with decode steps only: prompts, copies and recomputing take no time."""
    paper = cps_paper()
    assert isinstance(paper.costs, TableCosts)
    return replace(paper, costs=TableCosts(_FREE, _FREE, _FREE, paper.bytes_per_token, paper.costs.decode))


MACHINES = {"paper": cps_paper, "free": _free}


@dataclass(frozen=True)
class OrderSettings(Settings):
    """Options of the study."""

    machines: tuple[str, ...] = setting("paper,free", "Costs: those of the paper, or free transfers.", read=names)
    policies: tuple[str, ...] = setting(
        "threshold:512,threshold:1024,threshold:1400,threshold:1024:swap-above", "Compared with both modes.", read=names
    )
    seeds: int = setting(30, "Draws of the load.", at_least=2)
    processes: int = setting(2, "Processes.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := {*self.machines} - {*MACHINES}:
            raise ValueError(f"machines={', '.join(unknown)}: expected {' or '.join(MACHINES)}")


COLUMNS = (
    Column("machine", "machine"),
    Column("policy", "policy"),
    Column("tpot_p99_s", "P99 TPOT ms", scale=1e3),
    Column("recovery_s", "recovery s"),
    *(Column(base, f"P99 against {base}", scale=100, digits=1, unit=" %", is_change=True) for base in STATIC),
)


@options()
def main(settings: OrderSettings, json: Json = None) -> None:
    """Compare thresholds on the old discipline, with the paper's costs and without any."""
    cases = list(product(settings.machines, (*STATIC, *settings.policies)))
    tasks = [
        Run(MACHINES[machine](), VLLM, policy, NUM_BLOCKS, None, seed, SHORT_LONG)
        for machine, policy in cases
        for seed in range(settings.seeds)
    ]
    with progress(len(tasks)) as show:
        found = iter(run_all(play, tasks, settings.processes, lambda count: show(count, "")))
    runs = {case: [next(found) for _ in range(settings.seeds)] for case in cases}
    report = Report("cps-order", f"Lengths even, all at once, on {VLLM}, {settings.seeds} draws", COLUMNS)
    report.settings = settings.as_json()
    for (machine, policy), own in runs.items():
        tails = [run.tpot_s.p99 for run in own if run.tpot_s is not None]
        figure = {"machine": machine, "policy": policy, "tpot_p99_s": fmean(tails)}
        figure["recovery_s"] = fmean(run.recovery_s for run in own)
        figure |= {base: asdict(change(own, runs[machine, base], "p99")) for base in STATIC if base != policy}
        report.figures.append(figure)
    report.rows = report.figures
    report.publish(json)


if __name__ == "__main__":
    start(main)
