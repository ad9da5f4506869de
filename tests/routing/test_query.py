"""Factual questions go to the small model and reasons to the large one, by forms listed in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.routing import RoutingError
from quire.routing.forms import compile_phrases
from quire.routing.query import DEFAULT_FILE, QueryPolicy, QueryScoring
from quire.routing.question import parse

MODELS = {"small": "mini", "large": "chat"}
POLICY = QueryPolicy(MODELS)
QUESTIONS = [
    line.split("\t") for line in Path(__file__).with_name("questions.tsv").read_text().splitlines() if line.strip()
]
TINY = {
    "words": {"aux": "do does did"},
    "forms": [{"name": "how", "weight": 2, "any": ["^ how <aux>"]}],
    "measures": {"words": 0.5},
    "bias": -1,
}


def test_questions_by_hand_that_no_weight_was_fitted_on():
    right = {"simple": 0, "complex": 0}
    for label, question in QUESTIONS:
        right[label] += POLICY.choose(question).role == {"simple": "small", "complex": "large"}[label]
    totals = {each: sum(label == each for label, _ in QUESTIONS) for each in right}
    assert min(totals.values()) >= 80
    assert all(right[each] >= 0.94 * totals[each] for each in right), (right, totals)


@pytest.mark.parametrize(
    ("question", "role"),
    [
        ("What is the capital of Mongolia?", "small"),
        ("What caused the fall of Rome?", "large"),
        # Words of a title, or of a relative clause, do not count as the question.
        ('Who wrote "Why Nations Fail"?', "small"),
        ("Which essay explains why the author gave up smoking?", "small"),
        # A fact after a long story, and a reason in three words.
        ("I read about how bees dance, and my sister did too, but who decoded the dance?", "small"),
        ("Why do cats purr?", "large"),
        # An order, a fragment, and a statement with a gap.
        ("Compare the two poems.", "large"),
        ("capital of peru", "small"),
        ("advantages of wind power", "large"),
        ("The Danube flows into which sea?", "small"),
        # Begins with a fact and asks for more.
        ("Who was right, Newton or Huygens, and why?", "large"),
    ],
)
def test_the_form_decides_and_not_the_length(question: str, role: str):
    assert POLICY.choose(question).role == role


def test_typing_does_not_decide():
    for text in ("how does a touchscreen work", "HOW DOES A TOUCHSCREEN WORK??", "  How does\na touchscreen work ?"):
        assert POLICY.choose(text).model == "chat"
    for text in ("whats the capital of peru", "What’s the capital of Peru?", "What is the capital of Peru"):
        assert POLICY.choose(text).model == "mini"


def test_a_choice_explains_itself_with_numbers_that_add_up():
    choice = POLICY.choose("How did the strike end, and why then?")
    numbers = dict(choice.numbers)
    score, threshold = numbers.pop("score"), numbers.pop("threshold")
    assert numbers.pop("p_complex") > 0.5
    assert sum(numbers.values()) == pytest.approx(score)
    assert score > threshold == 0
    assert choice.why.startswith("complex: ")
    assert choice.why.removeprefix("complex: ").split("; ")[0] in numbers


def test_the_threshold_spares_the_large_model():
    question = "How are diamonds formed?"
    assert QueryPolicy(MODELS, threshold=100).choose(question).model == "mini"
    assert QueryPolicy(MODELS, threshold=-100).choose("Who is it?").model == "chat"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(["how", "What", ",", "?", ". ", '"', "'s", "“", "é", "\u2028", "\0", "1:30", "-", "who is"])
    )
)
def test_any_text_is_routed_the_same_way_twice(parts: list[str]):
    for text in ("".join(parts), " ".join(parts)):
        assert POLICY.choose(text) == POLICY.choose(text)


def test_a_text_of_any_length_is_read_at_both_ends():
    assert POLICY.choose("word " * 100_000 + ". Why is that so?").role == "large"
    assert POLICY.choose("Explain the following text. " + "word " * 100_000).role == "large"


@pytest.mark.parametrize(
    ("question", "setting", "asks"),
    [
        ("Hey, can you tell me who won?", "hey , can you tell me", "who won ?"),
        ("In the film where two brothers meet, who plays the father?", "", "who plays the father ?"),
        ("X.25 uses what type of network?", "x.25 uses", "what type of network ?"),
        ("On balance, did it help?", "on balance ,", "did it help ?"),
        ("It rained. What now?", "it rained .", "what now ?"),
        ("peak of the alps", "", "peak of the alps"),
        ("", "", ""),
    ],
)
def test_what_is_asked_is_found_behind_what_stands_before_it(question: str, setting: str, asks: str):
    parsed = parse(question)
    assert parsed.asks.strip() == asks
    assert setting in parsed.setting


def test_the_head_ends_where_a_relative_clause_begins():
    assert parse("What was the sermon in which he warned why drink is bad?").head == " what was the sermon "


@pytest.mark.parametrize(
    ("phrase", "text", "is_found"),
    [
        ("^ how <aux>", "how does it", True),
        ("^ how <aux>", "and how does it", False),
        ("^ what the? cause", "what cause", True),
        ("^ what the? cause", "what a cause", False),
        ("*est", "the tallest tower", True),
        ("est", "the tallest tower", False),
        ("if ... then", "if it rains then", True),
        ("if ... then", "if it rains . then", False),
        ("^ what !<aux>", "what gas", True),
        ("^ what !<aux>", "what does", False),
        ("by whom $", "made by whom ?", True),
        ("by whom $", "by whom made ?", False),
        ("a.b", "a.b", True),
        ("a.b", "axb", False),
    ],
)
def test_phrases_find_what_their_signs_say(phrase: str, text: str, is_found: bool):
    pattern = compile_phrases([phrase], {"aux": ["do", "does"]})
    assert (pattern.search(f" {text} ") is not None) == is_found


def write(path: Path, **changes: object) -> Path:
    path.write_text(yaml.safe_dump({name: value for name, value in (TINY | changes).items() if value is not None}))
    return path


def test_a_users_file_takes_the_place_of_ours(tmp_path: Path):
    policy = QueryPolicy(MODELS, write(tmp_path / "own.yaml"))
    assert policy.scoring.score("How does " + "a " * 8) == pytest.approx(1)  # ten words
    assert policy.choose("why " * 10).numbers["score"] == pytest.approx(-1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": "much"}, "bias should be a number"),
        ({"measures": {"length": 1}}, "no measure 'length'; there are words,"),
        ({"measures": {"words": float("nan")}}, "words should be a number"),
        ({"forms": None}, "lacks 'forms'"),
        ({"extra": 1}, "has 'extra'; known are"),
        ({"forms": [{"name": "a", "weight": 1, "any": ["^ <verbs>"]}]}, "'a': the phrase '^ <verbs>' names the list"),
        ({"forms": [{"name": "a", "weight": 1, "any": ["^"]}]}, "is empty"),
        ({"forms": [{"name": "a", "weight": 1, "any": [True]}]}, "put it in quotes"),
        ({"forms": [{"name": "a", "weight": 1, "any": ["x"], "where": "end"}]}, "where is one of asks"),
        ({"forms": ["x"]}, "a form is a mapping"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, changes: dict[str, object], message: str):
    path = write(tmp_path / "own.yaml", **changes)
    with pytest.raises(RoutingError) as error:
        QueryScoring.from_file(path)
    assert message in str(error.value)
    assert "own.yaml" in str(error.value)


def test_our_file_has_a_weight_for_every_form_and_no_name_twice():
    forms = QueryScoring.from_file(DEFAULT_FILE).forms
    assert all(form.weight for form in forms)
    assert len({form.name for form in forms}) == len(forms)
