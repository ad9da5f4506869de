"""The query policy's weights are fitted as a logistic regression and written in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from train.routing.fit import fit, read_own, set_aside, write_weights

from benchmarks.routing_accuracy import LabelledQuestion
from quire.routing.query import DEFAULT_FILE, MEASURES, QueryScoring

OWN = Path("train/routing/questions.tsv")
TESTS = Path("tests/routing/questions.tsv")


def test_no_question_of_the_tests_is_learned_from():
    own, tests = ({each.question.lower().strip(" ?.") for each in read_own(path)} for path in (OWN, TESTS))
    assert not own & tests
    assert {each.label for each in read_own(OWN)} == {"simple", "complex"}


def test_a_form_of_one_class_gets_its_sign_and_classes_count_the_same():
    random = np.random.default_rng(0)
    is_complex = np.array([1.0] * 90 + [0.0] * 10)
    noise = random.integers(0, 2, (100, 1 + len(MEASURES))).astype(float)
    features = np.hstack([is_complex[:, None], noise, np.ones((100, 1))])
    weights = fit(features, is_complex)
    assert weights[0] > 3 * np.abs(weights[1:-1]).max()
    flat = fit(np.hstack([np.zeros((100, 2 + len(MEASURES))), np.ones((100, 1))]), is_complex)
    assert flat[-1] == pytest.approx(0, abs=1e-6)  # nine complex questions for each simple one move no bias


def test_a_quarter_of_each_label_is_set_aside_whatever_the_order():
    questions = [LabelledQuestion(f"{label} {each}", label) for label in ("simple", "complex") for each in range(8)]
    kept, aside = set_aside(questions)
    assert [each.label for each in aside] == ["simple"] * 2 + ["complex"] * 2
    assert set(set_aside(questions[::-1])[1]) == set(aside)
    assert set(kept) | set(aside) == set(questions)


def test_weights_are_written_into_the_file_and_nothing_else_is(tmp_path: Path):
    path = tmp_path / "forms.yaml"
    path.write_text(DEFAULT_FILE.read_text())
    names = [form.name for form in QueryScoring.from_file(path).forms] + list(MEASURES)
    write_weights(path, names, np.arange(len(names) + 1) / 4)
    written = QueryScoring.from_file(path)
    assert [form.weight for form in written.forms] == [at / 4 for at in range(len(written.forms))]
    assert written.bias == len(names) / 4
    before, after = DEFAULT_FILE.read_text().splitlines(), path.read_text().splitlines()
    changed = [line for line, other in zip(before, after, strict=True) if line != other]
    assert all(line.startswith(("  ", "bias: ")) for line in changed)
