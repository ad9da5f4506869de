"""Circumstances: when, where, why, for how much, with what or whom something happened, and how one asks for that.

In a question's pattern `{did}` is the inverted clause ("did Ann mend the clock"), `{that}` the plain one, `{inf}` and
`{ing}` what the subject did, `{who}` the subject and `{whose}` its possessive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from train.world import words
from train.world.nouns import KINDS
from train.world.words import draw, phrases


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
_OCCASIONS = phrases("""after the harvest, before breakfast, during the storm, at Easter, at dawn, at Christmas,
at dusk, after supper, before the wedding, during the sermon, after the flood, before sunrise, at midday,
during the interval, after the funeral, before the war, just before closing time, on market day, on New Year's Eve,
at the weekend, during the holidays, after the first frost, before lunch, after school, during the strike,
shortly before midnight, on Midsummer Day, after church, on the last day of term, in the middle of the night,
during the drought, at half-term, the day after the fair, the day before the race, two days after the storm,
a week before the wedding, an hour before sunset, soon after the war, early in the morning, late in the evening,
the night before the journey""")

_PLACES = phrases("""in the kitchen, in the cellar, in the attic, in the entrance hall, in the reading room,
in the barn, in the stable, in the shed, in the greenhouse, in the market square, in the churchyard,
in the school yard, in the park, in the woods, in the old mill, in the back room, in the waiting room,
in the town hall, in the west wing, in the east gallery, in the tower, in the chapel, in the orchard,
in the vegetable garden, in the backyard, in the engine room, in the dining room, in the workshop, in the hayloft,
in the lighthouse, in the boathouse, in the laundry, in the corridor, in the courtyard, in the pantry, in the vestry,
in the staff room, in the garage, in the front garden, in the upper meadow, in a narrow lane, in a dark alley,
in an empty warehouse, in a small hotel, in {their} aunt's house, in {their} uncle's barn, on the roof,
on the old pier, on the village green, on the hill, on the beach, on the island, on the bridge, on the doorstep,
on the balcony, on the terrace, on the platform, on the way home, on the top floor, on the ground floor, on the deck,
on the river bank, on the ferry, on the stairs, at the station, at the inn, at the harbour, at the blacksmith's,
at the post office, at the hospital, at the crossroads, at the airport, at home, at the baker's,
at {their} sister's house, at the town gate, at the bus stop, at the ticket office, at the camp, at the border,
at the sawmill, at the market, at the fair, outside the bank, outside the theatre, opposite the school,
opposite the post office, next to the town hall, next to the pump, next to the bakery, between the two lakes,
between the church and the inn, under the bridge, under the old oak, behind the church, behind the bakery,
behind the garden wall, behind the station, beside the fountain, beside the gate, beside the well,
beside the railway line, near the quarry, near the windmill, near the dam, near the waterfall, by the lake,
by the duck pond, by the kitchen window, by the fire, in front of the museum, in front of the cinema, above the shop,
above the stable, below the castle, halfway up the hill, in the shade of a tree, at the end of the lane,
at the back of the shop, at the foot of the tower, at the edge of the forest, on the corner of the square,
on the other side of the river, in the middle of the lake, at the top of the stairs, on board the ferry""")

_NEAR = phrases("""near the river, near the station, by the lake, on the hill, behind the church, at the crossroads,
opposite the school, next to the harbour, beside the canal, at the end of the lane, at the edge of the forest,
below the castle, between the two lakes, on the coast, on the island, north of the river, south of the town,
near the border, outside the town walls, near the old quarry, across the river, on the main road, by the sea""")

_REASONS = phrases("""{they} needed the money, nobody else wanted to, {they} had lost a bet, {they} had promised it,
{their} mother had asked for it, {they} {was} too tired to wait, {they} felt sorry for the owner, it was raining,
the old one was broken, {their} boss insisted, {they} had nothing better to do, {their} doctor advised it,
there was no other way, the price was low, {they} {was} afraid of the dark, the winter was coming,
guests were expected, {they} wanted to surprise {their} family, the neighbours had complained, the roof leaked,
it was the law, {they} {was} curious, {they} had plenty of time, the shop was about to close, the train was late,
the river was rising, the king was coming, {they} missed home, {they} could not sleep,
{they} {was} leaving for the city, it was {their} turn, {they} had seen it in a film, {they} owed the baker a favour,
the children were hungry, {they} hated waste, {their} brother had dared {them}, there was not enough room,
{they} {was} moving to a smaller house, it smelled of fish, {their} knee hurt, the school was short of money,
the mayor had ordered it, {they} had made a mistake, a storm was on its way, {they} did not trust the bank,
the cat was to blame, {they} {was} retiring, it brought good luck, {they} had run out of flour, the key was missing,
it had stopped working, {their} eyes were getting weak, the prices had gone up, {they} had no car,
it was getting dark, the museum had asked for it, {they} {was} in love, the judge had told {them} to,
the stairs were too steep, the summer had been so dry, {they} {was} bored, the committee was in a hurry,
nobody was looking, {their} friends had gone to sea, {they} loved old things, the rent had doubled,
{their} hands were cold, a fox had been seen nearby, the factory had closed, {they} felt lonely,
the landlord did not like it, {they} {was} short of sleep, the wedding was only a week away, the well had run dry""")

_PURPOSES = phrases("""to please {their} mother, to win a bet, to save money, to make room for the piano, to help a
friend, to keep the children quiet, to pay for the wedding, to keep the rain out, to impress the judges,
to earn a little extra, to scare off the birds, to get ready for the winter, to cheer up the patients,
to raise money for the school, to annoy the neighbours, to keep warm, to celebrate the birth of a nephew,
to thank the nurses, to pass the time, to pay off a debt, to attract visitors, to stop the quarrel, to avoid the toll,
to surprise the guests, to make peace, to get some sleep, to free the road, to prove a point, to feed the poor,
to honour an old friend, to catch the last train, to protect the young trees, to show that it could be done""")

_MANNERS = phrases("""without a word, by mistake, in a great hurry, by hand, by candlelight, in secret, for a bet,
in silence, by accident, without any help, with great care, on tiptoe, with one hand, in the dark, in the rain, by sheer
luck, with a smile, against all advice, with tears in {their} eyes, after a long quarrel, from memory, at gunpoint,
in broad daylight, with {their} eyes closed, free of charge, behind everyone's back, at the very last moment,
without asking anyone, with the window open, by moonlight, on credit, under a false name, in a single day""")

_TIMES = phrases("""twice, three times, four times, five times, six times, seven times, ten times, a dozen times,
more than once, only once, every other day, almost every week""")


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
    occasion = rng.choice(_OCCASIONS)
    return _when(occasion, occasion)


_WHEN = (_weekday, _weekday, _weekday, _last_weekday, _month, _month, _year, _year, _date, _clock, _season, _occasion)
_IN_TOWN = ("Where {did}", "Where {did}", "In which town {did}", "In what town {did}", "In which place {did}")
_IN_PLACE = ("Where {did}", "Where {did}", "Where {did}", "In what place {did}", "At which place {did}")


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
    place = rng.choice(_PLACES)
    return Circumstance("where", place, _bare(place), _IN_PLACE)


def _town(rng: Random) -> Circumstance:
    town = draw("town", rng, held_out=False).text
    lead = rng.choice(("in", "in", "in", "near"))
    if lead == "near":
        return Circumstance("where", f"near {town}", f"near {town}", _IN_PLACE[:3])
    return Circumstance("where", f"in {town}", town, _IN_TOWN)


def _site(rng: Random) -> Circumstance:
    """Where something is that stands for good."""
    if rng.random() < 0.5:
        return _town(rng)
    place = rng.choice(_NEAR)
    return Circumstance("where", place, _bare(place), _IN_PLACE[:3])


def _price(rng: Random) -> Circumstance:
    price = draw("price", rng, held_out=False).text
    if rng.random() < 0.2:
        price = rng.choice(("half a crown", "a single penny", "next to nothing", "a week's wages", "a bottle of wine"))
    return Circumstance("price", f"for {price}", price, ("For how much {did}", "At what price {did}"), can_lead=False)


def _tool(rng: Random) -> Circumstance:
    tool = rng.choice([noun for noun in KINDS["tool"].nouns if not noun.is_plural]).text
    tool = rng.choice((tool, tool, f"{rng.choice(KINDS['tool'].adjectives)} {tool}"))
    text = f"with {_a(tool)}"
    asked = ("What {did} with", "With what {did}", "Which tool {did} with", "What did {who} use to {inf}",
             "Which tool did {who} use to {inf}", "With which tool {did}", "What tool {did} with")  # fmt: skip
    return Circumstance("tool", text, tool, asked, can_lead=False, can_disambiguate=False)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _why(rng: Random) -> Circumstance:
    reason = rng.choice(_REASONS)
    lead = rng.choice(("because", "because", "because", "since", "as"))
    asked = ("Why {did}", "Why {did}", "For what reason {did}", "What made {who} {inf}",
             "What was the reason why {that}",
             "What was {whose} reason for {ing}", "Why was it that {that}", "How come {that}")  # fmt: skip
    return Circumstance("why", f"{lead} {reason}", reason, asked, can_disambiguate=False)


def _purpose(rng: Random) -> Circumstance:
    purpose = " ".join(rng.choice(_PURPOSES).split())
    asked = ("Why {did}", "For what purpose {did}", "With what aim {did}", "What was {whose} aim in {ing}",
             "What did {who} want to achieve by {ing}")  # fmt: skip
    return Circumstance("purpose", purpose, purpose, asked, can_disambiguate=False)


def _manner(rng: Random) -> Circumstance:
    manner = " ".join(rng.choice(_MANNERS).split())
    asked = ("How {did}", "How {did}", "In what way {did}", "How was it that {that}")
    return Circumstance("manner", manner, manner, asked, can_lead=False, can_disambiguate=False)


def _times(rng: Random) -> Circumstance:
    times = rng.choice(_TIMES)
    asked = ("How many times {did}", "How often {did}") if "time" in times else ("How often {did}",)
    return Circumstance("times", times, times, asked, can_lead=False, can_disambiguate=False)


def _duration(rng: Random, *units: str) -> str:
    if rng.random() < 0.1:
        return rng.choice(("half a year", "a whole week", "a month", "almost a year", "two and a half years"))
    number = rng.choice(words.NUMBERS[:14]) if rng.random() < 0.7 else str(rng.randrange(2, 40))
    return f"{number} {rng.choice(units)}"


def _long(rng: Random) -> Circumstance:
    time = _duration(rng, "hours", "days", "weeks", "months", "minutes")
    asked = ("How long did it take {who} to {inf}", "How long did {who} need to {inf}", "In what time {did}",
             "How much time did {who} need to {inf}", "How long did {who} take to {inf}")  # fmt: skip
    return Circumstance("long", f"in {time}", time, asked, can_lead=False, can_disambiguate=False)


def _span(rng: Random) -> Circumstance:
    time = _duration(rng, "days", "weeks", "months", "years", "years", "winters", "summers")
    asked = ("How long {did}", "For how long {did}", "For what length of time {did}")
    return Circumstance("span", f"for {time}", time, asked, can_lead=False, can_disambiguate=False)


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
    "help": (
        "with the help of",
        ("Who helped {who} {inf}", "Who helped {who} to {inf}", "With whose help {did}"),
    ),
    "for": ("for", ("For whom {did}", "Who {did} for", "For which person {did}")),
    "with": ("together with", ("With whom {did}", "Who {did} with", "Together with whom {did}")),
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
