"""The generator of the small world: training and evaluation data never overlap."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from train.facts import FACTS
from train.small_talk import dialogue
from train.stories import story
from train.world import FRAMES
from train.world.deeds import VERBS, DeedMaker
from train.world.frame import Frame
from train.world.passage import PassageMaker, fill
from train.world.words import KINDS, NAMES, Value, draw, is_held_out


def passages(count: int, *, held_out: bool, seed: int = 0):
    rng = Random(seed)
    maker = PassageMaker(FRAMES, held_out=held_out)
    return [maker.draw(rng, 1 + i % 5) for i in range(count)]


def test_names_are_either_for_training_or_for_evaluation():
    rng = Random(0)
    for kind in NAMES:
        for held_out in (False, True):
            assert all(is_held_out(draw(kind, rng, held_out=held_out).text) == held_out for _ in range(50))


def test_no_person_whom_an_evaluation_question_asks_for_occurs_in_training():
    asked = {q.answer for p in passages(600, held_out=True) for q in p.questions if q.text.startswith("Who ")}
    names = {answer for answer in asked if re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", answer)}
    assert len(names) > 300
    seen = {pair for p in passages(3000, held_out=False) for pair in re.findall(r"(?=\b([A-Z]\w+ [A-Z]\w+))", p.text)}
    assert len(seen) > 3000
    assert not names & seen


def test_every_answer_stands_in_its_passage():
    for passage in passages(1500, held_out=False):
        for question in passage.questions:
            assert question.answer.lower() in passage.text.lower(), (passage.text, question)


def test_a_passage_answers_each_of_its_questions_in_one_way():
    """A question never has two answers, and does not contain its own answer."""
    for passage in passages(1500, held_out=False, seed=2):
        answers: dict[str, set[str]] = {}
        for question in passage.questions:
            answers.setdefault(question.text, set()).add(question.answer)
            assert next(c for c in question.text if c.isalpha()).isupper()
        assert all(len(found) == 1 for found in answers.values()), passage


def test_templates_are_filled_without_a_trace():
    for passage in passages(1500, held_out=False, seed=3):
        for text in (passage.text, *(q.text for q in passage.questions)):
            assert not re.search(r"[{}]|\s\s|\s[.,;?]|\.\.", text), text


def test_wording_and_questions_vary():
    drawn = passages(3000, held_out=False, seed=4)
    assert len({p.text for p in drawn}) == len(drawn)
    first_words = Counter(" ".join(q.text.split()[:2]) for p in drawn for q in p.questions)
    assert len(first_words) > 1000
    assert first_words.most_common(1)[0][1] < 0.07 * first_words.total()


def test_names_of_frames_are_unique_over_all_tables():
    assert [name for name, count in Counter(frame.name for frame in FRAMES).items() if count > 1] == []


def test_every_kind_that_a_frame_names_exists():
    assert {kind for frame in FRAMES for kind in frame.slots.values()} <= KINDS.keys()


def test_a_frame_refuses_templates_that_cannot_be_filled_or_asked():
    slots = {"who": "person", "town": "town", "year": "year"}
    good = ("{who} came to {town}.",)
    with pytest.raises(ValueError, match="no slot"):
        Frame("f", slots, ("{who} met {whom}.",), {})
    with pytest.raises(ValueError, match="fewer than two"):
        Frame("f", slots, ("{who} slept.",), {})
    with pytest.raises(ValueError, match="no form"):
        Frame("f", slots, ("{who:xs} went to {town}.",), {})
    with pytest.raises(ValueError, match="tells the slot that it asks for"):
        Frame("f", slots, good, {"who": ("Who is {who}?",)})
    with pytest.raises(ValueError, match="no sentence tells"):
        Frame("f", slots, good, {"year": ("When did {who} come?",)})


def test_forms_of_a_slot():
    values = {"who": Value("Iris Moss", "f"), "thing": Value("old lamp")}
    assert fill("{who:s} lamp, {thing:a}, pleased {who:them}.", values) == "Iris Moss' lamp, an old lamp, pleased her."
    assert fill("{thing:A} is {who:their} joy. {who:They} smiled.", values) == "An old lamp is her joy. She smiled."


def test_the_same_seed_draws_the_same():
    assert passages(50, held_out=False, seed=5) == passages(50, held_out=False, seed=5)


def test_facts_small_talk_and_stories_are_whole():
    questions = [question for fact in FACTS for question in fact.questions]
    assert len(FACTS) >= 150
    assert len(set(questions)) == len(questions)
    rng = Random(6)
    for _ in range(500):
        for said, reply in dialogue(rng):
            assert said.strip()
            assert reply[0].isupper()
            assert reply.rstrip()[-1] in ".!?"
    name = iter(f"Name{i} Last{i}" for i in range(100))
    text = story(rng, lambda: next(name), lambda: "Marlow")
    assert text.count(".") >= 4


def test_deeds_are_asked_for_in_their_own_words_and_answered_by_a_span():
    rng, maker = Random(3), DeedMaker()
    for _ in range(500):
        passage = maker.draw(rng)
        assert passage.questions
        assert len({q.text for q in passage.questions}) == len({(q.text, q.answer) for q in passage.questions})
        for question in passage.questions:
            assert question.answer in passage.text
            assert not re.search(rf"\b{re.escape(question.answer)}\b", question.text)
            assert question.text.endswith("?")
            assert question.text[0].isupper()
        assert "  " not in passage.text


def test_verbs_have_three_forms_and_each_is_there_once():
    assert len(VERBS) > 200
    assert len({verb.base for verb in VERBS}) == len(VERBS)
    assert {verb.base: verb.past for verb in VERBS}["carry"] == "carried"
    assert {verb.base: verb.past for verb in VERBS}["plan"] == "planned"
    assert {verb.base: verb.participle for verb in VERBS}["steal"] == "stolen"
