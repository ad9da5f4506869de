"""Telling happenings: sentences that name people and things as English does, by name, description or pronoun.

Whatever is told of a happening is written into it, so that only that is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from train.world.cast import DEFINITE_LABELS, Entity, indefinite
from train.world.clause import Case, Clause, Naming, Person, Tense, draw_words
from train.world.discourse import SAID
from train.world.english import possessive, sentence
from train.world.happening import Happening
from train.world.meaning import Phrase


class Teller:
    """Tells the happenings of one passage."""

    def __init__(self, rng: Random, labels: dict[Entity, str]) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.introduced: set[Entity] = set()  # whose label the text has told
        self.labels = labels  # person -> description that introduces them, such as "baker"
        self._named: set[Entity] = set()
        self._now: list[Entity] = []  # named in the sentence that is being told
        self._before: list[Entity] = []  # and in the one before
        self._uses_pronouns = rng.choice((0.0, 0.4, 0.8))

    # naming

    def name(self, entity: Entity, case: Case, *, is_plain: bool = False) -> str:
        """What the passage calls somebody or something here; `is_plain` is by name."""
        said = entity.definite if is_plain else self._reference(entity, case)
        self._named.add(entity)
        if entity not in self._now:
            self._now.append(entity)
        return possessive(said) if case == "possessive" and said not in ("her", "his", "their", "its") else said

    def _reference(self, entity: Entity, case: Case) -> str:
        if entity not in self._named:
            return self._first_mention(entity, case)
        if self.rng.random() < self._uses_pronouns and self._is_clear(entity):
            form = {"subject": "they", "object": "them", "possessive": "their"}[case]
            return entity.pronouns[form]
        if not entity.is_person:
            short = entity.head if entity.head and self.rng.random() < 0.4 else entity.text
            return f"{entity.article} {short}".strip()
        if entity in self.introduced and self.rng.random() < 0.5:
            return f"the {self.labels[entity]}"
        if not entity.article and self.rng.random() < 0.35:
            return entity.head
        return entity.definite

    def _first_mention(self, entity: Entity, case: Case) -> str:
        label = self.labels.get(entity)
        if label and case != "possessive" and self.rng.random() < 0.6:
            self.introduced.add(entity)
            patterns = SAID["definite appositions"] if label in DEFINITE_LABELS else SAID["appositions"]
            a_label = indefinite(Entity(label, ""))
            return self.rng.choice(patterns).format(name=entity.text, label=label, a_label=a_label)
        if entity.count:
            return f"{entity.count} {entity.text}"
        if entity.can_be_new and self.rng.random() < 0.45:
            return indefinite(entity)
        if entity.is_plural and entity.article and not entity.is_person and self.rng.random() < 0.5:
            return entity.text if self.rng.random() < 0.5 else f"some {entity.text}"
        return entity.definite

    def _is_clear(self, entity: Entity) -> bool:
        """Whether a pronoun can only mean it: it was named in this sentence or the last, and nothing like it was."""
        near = [*self._before, *self._now]
        return entity in near and not any(other.is_like(entity) for other in near if other is not entity)

    def end(self, text: str) -> None:
        """Adds a sentence."""
        self.sentences.append(sentence(text))
        self._before, self._now = self._now, []

    def aside(self, text: str) -> None:
        """Adds a sentence that names nobody of the cast."""
        self.sentences.append(sentence(text))
        self._before, self._now = [], []

    # clauses

    def phrase_of(self, happening: Happening, *, subject: str = "", passive: str = "") -> Phrase | None:
        """A wording; at will one with this role as the subject, or as that of the passive."""
        fitting = [p for p in happening.meaning.told if subject in ("", p.subject) and passive in ("", p.passive)]
        fitting = [p for p in fitting if p.verb != "be" or not happening.actor.is_plural]
        return self.rng.choice(fitting) if fitting else None

    def clause(
        self, happening: Happening, phrase: Phrase, tense: Tense = "past", words: tuple[str, ...] = ()
    ) -> Clause:
        """A clause that is told, with these words after the verb, or with what is drawn."""
        words = words or draw_words(phrase, self.rng, frozenset(happening.roles))
        clause = Clause(phrase, words, tense, self.person_of(happening))
        happening.told |= clause.roles
        happening.wordings.append(phrase.verb)
        return clause

    def naming(self, happening: Happening) -> Naming:
        return lambda role, case: self.name(happening.roles[role], case)

    def tail(self, happening: Happening, names: list[str]) -> str:
        """The circumstances of these names, for the end of a clause."""
        parts = []
        for name in names:
            happening.told.add(name)
            text = happening.circumstances[name].text
            if name in happening.helpers:
                text = text.format(person=self.name(happening.helpers[name], "object"))
            parts.append(text)
        return "".join(f" {part}" for part in parts)

    @staticmethod
    def person_of(happening: Happening) -> Callable[[str], Person]:
        def person(role: str) -> Person:
            entity = happening.roles[role]
            return Person(entity.is_plural, entity.pronouns["their"], entity.pronouns["them"])

        return person
