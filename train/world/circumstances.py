"""Circumstances: when, where, why, for how much, with what or whom something happened, and how one asks for that.

`tables/circumstances.txt` says what a question's pattern holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from train import tables
from train.world import words
from train.world.nouns import KINDS
from train.world.words import draw


@dataclass(frozen=True)
class Circumstance:
    name: str  # what it is, "when" or another of `DRAW`
    text: str  # as it stands at a clause's end
    answer: str  # the span of it that answers
    asked: tuple[str, ...]  # patterns of questions
    can_lead: bool = True  # whether it may open a sentence
    can_disambiguate: bool = True  # whether a question about something else may name it


_PARTS = ("", "", "", " morning", " evening", " afternoon", " night")
_WORDS = tables.words("circumstance_words")
_ASKED = tables.sentences("circumstances")
_TIMES = _WORDS["sort of a time"]


def _when(sort: str, rng: Random) -> Circumstance:
    if sort == "weekday":
        answer = rng.choice(words.WEEKDAYS) + rng.choice(_PARTS)
        text = f"on {answer}"
    elif sort == "other weekday":
        text = answer = f"{rng.choice(('last', 'last', 'the following'))} {rng.choice(words.WEEKDAYS)}"
    elif sort == "month":
        answer = rng.choice(words.MONTHS)
        if rng.random() < 0.3:
            sort, answer = "part of a month", f"{rng.choice(('early', 'late', 'the middle of'))} {answer}"
        text = f"in {answer}"
    elif sort == "season":
        season, year = rng.choice(words.SEASONS[:4]), draw("year", rng, held_out=False).text
        answer = rng.choice((f"{season} of {year}", season, f"the {season}", f"last {season}"))
        text = answer if answer.startswith("last") else f"in the {answer}" if " of " in answer else f"in {answer}"
        answer = answer.removeprefix("the ")
    elif sort == "occasion":
        text = answer = rng.choice(_WORDS["occasion"])
    else:  # a year, a date, a clock's time
        answer = draw(sort, rng, held_out=False).text
        text = f"{ {'year': 'in', 'date': 'on', 'clock': 'at'}[sort] } {answer}"
        answer = answer.removeprefix("the ")
    return Circumstance("when", text, answer, _ASKED["when"] + _ASKED.get(sort, ()))


def _bare(place: str) -> str:
    """ "barn" of "in the barn"; "at home" and "halfway up the hill" stay whole."""
    lead, _, rest = place.partition(" the ")
    if rest and lead in ("in", "on", "at"):
        return rest
    lead, _, rest = place.partition(" ")
    if lead in ("in", "on", "at") and rest.startswith(("a ", "an ", "{their} ")):
        return rest.removeprefix("a ").removeprefix("an ")
    return place


def _town(rng: Random) -> Circumstance:
    town = draw("town", rng, held_out=False).text
    lead = rng.choice(("in", "in", "in", "near"))
    if lead == "near":
        return Circumstance("where", f"near {town}", f"near {town}", _ASKED["site"])
    return Circumstance("where", f"in {town}", town, _ASKED["town"])


def _place(name: str, towns: float) -> Callable[[Random], Circumstance]:
    """Where something is done, or where it stands for good (a site); a town with the probability `towns`."""

    def drawn(rng: Random) -> Circumstance:
        if rng.random() < towns:
            return _town(rng)
        place = rng.choice(_WORDS[name])
        return Circumstance("where", place, _bare(place), _ASKED[name])

    return drawn


def _price(rng: Random) -> Circumstance:
    price = draw("price", rng, held_out=False).text
    if rng.random() < 0.2:
        price = rng.choice(_WORDS["price"])
    return Circumstance("price", f"for {price}", price, _ASKED["price"], can_lead=False)


def _at_end(name: str, text: str, answer: str) -> Circumstance:
    """One that stands at a sentence's end only, and that no question about something else names."""
    return Circumstance(name, text, answer, _ASKED[name], can_lead=False, can_disambiguate=False)


def _tool(rng: Random) -> Circumstance:
    tool = rng.choice([noun for noun in KINDS["tool"].nouns if not noun.is_plural]).text
    tool = rng.choice((tool, tool, f"{rng.choice(KINDS['tool'].adjectives)} {tool}"))
    return _at_end("tool", f"with {'an' if tool[0] in 'aeiou' else 'a'} {tool}", tool)


def _why(rng: Random) -> Circumstance:
    reason = rng.choice(_WORDS["reason"])
    lead = rng.choice(("because", "because", "because", "since", "as"))
    return Circumstance("why", f"{lead} {reason}", reason, _ASKED["why"], can_disambiguate=False)


def _word(name: str, rng: Random) -> Circumstance:
    text = rng.choice(_WORDS[name])
    return _at_end(name, text, text)


def _times(rng: Random) -> Circumstance:
    drawn = _word("times", rng)
    return drawn if "time" in drawn.text else replace(drawn, asked=drawn.asked[1:])  # "every week" is no number


def _duration(name: str, lead: str, units: tuple[str, ...]) -> Callable[[Random], Circumstance]:
    def drawn(rng: Random) -> Circumstance:
        if rng.random() < 0.1:
            time = rng.choice(_WORDS["duration"])
        else:
            number = rng.choice(words.NUMBERS[:14]) if rng.random() < 0.7 else str(rng.randrange(2, 40))
            time = f"{number} {rng.choice(units)}"
        return _at_end(name, f"{lead} {time}", time)

    return drawn


DRAW: dict[str, Callable[[Random], Circumstance]] = {
    "when": lambda rng: _when(rng.choice(_TIMES), rng),
    "where": _place("where", 0.3),
    "site": _place("site", 0.5),
    "price": _price,
    "tool": _tool,
    "why": _why,
    "purpose": lambda rng: replace(_word("purpose", rng), can_lead=True),
    "manner": lambda rng: _word("manner", rng),
    "times": _times,
    "long": _duration("long", "in", ("hours", "days", "weeks", "months", "minutes")),
    "span": _duration("span", "for", ("days", "weeks", "months", "years", "years", "winters", "summers")),
}
"""Name -> draws a circumstance of it. Pronouns in braces are left for the teller."""

_LEADS = {"help": "with the help of", "for": "for", "with": "together with"}
WITH_PERSON = {name: (lead, _ASKED[name]) for name, lead in _LEADS.items()}
"""Circumstances that name a person: the words before the name, and how one asks for it."""


def draw_alike(name: str, rng: Random, count: int, like: Circumstance | None = None) -> list[Circumstance]:
    """Several circumstances of one name, times all of one sort, that of `like` if given, with different answers."""
    one = DRAW[name]
    if name == "when":
        one = partial(_when, rng.choice(_TIMES))
        for _ in range(40):
            if like is None or one(rng).asked == like.asked:
                break
            one = partial(_when, rng.choice(_TIMES))
    found: dict[str, Circumstance] = {}
    for _ in range(20 * count):
        drawn = one(rng)
        found.setdefault(drawn.answer, drawn)
        if len(found) == count:
            break
    return list(found.values())
