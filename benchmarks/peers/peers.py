"""Other engines and ours on the same workloads, in turns, against the targets.

A turn measures the machine and then runs every engine on all workloads, each in its own process; the next turn reverses
their order. Ratios are within a turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.child import run_child
from benchmarks.peers.commands import Peer, find_missing, line_of, read_peers
from benchmarks.peers.comparison import OWN, Comparison
from benchmarks.peers.mixes import further_workloads
from benchmarks.peers.roofline import LEAST_ROWS, MOST_ROWS, model_work, work_of
from quire.bench.progress import progress
from quire.bench.report import TIMING_COLUMNS, Column, Report
from quire.bench.workload import Workload, fixed_lengths, make_workload, read_workload, write_workload
from quire.config import EngineConfig
from quire.settings import Settings, names, setting
from quire.system.threads import default_num_threads

_DTYPE_NAMES = {"bfloat16": "bf16"}


@dataclass(frozen=True)
class PeersSettings(Settings):
    """Options of the comparison with other engines."""

    commands: Path | None = setting(
        None,
        "How each peer is run, as YAML: NAME: {command: $PYTHON script.py --model DIR, precision: bf16, workloads: "
        "[W1]}, the last of which may be left out. By default peers.yaml in the folder.",
    )
    peers: tuple[str, ...] | None = setting(
        None, "Engines to run (default: those with weights of our precision).", read=names, metavar="NAME[,NAME...]"
    )
    workload: tuple[Path, ...] = setting((), "Workload files; by default W*.json in the folder's workloads.")
    more: bool = setting(False, "Add a burst, long prompts with short answers, and conversations.", is_flag=True)
    timeout_s: float = setting(1200.0, "Seconds after which an engine's turn is given up.", name="timeout", above=0)
    runs: int = setting(3, "Turns; in each, every engine plays all workloads once.", at_least=1)


def compare(folder: Path, config: EngineConfig, settings: PeersSettings) -> Comparison:
    """Run all turns.

    Raises:
        ValueError: the folder, its commands or a workload cannot be read, or a name is unknown.
        RuntimeError: our own engine failed.
    """
    from quire.loading.source import resolve_model

    workloads = _workloads(folder, settings)
    shape = resolve_model(config.model, load_format=config.load_format).config
    precision = _precision(config, shape.dtype)
    listed = read_peers(settings.commands or folder / "peers.yaml")
    peers, problems = _choose(listed, folder, settings.peers, precision)
    work = model_work(shape, precision)
    comparison = Comparison(
        precision,
        workloads,
        {OWN: precision, **{peer.name: peer.precision for peer in peers}},
        {name: {workload.name: [] for workload in workloads} for name in (OWN, *(peer.name for peer in peers))},
        [],
        [work_of(workload, work) for workload in workloads],
        work.step_bytes,
        problems,
    )
    threads = config.num_threads or default_num_threads()
    with tempfile.TemporaryDirectory(prefix="quire-peers-") as made, progress(settings.runs * (2 + len(peers))) as told:
        paths = _write(workloads, Path(made))
        done = 0
        for turn in range(settings.runs):
            told(done, f"turn {turn + 1}: the machine")
            comparison.machine += _measure_machine(
                comparison, (shape.hidden_size, shape.intermediate_size), threads, settings
            )
            done += 1
            engines: list[Peer | None] = [None, *peers]
            for peer in engines if turn % 2 == 0 else reversed(engines):
                told(done, f"turn {turn + 1}: {OWN if peer is None else peer.name}")
                if peer is None:
                    _play_own(comparison, replace(config, num_threads=threads), paths, settings)
                else:
                    _play(comparison, peer, folder, paths, threads, settings)
                done += 1
    for name in [name for name in comparison.engines if not any(map(any, comparison.lines[name].values()))]:
        del comparison.engines[name]
    return comparison


def run(folder: Path, config: EngineConfig, settings: PeersSettings, json_path: Path | None) -> bool:
    """Compare, and publish both tables. Returns whether no target was missed."""
    comparison = compare(folder, config, settings)
    columns = (
        Column("workload", "workload"),
        Column("engine", "engine"),
        Column("weights", "weights"),
        *TIMING_COLUMNS,
    )
    report = Report("peers", f"{config.model} and its peers, {comparison.precision}", columns)
    report.settings = {**settings.as_json(), "folder": str(folder), "engine": asdict(config)}
    report.figures = comparison.figures()
    report.notes = comparison.notes()
    verdicts = comparison.verdicts()
    rates = {str(rows): rate for rows, rate in comparison.rates().items()}
    report.more = {"targets": verdicts, "limits": comparison.machine, "rates": rates, "problems": comparison.problems}
    report.more["turns"] = comparison.lines
    Report(
        "peers",
        "Targets",
        (
            Column("workload", "workload"),
            Column("figure", "figure"),
            Column("ours", OWN, digits=1),
            Column("theirs", "best peer", digits=1),
            Column("peer", "which"),
            Column("ratio", "ratio"),
            Column("limit_s", "limit s", digits=3),
            Column("of_limit", "of limit"),
            Column("wanted", "wanted"),
            Column("kept", "target"),
        ),
        rows=verdicts,
        notes=["Ratio: ours over the best peer's, turn by turn. Limit of a stream: a token's weights over the read "
               "bandwidth, and ours over it; of other workloads: the roof, and its share that was reached."],
    ).show()  # fmt: skip
    report.publish(json_path)
    return all(verdict["kept"] != "missed" for verdict in verdicts)


def _workloads(folder: Path, settings: PeersSettings) -> list[Workload]:
    paths = settings.workload or tuple(sorted((folder / "workloads").glob("W*.json")))
    workloads = [read_workload(path) for path in paths]
    if settings.more:
        workloads += further_workloads()
    if not workloads:
        raise ValueError(f"there are no workloads in {folder / 'workloads'}; give --workload FILE, or --more")
    names = [workload.name for workload in workloads]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two workloads are named {min(repeated)!r}; their figures could not be told apart")
    return workloads


def _precision(config: EngineConfig, checkpoint: str | None) -> str:
    quantization = getattr(config, "quantization", None)
    if quantization not in (None, "none"):
        return str(quantization)
    dtype = (checkpoint or "float32") if config.dtype == "auto" else config.dtype
    return _DTYPE_NAMES.get(dtype, dtype)


def _choose(
    listed: Sequence[Peer], folder: Path, asked: Sequence[str] | None, precision: str
) -> tuple[list[Peer], dict[str, str]]:
    known = [peer.name for peer in listed]
    if asked is not None and (unknown := [name for name in asked if name not in known]):
        raise ValueError(f"peers={unknown[0]} is none of those that the folder's file names: {', '.join(known)}")
    if OWN in known:
        raise ValueError(f"a peer cannot be named {OWN}: that is this engine")
    problems: dict[str, str] = {}
    chosen = []
    for peer in listed:
        if asked is not None and peer.name not in asked:
            continue
        if asked is None and peer.precision != precision:
            problems[peer.name] = f"left out: its weights are {peer.precision}, ours {precision} (--peers asks for it)"
        elif (missing := find_missing(peer, folder)) is not None:
            problems[peer.name] = f"not there: {missing}"
        else:
            chosen.append(peer)
    named = " ".join(word for peer in listed for word in peer.command)
    for script in sorted(folder.glob("peer_*.py")):
        if script.name not in named:
            problems[script.name] = "left out: no command names it"
    return chosen, problems


def _write(workloads: Sequence[Workload], directory: Path) -> dict[str, Path]:
    write_workload(make_workload("warm", fixed_lengths(2, 64, 8), seed=1), directory / "warm.json")
    paths = {workload.name: directory / f"{at}.json" for at, workload in enumerate(workloads)}
    for workload in workloads:
        write_workload(workload, paths[workload.name])
    return paths


def _measure_machine(
    comparison: Comparison, matrix: tuple[int, int], threads: int, settings: PeersSettings
) -> list[dict[str, Any]]:
    rows = {LEAST_ROWS, MOST_ROWS, *(n for work in comparison.works for n in (work.prompt_rows, work.decode_rows))}
    asked = {
        "threads": threads,
        "rows": sorted(rows),
        "shape": matrix,
        "int8": comparison.precision in ("int8", "int4"),
    }
    outcome = run_child(
        [sys.executable, "-m", "benchmarks.peers.limits"],
        stdin=json.dumps(asked),
        timeout_s=settings.timeout_s,
        environment={"OMP_NUM_THREADS": str(threads)},
    )
    if outcome.error is not None:
        comparison.problems["limits"] = outcome.error
        return []
    return [json.loads(outcome.stdout.splitlines()[-1])]


def _play_own(comparison: Comparison, config: EngineConfig, paths: Mapping[str, Path], settings: PeersSettings) -> None:
    asked = {"engine": asdict(config), "workloads": [str(path) for path in paths.values()]}
    command = [sys.executable, "-m", "benchmarks.peers.own"]
    outcome = run_child(command, stdin=json.dumps(asked), timeout_s=settings.timeout_s)
    _note(comparison, OWN, outcome.stdout)
    if outcome.error is not None:
        raise RuntimeError(f"our own side failed: {outcome.error}")


def _play(
    comparison: Comparison,
    peer: Peer,
    folder: Path,
    paths: Mapping[str, Path],
    threads: int,
    settings: PeersSettings,
) -> None:
    """Run a baseline's turn. One that failed does not run again."""
    given = [str(path) for name, path in paths.items() if peer.takes(name)]
    if peer.name in comparison.problems or not given:
        return
    command = [*peer.command, "--workload", *given, "--runs", "1", "--threads", str(threads), "--label", peer.name]
    outcome = run_child(command, directory=folder, timeout_s=settings.timeout_s)
    num_lines = _note(comparison, peer.name, outcome.stdout)
    if outcome.error is not None:
        comparison.problems[peer.name] = f"{outcome.error} (after {num_lines} of {len(given)} workloads)"
    elif num_lines < len(given):
        comparison.problems[peer.name] = f"it printed figures of {num_lines} workloads, expected {len(given)}"


def _note(comparison: Comparison, name: str, printed: str) -> int:
    """Record an engine's lines of this turn. Returns their number."""
    found = {line["workload"]: line for text in printed.splitlines() if (line := line_of(text)) is not None}
    kept = comparison.lines[name]
    for workload in comparison.workloads:
        kept[workload.name].append(found.get(workload.name))
    return sum(workload.name in found for workload in comparison.workloads)
