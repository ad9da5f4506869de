"""Deeds: who did what to what, where and when, of hundreds of verbs and things that go with one another at random.

A frame's questions have answers in known places; here only the question's own words lead to the answer, so that a
reader has to find them in the passage. The clauses of a passage are alike, and each is the distractor of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from train.world import words
from train.world.passage import Passage, Question
from train.world.words import Value, draw


@dataclass(frozen=True)
class Verb:
    """A verb in three forms: paint, painted, painted."""

    base: str
    past: str
    participle: str


_DOUBLED = frozenset(words.words("plan trap rob wrap drag map drop knit spot"))


def _past_of(stem: str) -> str:
    if stem.endswith("e"):
        return stem + "d"
    if stem[-1] == "y" and stem[-2] not in "aeou":
        return stem[:-1] + "ied"
    return stem + (stem[-1] if stem in _DOUBLED else "") + "ed"


def _regular(text: str) -> tuple[Verb, ...]:
    verbs = []
    for base in text.split():
        stem, _, particle = base.partition("_")
        tail = f" {particle}" if particle else ""
        verbs.append(Verb(stem + tail, _past_of(stem) + tail, _past_of(stem) + tail))
    return tuple(verbs)


def _irregular(text: str) -> tuple[Verb, ...]:
    return tuple(Verb(*(form.replace("_", " ") for form in entry.split("/"))) for entry in text.split())


VERBS = _regular(
    "paint repair mend clean polish wash open close lock carry move collect count order borrow return remove cover "
    "load unload guard watch follow record measure copy describe photograph admire praise mention discover invent "
    "design improve restore enlarge replace burn damage destroy ruin rescue save protect wrap deliver offer present "
    "donate award promise demand request refuse accept receive import inspect examine test check judge notice observe "
    "spot visit enter reach cross climb explore survey map fence plant water harvest gather pick roast "
    "bake cook taste serve boil peel slice mix pour fill empty heat cool weigh pack unpack label number name rename "
    "sign address post publish print illustrate translate edit review recite perform conduct direct play announce "
    "celebrate organise arrange prepare plan attend join found support finance manage own rent hire employ train "
    "treat nurse comfort groom saddle chase hunt trap release adopt raise lift lower pull push drag roll turn_over "
    "fold iron sew_up stitch embroider knit darn decorate carve varnish oil sharpen hammer nail glue patch tie untie "
    "bury recover unearth locate search rob snatch smuggle store stack shelve hang_up light extinguish ring tune "
    "unveil launch anchor board command abandon tow haul dismantle assemble construct erect hoist drop_off look_after "
    "ask_for point_out pick_up turn_down hand_over"
) + _irregular(
    "buy/bought/bought sell/sold/sold find/found/found lose/lost/lost make/made/made build/built/built "
    "write/wrote/written draw/drew/drawn steal/stole/stolen hide/hid/hidden break/broke/broken bring/brought/brought "
    "take/took/taken give_away/gave_away/given_away keep/kept/kept send/sent/sent choose/chose/chosen "
    "win/won/won catch/caught/caught feed/fed/fed drive/drove/driven ride/rode/ridden fly/flew/flown hold/held/held "
    "lend/lent/lent cut/cut/cut dig_up/dug_up/dug_up sing/sang/sung teach/taught/taught read/read/read "
    "throw_away/threw_away/thrown_away wear/wore/worn weave/wove/woven spend/spent/spent leave/left/left "
    "lead/led/led meet/met/met see/saw/seen hear/heard/heard sweep/swept/swept shut/shut/shut "
    "put_up/put_up/put_up set_up/set_up/set_up take_over/took_over/taken_over let_out/let_out/let_out "
    "hang/hung/hung eat/ate/eaten drink/drank/drunk forget/forgot/forgotten sew/sewed/sewn"
)  # fmt: skip

_NOUNS = words.phrases("""gate, fence, wall, roof, bridge, boat, cart, wagon, sledge, bell, organ, statue,
fountain, well, pump, stove,
oven, chimney, window, door, cupboard, wardrobe, cradle, rocking chair, bookshelf, desk, diary, letter,
parcel, map, poster, picture, portrait, photograph, painting, poem, song, play, novel, cookbook, recipe, list,
ticket, medal, cup, trophy, ring, necklace, bracelet, brooch, watch, purse, wallet, suitcase, trunk, umbrella,
telescope, compass, microscope, violin, drum, whistle, puppet, doll, kite, ball, sail, rope, net, anchor, oar,
tent, blanket, carpet, curtain, tablecloth, quilt, pillow, sweater, scarf, costume, uniform, hat, boots,
gloves, glasses, candle, lamp, lantern, mirror, vase, jug, teapot, kettle, bowl, plate, basket, barrel, crate,
box, chest, sack, bottle, jar, pot of honey, sack of flour, bag of coal, loaf of bread, pot of jam, box of
paints, set of spoons, pair of scissors, bundle of letters, bunch of keys, pile of stones, cake, pie, soup,
stew, cheese, ham, bread, pudding, salad, fish, apple tree, pear tree, rose bush, hedge, lawn, vegetable
garden, orchard, barn, stable, shed, greenhouse, cottage, horse, donkey, pony, goat, calf, lamb, dog, puppy,
kitten, parrot, owl, hen, goose, swan, coin, sword, shield, flag, crown, mask, skull, fossil, shell, pearl,
stone, key, lock, chain, wheel, engine, machine, bicycle, tricycle, car, tractor, plough, spade, saw, hammer,
ladder, bucket, broom, loom, spinning wheel, clock, sundial, globe, piano, harp, chapel window, church tower,
school bell, village hall, front door, back door, garden gate, kitchen table, staircase, rent book, account
book, visitors' book, hymn book, harvest supper, puppet show, summer concert, choir, orchestra, fireworks,
raffle, flower show, boat race, sack race, dance, lecture, exhibition, auction, picnic, meeting""")  # fmt: skip
_ADJECTIVES = words.words("""old new small large little big heavy broken wooden stone iron silver golden red
blue green white black yellow
grey brown striped spotted painted carved round square long short thin thick rusty dusty empty full wet dry
cheap famous strange beautiful ugly precious spare second-hand half-finished secret royal""")
_PLACES = words.phrases("""in the kitchen, in the cellar, in the attic, in the entrance hall,
in the library, in the barn, in the stable,
in the shed, in the greenhouse, in the market square, in the churchyard, in the school yard, in the park, in
the woods, in the old mill, in the back room, in the waiting room, in the town hall, in the west wing, in the
east gallery, in the tower, in the chapel, in the orchard, in the vegetable garden, in the sewing basket, in a
hollow tree, in a blue box, in a tin box, in a locked drawer, in the top drawer, in the bottom drawer, under
the bed, under the stairs, under the bridge, under the apple tree, under a loose board, under the carpet,
behind the church, behind the stove, behind the curtain, behind the bakery, behind the garden wall, beside the
river, beside the fountain, beside the gate, beside the well, beside the railway line, near the harbour, near
the station, near the lighthouse, near the quarry, near the windmill, on the roof, on the kitchen table, on
the old pier, on the village green, on the top shelf, on the windowsill, on the hill, on the beach, on the
island, on the bridge, on the doorstep, at the station, at the inn, at the market, at the harbour, at the
blacksmith's, at the post office, at the hospital, at the fair, at the crossroads, outside the bank, outside
the theatre, opposite the school, opposite the post office, above the fireplace, above the door, above the
shop, next to the town hall, next to the pump, between two rocks, between the two lakes""")
_TOPICS = (
    "It was a busy {day} in {town}.", "{town} is a quiet place, but not that week.", "The {year} flood changed much.",
    "There was plenty to do before the fair in {town}.", "Everyone in {town} helped as well as they could.",
    "Nobody in {town} has forgotten that {season}.", "The family had an old house near {town}.",
    "A great storm came over {town} in {month}.", "The club in {town} has only a few members.",
    "The newspaper in {town} had a lot to report.", "Things went wrong at the farm near {town}.",
    "The summer holidays were nearly over.", "The village hall needed money.", "It rained all {day}.",
    "The wedding was to be in {month}.", "The new teacher came from {town}.", "The old ship lay in the harbour.",
)  # fmt: skip
_LINKS = ("Then", "Later", "A little later", "In the end", "Meanwhile", "Soon afterwards", "The next day", "After that")
_ASIDES = (
    "That surprised nobody.", "It took longer than expected.", "The others only looked on.", "It was hard work.",
    "Not everybody liked that.", "There was no other way.", "It cost a lot of money.", "They were all tired then.",
)  # fmt: skip


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
    noun = rng.choice(_NOUNS) if rng.random() < 0.75 else draw("thing", rng, held_out=False).text
    return f"{rng.choice(_ADJECTIVES)} {noun}" if rng.random() < 0.4 and " of " not in noun else noun


def _place(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.35:
        return rng.choice(("in", "near", "in", "in")), draw("town", rng, held_out=False).text
    lead, _, rest = rng.choice(_PLACES).partition(" the ")
    if rest:
        return lead, f"the {rest}"
    lead, _, rest = rng.choice(_PLACES).partition(" ")
    return lead, rest


def _times(rng: Random, count: int) -> list[_When]:
    kind = rng.choice(("weekday", "month", "year", "date", "clock", "season", "weekday", "month"))
    lead = {"weekday": "on", "date": "on", "clock": "at"}.get(kind, "in")
    asked = {
        "weekday": ("On which day", "On what day", "When"),
        "month": ("In which month", "In what month", "When"),
        "year": ("In which year", "In what year", "When"),
        "date": ("On what date", "On which date", "When"),
        "clock": ("At what time", "When"),
        "season": ("In what season", "When"),
    }[kind]
    found: dict[str, _When] = {}
    while len(found) < count:
        text = draw(kind, rng, held_out=False).text
        found[text] = _When(lead, text, rng.choice(asked))
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
                end = " " + rng.choice(_ASIDES) if rng.random() < 0.3 else ""
                return Passage(f"{topic}{text}{end}", kept, len(deeds))


def _topic(rng: Random) -> str:
    return (
        rng.choice(_TOPICS).format(
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
    is_clear = (
        sum(noun in deed.thing for deed in deeds) == 1 and " of " not in thing and thing.split()[0] in _ADJECTIVES
    )
    return noun if is_clear and rng.random() < 0.3 else thing


def _about(deed: _Deed, deeds: list[_Deed], rng: Random, *, has_place: bool, has_time: bool) -> list[Question]:
    """What can be asked of a deed that is told with these parts."""
    verb, who = deed.verb, deed.who.text
    thing = f"the {_short(deed.thing, deeds, rng)}"
    first = who.split()[0]
    clear_first = sum(d.who.text.split()[0] == first for d in deeds) == 1 and first not in words.TITLES
    if clear_first and rng.random() < 0.2:
        who = first
    was = "were" if deed.is_plural else "was"
    found = [
        (
            rng.choice(
                (
                    f"Who {verb.past} {thing}?",
                    f"Which person {verb.past} {thing}?",
                    f"By whom {was} {thing} {verb.participle}?",
                    f"Who was it that {verb.past} {thing}?",
                    f"Who {verb.past} {thing}?",
                )
            ),
            deed.who.text,
        ),
        (
            rng.choice(
                (
                    f"What did {who} {verb.base}?",
                    f"What was {verb.participle} by {who}?",
                    f"What did {who} {verb.base}?",
                    f"Which thing did {who} {verb.base}?",
                )
            ),
            deed.thing,
        ),
    ]
    if has_place:
        place = deed.place[1].removeprefix("the ")
        found.append(
            (rng.choice((f"Where did {who} {verb.base} {thing}?", f"Where {was} {thing} {verb.participle}?")), place)
        )
    if has_time:
        when = deed.when.kind
        found.append(
            (
                rng.choice((f"{when} did {who} {verb.base} {thing}?", f"{when} {was} {thing} {verb.participle}?")),
                deed.when.text,
            )
        )
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
            clause = f"{rng.choice(_LINKS)} {clause}"
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
        hope = rng.choice(
            ("wanted to", "hoped to", "had promised to", "tried to", "offered to", "was asked to", "refused to")
        )
        turn = rng.choice(
            (
                f"but it was {b} who {verb.past} {it}",
                f"but in the end {b} {verb.past} {it}",
                f"but {they} {was} {verb.participle} by {b}",
            )
        )
        text = f"{a} {hope} {verb.base} {thing}, {turn}."
        extra = (
            f" {other.who.text.split()[0] if rng.random() < 0.3 else 'A neighbour'} {_past(other, rng)}."
            if rng.random() < 0.3
            else ""
        )
        questions = [
            Question(
                rng.choice(
                    (
                        f"Who {verb.past} {thing}?",
                        f"Who {verb.past} {thing} in the end?",
                        f"Which person {verb.past} {thing}?",
                    )
                ),
                b,
            ),
            Question(f"Who {hope} {verb.base} {thing}?", a),
        ]
        return text + extra, questions
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


_ATTRIBUTES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "colour",
        ("is {v}", "was painted {v}", "has been {v} for years"),
        ("What colour is {t}?", "Which colour is {t}?"),
    ),
    ("material", ("is made of {v}", "was carved from {v}"), ("What is {t} made of?", "What material is {t} made of?")),
    (
        "price",
        ("cost {v}", "was sold for {v}", "went for {v}"),
        ("How much did {t} cost?", "What was the price of {t}?"),
    ),
    (
        "weight",
        ("weighs {v}", "weighed {v}"),
        ("How heavy is {t}?", "What does {t} weigh?", "How much does {t} weigh?"),
    ),
    (
        "year",
        ("was made in {v}", "dates from {v}", "was finished in {v}"),
        ("In what year was {t} made?", "From what year is {t}?"),
    ),
    (
        "person",
        ("belongs to {v}", "was a present from {v}", "is the work of {v}"),
        ("Who does {t} belong to?", "Whose is {t}?"),
    ),
    ("duration", ("took {v} to make", "was missing for {v}"), ("How long did {t} take?", "How long was {t} missing?")),
    (
        "town",
        ("comes from {v}", "was brought from {v}"),
        ("Where does {t} come from?", "From which town does {t} come?"),
    ),
    (
        "room",
        ("stands in the {v}", "is kept in the {v}"),
        ("Where is {t} kept?", "In which room is {t}?", "Where does {t} stand?"),
    ),
)


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
