"""The classifiers of routing are learned from questions that the tests do not ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from train.routing.__main__ import FORM_WEIGHTS, WEIGHTS, cross_validate, fill_frames, read_examples

from quire.routing.classifier import read_weights
from quire.routing.forms import common_words
from routing.bags import BagOfWords

TESTS = Path("tests/routing/questions.tsv")


def test_no_question_of_the_tests_is_learned_from():
    asked = {line.partition("\t")[2].lower().strip(" ?.!") for line in TESTS.read_text().splitlines()}
    for name in FORM_WEIGHTS:
        learned = {text.lower().strip(" ?.!") for texts in read_examples(name).values() for text in texts}
        assert not asked & learned


def test_the_shipped_weights_are_of_these_questions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quire.routing.classifier._PROBE_TOLERANCE", 9.0)

    class AnyVector(BagOfWords):
        def __call__(self, texts: Sequence[str]) -> np.ndarray:
            return super().__call__(texts)[:, :384]

    for name in FORM_WEIGHTS:
        examples, shipped = read_examples(name), read_weights(WEIGHTS / f"{name}.json", AnyVector())
        assert shipped.roles == tuple(examples)
        assert shipped.common == common_words([text for texts in examples.values() for text in texts])


def test_every_topic_is_asked_about_for_both_roles_and_always_in_the_same_words():
    framed = fill_frames()
    assert framed == fill_frames()
    assert len(framed["small"]) == len(framed["large"]) > 400
    assert not set(framed["small"]) & set(framed["large"])
    assert "Relate " in " ".join(framed["large"])


def test_cross_validation_finds_what_cannot_be_learned():
    red, blue = ([f"{colour} item {each}" for each in range(20)] for colour in ("red", "blue"))
    examples = {"a": [*red, "blue item 99"], "b": blue}
    vectors = BagOfWords()([text for texts in examples.values() for text in texts])
    assert cross_validate(examples, vectors, 1.0) == [("a", "blue item 99")]
