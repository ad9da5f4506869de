"""`quire route` shows the chosen model and the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from quire.cli import route
from routing.bags import BagOfWords


def quire(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["route", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "load_query_embedder", lambda name: BagOfWords())


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.yaml"
    path.write_text("small: [Who wrote it?, When was it?]\nlarge: [How do they work?, Why do they work?]\n")
    return path


def test_a_choice_is_explained_with_its_numbers(questions: Path):
    given = ("--examples", questions, "--models", "small=tiny,large=huge")
    result = quire("How do vaccines work?", "--policy", "query", *given)
    assert result.output.startswith("huge (query): large, by 'meaning' +")
    assert " log odds of large\n" in result.output
    assert "tiny (query)" in quire("Who wrote Emma?", *given).output
    assert json.loads(quire("Who wrote Emma?", *given, "--json").output)["role"] == "small"


def test_domain_takes_examples_from_a_file(tmp_path: Path):
    (tmp_path / "examples.yaml").write_text(
        "cook: [boil potatoes, mash potatoes]\nlaw: [sign a contract, break a contract]\n"
    )
    result = quire("a contract", "--policy", "domain", "--examples", tmp_path / "examples.yaml", "--models", "cook,law")
    assert result.output.startswith("law (domain): law, by ")


def test_a_configuration_file_is_taken_and_overruled(tmp_path: Path, questions: Path):
    path = tmp_path / "routing.yaml"
    path.write_text(f"policy: query\nmodels: {{small: a, large: b}}\nquery: {{examples: {questions.name}}}\n")
    assert quire("Why?", "--config", path).output.startswith("b (query)")
    assert quire("Why?", "--config", path, "--policy", "round-robin").output.startswith("a (round-robin)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'question'"),
        (["Why?", "--policy", "best"], "there is no policy 'best'"),
        (["Why?", "--models", "a=b,c=d"], "small=NAME,large=NAME"),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments: list[str], message: str):
    result = quire(*arguments)
    assert result.exit_code == 2
    assert message in result.output
