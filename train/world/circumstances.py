"""Circumstances: when, where, why, for how much, with what or whom something happened, and how one asks for that.

`tables/circumstances.txt` says what a question's pattern holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from train import tables
from train.world import words
from train.world.nouns import KINDS
from train.world.words import draw


@dataclass(frozen=True)
class Circumstance:
    """Args:
    name: what it is, "when" or another of `DRAW`.
    text: as it stands at a clause's end.
    answer: the span of it that answers.
    asked: patterns of questions.
    can_lead: whether it may open a sentence.
    can_disambiguate: whether a question about something else may name it.
    """

    name: str
    text: str
    answer: str
    asked: tuple[str, ...]
    can_lead: bool = True
    can_disambiguate: bool = True


_PARTS = ("", "", "", " morning", " evening", " afternoon", " night")
_WORDS = tables.words("circumstance_words")
_ASKED = tables.sentences("circumstances")


def _when(text: str, answer: str, *asked: str) -> Circumstance:
    return Circumstance("when", text, answer, tuple(f"{head} {{did}}" for head in ("When", "When", *asked)))


def _weekday(rng: Random) -> Circumstance:
    day = rng.choice(words.WEEKDAYS) + rng.choice(_PARTS)
    return _when(f"on {day}", day, "On which day", "On what day", "What day")


def _last_weekday(rng: Random) -> Circumstance:
    day = f"{rng.choice(('last', 'last', 'the following'))} {rng.choice(words.WEEKDAYS)}"
    return _when(day, day, "On which day", "On what day")


def _month(rng: Random) -> Circumstance:
    month = rng.choice(words.MONTHS)
    if rng.random() < 0.3:
        lead = rng.choice(("early", "late", "the middle of"))
        return _when(f"in {lead} {month}", f"{lead} {month}")
    return _when(f"in {month}", month, "In which month", "In what month", "What month")


def _year(rng: Random) -> Circumstance:
    year = draw("year", rng, held_out=False).text
    return _when(f"in {year}", year, "In which year", "In what year", "What year")


def _date(rng: Random) -> Circumstance:
    date = draw("date", rng, held_out=False).text
    return _when(f"on {date}", date.removeprefix("the "), "On what date", "On which date", "On which day")


def _clock(rng: Random) -> Circumstance:
    time = draw("clock", rng, held_out=False).text
    return _when(f"at {time}", time, "At what time", "What time", "At what hour")


def _season(rng: Random) -> Circumstance:
    season, year = rng.choice(words.SEASONS[:4]), draw("year", rng, held_out=False).text
    text, answer = rng.choice(
        (
            (f"in the {season} of {year}", f"{season} of {year}"),
            (f"in {season}", season),
            (f"in the {season}", season),
            (f"last {season}", f"last {season}"),
        )
    )
    return _when(text, answer, "In what season", "At what time of year")


def _occasion(rng: Random) -> Circumstance:
    occasion = rng.choice(_WORDS["occasion"])
    return _when(occasion, occasion)


_WHEN = (_weekday, _weekday, _weekday, _last_weekday, _month, _month, _year, _year, _date, _clock, _season, _occasion)
_IN_TOWN, _IN_PLACE, _AT_PLACE = _ASKED["town"], _ASKED["where"], _ASKED["site"]


def _bare(place: str) -> str:
    """ "barn" of "in the barn"; "at home" and "halfway up the hill" stay whole."""
    lead, _, rest = place.partition(" the ")
    if rest and lead in ("in", "on", "at"):
        return rest
    lead, _, rest = place.partition(" ")
    if lead in ("in", "on", "at") and rest.startswith(("a ", "an ", "{their} ")):
        return rest.removeprefix("a ").removeprefix("an ")
    return place


def _where(rng: Random) -> Circumstance:
    if rng.random() < 0.3:
        return _town(rng)
    place = rng.choice(_WORDS["place"])
    return Circumstance("where", place, _bare(place), _IN_PLACE)


def _town(rng: Random) -> Circumstance:
    town = draw("town", rng, held_out=False).text
    lead = rng.choice(("in", "in", "in", "near"))
    if lead == "near":
        return Circumstance("where", f"near {town}", f"near {town}", _AT_PLACE)
    return Circumstance("where", f"in {town}", town, _IN_TOWN)


def _site(rng: Random) -> Circumstance:
    """Where something is that stands for good."""
    if rng.random() < 0.5:
        return _town(rng)
    place = rng.choice(_WORDS["site"])
    return Circumstance("where", place, _bare(place), _AT_PLACE)


def _price(rng: Random) -> Circumstance:
    price = draw("price", rng, held_out=False).text
    if rng.random() < 0.2:
        price = rng.choice(("half a crown", "a single penny", "next to nothing", "a week's wages", "a bottle of wine"))
    return Circumstance("price", f"for {price}", price, _ASKED["price"], can_lead=False)


def _tool(rng: Random) -> Circumstance:
    tool = rng.choice([noun for noun in KINDS["tool"].nouns if not noun.is_plural]).text
    tool = rng.choice((tool, tool, f"{rng.choice(KINDS['tool'].adjectives)} {tool}"))
    return Circumstance("tool", f"with {_a(tool)}", tool, _ASKED["tool"], can_lead=False, can_disambiguate=False)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _why(rng: Random) -> Circumstance:
    reason = rng.choice(_WORDS["reason"])
    lead = rng.choice(("because", "because", "because", "since", "as"))
    return Circumstance("why", f"{lead} {reason}", reason, _ASKED["why"], can_disambiguate=False)


def _purpose(rng: Random) -> Circumstance:
    purpose = rng.choice(_WORDS["purpose"])
    return Circumstance("purpose", purpose, purpose, _ASKED["purpose"], can_disambiguate=False)


def _manner(rng: Random) -> Circumstance:
    manner = rng.choice(_WORDS["manner"])
    return Circumstance("manner", manner, manner, _ASKED["manner"], can_lead=False, can_disambiguate=False)


def _times(rng: Random) -> Circumstance:
    times = rng.choice(_WORDS["times"])
    asked = _ASKED["times"] if "time" in times else _ASKED["times"][1:]
    return Circumstance("times", times, times, asked, can_lead=False, can_disambiguate=False)


def _duration(rng: Random, *units: str) -> str:
    if rng.random() < 0.1:
        return rng.choice(("half a year", "a whole week", "a month", "almost a year", "two and a half years"))
    number = rng.choice(words.NUMBERS[:14]) if rng.random() < 0.7 else str(rng.randrange(2, 40))
    return f"{number} {rng.choice(units)}"


def _long(rng: Random) -> Circumstance:
    time = _duration(rng, "hours", "days", "weeks", "months", "minutes")
    return Circumstance("long", f"in {time}", time, _ASKED["long"], can_lead=False, can_disambiguate=False)


def _span(rng: Random) -> Circumstance:
    time = _duration(rng, "days", "weeks", "months", "years", "years", "winters", "summers")
    return Circumstance("span", f"for {time}", time, _ASKED["span"], can_lead=False, can_disambiguate=False)


DRAW: dict[str, Callable[[Random], Circumstance]] = {
    "when": lambda rng: rng.choice(_WHEN)(rng),
    "where": _where,
    "site": _site,
    "price": _price,
    "tool": _tool,
    "why": _why,
    "purpose": _purpose,
    "manner": _manner,
    "times": _times,
    "long": _long,
    "span": _span,
}
"""Name -> draws a circumstance of it. Pronouns in braces are left for the teller."""

WITH_PERSON = {
    "help": ("with the help of", _ASKED["help"]),
    "for": ("for", _ASKED["for"]),
    "with": ("together with", _ASKED["with"]),
}
"""Circumstances that name a person: the words before the name, and how one asks for it."""


def draw_alike(name: str, rng: Random, count: int, like: Circumstance | None = None) -> list[Circumstance]:
    """Several circumstances of one name, times all of one sort, that of `like` if given, with different answers."""
    one = DRAW[name]
    if name == "when":
        one = rng.choice(_WHEN)
        for _ in range(40):
            if like is None or one(rng).asked == like.asked:
                break
            one = rng.choice(_WHEN)
    found: dict[str, Circumstance] = {}
    for _ in range(20 * count):
        drawn = one(rng)
        found.setdefault(drawn.answer, drawn)
        if len(found) == count:
            break
    return list(found.values())
