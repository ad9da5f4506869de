"""`quire simulate --recording`: a run of a real engine once more, and what a profile predicts of it.

The scheduler must decide in every step what it decided on the engine. With a profile the same requests are simulated,
and each error is relative to the engine.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from quire.bench.files import write_json
from quire.bench.report import Column, Report
from quire.simulate.figures import compare
from quire.simulate.hardware import HardwareProfile, find_profile
from quire.simulate.recording import Recording
from quire.simulate.replay import ReplayDiffers, ReplayFigures, predict, replay
from quire.simulate.simulation import SimulationFigures

COLUMNS = (
    Column("policy", "policy"),
    Column("num_requests", "requests", digits=0),
    Column("num_steps", "steps", digits=0),
    Column("num_preemptions", "preempted", digits=0),
    Column("num_recomputed_tokens", "wasted tokens", digits=0),
    Column("ttft_s.mean", "mean TTFT ms", scale=1e3, digits=1),
    Column("ttft_s.p99", "P99 TTFT ms", scale=1e3, digits=1),
    Column("tpot_s.mean", "mean TPOT ms", scale=1e3),
    Column("tpot_s.p99", "P99 TPOT ms", scale=1e3),
    Column("makespan_s", "makespan s"),
)
DIFFERENCE_COLUMNS = (
    Column("policy", "policy"),
    Column("step", "first step that differs", digits=0),
    Column("what", "differs in"),
)
FORECAST_COLUMNS = (
    Column("name", "the engine's run, predicted"),
    Column("engine", "engine s", digits=4),
    Column("simulator", "simulator s", digits=4),
    Column("error", "error", scale=100, digits=1, unit=" %"),
)
_COMPARED = [f"{name}.{statistic}" for name in ("ttft_s", "tpot_s", "itl_s") for statistic in ("mean", "p50", "p99")]
_SHOWN = {
    "ttft_s.mean": "mean TTFT",
    "ttft_s.p99": "P99 TTFT",
    "tpot_s.mean": "mean TPOT",
    "tpot_s.p99": "P99 TPOT",
    "makespan_s": "makespan",
}


def run(path: Path, profile: str | None = None, json_path: Path | None = None) -> bool:
    """Play a recording again, print, and write the figures; without a profile nothing is simulated.

    Returns:
        Whether the schedule came out exactly; the notes say where it did not.

    Raises:
        ValueError: a file cannot be read or written, or is not what it should be.
    """
    recording = Recording.read(path)
    hardware = find_profile(profile) if profile is not None else None
    recorded = None
    try:
        recorded = replay(recording)
        report = replay_report(recording, recorded)
    except ReplayDiffers as difference:
        report = difference_report(recording, difference)
    report.title = _title(path, recording)
    report.settings = {"recording": str(path), "profile": profile, "scheduler": asdict(recording.config)}
    report.show()
    if hardware is not None and recorded is not None:
        add_forecast(report, hardware, recorded, predict(recording, recorded.arrivals, hardware))
    if json_path is not None:
        write_json(report.as_json(), json_path)
    return report.figures[0]["is_exact"]


def replay_report(recording: Recording, recorded: ReplayFigures) -> Report:
    """Of a schedule that came out exactly: what its requests went through."""
    figure = {"policy": recording.policy, "is_exact": True, **asdict(recorded)}
    del figure["arrivals"]  # prompts are no figures
    report = Report("simulate-recording", "", COLUMNS, [figure])
    report.notes = [
        f"The schedule came out exactly: {recorded.num_steps:,} steps, {recorded.num_preemptions:,} preemptions. "
        "Times are the engine's. What came to warm up was played too, and is not in the figures."
    ]
    return report


def difference_report(recording: Recording, difference: ReplayDiffers) -> Report:
    """Of one that did not: where it first differs, and how."""
    where = {"step": difference.step_id, "what": difference.what}
    figure = {"policy": recording.policy, "is_exact": False, **where, "difference": str(difference)}
    report = Report("simulate-recording", "", DIFFERENCE_COLUMNS, [figure])
    report.notes = [f"THE SCHEDULE DIFFERS: {difference}."]
    return report


def add_forecast(
    report: Report, hardware: HardwareProfile, recorded: ReplayFigures, simulated: SimulationFigures
) -> None:
    """Print what the simulator predicted, and put it to the report's figure and notes."""
    forecast = compare(recorded, simulated, {name: name for name in (*_COMPARED, "makespan_s")})
    counts = f"{recorded.num_preemptions:,} preemptions on the engine, {simulated.num_preemptions:,} in the simulator."
    notes = [*hardware.sources(), counts]
    rows = [{"name": heading, **forecast[name]} for name, heading in _SHOWN.items() if name in forecast]
    Report("simulate-recording", "", FORECAST_COLUMNS, rows=rows, notes=notes).show()
    report.figures[0] |= {"forecast": forecast, "simulated": asdict(simulated)}
    report.notes += notes


def _title(path: Path, recording: Recording) -> str:
    config = recording.config
    return (
        f"{path.name}, played again: {recording.policy}, {config.num_blocks:,} blocks of {config.block_size} tokens, "
        f"at most {config.max_num_seqs} sequences and {config.max_num_batched_tokens:,} tokens a step"
    )
