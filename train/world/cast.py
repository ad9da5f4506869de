"""Who and what a passage is about: persons, things, places and measures, and how each may be called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from train import tables
from train.world import words
from train.world.english import GRAMMAR, PRONOUNS
from train.world.english import article as indefinite_article
from train.world.nouns import ASKED_AS, KINDS
from train.world.words import draw, given_name


@dataclass(frozen=True)
class Entity:
    text: str  # the span that answers a question for it; has no article
    kind: str  # what it was drawn as, "person" or a key of `nouns.KINDS` or `words.KINDS`
    article: str = ""  # "the" where the second mention needs it, else ""
    can_be_new: bool = False  # whether the first mention may have "a"
    is_plural: bool = False  # takes "were" and "they"
    gender: str = ""  # "f" or "m" for one person, else ""
    head: str = ""  # the noun without its adjective, or the given name
    asked: tuple[str, ...] = ()  # what a question calls it after "which"
    count: str = ""  # a number in words or digits that goes before the text, or ""

    @property
    def sorts(self) -> frozenset[str]:
        """All that it may be called."""
        return frozenset(ASKED_AS.get(self.head, ())).union(self.asked)

    @property
    def is_person(self) -> bool:
        return self.kind in ("person", "someone")

    @property
    def is_clear_gender(self) -> bool:
        """Whether its name tells a reader which pronoun it has."""
        if self.article and self.gender and not self.is_plural:
            return self.text in LABELS_F or self.text in LABELS_M
        return not self.gender or self.is_plural or self.text.split()[0] not in ("Dr", "Professor", "Captain")

    def is_like(self, other: Entity) -> bool:
        """Whether a pronoun for the one may be read as the other."""
        if self.pronouns["they"] == other.pronouns["they"]:
            return True
        is_unclear = not (self.is_clear_gender and other.is_clear_gender)
        return is_unclear and bool(self.gender) and bool(other.gender)

    @property
    def pronouns(self) -> dict[str, str]:
        return PRONOUNS["plural" if self.is_plural else self.gender]

    @property
    def definite(self) -> str:
        """With "the" where it takes one."""
        return f"{self.article} {self.text}".strip()


_OF_WOMEN = frozenset({"midwife", "seamstress", "dressmaker", "milliner"})
_CAST = tables.words("cast")
LABELS_F, LABELS_M, LABELS = _CAST["woman"], _CAST["man"], _CAST["anyone"]
LABEL_PAIRS = tuple(
    (gender, *pair.split("/"))
    for gender, name in (("f", "pair of women"), ("m", "pair of men"), ("", "pair of anyone"))
    for pair in _CAST[name]
)
"""The gender, if any, and two descriptions that stand for two people beside each other."""
DEFINITE_LABELS = frozenset(label for pair in LABEL_PAIRS for label in pair[1:])
_SORTS = tables.words("sorts")
_THE = frozenset({"ship", "river"})
_COUNTED = frozenset({"fruit", "vegetable", "flower", "countable", "goods"})
_BARE_NOUNS = frozenset(GRAMMAR["kind of a bare noun"])  # arithmetic, chess: never with an article


def draw_person(rng: Random, *, held_out: bool) -> Entity:
    """Mostly someone with a full name, at times only a description or a group."""
    chance = rng.random()
    if chance < 0.04:
        if rng.random() < 0.4:
            name = words.surname(rng)
            group = name + ("es" if name.endswith(("s", "x", "z", "ch", "sh")) else "s")
        else:
            group = rng.choice(_CAST["group"])
        return Entity(group, "person", "the", is_plural=True)
    if chance < 0.15:
        label, gender = _label(rng, "")
        return Entity(label, "person", "the", can_be_new=True, gender=gender, head=label)
    value = draw("person", rng, held_out=held_out)
    head = given_name(value)
    is_short = head != value.text and rng.random() < 0.08
    return Entity(head if is_short else value.text, "person", gender=value.gender, head=head)


def _label(rng: Random, gender: str) -> tuple[str, str]:
    """A description of someone, and the gender that it goes with."""
    gender = gender or rng.choice("fm")
    chance = rng.random()
    if chance < 0.2:
        return rng.choice(LABELS_F if gender == "f" else LABELS_M), gender
    if chance < 0.45:
        return rng.choice(LABELS), gender
    while True:
        trade = rng.choice(words.TRADES)
        if not (trade.endswith("man") if gender == "f" else trade in _OF_WOMEN):
            return trade, gender


def draw_label(person: Entity, rng: Random) -> str:
    return _label(rng, person.gender)[0]


def draw_thing(kind: str, rng: Random) -> Entity:
    """A thing of a kind of `nouns.KINDS`."""
    table = KINDS[kind]
    noun = rng.choice(table.nouns)
    if noun.is_plural and kind in _COUNTED and rng.random() < 0.4:
        number = words.small_number(rng, 90)
        return Entity(noun.text, kind, "the", False, True, head=noun.text, asked=table.asked, count=number)
    text = noun.text
    if table.adjectives and " of " not in text and rng.random() < (0.35 if " " not in text else 0.12):
        adjective = rng.choice(table.adjectives)
        if adjective not in text:
            text = f"{adjective} {noun.text}"
    article = "" if kind in _BARE_NOUNS else "the"
    is_new = not noun.is_mass and bool(article) and not noun.text[0].isupper()  # the Red Lion
    if kind in ("job", "usage"):
        return Entity(text, kind, indefinite_article(text), head=text, asked=table.asked)
    return Entity(text, kind, article, is_new, noun.is_plural, head=noun.text, asked=table.asked)


def twins(thing: Entity, rng: Random) -> tuple[Entity, Entity] | None:
    """Two things that only an adjective tells apart: the red boat, and the green one."""
    table = KINDS.get(thing.kind)
    if table is None or len(table.adjectives) < 4 or thing.is_plural or not thing.can_be_new or " of " in thing.head:
        return None
    one, two = rng.sample(table.adjectives, 2)
    first = replace(thing, text=f"{one} {thing.head}", head="")
    return first, replace(thing, text=f"{two} {thing.head}", head=f"{two} one")


def draw_entity(kind: str, rng: Random, *, held_out: bool) -> Entity:
    if kind in ("person", "someone"):
        return draw_person(rng, held_out=held_out)
    if kind in ("place", "room"):
        place = rng.choice(_CAST["place"] if kind == "place" else words.ROOMS)
        return Entity(place, kind, "the", head=place, asked=(kind,))
    if kind in KINDS:
        return draw_thing(kind, rng)
    text = draw(kind, rng, held_out=held_out).text
    article = "the" if kind in _THE or text.startswith("the ") else ""
    text = text.removeprefix("the ")
    return Entity(text, kind, article, head=text, asked=_SORTS.get(kind, ()))


def indefinite(entity: Entity) -> str:
    return f"{indefinite_article(entity.text)} {entity.text}"
