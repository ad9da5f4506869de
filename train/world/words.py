"""The world's words: kinds of values, and how a value of each kind is drawn.

Names of persons, places, ships, books and the like are made from syllables and lists in such numbers that most are
new. `is_held_out` keeps one name in eight for evaluation: a training passage never holds one, an evaluation passage
holds no other, so that no name there, and no pairing of a name with anything, was ever trained on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from train import tables

HELD_OUT_ONE_IN = 8


@dataclass(frozen=True)
class Value:
    """What fills a slot."""

    text: str  # as it stands in a sentence, and as the answer to a question
    gender: str = ""  # "f" or "m" for persons, else ""


def is_held_out(name: str) -> bool:
    """Whether a name is kept for evaluation."""
    return zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0


Draw = Callable[[Random], "str | Value"]
_LISTS = tables.read("words")
WORDS = {block.name: block.words for block in _LISTS}
"""Lists of words by what they are."""
TITLES = frozenset(["Mrs", "Miss", "Mr", "Dr", "Professor", "Captain", "Sister", "Father"])
TRADES, ROOMS = WORDS["trade"], WORDS["room"]
MONTHS, WEEKDAYS, SEASONS = WORDS["month"], WORDS["weekday"], WORDS["season"]
NUMBERS = WORDS["number"] + WORDS["ten"]


def syllable(rng: Random) -> str:
    start = rng.choice(WORDS["onset"]) + rng.choice(WORDS["vowel"])
    return start + (rng.choice(WORDS["coda"]) if rng.random() < 0.55 else "")


def coined(rng: Random, ends: tuple[str, ...] = ("",)) -> str:
    """A word that no list holds, such as "brandock"."""
    return "".join(syllable(rng) for _ in range(rng.choice((1, 1, 1, 2)))) + rng.choice(ends)


def name_of(ends: tuple[str, ...]) -> Draw:
    return lambda rng: coined(rng, ends).capitalize()


def surname(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(WORDS["surname"])
    if kind < 0.5:
        return rng.choice(WORDS["start of a town"]) + rng.choice(WORDS["end of a town"])
    return coined(rng, WORDS["end of a surname"]).capitalize()


def person(rng: Random) -> Value:
    gender = rng.choice("fm")
    name = surname(rng)
    if rng.random() < 0.08:
        if rng.random() < 0.5:
            gender, first = rng.choice((("f", "Mrs"), ("f", "Miss"), ("m", "Mr")))
        else:
            first = rng.choice(("Dr", "Professor", "Captain", "Sister" if gender == "f" else "Father"))
    elif rng.random() < 0.12:
        ends = ("a", "ia", "ie", "ette", "ine") if gender == "f" else ("o", "us", "an", "ric", "")
        first = coined(rng, ends).capitalize()
    else:
        first = rng.choice(WORDS["woman" if gender == "f" else "man"])
    return Value(f"{first} {name}", gender)


def place_word(rng: Random) -> str:
    ends = WORDS["end of a town"]
    if rng.random() < 0.45:
        return rng.choice(WORDS["start of a town"]) + rng.choice(ends)
    return coined(rng, ends).capitalize()


def town(rng: Random) -> str:
    name = place_word(rng)
    return f"{rng.choice(WORDS['before a town'])} {name}" if rng.random() < 0.1 else name


def named(patterns: tuple[str, ...]) -> Draw:
    """Names after a pattern of `tables/names.txt`, which says what its slots are."""

    def draw(rng: Random) -> str:
        pattern = rng.choice(patterns)
        names = {"p": place_word(rng), "s": surname(rng), "s2": surname(rng)}
        names |= {"c": coined(rng, WORDS["end of a country"]).capitalize(), "o": coined(rng).capitalize()}
        adjective, nouns = rng.choice(WORDS["title adjective"]), WORDS["title noun"]
        return pattern.format(**names, t=adjective, n=rng.choice(nouns), n2=rng.choice(nouns))

    return draw


def one_of(values: tuple[str, ...], coin: float) -> Draw:
    """A word of a list or, with the probability `coin`, one that no list holds."""
    return lambda rng: coined(rng) if rng.random() < coin else rng.choice(values)


def described(adjectives: tuple[str, ...], nouns: tuple[str, ...], often: float) -> Callable[[Random], str]:
    def draw(rng: Random) -> str:
        noun = coined(rng) if rng.random() < 0.06 else rng.choice(nouns)
        return f"{rng.choice(adjectives)} {noun}" if rng.random() < often else noun

    return draw


def thing(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.07:
        return f"{rng.choice(('set', 'pair', 'box', 'bag', 'pair'))} of {rng.choice(WORDS['plural'])}"
    if kind < 0.14:
        return f"{rng.choice(WORDS['container'])} of {rng.choice(WORDS['content'])}"
    if kind < 0.26:
        return f"{rng.choice(WORDS['made for'])} {rng.choice(WORDS['made thing'])}"
    return described(WORDS["adjective of a thing"], WORDS["thing"], 0.55)(rng)


def pet(rng: Random) -> str:
    return coined(rng, ("", "y", "o")).capitalize() if rng.random() < 0.25 else rng.choice(WORDS["pet"])


def counted(units: tuple[str, ...], most: int) -> Draw:
    return lambda rng: f"{small_number(rng, most)} {rng.choice(units)}"


def small_number(rng: Random, most: int = 900) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NUMBERS)
    if kind < 0.55:
        return f"{rng.choice(WORDS['ten'])}-{rng.choice(('one', *NUMBERS[:8]))}"
    if kind < 0.6:
        return f"{rng.choice(NUMBERS[:8])} {rng.choice(('hundred', 'thousand', 'dozen'))}"
    return str(rng.randrange(2, 60) if rng.random() < 0.7 else rng.randrange(2, most))


def date(rng: Random) -> str:
    day, month = rng.randrange(1, 29), rng.choice(MONTHS)
    ordinal = f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10 if day // 10 != 1 else 0, 'th') }"
    word = rng.choice(WORDS["ordinal"])
    forms: tuple[str, ...] = (f"{day} {month}",) * 3 + (f"{month} {day}",) * 2
    forms += (f"the {ordinal} of {month}", f"the {word} of {month}", f"{month} the {word}", f"{ordinal} {month}")
    return rng.choice(forms)


def clock(rng: Random) -> str:
    hour = rng.choice(NUMBERS[:11])
    part = rng.choice(("morning", "evening", "afternoon"))
    minutes = f"{rng.choice(('ten', 'twenty', 'five'))} {rng.choice(('to', 'past'))}"
    digits = f"{rng.randrange(2, 13)} o'clock"
    time = f"{rng.randrange(6, 23)}:{rng.choice(('00', '15', '30', '45', '10', '20', '40', '50'))}"
    forms = (f"half past {hour}", f"{hour} o'clock", hour, f"{hour} in the {part}", f"{minutes} {hour}", digits)
    return rng.choice((*forms, f"a quarter to {hour}", f"a quarter past {hour}", time, "noon", "midnight"))


def reason(rng: Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(WORDS["reason"])
    return f"{rng.choice(WORDS['what a reason is about'])} {rng.choice(WORDS['what happened to it'])}"


NAMES: dict[str, Draw] = {
    "person": person,
    "town": town,
    "country": name_of(WORDS["end of a country"]),
    "river": name_of(("", "e", "er", "a", "en")),
    "language": name_of(("ish", "ese", "ian", "ic")),
    "family": surname,
    **{kind: named(patterns) for kind, patterns in tables.sentences("names").items()},
}
"""Proper names, of which some are held out."""

KINDS: dict[str, Draw] = {
    **NAMES,
    **{block.name: one_of(block.words, int(block.head.text.split()[0]) / 100) for block in _LISTS if block.head.text},
    "building": described(WORDS["adjective of a building"], WORDS["building"], 0.5),
    "pet": pet,
    "thing": thing,
    "garment": described(("old", "new", *WORDS["colour"][:12], "woollen", "linen", "silk"), WORDS["garment"], 0.5),
    "year": lambda rng: str(rng.randrange(1650, 2030)),
    "date": date,
    "clock": clock,
    "number": small_number,
    "price": counted(WORDS["money"], 9000),
    "distance": counted(("miles", "kilometres", "leagues"), 400),
    "length": counted(("feet", "metres", "yards"), 4000),
    "weight": counted(("pounds", "kilograms", "tons", "ounces"), 300),
    "duration": counted(("days", "weeks", "months", "years", "hours", "minutes"), 60),
    "age": lambda rng: str(rng.randrange(5, 99)),
    "reason": reason,
}


def draw(kind: str, rng: Random, *, held_out: bool) -> Value:
    """A value of a kind; a proper name is on the side of the split that `held_out` says.

    A person's name is held out as a whole; so is every other proper name.
    """
    while True:
        drawn = KINDS[kind](rng)
        value = Value(drawn) if isinstance(drawn, str) else drawn
        if kind not in NAMES or is_held_out(value.text) == held_out:
            return value


def given_name(person: Value) -> str:
    """How a person is called the second time: Ann Verrow is Ann, Mrs Verrow stays so."""
    first = person.text.split()[0]
    return person.text if first in TITLES else first
