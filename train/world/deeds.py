"""Deeds: who did what to what, where and when, of hundreds of verbs and things that go with one another at random.

A frame's questions have answers in known places; here only the question's own words lead to the answer, so that a
reader has to find them in the passage. The clauses of a passage are alike, and each is the distractor of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from train import tables
from train.world import words
from train.world.english import Verb, capital, verb
from train.world.passage import Passage, Question, with_one_answer
from train.world.words import Value, draw

_WORDS = tables.words("deed_words")
_SAID = tables.sentences("deeds")
_ATTRIBUTES = tuple((block.name, *(line.wordings for line in block.lines)) for block in tables.read("attributes"))


def _verb(entry: str) -> Verb:
    base, *given = entry.split("/")  # given are a past and a participle other than the usual
    stem, blank, particle = base.partition(" ")
    forms = Verb(*(form + blank + particle for form in verb(stem)))
    return forms._replace(past=given[0], participle=given[1]) if given else forms


VERBS = tuple(map(_verb, _WORDS["verb"]))


@dataclass(frozen=True)
class _When:
    text: str  # with "in", "on" or "at"
    answer: str
    asked: str  # the words that ask for it


@dataclass(frozen=True)
class _Deed:
    who: Value
    verb: Verb
    thing: str  # without article
    place: tuple[str, str]  # preposition and the rest
    when: _When

    @property
    def is_plural(self) -> bool:
        return self.thing.split(" of ")[0].endswith("s")

    @property
    def slots(self) -> dict[str, str]:
        """What a pattern may say of it."""
        they = ("were", "them", "they") if self.is_plural else ("was", "it", "it")
        told = {"who": self.who.text, "thing": f"the {self.thing}", "when": self.when.asked}
        return self.verb._asdict() | dict(zip(("was", "it", "they"), they, strict=True)) | told

    @property
    def site(self) -> str:
        """The place as an answer."""
        return self.place[1].removeprefix("the ")


def _thing(rng: Random) -> str:
    noun = rng.choice(_WORDS["noun"]) if rng.random() < 0.75 else draw("thing", rng, held_out=False).text
    return f"{rng.choice(_WORDS['adjective'])} {noun}" if rng.random() < 0.4 and " of " not in noun else noun


def _place(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.35:
        return rng.choice(("in", "near", "in", "in")), draw("town", rng, held_out=False).text
    lead, has_article, rest = rng.choice(_WORDS["place"]).partition(" the ")
    if has_article:
        return lead, f"the {rest}"
    lead, _, rest = rng.choice(_WORDS["place"]).partition(" ")
    return lead, rest


def _times(rng: Random, count: int) -> list[_When]:
    kind = rng.choice(("weekday", "month", "year", "date", "clock", "season", "weekday", "month"))
    lead = {"weekday": "on", "date": "on", "clock": "at"}.get(kind, "in")
    found: dict[str, _When] = {}
    while len(found) < count:
        text = draw(kind, rng, held_out=False).text
        found[text] = _When(f"{lead} {text}", text, rng.choice(_SAID[kind]))
    return list(found.values())


def _deeds(rng: Random, count: int) -> list[_Deed]:
    people = {value.text: value for value in (draw("person", rng, held_out=False) for _ in range(3 * count))}
    things = list(dict.fromkeys(_thing(rng) for _ in range(4 * count)))
    places = list(dict.fromkeys(_place(rng) for _ in range(8 * count)))
    verbs = rng.sample(VERBS, count) if rng.random() < 0.75 else [rng.choice(VERBS)] * count
    times = _times(rng, count)
    return [_Deed(*parts) for parts in zip(list(people.values())[:count], verbs, things, places, times, strict=False)]


class DeedMaker:
    """Draws passages of two to four deeds. Their names are those of training."""

    def draw(self, rng: Random) -> Passage:
        while True:
            deeds = _deeds(rng, rng.choice((2, 2, 3, 3, 3, 4)))
            if len(deeds) < 2:
                continue
            tell = rng.choice((_each_their_own, _each_their_own, _one_person, _contrast, _passive, _list_of_things))
            text, questions = tell(deeds, rng)
            kept = tuple(question for question in with_one_answer(questions) if question.answer in text)
            if kept:
                topic = _topic(rng) if rng.random() < 0.45 else ""
                end = " " + rng.choice(_SAID["asides"]) if rng.random() < 0.3 else ""
                return Passage(f"{topic}{text}{end}", kept, len(deeds))


def _topic(rng: Random) -> str:
    topic = rng.choice(_SAID["topics"])
    values = {"day": rng.choice(words.WEEKDAYS)}
    values |= {kind: draw(kind, rng, held_out=False).text for kind in ("town", "year")}
    return topic.format(**values, season=rng.choice(words.SEASONS), month=rng.choice(words.MONTHS)) + " "


def _past(deed: _Deed, rng: Random) -> str:
    """What was done, with the thing as it is told."""
    article = "some" if deed.is_plural else "an" if deed.thing[0] in "aeiou" else "a"
    return f"{deed.verb.past} {rng.choice(('the', article))} {deed.thing}"


def _adjuncts(deed: _Deed, rng: Random, has_place: bool, has_time: bool) -> str:
    parts = [" ".join(deed.place)] * has_place + [deed.when.text] * has_time
    rng.shuffle(parts)
    return "".join(f" {part}" for part in parts)


def _short(thing: str, deeds: list[_Deed], rng: Random) -> str:
    """The thing in a question, at times by its last words only, where that tells it from the others."""
    noun = thing.split(" ", 1)[-1]
    is_clear = thing.split()[0] in _WORDS["adjective"] and " of " not in thing
    is_clear = is_clear and sum(noun in deed.thing for deed in deeds) == 1
    return noun if is_clear and rng.random() < 0.3 else thing


def _about(deed: _Deed, deeds: list[_Deed], rng: Random, *, has_place: bool, has_time: bool) -> list[Question]:
    """What can be asked of a deed that is told with these parts."""
    slots = deed.slots | {"thing": f"the {_short(deed.thing, deeds, rng)}"}
    first = deed.who.text.split()[0]
    clear_first = sum(d.who.text.split()[0] == first for d in deeds) == 1 and first not in words.TITLES
    if clear_first and rng.random() < 0.2:
        slots["who"] = first

    def asked(name: str) -> str:
        return rng.choice(_SAID[name]).format(**slots)

    found = [(asked("who"), deed.who.text), (asked("what"), deed.thing)]
    if has_place:
        found.append((asked("where"), deed.site))
    if has_time:
        found.append((asked("when"), deed.when.answer))
        found.append((f"What did {slots['who']} {deed.verb.base} {deed.when.text}?", deed.thing))
    return [Question(text, answer) for text, answer in found]


def _each_their_own(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Several people, each with a deed."""
    has_place, has_time = rng.random() < 0.5, rng.random() < 0.5
    clauses = []
    questions: list[Question] = []
    for deed in deeds:
        front = deed.when.text if has_time and rng.random() < 0.3 else ""
        rest = _adjuncts(deed, rng, has_place, has_time and not front)
        clauses.append((front, f"{deed.who.text} {_past(deed, rng)}{rest}"))
        questions += _about(deed, deeds, rng, has_place=has_place, has_time=has_time)
    return _join(clauses, rng), questions


def _join(clauses: list[tuple[str, str]], rng: Random) -> str:
    if rng.random() < 0.4 and len(clauses) > 1:
        told = [f"{front} {clause}".strip() for front, clause in clauses]
        return _one_sentence(told, rng.choice((", and ", ", while ", "; ", ", but ")))
    sentences = []
    for at, (front, clause) in enumerate(clauses):
        if not front and at and rng.random() < 0.3:
            front = rng.choice(_SAID["links"])
        sentences.append(capital(f"{front} {clause}.".strip()))
    return " ".join(sentences)


def _one_sentence(clauses: list[str], joint: str) -> str:
    return capital(f"{', '.join(clauses[:-1])}{joint}{clauses[-1]}.")


def _one_person(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """One person, several deeds."""
    who = deeds[0].who
    deeds = [replace(deed, who=who) for deed in deeds]
    has_place, has_time = rng.choice(((True, False), (False, True), (False, False), (True, True)))
    if len({deed.verb for deed in deeds}) == 1 and not has_time and not has_place:
        has_time = True
    parts = [f"{_past(deed, rng)}{_adjuncts(deed, rng, has_place, has_time)}" for deed in deeds]
    pronoun = "She" if who.gender == "f" else "He"
    if rng.random() < 0.5:
        text = f"{who.text} {', '.join(parts[:-1])} and {parts[-1]}."
    else:
        rest = (f"{pronoun} {rng.choice(('', '', 'also '))}{part}." for part in parts[1:])
        text = " ".join((f"{who.text} {parts[0]}.", *rest))
    asked = [_about(deed, deeds, rng, has_place=has_place, has_time=has_time) for deed in deeds]
    return text, [question for about in asked for question in about]


def _contrast(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Someone wanted to, someone else did; not here, but there."""
    deed, other = deeds[:2]
    slots = deed.slots | {"a": deed.who.text, "b": other.who.text, "here": " ".join(deed.place)}

    def said(name: str) -> str:
        return rng.choice(_SAID[name]).format(**slots)

    if rng.random() < 0.6:
        slots["hope"] = rng.choice(_SAID["hopes"])
        turn = said("turns")
        extra = ""
        if rng.random() < 0.3:
            extra = f" {slots['b'].split()[0] if rng.random() < 0.3 else 'A neighbour'} {_past(other, rng)}."
        questions = [Question(said("who in the end"), slots["b"])]
        questions.append(Question("Who {hope} {base} {thing}?".format(**slots), slots["a"]))
        return "{a} {hope} {base} {thing}, ".format(**slots) + turn + "." + extra, questions
    searched = said("searches")
    text = f"{searched}, but {slots['they']} {slots['was']} {' '.join(other.place)}"
    if rng.random() < 0.5:
        text += rng.choice((" all the time", " after all"))
    questions = [Question(said("where it was"), other.site)]
    text = capital(f"{text}.")
    if rng.random() < 0.5:
        text += " It was {b} who found {it}.".format(**slots)
        questions.append(Question("Who found {thing}?".format(**slots), slots["b"]))
    if "looked for" in searched:
        questions.append(Question("Where did {a} look for {thing}?".format(**slots), deed.site))
    return text, questions


def _passive(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Things to which something was done, at times with the verb told once."""
    questions: list[Question] = []
    has_time = rng.random() < 0.4
    is_elliptic = len({deed.verb for deed in deeds}) == 1
    parts = []
    for at, deed in enumerate(deeds):
        done = "" if at and is_elliptic else "{was} {participle} ".format(**deed.slots)
        parts.append(f"the {deed.thing} {done}by {deed.who.text}" + (f" {deed.when.text}" if has_time else ""))
        questions += _about(deed, deeds, rng, has_place=False, has_time=has_time)
    if is_elliptic or rng.random() < 0.5:
        return _one_sentence(parts, rng.choice((" and ", ", and "))), questions
    return " ".join(capital(f"{part}.") for part in parts), questions


def _list_of_things(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Several things, and one property of each; the question names the thing, or the property."""
    kind, tellings, asked = rng.choice(_ATTRIBUTES)
    telling = rng.choice(tellings)
    values: dict[str, None] = {}
    while len(values) < len(deeds):
        values[draw(kind, rng, held_out=False).text] = None
    parts, questions = [], []
    ask = rng.choice(asked)
    for at, (deed, value) in enumerate(zip(deeds, values, strict=True)):
        told = telling.format(v=value)
        is_short = at and rng.random() < 0.25 and telling.startswith(("is ", "cost ", "weighs "))
        parts.append(f"the {deed.thing} {told.split(' ', 1)[1] if is_short else told}")
        questions.append(Question(ask.format(t=f"the {_short(deed.thing, deeds, rng)}"), value))
        questions.append(Question(f"What {told}?", deed.thing))
    return _one_sentence(parts, rng.choice((", and ", ", while ", ", but "))), questions
