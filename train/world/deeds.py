"""Deeds: who did what to what, where and when, of hundreds of verbs and things that go with one another at random.

A frame's questions have answers in known places; here only the question's own words lead to the answer, so that a
reader has to find them in the passage. The clauses of a passage are alike, and each is the distractor of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from train import tables
from train.world import words
from train.world.passage import Passage, Question
from train.world.words import Value, draw


@dataclass(frozen=True)
class Verb:
    """A verb in three forms: paint, painted, painted."""

    base: str
    past: str
    participle: str


_WORDS = tables.words("deed_words")
_SAID = tables.sentences("deeds")


def _past_of(stem: str) -> str:
    if stem.endswith("e"):
        return stem + "d"
    if stem[-1] == "y" and stem[-2] not in "aeou":
        return stem[:-1] + "ied"
    return stem + (stem[-1] if stem in _WORDS["doubles its last letter"] else "") + "ed"


def _regular(base: str) -> Verb:
    stem, blank, particle = base.partition(" ")
    past = _past_of(stem) + blank + particle
    return Verb(base, past, past)


VERBS = (*map(_regular, _WORDS["verb"]), *(Verb(*forms.split("/")) for forms in _WORDS["irregular verb"]))


@dataclass(frozen=True)
class _When:
    lead: str  # in, on, at
    text: str
    kind: str  # how it is asked for


@dataclass(frozen=True)
class _Deed:
    who: Value
    verb: Verb
    thing: str  # without article
    is_plural: bool
    place: tuple[str, str]  # preposition and the rest
    when: _When


def _thing(rng: Random) -> str:
    noun = rng.choice(_WORDS["noun"]) if rng.random() < 0.75 else draw("thing", rng, held_out=False).text
    return f"{rng.choice(_WORDS['adjective'])} {noun}" if rng.random() < 0.4 and " of " not in noun else noun


def _place(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.35:
        return rng.choice(("in", "near", "in", "in")), draw("town", rng, held_out=False).text
    lead, _, rest = rng.choice(_WORDS["place"]).partition(" the ")
    if rest:
        return lead, f"the {rest}"
    lead, _, rest = rng.choice(_WORDS["place"]).partition(" ")
    return lead, rest


def _times(rng: Random, count: int) -> list[_When]:
    kind = rng.choice(("weekday", "month", "year", "date", "clock", "season", "weekday", "month"))
    lead = {"weekday": "on", "date": "on", "clock": "at"}.get(kind, "in")
    found: dict[str, _When] = {}
    while len(found) < count:
        text = draw(kind, rng, held_out=False).text
        found[text] = _When(lead, text, rng.choice(_SAID[kind]))
    return list(found.values())


def _deeds(rng: Random, count: int) -> list[_Deed]:
    people = {value.text: value for value in (draw("person", rng, held_out=False) for _ in range(3 * count))}
    things = list(dict.fromkeys(_thing(rng) for _ in range(4 * count)))
    places = list(dict.fromkeys(_place(rng) for _ in range(8 * count)))
    verbs = rng.sample(VERBS, count) if rng.random() < 0.75 else [rng.choice(VERBS)] * count
    times = _times(rng, count)
    return [
        _Deed(who, verb, thing, thing.split(" of ")[0].endswith("s"), place, when)
        for who, verb, thing, place, when in zip(
            list(people.values())[:count], verbs, things, places, times, strict=False
        )
    ]


class DeedMaker:
    """Draws passages of two to four deeds. Their names are those of training."""

    def draw(self, rng: Random) -> Passage:
        while True:
            deeds = _deeds(rng, rng.choice((2, 2, 3, 3, 3, 4)))
            if len(deeds) < 2:
                continue
            tell = rng.choice((_each_their_own, _each_their_own, _one_person, _contrast, _passive, _list_of_things))
            text, questions = tell(deeds, rng)
            answers: dict[str, set[str]] = {}
            for question in questions:
                answers.setdefault(question.text, set()).add(question.answer)
            kept = tuple(q for q in questions if len(answers[q.text]) == 1 and q.answer in text)
            if kept:
                topic = _topic(rng) if rng.random() < 0.45 else ""
                end = " " + rng.choice(_SAID["asides"]) if rng.random() < 0.3 else ""
                return Passage(f"{topic}{text}{end}", kept, len(deeds))


def _topic(rng: Random) -> str:
    return (
        rng.choice(_SAID["topics"]).format(
            day=rng.choice(words.WEEKDAYS),
            town=draw("town", rng, held_out=False).text,
            year=draw("year", rng, held_out=False).text,
            season=rng.choice(words.SEASONS),
            month=rng.choice(words.MONTHS),
        )
        + " "
    )


def _a(deed: _Deed, rng: Random) -> str:
    """The thing, as it is told."""
    if deed.is_plural:
        return rng.choice((f"the {deed.thing}", f"some {deed.thing}"))
    article = "an" if deed.thing[0] in "aeiou" else "a"
    return rng.choice((f"the {deed.thing}", f"{article} {deed.thing}"))


def _adjuncts(deed: _Deed, rng: Random, has_place: bool, has_time: bool) -> str:
    parts = [" ".join(deed.place)] * has_place + [f"{deed.when.lead} {deed.when.text}"] * has_time
    rng.shuffle(parts)
    return "".join(f" {part}" for part in parts)


def _past(deed: _Deed, rng: Random) -> str:
    return f"{deed.verb.past} {_a(deed, rng)}"


def _short(thing: str, deeds: list[_Deed], rng: Random) -> str:
    """The thing in a question, at times by its last words only, where that tells it from the others."""
    noun = thing.split(" ", 1)[-1]
    is_clear = thing.split()[0] in _WORDS["adjective"] and " of " not in thing
    is_clear = is_clear and sum(noun in deed.thing for deed in deeds) == 1
    return noun if is_clear and rng.random() < 0.3 else thing


def _about(deed: _Deed, deeds: list[_Deed], rng: Random, *, has_place: bool, has_time: bool) -> list[Question]:
    """What can be asked of a deed that is told with these parts."""
    verb, who = deed.verb, deed.who.text
    thing = f"the {_short(deed.thing, deeds, rng)}"
    first = who.split()[0]
    clear_first = sum(d.who.text.split()[0] == first for d in deeds) == 1 and first not in words.TITLES
    if clear_first and rng.random() < 0.2:
        who = first
    slots = {
        "who": who,
        "thing": thing,
        "base": verb.base,
        "past": verb.past,
        "participle": verb.participle,
        "was": "were" if deed.is_plural else "was",
        "when": deed.when.kind,
    }

    def asked(name: str) -> str:
        return rng.choice(_SAID[name]).format(**slots)

    found = [(asked("who"), deed.who.text), (asked("what"), deed.thing)]
    if has_place:
        found.append((asked("where"), deed.place[1].removeprefix("the ")))
    if has_time:
        found.append((asked("when"), deed.when.text))
        found.append((f"What did {who} {verb.base} {deed.when.lead} {deed.when.text}?", deed.thing))
    return [Question(text, answer) for text, answer in found]


def _each_their_own(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Several people, each with a deed."""
    has_place, has_time = rng.random() < 0.5, rng.random() < 0.5
    clauses = []
    questions: list[Question] = []
    for deed in deeds:
        front = f"{deed.when.lead} {deed.when.text}" if has_time and rng.random() < 0.3 else ""
        rest = _adjuncts(deed, rng, has_place, has_time and not front)
        clauses.append((front, f"{deed.who.text} {_past(deed, rng)}{rest}"))
        questions += _about(deed, deeds, rng, has_place=has_place, has_time=has_time)
    return _join(clauses, rng), questions


def _join(clauses: list[tuple[str, str]], rng: Random) -> str:
    if rng.random() < 0.4 and len(clauses) > 1:  # one sentence
        told = [f"{front} {clause}".strip() for front, clause in clauses]
        last = rng.choice((", and ", ", while ", "; ", ", but "))
        text = ", ".join(told[:-1]) + last + told[-1]
        return text[0].upper() + text[1:] + "."
    sentences = []
    for at, (front, clause) in enumerate(clauses):
        if front:
            clause = f"{front} {clause}"
        elif at and rng.random() < 0.3:
            clause = f"{rng.choice(_SAID['links'])} {clause}"
        sentences.append(clause[0].upper() + clause[1:] + ".")
    return " ".join(sentences)


def _one_person(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """One person, several deeds."""
    who = deeds[0].who
    deeds = [_Deed(who, d.verb, d.thing, d.is_plural, d.place, d.when) for d in deeds]
    has_place, has_time = rng.choice(((True, False), (False, True), (False, False), (True, True)))
    if len({deed.verb for deed in deeds}) == 1 and not has_time and not has_place:
        has_time = True
    parts = [f"{_past(deed, rng)}{_adjuncts(deed, rng, has_place, has_time)}" for deed in deeds]
    pronoun = "She" if who.gender == "f" else "He"
    if rng.random() < 0.5:
        text = f"{who.text} {', '.join(parts[:-1])} and {parts[-1]}."
    else:
        text = f"{who.text} {parts[0]}. " + " ".join(
            f"{pronoun} {rng.choice(('', '', 'also '))}{p}." for p in parts[1:]
        )
    questions: list[Question] = []
    for deed in deeds:
        questions += _about(deed, deeds, rng, has_place=has_place, has_time=has_time)
    return text, questions


def _contrast(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Someone wanted to, someone else did; not here, but there."""
    deed, other = deeds[:2]
    thing, verb = f"the {deed.thing}", deed.verb
    it, they, was = ("them", "they", "were") if deed.is_plural else ("it", "it", "was")
    a, b = deed.who.text, other.who.text
    if rng.random() < 0.6:
        hope = rng.choice(_SAID["hopes"])
        slots = {"b": b, "past": verb.past, "participle": verb.participle, "it": it, "they": they, "was": was}
        turn = rng.choice(_SAID["turns"]).format(**slots)
        text = f"{a} {hope} {verb.base} {thing}, {turn}."
        if rng.random() < 0.3:
            text += f" {b.split()[0] if rng.random() < 0.3 else 'A neighbour'} {_past(other, rng)}."
        did = rng.choice(_SAID["who in the end"]).format(past=verb.past, thing=thing)
        return text, [Question(did, b), Question(f"Who {hope} {verb.base} {thing}?", a)]
    first, second = " ".join(deed.place), " ".join(other.place)
    searched = rng.choice((f"{a} looked for {thing} {first}", f"{thing} {was} not {first}, as {a} had thought"))
    text = f"{searched}, but {they} {was} {second}"
    if rng.random() < 0.5:
        text += rng.choice((" all the time", " after all"))
    ask = rng.choice((f"Where {was} {thing}?", f"Where {was} {thing} really?"))
    text = text[0].upper() + text[1:] + "."
    finder = f" It was {b} who found {it}." if rng.random() < 0.5 else ""
    questions = [Question(ask, other.place[1].removeprefix("the "))]
    if finder:
        questions.append(Question(f"Who found {thing}?", b))
    if "looked for" in searched:
        questions.append(Question(f"Where did {a} look for {thing}?", deed.place[1].removeprefix("the ")))
    return text + finder, questions


def _passive(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Things to which something was done, at times with the verb told once."""
    questions: list[Question] = []
    has_time = rng.random() < 0.4
    is_elliptic = len({deed.verb for deed in deeds}) == 1
    parts = []
    for at, deed in enumerate(deeds):
        was = "were" if deed.is_plural else "was"
        done = f"{was} {deed.verb.participle}" if not (at and is_elliptic) else ""
        time = f" {deed.when.lead} {deed.when.text}" if has_time else ""
        parts.append(" ".join(f"the {deed.thing} {done} by {deed.who.text}{time}".split()))
        questions += _about(deed, deeds, rng, has_place=False, has_time=has_time)
    if is_elliptic or rng.random() < 0.5:
        text = ", ".join(parts[:-1]) + rng.choice((" and ", ", and ")) + parts[-1] + "."
        return text[0].upper() + text[1:], questions
    return " ".join(part[0].upper() + part[1:] + "." for part in parts), questions


_ATTRIBUTES = tuple(
    (block.name, block.lines[0].wordings, block.lines[1].wordings) for block in tables.read("attributes")
)
"""Kinds of values, how a value is told of a thing, and how one asks for it."""


def _list_of_things(deeds: list[_Deed], rng: Random) -> tuple[str, list[Question]]:
    """Several things, and one property of each; the question names the thing, or the property."""
    kind, tellings, asked = rng.choice(_ATTRIBUTES)
    telling, values = rng.choice(tellings), {}
    while len(values) < len(deeds):
        values[draw(kind, rng, held_out=False).text] = None
    parts, questions = [], []
    ask = rng.choice(asked)
    for at, (deed, value) in enumerate(zip(deeds, values, strict=True)):
        is_short = at and rng.random() < 0.25 and telling.startswith(("is ", "cost ", "weighs "))
        if is_short:
            tail = telling.format(v=value).split(" ", 1)[1]
            parts.append(f"the {deed.thing} {tail}")
        else:
            parts.append(f"the {deed.thing} {telling.format(v=value)}")
        questions.append(Question(ask.format(t=f"the {_short(deed.thing, deeds, rng)}"), value))
        questions.append(Question(f"What {telling.format(v=value)}?", deed.thing))
    joint = rng.choice((", and ", ", while ", ", but "))
    text = ", ".join(parts[:-1]) + joint + parts[-1] + "."
    return text[0].upper() + text[1:], questions
