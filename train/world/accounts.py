"""Accounts: passages whose happenings are told in one wording and asked for in another.

Everything that fills a passage is drawn at random, and what is beside the point looks like what is asked for; so only
the meaning of the words leads to an answer.
"""

from __future__ import annotations

import re
from random import Random

from train.world import sentences
from train.world.asking import Asker
from train.world.cast import DEFINITE_LABELS, LABEL_PAIRS, Entity, draw_label, indefinite, twins
from train.world.circumstances import draw_alike
from train.world.discourse import SAID, Attitude
from train.world.happening import Drawing, Happening
from train.world.meaning import ALIKE, MEANINGS, Meaning
from train.world.passage import Passage, Question, with_one_answer
from train.world.telling import Teller
from train.world.words import TRADES, draw

_AFTER_LINK = ("the ", "a ", "an ", "she ", "he ", "they ", "it ")
_COMMON = ("when", "where", "site", "when", "why", "purpose", "price", "tool", "help", "for", "with", "long", "span",
           "times", "manner", "when", "where", "site")  # fmt: skip


def _by_kind() -> dict[str, tuple[Meaning, ...]]:
    """Kind -> meanings whose second role, what is done to something, takes it."""
    found: dict[str, tuple[Meaning, ...]] = {}
    for meaning in MEANINGS:
        if "person" in next(iter(meaning.roles.values())):
            for kind in meaning.roles.get("X", ()):
                found[kind] = (*found.get(kind, ()), meaning)
    return {kind: meanings for kind, meanings in found.items() if len(meanings) > 3}


_OF_KIND = _by_kind()


class AccountMaker:
    """Draws accounts; with `held_out`, of names kept for evaluation, else of those of training."""

    def __init__(self, *, held_out: bool) -> None:
        self._held_out = held_out

    def draw(self, rng: Random, most: int = 4) -> Passage:
        """A passage of one to `most` happenings with at least one question."""
        while True:
            passage = _Account(rng, self._held_out, most).passage()
            if passage.questions:
                return passage


class _Account:
    """One passage while it is drawn."""

    def __init__(self, rng: Random, held_out: bool, most: int) -> None:
        self._rng = rng
        self._most = most
        self._held_out = held_out
        self._drawing = Drawing(rng, held_out=held_out)
        self._others: list[Entity] = []  # named beside the happenings
        self._wishes: list[tuple[Happening, Entity, Attitude]] = []
        self._thing: Entity | None = None  # that all happenings are about

    def passage(self) -> Passage:
        rng = self._rng
        happenings = self._draw()
        names = rng.sample(_COMMON, rng.choice((0, 1, 1, 2, 2, 3)))
        self._drawing.add_circumstances(happenings, list(dict.fromkeys(names)))
        teller = Teller(rng, self._draw_labels(happenings))
        if rng.random() < 0.3:
            teller.aside(self._filled(rng.choice(SAID["openings"])))
        self._introduce(teller)
        self._tell(teller, happenings)
        if rng.random() < 0.3:
            teller.aside(self._filled(rng.choice(SAID["asides"])))
        text = " ".join(teller.sentences)
        return Passage(text, self._questions(teller, happenings, text), len(happenings))

    # what happens

    def _draw(self) -> list[Happening]:
        rng = self._rng
        twice = (self._alike, self._alike, self._different, self._different)
        return rng.choice((*twice, self._of_one, self._about_one, self._single))()

    def _count(self, *usual: int) -> int:
        """How many happenings: as usual, or up to the most that there may be where that is more."""
        count = self._rng.choice(usual)
        return self._rng.randint(count, self._most) if self._most > 4 else min(count, self._most)

    def _meanings(self, count: int, of: tuple[Meaning, ...] = MEANINGS) -> list[Meaning]:
        """Different ones that do not say nearly the same."""
        found: list[Meaning] = []
        barred: set[str] = set()
        for _ in range(8 * count):
            meaning = self._rng.choice(of)
            if meaning.name not in barred:
                found.append(meaning)
                barred |= {meaning.name} | ALIKE.get(meaning.name, frozenset())
            if len(found) == count:
                break
        return found

    def _single(self) -> list[Happening]:
        return [self._drawing.happening(self._rng.choice(MEANINGS), {})]

    def _alike(self) -> list[Happening]:
        """Several people do the same, to different things; at times one of them does it twice."""
        rng = self._rng
        meaning = rng.choice(MEANINGS)
        found = [self._drawing.happening(meaning, {}) for _ in range(self._count(2, 2, 3))]
        if "X" in meaning.roles and len(found) > 1 and rng.random() < 0.25:
            pair = twins(found[0].roles["X"], rng)
            if pair:
                found[0].roles["X"], found[1].roles["X"] = pair
                return found
        shared = [role for role in meaning.roles if rng.random() < 0.15]
        if len(shared) < len(meaning.roles) - 1:
            found[-1].roles |= {role: found[0].roles[role] for role in shared}
        return found

    def _different(self) -> list[Happening]:
        """Different people do different things; at times somebody is in two of them."""
        rng = self._rng
        found: list[Happening] = []
        for meaning in self._meanings(self._count(2, 2, 3)):
            known = [e for h in found for e in h.roles.values() if e.is_person]
            shared = {}
            people = [role for role, kinds in meaning.roles.items() if kinds[0] in ("person", "someone")]
            if known and people and rng.random() < 0.4:
                shared = {rng.choice(people): rng.choice(known)}
            found.append(self._drawing.happening(meaning, shared))
        return found

    def _of_one(self) -> list[Happening]:
        """One person does several things."""
        meanings = self._meanings(self._count(2, 3, 3), _OF_PERSONS)
        actor = self._drawing.entity(("person",))
        return [self._drawing.happening(meaning, {next(iter(meaning.roles)): actor}) for meaning in meanings]

    def _about_one(self) -> list[Happening]:
        """Several people do different things with one thing."""
        rng = self._rng
        kind = rng.choice(list(_OF_KIND))
        thing = self._drawing.entity((kind,))
        meanings = self._meanings(self._count(2, 3, 3, 4), _OF_KIND[kind])
        ends = [m for m in meanings if m.stage == 2][1:]
        starts = [m for m in meanings if m.stage == 0][1:]
        meanings = sorted((m for m in meanings if m not in ends and m not in starts), key=lambda m: m.stage)
        self._thing = thing
        return [self._drawing.happening(meaning, {"X": thing}) for meaning in meanings]

    def _draw_labels(self, happenings: list[Happening]) -> dict[Entity, str]:
        rng = self._rng
        people = list(dict.fromkeys(e for h in happenings for e in h.roles.values() if e.is_person and e.gender))
        labels: dict[Entity, str] = {}
        named = [person for person in people if person.head != person.text]
        if len(named) > 1 and rng.random() < 0.2:
            one, two = named[:2]
            gender, first, second = rng.choice(LABEL_PAIRS)
            if gender in ("", one.gender) and gender in ("", two.gender):
                return {one: second, two: first} if rng.random() < 0.5 else {one: first, two: second}
        if rng.random() < 0.35:
            for person in people:
                label = draw_label(person, rng)
                if person.head != person.text and label not in labels.values() and not self._drawing.holds(label):
                    labels[person] = label
        return labels

    # telling

    def _filled(self, text: str) -> str:
        """A remark with names and times of its own."""
        values: dict[str, str] = {}
        for name in re.findall(r"{(\w+)}", text):
            value = self._other() if name == "person" else draw(name, self._rng, held_out=self._held_out)
            values[name] = value.text
        return text.format(**values)

    def _other(self) -> Entity:
        """Somebody who is named beside the happenings, by name."""
        while True:
            other = self._drawing.entity(("person",))
            if not other.article:
                self._others.append(other)
                return other

    def _introduce(self, teller: Teller) -> None:
        rng = self._rng
        for person, label in teller.labels.items():
            if rng.random() < 0.35:
                sort = "definite " if label in DEFINITE_LABELS else "trade " if label in TRADES else ""
                pattern = rng.choice(SAID[f"{sort}introductions"])
                teller.introduced.add(person)
                name, a_label = teller.name(person, "subject", is_plain=True), indefinite(Entity(label, ""))
                teller.end(pattern.format(name=name, label=label, a_label=a_label))

    def _tell(self, teller: Teller, happenings: list[Happening]) -> None:
        waiting = list(happenings)
        while waiting:
            told, text = self._next(teller, waiting)
            is_past = all(happening.tense == "past" for happening in waiting[:told])
            del waiting[:told]
            may_link = is_past and teller.sentences and self._rng.random() < 0.15
            if may_link and (text[0].isupper() or text.startswith(_AFTER_LINK)):
                text = f"{self._rng.choice(SAID['links'])} {text}"
            teller.end(text)
            if waiting and self._rng.random() < 0.08:
                teller.aside(self._filled(self._rng.choice(SAID["asides"])))

    def _next(self, teller: Teller, waiting: list[Happening]) -> tuple[int, str]:
        """How many happenings the next sentence tells, and the sentence."""
        rng = self._rng
        if len(waiting) > 1 and rng.random() < 0.55:
            text, count = self._several(teller, waiting)
            if text:
                return count, text
            _forget(waiting)
        happening = waiting[0]
        if happening.actor.is_person and rng.random() < 0.6 and not happening.meaning.is_state:
            text = self._special(teller, happening)
            if text:
                return 1, text
            _forget(waiting)
        happening.tense = "present" if happening.meaning.is_state and rng.random() < 0.6 else "past"
        return 1, sentences.plain(teller, happening, happening.tense)

    def _several(self, teller: Teller, waiting: list[Happening]) -> tuple[str | None, int]:
        rng = self._rng
        if self._thing and all(h.roles.get("X") is self._thing for h in waiting) and rng.random() < 0.5:
            return sentences.passives_of_one(teller, waiting, self._thing), len(waiting)
        if len({h.meaning.name for h in waiting}) == 1 and rng.random() < 0.6:
            return sentences.gapping(teller, waiting), len(waiting)
        one, two = waiting[:2]
        if one.actor is two.actor and one.actor.is_person:
            return sentences.two_of_one(teller, one, two), 2
        return sentences.two_at_once(teller, one, two), 2

    def _special(self, teller: Teller, happening: Happening) -> str | None:
        forms = ["duty", "turn", "turn", "denial", "said", "said by others", "other thing"]
        forms += ["other role", "other role", "other circumstance", "other circumstance"]
        form = self._rng.choice(forms[3:] if happening.meaning.is_chance else forms)
        if form == "duty":
            return sentences.duty(teller, happening)
        if form == "turn":
            return self._turn(teller, happening)
        if form == "other thing":
            return self._other_thing(teller, happening)
        if form == "other role":
            return sentences.other_role(teller, happening, self._drawing, self._others)
        if form == "other circumstance":
            return self._other_circumstance(teller, happening)
        if form == "said":
            return sentences.said(teller, happening, self._other())
        patterns = SAID["denials" if form == "denial" else form]
        return sentences.denial(teller, happening, self._other(), patterns)

    def _turn(self, teller: Teller, happening: Happening) -> str | None:
        other = self._other()
        text, attitude = sentences.turn(teller, happening, other) or (None, None)
        if attitude:
            self._wishes.append((happening, other, attitude))
        return text

    def _other_thing(self, teller: Teller, happening: Happening) -> str | None:
        if "X" not in happening.roles or happening.roles["X"] is self._thing:
            return None
        other = self._drawing.entity((happening.roles["X"].kind,))
        self._others.append(other)
        return sentences.other_thing(teller, happening, other, "X")

    def _other_circumstance(self, teller: Teller, happening: Happening) -> str | None:
        names = [name for name in happening.circumstances if name in ("when", "where", "why", "site")]
        name = self._rng.choice(names) if names else ""
        mine = happening.circumstances.get(name)
        for other in draw_alike(name, self._rng, 6, like=mine) if mine else ():
            if mine and other.answer != mine.answer and "{" not in other.text:
                return sentences.other_circumstance(teller, happening, name, other)
        return None

    # asking

    def _questions(self, teller: Teller, happenings: list[Happening], text: str) -> tuple[Question, ...]:
        asker = Asker(self._rng, teller, happenings, self._others)
        asked = [pair for happening in happenings for pair in asker.ask(happening)]
        wishes = [wish for wish in self._wishes if wish[0].told] if len(self._wishes) == 1 else []
        asked += [asked_wish for wish in wishes if (asked_wish := asker.about_wish(*wish))]
        asked += [asker.about_label(p) for p in teller.labels if p in teller.introduced and self._rng.random() < 0.3]
        found = []
        for question in with_one_answer([Question(*pair) for pair in asked]):
            span = _whole_words(question.answer, text)
            if span is not None and _whole_words(question.answer, question.text) is None:
                found.append(Question(question.text, span))
        return tuple(found)


_OF_PERSONS = tuple(m for m in MEANINGS if next(iter(m.roles.values()))[0] in ("person", "someone"))


def _whole_words(words: str, text: str) -> str | None:
    """The words as they stand in the text, in whatever case, and not as part of longer ones. (An expression for each
    answer would take a third of the time that drawing takes.)"""
    wanted, lower = words.lower(), text.lower()
    at = lower.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if not any(next_to.isalnum() or next_to == "_" for next_to in (lower[at - 1 : at], lower[end : end + 1])):
            return text[at:end]
        at = lower.find(wanted, at + 1)
    return None


def _forget(happenings: list[Happening]) -> None:
    """What a sentence that was not told has marked as told."""
    for happening in happenings:
        happening.told.clear()
        happening.wordings.clear()
        happening.deed = ""
