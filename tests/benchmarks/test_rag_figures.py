"""Statistics of timed answers: changes within a repetition, targets, and differing tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.rag.figures import BARE, COLD, OFF, WARM, Trial, make_report
from benchmarks.rag.picture import draw
from benchmarks.rag.play import Answer, Played
from benchmarks.rag.questions import Plan
from benchmarks.rag.settings import RagSettings
from benchmarks.routing_accuracy import LabelledQuestion
from quire.bench.plots import save_plot
from quire.bench.report import Report

PLAN = Plan(
    "query",
    {"small": "a", "large": "b"},
    [LabelledQuestion("q", "simple"), LabelledQuestion("q", "complex")],
    {"a": [], "b": []},
)


def played(latency_s: float, *, tokens: int = 1, disk: int = 0) -> Played:
    """Two questions of 100 tokens, the first routed correctly; blocks of 16 tokens and 1,600 bytes."""
    answer = Answer("a", "small", [tokens], 0.5, latency_s, 0.1, 0.001, 100, 80, {"disk": disk})
    return Played(2 * latency_s, [answer, answer], {"a": 1600, "b": 1600}, 16, read_bytes_s=8000.0, resident=1.0)


def report_of(trials: dict[str, list[Played]]) -> Report:
    made = [
        Trial("query", "25 ms apart", way, i, each) for way, plays in trials.items() for i, each in enumerate(plays)
    ]
    return make_report(RagSettings(), [PLAN], made, {"model": "a", "dtype": "float32"}, 0)


def by_way(report: Report) -> dict[str, dict[str, Any]]:
    return {figure["kv"]: figure for figure in report.figures}


def test_changes_are_taken_within_repetitions_and_marks_from_bytes_and_raw_reads() -> None:
    report = report_of(
        {
            BARE: [played(1.0), played(2.0), played(1.0)],
            OFF: [played(4.0), played(8.0), played(4.0)],
            COLD: [played(4.1), played(8.8), played(4.0)],
            WARM: [played(3.0, disk=80), played(6.0, disk=80), played(1.0, disk=80)],
        }
    )
    figures = by_way(report)
    assert figures[WARM]["latency_change"] == pytest.approx(-0.25)
    assert figures[WARM]["queries_change"] == pytest.approx(1 / 0.75 - 1)
    assert figures[WARM]["paper_latency_change"] == -0.16
    assert figures[WARM]["hits"] == {"device": 0, "disk": 0.8}
    # Each run loads 2 x 80 tokens of 100 bytes, two seconds of raw reads: 6 / (2 + 2), 12 / (4 + 2), 2 / (2 + 2).
    assert figures[WARM]["loaded_bytes"] == 16_000
    assert figures[WARM]["target_ratio"] == pytest.approx(1.5)
    assert not figures[WARM]["is_met"]
    assert figures[COLD]["target_ratio"] == pytest.approx(1.025)
    assert figures[COLD]["is_met"]
    (policy,) = report.more["policies"]
    assert policy["accuracy"] == 0.5
    assert policy["split"] == {"small": 1.0, "large": 0.0}
    assert "split 0:100 where 50:50 was right" in report.notes[0] or "split 100:0" in report.notes[0]


def test_other_tokens_than_without_a_kv_directory_are_counted() -> None:
    figures = by_way(report_of({OFF: [played(1.0)], WARM: [played(1.0, tokens=2)]}))
    assert figures[OFF]["num_different"] == 0
    assert figures[WARM]["num_different"] == 2


def test_a_picture_is_drawn_of_one_way_too(tmp_path: Path) -> None:
    report = report_of({OFF: [played(1.0)]})
    save_plot(tmp_path / "rag.png", lambda figure: draw(figure, report))
    assert (tmp_path / "rag.png").stat().st_size > 1000
