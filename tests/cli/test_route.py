"""`quire route` shows the chosen model, the reason, and the accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from quire.cli import route
from routing.bags import BagOfWords

LINES = [
    {"task": "query", "question": "Who wrote Emma?", "label": "simple", "source": "written"},
    {"task": "query", "question": "Why did she write?", "label": "complex", "source": "written"},
    {"task": "query", "question": "Who wrote Persuasion?", "label": "complex", "source": "written"},
]


def quire(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["route", *map(str, arguments)])


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_a_choice_is_explained_with_its_numbers(tmp_path: Path):
    result = quire("How do vaccines work?", "--policy", "query", "--models", "small=tiny,large=huge")
    assert result.output.startswith("huge (query): complex: how it is done\n")
    assert " score\n" in result.output
    figures = tmp_path / "choice.json"
    assert "tiny (query)" in quire("Who wrote Emma?", "--models", "small=tiny,large=huge", "--json", figures).output
    assert json.loads(figures.read_text())["role"] == "small"


def test_labelled_questions_are_scored_one_by_one(labelled: Path, tmp_path: Path):
    result = quire("--evaluate", labelled, "--policy", "query", "--json", tmp_path / "score.json")
    assert result.output.startswith("query: 66.7% of 3 questions\n  simple: 100.0% right; 1 to small, 0 to large\n")
    assert "complex to small: Who wrote Persuasion?" in result.output
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["accuracy"] == pytest.approx(2 / 3)
    assert [each["is_right"] for each in score["routed"]] == [True, True, False]
    printed = quire("--evaluate", labelled, "--policy", "query", "--json")
    assert json.loads(printed.output) == score


def test_domain_takes_examples_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(route, "_load_embedder", lambda name: BagOfWords())
    (tmp_path / "examples.yaml").write_text("cook: [boil potatoes]\nlaw: [sign a contract]\n")
    result = quire("a contract", "--policy", "domain", "--examples", tmp_path / "examples.yaml", "--models", "cook,law")
    assert result.output.startswith("law (domain): nearest to law's examples, such as 'sign a contract'")


def test_a_configuration_file_is_taken_and_overruled(tmp_path: Path):
    path = tmp_path / "routing.yaml"
    path.write_text("policy: query\nmodels: {small: a, large: b}\n")
    assert quire("Why?", "--config", path).output.startswith("b (query)")
    assert quire("Why?", "--config", path, "--policy", "round-robin").output.startswith("a (round-robin)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a question in quotes"),
        (["Why?", "--evaluate", "x"], "give a question in quotes"),
        (["Why?", "--policy", "best"], "there is no policy 'best'"),
        (["Why?", "--models", "a=b,c=d"], "small=NAME,large=NAME"),
        (["--evaluate", "none.jsonl"], "none.jsonl cannot be read"),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments: list[str], message: str):
    result = quire(*arguments)
    assert result.exit_code == 2
    assert message in result.output
