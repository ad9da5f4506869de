"""What happens in a passage: meanings with their roles filled, which share people and things or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from train.world.cast import Entity, draw_entity
from train.world.circumstances import WITH_PERSON, Circumstance, draw_alike
from train.world.clause import Tense
from train.world.meaning import Meaning


@dataclass
class Happening:
    """What happens, and what a passage tells of it, which the teller fills in."""

    meaning: Meaning  # what sort of thing happens
    roles: dict[str, Entity]  # who and what is in it
    circumstances: dict[str, Circumstance] = field(default_factory=dict)  # when, where, ... by name
    helpers: dict[str, Entity] = field(default_factory=dict)  # persons whom a circumstance names, by its name
    told: set[str] = field(default_factory=set)  # roles and circumstances that the passage tells
    wordings: list[str] = field(default_factory=list)  # the verbs that it tells it with
    tense: Tense = "past"  # in which it is told, and asked
    deed: str = ""  # what it says in one piece that the subject did, such as "mended the clock"

    @property
    def actor(self) -> Entity:
        return self.roles[next(iter(self.meaning.roles))]

    def value(self, name: str) -> str:
        """What a role or a circumstance is, as text."""
        entity = self.roles.get(name) or self.helpers.get(name)
        if entity or name == "deed":
            return entity.text if entity else self.deed
        return self.circumstances[name].answer if name in self.circumstances else ""


class Drawing:
    """Draws happenings for one passage, so that no two things or persons can be taken for one another."""

    def __init__(self, rng: Random, *, held_out: bool) -> None:
        self._rng = rng
        self._held_out = held_out
        self._heads: set[str] = set()

    def holds(self, text: str) -> bool:
        """Whether the passage already calls somebody or something so."""
        return bool({text, *text.lower().split()} & self._heads)

    def entity(self, kinds: Sequence[str]) -> Entity:
        """Someone or something that the passage does not hold yet."""
        for _ in range(40):
            drawn = draw_entity(self._rng.choice(kinds), self._rng, held_out=self._held_out)
            names = set(drawn.text.lower().split()) if drawn.is_person else {drawn.head.lower().split()[-1], drawn.head}
            if not names & self._heads:
                break
        self._heads |= names
        return drawn

    def happening(self, meaning: Meaning, shared: dict[str, Entity]) -> Happening:
        """The meaning with its roles filled: from `shared` where it holds the role, else anew."""
        roles = {role: shared.get(role) or self.entity(kinds) for role, kinds in meaning.roles.items()}
        return Happening(meaning, roles)

    def add_circumstances(self, happenings: Sequence[Happening], names: Sequence[str]) -> None:
        """Circumstances of the names given for the happenings that take them, all different."""
        for name in names:
            taking = [h for h in happenings if name in h.meaning.circumstances]
            if name in WITH_PERSON:
                lead, asked = WITH_PERSON[name]
                for happening in taking:
                    helper = happening.helpers[name] = self.entity(("person",))
                    told = Circumstance(name, f"{lead} {{person}}", helper.text, asked, False, False)
                    happening.circumstances[name] = told
                continue
            for happening, drawn in zip(taking, draw_alike(name, self._rng, len(taking)), strict=False):
                if "{" not in drawn.text or happening.actor.is_person:
                    text, answer = (said.format(**happening.actor.pronouns) for said in (drawn.text, drawn.answer))
                    happening.circumstances[name] = replace(drawn, text=text, answer=answer)
