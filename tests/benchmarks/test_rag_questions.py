"""The choice of questions: a constant mix, separate questions per policy, and locality by document."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.rag.generated import NUM_DOCUMENTS, generate
from benchmarks.rag.questions import choose, draw_by_zipf, roles_of
from benchmarks.rag.settings import RagSettings
from benchmarks.routing_accuracy import evaluate
from quire.routing.router import Router, RoutingConfig
from routing.bags import BagOfWords

PAIR = {"small": "a", "large": "b"}


def test_the_generated_set_has_the_papers_sizes_and_labels_that_a_router_can_find() -> None:
    made = generate()
    assert made == generate()
    assert len(made.documents) == NUM_DOCUMENTS
    counts = Counter((each.task, each.label) for each in made.questions)
    assert counts == {("query", "simple"): 60, ("query", "complex"): 140, ("domain", "reading"): 140,
                      ("domain", "chat"): 60}  # fmt: skip
    router = Router(RoutingConfig("query", PAIR, Path("train/routing/query.yaml")), embedder=BagOfWords())
    assert evaluate(router, made.questions).accuracy > 0.9


@pytest.mark.parametrize(("policy", "labels"), [("query", ("simple", "complex")), ("domain", ("chat", "reading")),
                                                ("round-robin", ("simple", "complex"))])  # fmt: skip
def test_a_part_of_the_questions_has_the_mix_of_all(policy: str, labels: tuple[str, str]) -> None:
    chosen = choose(generate().questions, policy, roles_of(policy, PAIR), 20, seed=1)
    assert Counter(each.label for each in chosen) == {labels[0]: 6, labels[1]: 14}
    assert len(set(chosen)) == 20


def test_documents_are_read_by_the_large_model_unless_roles_say_otherwise() -> None:
    assert roles_of("domain", PAIR) == {"reading": "b", "chat": "a"}
    assert roles_of("domain", {**PAIR, "reading": "a", "chat": "b"}) == {"reading": "a", "chat": "b"}
    with pytest.raises(ValueError, match="small and large"):
        roles_of("query", {"small": "a"})


def test_questions_that_no_policy_can_take_are_refused_with_what_is_there() -> None:
    questions = generate().questions
    with pytest.raises(ValueError, match="--queries 500 are more than the 200"):
        choose(questions, "query", PAIR, 500, seed=0)
    with pytest.raises(ValueError, match="'complex' is no role"):
        choose(questions, "query", {"small": "a", "other": "b"}, 4, seed=0)


def test_zipf_asks_about_few_documents_and_about_each_in_turns() -> None:
    passages = [at // 4 for at in range(200)]  # four questions per document
    drawn = draw_by_zipf(passages, 1.5, seed=0)
    assert len(drawn) == 200
    by_document = Counter(passages[at] for at in drawn)
    most, _ = by_document.most_common(1)[0]
    assert by_document[most] > 40  # 1 / zeta(1.5) is 0.38
    assert len(by_document) < 40
    asked = Counter(at for at in drawn if passages[at] == most)
    assert max(asked.values()) - min(asked.values()) <= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policy": "slo"}, "'slo' is none of round-robin"),
        ({"kv": "off,lukewarm"}, "'lukewarm' is none of off"),
        ({"kv": "off,off"}, "twice"),
        ({"questions": "q.jsonl"}, "belong together"),
        ({"rate": 0.0, "kv": "warm"}, "add off"),
        ({"preset": "paper", "models": "small=a,large=b"}, "give one of them"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RagSettings(**given)  # type: ignore[arg-type]
