"""Passages of several facts, and questions whose answers stand in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from train import tables
from train.world.english import PRONOUNS, capital, possessive
from train.world.frame import Frame
from train.world.words import NAMES, Value, draw, given_name

_REMARKS = tables.sentences("remarks")["remarks"]
_JOINTS = (", and ", ", while ", "; ", ", but ")


@dataclass(frozen=True)
class Question:
    text: str  # the question
    answer: str  # a span of the passage


@dataclass(frozen=True)
class Passage:
    text: str  # the sentences
    questions: tuple[Question, ...]  # every question that has one answer in them, in the order of the facts
    num_facts: int  # how many facts it tells


@dataclass(frozen=True)
class _Fact:
    frame: Frame
    sentence: str
    values: dict[str, Value]


class PassageMaker:
    """Draws passages of given frames; with `held_out`, of names kept for evaluation, else of those of training."""

    def __init__(self, frames: Sequence[Frame], *, held_out: bool) -> None:
        self._frames = frames
        self._num_facts = {frame.name: frame.num_facts for frame in frames}
        self._held_out = held_out

    def draw(self, rng: Random, num_facts: int) -> Passage:
        """A passage of `num_facts` facts with at least one question; a scene counts as two facts."""
        while True:
            facts = self._draw_facts(rng, num_facts)
            questions = tuple(_questions(facts, rng))
            if questions:
                return Passage(self._tell(facts, rng), questions, num_facts)

    def _draw_facts(self, rng: Random, num_facts: int) -> list[_Fact]:
        recurring: dict[str, list[Value]] = {"person": [], "town": []}  # whom and what several facts are about
        same_people = rng.choice((0.0, 0.0, 0.5, 0.9))
        same_frame = rng.choice((0.0, 0.0, 0.3, 0.8))  # facts alike, of which the question is about one
        facts: list[_Fact] = []
        left = num_facts
        while left:
            frame = rng.choice(facts).frame if facts and rng.random() < same_frame else rng.choice(self._frames)
            if self._num_facts[frame.name] > left:
                continue
            left -= self._num_facts[frame.name]
            values: dict[str, Value] = {}
            for slot, kind in frame.slots.items():
                known = recurring.get(kind, [])
                if known and rng.random() < (same_people if slot == "who" else 0.15):
                    value = known[-1] if rng.random() < 0.8 else rng.choice(known)
                else:
                    value = self._fresh(kind, rng, values, facts)
                if value in values.values():
                    value = self._fresh(kind, rng, values, facts)
                values[slot] = value
                if value not in known:
                    known.append(value)
            facts.append(_Fact(frame, rng.choice(frame.sentences), values))
        return facts

    def _fresh(self, kind: str, rng: Random, values: dict[str, Value], facts: list[_Fact]) -> Value:
        """A value that the passage does not hold yet, where there is one."""
        taken = {value.text for value in values.values()} | {v.text for fact in facts for v in fact.values.values()}
        for _ in range(8):
            value = draw(kind, rng, held_out=self._held_out)
            if value.text not in taken:
                break
        return value

    def _tell(self, facts: list[_Fact], rng: Random) -> str:
        sentences: list[str] = []
        before: set[str] = set()  # persons in the sentence before
        pronouns = rng.choice((0.0, 0.5, 0.9))
        for fact in facts:
            template, values = fact.sentence, fact.values
            told = fact.frame.named[template]
            people = {values[slot].text for slot in told if fact.frame.slots[slot] == "person"}
            if template.startswith("{who} ") and "who" in values and before == {values["who"].text}:
                chance, who = rng.random(), values["who"]
                if chance < pronouns + 0.2:
                    called = PRONOUNS[who.gender]["they"] if chance < pronouns else given_name(who)
                    template = called + template.removeprefix("{who}")
            sentence = fill(template, values)
            joint = rng.choice(_JOINTS)
            first = template[1:].partition("}")[0] if template.startswith("{") else ""
            starts_with_name = fact.frame.slots.get(first) in NAMES or template[:3] in ("she", "he ")
            if sentences and rng.random() < 0.12 and starts_with_name:
                sentences[-1] = sentences[-1].removesuffix(".") + joint + sentence
            else:
                sentences.append(capital(sentence))
            before = people
            if rng.random() < 0.06:
                sentences.append(rng.choice(_REMARKS))
                before = set()
        return " ".join(sentences)


def fill(template: str, values: dict[str, Value]) -> str:
    """The template with its slots filled; see `Frame` for the forms."""
    parts: list[str] = []
    for piece in template.split("{"):
        slot, brace, rest = piece.partition("}")
        if not brace:
            parts.append(piece)
            continue
        name, _, form = slot.partition(":")
        value = values[name]
        if form.lower() == "a":
            said = f"{'an' if value.text[0].lower() in 'aeiou' else 'a'} {value.text}"
        elif form == "s":
            said = possessive(value.text)
        else:
            said = PRONOUNS[value.gender][form.lower()] if form else value.text
        parts.append((capital(said) if form[:1].isupper() else said) + rest)
    return "".join(parts)


def _questions(facts: list[_Fact], rng: Random) -> list[Question]:
    questions = []
    firsts = [given_name(value) for fact in facts for value in fact.values.values() if value.gender]
    for fact in facts:
        told = fact.frame.named[fact.sentence]
        for slot, asked in fact.frame.questions.items():
            fitting = [q for q in asked if slot in told and fact.frame.named[q] <= told]
            fitting = [q for q in fitting if not _is_ambiguous(fact, slot, fact.frame.named[q], facts)]
            if fitting:
                question = rng.choice(fitting)
                values = fact.values
                who = values.get("who")
                if who and who.gender and rng.random() < 0.12 and firsts.count(first := given_name(who)) == 1:
                    values = values | {"who": Value(first, who.gender)}
                text = fill(question, values)
                questions.append(Question(capital(text), fact.values[slot].text))
    return with_one_answer(questions)


def with_one_answer(questions: Sequence[Question]) -> list[Question]:
    """Those that are not there with another answer too."""
    answers: dict[str, set[str]] = {}
    for question in questions:
        answers.setdefault(question.text, set()).add(question.answer)
    return [question for question in questions if len(answers[question.text]) == 1]


def _is_ambiguous(fact: _Fact, slot: str, named: frozenset[str], facts: list[_Fact]) -> bool:
    """Whether the passage also answers otherwise: another fact of the frame agrees in all that the question names,
    or one about the same things tells a value of the kind asked for."""
    kind = fact.frame.slots[slot]
    given = {fact.values[name].text for name in named}
    for other in facts:
        if other is fact:
            continue
        if other.frame is fact.frame:
            if all(other.values[name].text == fact.values[name].text for name in named):
                return True
        elif any(
            other_kind == kind and other.values[name].text != fact.values[slot].text
            for name, other_kind in other.frame.slots.items()
        ) and given & {value.text for value in other.values.values()}:
            return True
    return False
