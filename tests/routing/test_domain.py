"""The policy domain sends a question to the model with similar examples."""

from __future__ import annotations

import numpy as np
import pytest

from quire.routing import RoutingError
from quire.routing.domain import DomainPolicy, read_examples
from routing.bags import BagOfWords

EXAMPLES = {
    "cook": ["how long do potatoes boil", "is this fish fresh", "a sauce for fish", "potatoes with sauce"],
    "law": ["may my landlord do that", "is this contract void"],
}
MODELS = {"cook": "mini", "law": "chat"}


def test_the_nearest_examples_decide_and_are_named():
    policy = DomainPolicy(MODELS, EXAMPLES, BagOfWords())
    choice = policy.choose("which sauce goes with potatoes")
    assert (choice.model, choice.role, choice.policy) == ("mini", "cook", "domain")
    assert "'potatoes with sauce'" in choice.why
    assert choice.numbers["cook"] > choice.numbers["law"] >= 0
    assert policy.choose("is my contract with the landlord void").model == "chat"


def test_a_model_with_many_examples_is_not_at_a_disadvantage():
    """The same number of examples counts for each model: the smallest one, if it is below top_k."""
    many = {"cook": [*EXAMPLES["cook"], *(f"unrelated{each}" for each in range(20))], "law": EXAMPLES["law"]}
    question = "a sauce for fish"
    few_numbers = DomainPolicy(MODELS, EXAMPLES, BagOfWords()).choose(question).numbers
    assert DomainPolicy(MODELS, many, BagOfWords()).choose(question).numbers == few_numbers


def test_examples_are_embedded_once_and_a_vector_need_not_be_made_again():
    embedder = BagOfWords()
    policy = DomainPolicy(MODELS, EXAMPLES, embedder)
    assert embedder.num_texts == 6
    choice = policy.choose("fresh fish")
    assert embedder.num_texts == 7
    assert policy.choose_by_vector(BagOfWords().embed(["fresh fish"])[0]) == choice
    assert embedder.num_texts == 7


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(RoutingError, match="no examples for 'sport'; there are some for cook, law"):
        DomainPolicy({"sport": "mini"}, EXAMPLES, BagOfWords())
    with pytest.raises(RoutingError, match="top_k must be at least 1"):
        DomainPolicy(MODELS, EXAMPLES, BagOfWords(), top_k=0)

    class Broken:
        def embed(self, texts: object) -> np.ndarray:
            return np.zeros(3, np.float32)

    with pytest.raises(RoutingError, match=r"shape \(3,\) for 4 texts"):
        DomainPolicy(MODELS, EXAMPLES, Broken())


def test_our_examples_are_of_two_roles_without_doubles():
    examples = read_examples()
    assert list(examples) == ["reading", "chat"]
    together = [text for texts in examples.values() for text in texts]
    assert len(set(together)) == len(together) > 100
