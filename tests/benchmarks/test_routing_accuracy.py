"""Routing accuracy is counted by label, and every wrong route is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.routing_accuracy import LabelledQuestion, evaluate, main, read_labelled
from benchmarks.script import make_app
from quire.cli import route
from quire.routing import Router, RoutingConfig, RoutingContext, RoutingError
from routing.bags import BagOfWords

MODELS = {"small": "mini", "large": "chat"}
LINES = [
    {"task": "query", "question": "Who wrote Emma?", "label": "simple", "source": "written"},
    {"task": "query", "question": "Why did she write?", "label": "complex", "source": "written"},
    {"task": "query", "question": "Who wrote Persuasion?", "label": "complex", "source": "written"},
]


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "examples.yaml"
    path.write_text("small: [Who wrote it?, Who was it?]\nlarge: [Why did they write?, Why was it?]\n")
    return path


@pytest.fixture
def router(examples: Path) -> Router:
    return Router(RoutingConfig("query", MODELS, examples), embedder=BagOfWords())


def test_evaluation_counts_by_label_and_shows_what_went_wrong(router: Router):
    questions = [
        LabelledQuestion("Who wrote Emma?", "simple", "query", "written"),
        LabelledQuestion("Who wrote Persuasion?", "complex", "query", "written"),
        LabelledQuestion("Why did she write?", "complex", "query"),
        LabelledQuestion("hello", "chat", "domain"),
    ]
    score = evaluate(router, questions)
    assert (score.num_questions, score.accuracy) == (3, pytest.approx(2 / 3))
    assert score.per_class == {"simple": 1.0, "complex": 0.5}
    assert score.confusion == {"simple": {"small": 1, "large": 0}, "complex": {"small": 1, "large": 1}}
    assert [(each.question, each.model) for each in score.wrong] == [("Who wrote Persuasion?", "mini")]
    assert len(score.routed) == 3
    by_turns = evaluate(Router(RoutingConfig("round-robin", MODELS)), questions)
    assert (by_turns.num_questions, by_turns.accuracy) == (3, pytest.approx(2 / 3))  # small, large, small


def test_a_policy_is_shown_questions_and_nothing_else(router: Router, monkeypatch: pytest.MonkeyPatch):
    seen: list[object] = []
    choose = router.policy.choose
    monkeypatch.setattr(router.policy, "choose", lambda *given: seen.append(given) or choose(*given))
    evaluate(router, [LabelledQuestion("Why?", "complex", "query", "written")])
    assert seen == [("Why?", RoutingContext())]


def test_labels_without_a_model_and_files_that_are_broken_are_refused(router: Router, tmp_path: Path):
    with pytest.raises(RoutingError, match="label 'easy' is not a role of the models"):
        evaluate(router, [LabelledQuestion("Why?", "easy")])
    with pytest.raises(RoutingError, match="no question is for 'query'"):
        evaluate(router, [LabelledQuestion("Why?", "chat", "domain")])
    path = tmp_path / "questions.jsonl"
    path.write_text('{"question": "Why?", "label": "complex"}\n\n{"question": 3}\n')
    with pytest.raises(RoutingError, match="line 3: expected"):
        read_labelled(path)
    with pytest.raises(RoutingError, match="cannot be read"):
        read_labelled(tmp_path / "none")


def test_the_script_scores_questions_one_by_one(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "load_query_embedder", lambda name: BagOfWords())
    path, figures = tmp_path / "questions.jsonl", tmp_path / "score.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    arguments = ["--questions", path, "--policy", "query", "--examples", examples, "--json", figures]
    result = CliRunner().invoke(make_app(main), [str(each) for each in arguments])
    assert result.output.startswith("query: 66.7% of 3 questions\n  simple: 100.0% right; 1 to small, 0 to large\n")
    assert "complex to small: Who wrote Persuasion?" in result.output
    score = json.loads(figures.read_text())
    assert score["accuracy"] == pytest.approx(2 / 3)
    assert [each["is_right"] for each in score["routed"]] == [True, True, False]
    missing = CliRunner().invoke(make_app(main), ["--questions", "none.jsonl", "--policy", "round-robin"])
    assert missing.exit_code == 2
    assert "none.jsonl cannot be read" in missing.output
