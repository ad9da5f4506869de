"""Quality by policy is the score of the chosen model's answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.routed_quality import QuestionSet, figures


def test_a_policy_scores_the_answers_of_the_models_that_it_chose() -> None:
    scores = {
        "a": [(1.0, 1.0), (0.0, 0.5), (1.0, 1.0), (0.0, 0.0)],
        "b": [(0.0, 0.0), (1.0, 1.0), (0.0, 0.5), (0.0, 0.5)],
    }
    found = QuestionSet("query", [SimpleNamespace()] * 4, scores)  # type: ignore[list-item]
    rows = {row["policy"]: row for row in figures(found, {"query": ["a", "b", "b", "b"]})}
    assert list(rows) == ["always a", "always b", "query", "always the better answer"]
    assert [rows[name]["exact_match"] for name in rows] == [0.5, 0.25, 0.5, 0.75]
    assert rows["query"]["f1"] == pytest.approx(0.75)
    assert rows["query"]["share"] == 0.25
    assert rows["always the better answer"]["f1"] == pytest.approx(0.875)
