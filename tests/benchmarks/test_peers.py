"""Comparison of engines in turns: availability, failures, and targets met."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.peers import child, limits, own, peers
from benchmarks.peers.__main__ import main
from benchmarks.peers.child import Outcome, run_child
from benchmarks.peers.mixes import further_workloads
from benchmarks.peers.roofline import ModelWork, work_of
from benchmarks.peers.targets import SpeedTarget
from benchmarks.script import make_app
from quire.bench.workload import Workload, WorkloadRequest, write_workload

# A baseline that takes this long for everything, prints other output too, and logs its requests.
PEER = """
import json, os, sys
seconds = float(sys.argv[1])
at = sys.argv.index("--workload") + 1
files = sys.argv[at : sys.argv.index("--runs")]
print("INFO a log line"); print("{not json}")
print(json.dumps(sys.argv[1:]), file=open("asked.jsonl", "a"))
assert os.path.exists(os.path.join(os.path.dirname(files[0]), "warm.json"))
for file in files:
    data = json.load(open(file))
    out = sum(r["max_tokens"] for r in data["requests"])
    if len(sys.argv) > 2 and sys.argv[2] == "stumble" and data["name"] == "W2":
        sys.exit("out of memory")
    spread = lambda value: {"median": value, "min": value, "max": value}
    print(json.dumps({"peer": "x", "workload": data["name"], "wall_s": spread(seconds), "ttft_s": spread(seconds),
                      "tpot_s": spread(seconds), "out_tok_s": spread(out / seconds), "out": out, "out_got": out}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workloads").mkdir()
    one = Workload("W1", [WorkloadRequest([400] * 9, 3)])
    two = Workload("W2", [WorkloadRequest([400 + n] * 9, 3) for n in range(2)])
    for workload in (one, two):
        write_workload(workload, tmp_path / "workloads" / f"{workload.name}.json")
    (tmp_path / "peer_any.py").write_text(PEER)
    (tmp_path / "peer_nobody.py").write_text("")
    return tmp_path


def in_this_process(command: Sequence[str], *, stdin: str = "", **options: Any) -> Outcome:
    """Run our own sides in this process, which spares importing torch; others are processes."""
    if "-m" not in command:
        return run_child(command, stdin=stdin, **options)
    printed = io.StringIO()
    main = {"benchmarks.peers.own": own.main, "benchmarks.peers.limits": limits.main}[command[-1]]
    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdin", io.StringIO(stdin))
        main()
    return Outcome(printed.getvalue())


def test_engines_take_turns_and_the_marks_are_of_those_that_were_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "run_child", in_this_process)
    monkeypatch.setattr(limits, "_READ_BYTES", 2**16)
    monkeypatch.setattr(limits, "_LEAST_S", 0.0)
    monkeypatch.setenv("PEER_PYTHON", sys.executable)
    (folder / "peers.yaml").write_text(
        "slow: {command: $PEER_PYTHON peer_any.py 1e4, precision: float32}\n"
        "slower: {command: $PEER_PYTHON peer_any.py 2e4, precision: float32, workloads: [W1]}\n"
        "stumbling: {command: $PEER_PYTHON peer_any.py 3e4 stumble, precision: float32}\n"
        "small: {command: $PEER_PYTHON peer_any.py 1, precision: int8}\n"
        "absent: {command: /no/such/python peer_any.py 1, precision: float32}\n"
        "unset: {command: $NO_SUCH_VARIABLE/python peer_any.py 1, precision: float32}\n"
    )
    figures = folder / "figures.json"
    options = ["--model", "random:tiny", "--dtype", "float32", "--num-kv-blocks", "32", "--num-threads", "1"]
    result = CliRunner().invoke(
        make_app(main), [str(folder), *options, "--no-use-tqdm", "--runs", "2", "--json", str(figures)]
    )
    assert result.exit_code == 0, result.output
    data = json.loads(figures.read_text())
    turns = {(each["engine"], each["workload"]): each["turns"] for each in data["figures"]}
    assert turns == {
        ("quire", "W1"): 2, ("slow", "W1"): 2, ("slower", "W1"): 2, ("stumbling", "W1"): 1,
        ("quire", "W2"): 2, ("slow", "W2"): 2,
    }  # fmt: skip
    problems = data["problems"]
    assert "out of memory" in problems["stumbling"]
    assert "int8" in problems["small"]
    assert "/no/such/python" in problems["absent"]
    assert "not set" in problems["unset"]
    assert "no command" in problems["peer_nobody.py"]
    assert all(f"{name}: {why}" in result.output.replace("\n", " ") for name, why in problems.items())
    by_name = {row["workload"]: row for row in data["targets"]}
    assert (by_name["W1"]["peer"], by_name["W2"]["peer"]) == ("slow", "slow")
    assert by_name["W1"]["ratio"]["max"] < 0.1
    assert by_name["W2"]["ratio"]["min"] > 10  # tokens a second: more is better
    assert 0 < by_name["W2"]["of_limit"] < 1.0
    assert by_name["W1"]["kept"] is None  # float32 has no target
    asked = [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]
    assert [words[0] for words in asked] == ["1e4", "2e4", "3e4", "2e4", "1e4"]  # the second round is reversed
    assert asked[0][-6:] == ["--runs", "1", "--threads", "1", "--label", "slow"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no peers"),
        ("a: [", "not YAML"),
        ("a: {precision: bf16}", "expected a command"),
        ("a: {command: x, precision: int3}", "precision is 'int3'"),
        ("a: {command: x, precision: bf16, model: y}", "unknown field 'model'"),
    ],
)
def test_a_mistake_in_the_commands_is_reported_in_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "peers.yaml").write_text(text)
    result = CliRunner().invoke(make_app(main), [str(folder), "--model", "random:tiny"])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_process_that_hangs_ends_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_GRACE_S", 0.05)
    stubborn = "trap '' TERM; sleep 1000 & echo $!; echo $$; wait; sleep 1000"
    outcome = run_child(["sh", "-c", stubborn], timeout_s=0.5)
    assert outcome.error == "not done after 0.5 s"
    left = outcome.stdout.split()
    assert left, "it was given up before it had begun"
    for pid in left:
        assert ends(int(pid))


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_the_process_that_runs(
    tmp_path: Path, number: signal.Signals, raised: type[BaseException]
) -> None:
    started = tmp_path / "started"

    def interrupt() -> None:
        while not (started.exists() and started.read_text().strip()):
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(raised):
        run_child(["sh", "-c", f"echo $$ > {started}; sleep 1000"], timeout_s=60)
    assert ends(int(started.read_text()))


def test_a_signal_while_the_process_is_being_started_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def start(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(popen(*given, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return begun[0]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        run_child(["sleep", "1000"], timeout_s=60)
    assert begun[0].returncode == -signal.SIGTERM


def ends(pid: int) -> bool:
    """Whether a killed process ends; a zombie has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.005)
    return False


def test_the_roof_counts_a_shared_prefix_once() -> None:
    model = ModelWork(layer_weights=10, head_weights=4, pair_operations=0, kv_bytes=0, bytes_per_weight=2.0)
    prompts = [[1, 2, 3, 4, 5, n] for n in range(6)]
    shared = work_of(Workload("W", [WorkloadRequest(prompt, 3) for prompt in prompts]), model)
    assert shared.kind == "shared"
    assert shared.prompt_operations == 2 * (5 + 6) * 10
    assert shared.decode_operations == 2 * 6 * 2 * 10 + 2 * 18 * 4
    assert shared.num_bytes == 3 * (10 + 4) * 2.0
    kinds = {each.name: work_of(each, model).kind for each in further_workloads()}
    assert kinds == {"burst": "batch", "long-prompts": "batch", "turns": "shared"}


@pytest.mark.parametrize(
    ("kind", "ratio", "of_limit", "kept"),
    [
        ("stream", 0.88, 2.0, True),
        ("stream", 0.95, 1.08, True),
        ("stream", 0.95, 1.09, False),
        ("batch", 1.07, 0.89, False),
        ("batch", 1.07, 0.90, True),
        ("batch", None, 0.5, False),
        ("batch", None, None, None),
    ],
)
def test_either_the_best_peer_or_the_limit_makes_a_mark(
    kind: str, ratio: float | None, of_limit: float | None, kept: bool | None
) -> None:
    target = SpeedTarget(0.88, 1.08) if kind == "stream" else SpeedTarget(1.08, 0.90)
    assert target.is_kept(kind, ratio, of_limit) is kept
