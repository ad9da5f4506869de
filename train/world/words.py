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
    """What fills a slot.

    Args:
        text: as it stands in a sentence, and as the answer to a question.
        gender: "f" or "m" for persons, else "".
    """

    text: str
    gender: str = ""


def is_held_out(name: str) -> bool:
    """Whether a name is kept for evaluation."""
    return zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0


WORDS = tables.words("words")
"""Lists of words by what they are."""
TITLES = frozenset(["Mrs", "Miss", "Mr", "Dr", "Professor", "Captain", "Sister", "Father"])
TRADES, ROOMS = WORDS["trade"], WORDS["room"]
MONTHS, WEEKDAYS, SEASONS = WORDS["month"], WORDS["weekday"], WORDS["season"]
NUMBERS = WORDS["number"] + WORDS["ten"]
_LAND_ENDS = WORDS["end of a country"]


def syllable(rng: Random) -> str:
    onset, vowel = rng.choice(WORDS["onset"]), rng.choice(WORDS["vowel"])
    return onset + vowel + (rng.choice(WORDS["coda"]) if rng.random() < 0.55 else "")


def coined(rng: Random, ends: tuple[str, ...] = ("",)) -> str:
    """A word that no list holds, such as "brandock"."""
    return "".join(syllable(rng) for _ in range(rng.choice((1, 1, 1, 2)))) + rng.choice(ends)


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
            gender, title = rng.choice((("f", "Mrs"), ("f", "Miss"), ("m", "Mr")))
        else:
            title = rng.choice(("Dr", "Professor", "Captain", "Sister" if gender == "f" else "Father"))
        return Value(f"{title} {name}", gender)
    if rng.random() < 0.12:
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


def town(rng: Random) -> Value:
    name = place_word(rng)
    return Value(f"{rng.choice(WORDS['before a town'])} {name}" if rng.random() < 0.1 else name)


def named(patterns: tuple[str, ...]) -> Callable[[Random], Value]:
    """Names after a pattern of `tables/names.txt`, which says what its slots are."""

    def draw(rng: Random) -> Value:
        pattern = rng.choice(patterns)
        return Value(
            pattern.format(
                p=place_word(rng),
                s=surname(rng),
                s2=surname(rng),
                c=coined(rng, _LAND_ENDS).capitalize(),
                o=coined(rng).capitalize(),
                t=rng.choice(WORDS["title adjective"]),
                n=rng.choice(WORDS["title noun"]),
                n2=rng.choice(WORDS["title noun"]),
            )
        )

    return draw


def one_of(kind: str, coin: float = 0.0) -> Callable[[Random], Value]:
    """A word of a list or, with the probability `coin`, one that no list holds."""

    def draw(rng: Random) -> Value:
        return Value(coined(rng) if rng.random() < coin else rng.choice(WORDS[kind]))

    return draw


def thing(rng: Random) -> Value:
    kind = rng.random()
    if kind < 0.07:
        return Value(f"{rng.choice(('set', 'pair', 'box', 'bag', 'pair'))} of {rng.choice(WORDS['plural'])}")
    if kind < 0.14:
        return Value(f"{rng.choice(WORDS['container'])} of {rng.choice(WORDS['content'])}")
    if kind < 0.26:
        return Value(f"{rng.choice(WORDS['made for'])} {rng.choice(WORDS['made thing'])}")
    return described(WORDS["adjective of a thing"], WORDS["thing"], 0.55)(rng)


def pet(rng: Random) -> Value:
    return Value(coined(rng, ("", "y", "o")).capitalize() if rng.random() < 0.25 else rng.choice(WORDS["pet"]))


def described(adjectives: tuple[str, ...], nouns: tuple[str, ...], often: float) -> Callable[[Random], Value]:
    def draw(rng: Random) -> Value:
        noun = coined(rng) if rng.random() < 0.06 else rng.choice(nouns)
        return Value(f"{rng.choice(adjectives)} {noun}" if rng.random() < often else noun)

    return draw


def counted(*units: str, most: int = 90) -> Callable[[Random], Value]:
    def draw(rng: Random) -> Value:
        return Value(f"{small_number(rng, most)} {rng.choice(units)}")

    return draw


def small_number(rng: Random, most: int = 900) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NUMBERS)
    if kind < 0.55:
        return f"{rng.choice(WORDS['ten'])}-{rng.choice(('one', *NUMBERS[:8]))}"
    if kind < 0.6:
        return f"{rng.choice(NUMBERS[:8])} {rng.choice(('hundred', 'thousand', 'dozen'))}"
    return str(rng.randrange(2, 60) if rng.random() < 0.7 else rng.randrange(2, most))


def year(rng: Random) -> Value:
    return Value(str(rng.randrange(1650, 2030)))


def date(rng: Random) -> Value:
    day, month = rng.randrange(1, 29), rng.choice(MONTHS)
    ordinal = f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10 if day // 10 != 1 else 0, 'th') }"
    word = rng.choice(WORDS["ordinal"])
    forms = (f"{day} {month}",) * 3 + (f"{month} {day}",) * 2
    forms += (f"the {ordinal} of {month}", f"the {word} of {month}", f"{month} the {word}", f"{ordinal} {month}")
    return Value(rng.choice(forms))


def clock(rng: Random) -> Value:
    hour = rng.choice(NUMBERS[:11])
    return Value(
        rng.choice(
            (
                f"half past {hour}",
                f"{hour} o'clock",
                hour,
                f"{hour} in the {rng.choice(('morning', 'evening', 'afternoon'))}",
                f"{rng.choice(('ten', 'twenty', 'five'))} {rng.choice(('to', 'past'))} {hour}",
                f"{rng.randrange(2, 13)} o'clock",
                f"a quarter to {hour}",
                f"a quarter past {hour}",
                f"{rng.randrange(6, 23)}:{rng.choice(('00', '15', '30', '45', '10', '20', '40', '50'))}",
                "noon",
                "midnight",
            )
        )
    )


def reason(rng: Random) -> Value:
    if rng.random() < 0.5:
        return Value(rng.choice(WORDS["reason"]))
    return Value(f"{rng.choice(WORDS['what a reason is about'])} {rng.choice(WORDS['what happened to it'])}")


NAMES: dict[str, Callable[[Random], Value]] = {
    "person": person,
    "town": town,
    "country": lambda rng: Value(coined(rng, _LAND_ENDS).capitalize()),
    "river": lambda rng: Value(coined(rng, ("", "e", "er", "a", "en")).capitalize()),
    "language": lambda rng: Value(coined(rng, ("ish", "ese", "ian", "ic")).capitalize()),
    "family": lambda rng: Value(surname(rng)),
    **{kind: named(patterns) for kind, patterns in tables.sentences("names").items()},
}
"""Proper names, of which some are held out."""

KINDS: dict[str, Callable[[Random], Value]] = {
    **NAMES,
    "building": described(WORDS["adjective of a building"], WORDS["building"], 0.5),
    "trade": one_of("trade", 0.05),
    "animal": one_of("animal", 0.05),
    "pet": lambda rng: Value(
        coined(rng, ("", "y", "o")).capitalize() if rng.random() < 0.25 else rng.choice(WORDS["pet"])
    ),
    "thing": thing,
    "tool": one_of("tool", 0.05),
    "garment": described(("old", "new", *WORDS["colour"][:12], "woollen", "linen", "silk"), WORDS["garment"], 0.5),
    "material": one_of("material", 0.03),
    "colour": one_of("colour"),
    "food": one_of("food", 0.03),
    "drink": one_of("drink"),
    "crop": one_of("crop", 0.04),
    "flower": one_of("flower", 0.05),
    "instrument": one_of("instrument", 0.03),
    "game": one_of("game", 0.03),
    "subject": one_of("subject", 0.03),
    "illness": one_of("illness"),
    "weather": one_of("weather"),
    "year": year,
    "date": date,
    "month": one_of("month"),
    "weekday": one_of("weekday"),
    "clock": clock,
    "season": one_of("season"),
    "number": lambda rng: Value(small_number(rng)),
    "price": counted(*WORDS["money"], most=9000),
    "distance": counted("miles", "kilometres", "leagues", most=400),
    "length": counted("feet", "metres", "yards", most=4000),
    "weight": counted("pounds", "kilograms", "tons", "ounces", most=300),
    "duration": counted("days", "weeks", "months", "years", "hours", "minutes", most=60),
    "age": lambda rng: Value(str(rng.randrange(5, 99))),
    "means": one_of("means"),
    "reason": reason,
    "relative": one_of("relative"),
    "room": one_of("room"),
    "feeling": one_of("feeling"),
}


def draw(kind: str, rng: Random, *, held_out: bool) -> Value:
    """A value of a kind; a proper name is on the side of the split that `held_out` says.

    A person's name is held out as a whole; so is every other proper name.
    """
    while True:
        value = KINDS[kind](rng)
        if kind not in NAMES or is_held_out(value.text) == held_out:
            return value
