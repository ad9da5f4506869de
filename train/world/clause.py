"""Clauses: a phrase with its roles named, in the order of a statement or of a question. Knows no passage.

How a role is named is left to the caller: `name(role, case)` with the case "subject", "object" or "possessive" is
called in the order of the words, so that a teller can say who was named before.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from train.world.english import verb
from train.world.meaning import PREPOSITIONS, Phrase, is_role

Case = Literal["subject", "object", "possessive"]
Tense = Literal["past", "present", "future", "perfect"]
Naming = Callable[[str, Case], str]


@dataclass(frozen=True)
class Person:
    """What a verb has to know of its subject."""

    is_plural: bool
    their: str
    them: str

    @property
    def themself(self) -> str:
        return {"her": "herself", "him": "himself", "it": "itself"}.get(self.them, "themselves")


@dataclass(frozen=True)
class Clause:
    """A phrase with the optional words that are shown."""

    phrase: Phrase  # what is said
    words: tuple[str, ...]  # after the verb, with single capitals for roles
    tense: Tense  # of the statement and the question
    person_of: Callable[[str], Person]  # role -> number and possessive pronoun

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(w[0] for w in self.words if is_role(w.removesuffix("'s"))) | {self.phrase.subject}

    def without(self, start: int, end: int) -> Clause:
        """The clause less the words from `start` to before `end`."""
        return replace(self, words=self.words[:start] + self.words[end:])

    def rest(self, name: Naming, without: str = "") -> str:
        """What follows the verb, at will without one role."""
        person = self.person_of(self.phrase.subject)
        own = {"their": person.their, "themself": person.themself, "they": _NOMINATIVE[person.them]}
        said: list[str] = []
        for word in self.words:
            if word == without:
                continue
            if is_role(word):
                named = name(word, "subject" if _OPENS_CLAUSE & set(said) else "object")
                if named in _PRONOUNS and len(said) == 1 and said[0] in _SEPARABLE and self.phrase.passive == word:
                    said.insert(0, named)  # "picked it up"
                else:
                    said.append(named)
            elif is_role(word.removesuffix("'s")):
                said.append(name(word[0], "possessive"))
            else:
                said.append(own.get(word, word))
        return " ".join(said)

    def predicate(self, name: Naming, form: str = "", without: str = "") -> str:
        """The verb, finite unless `form` names another form of it, and the rest."""
        forms = verb(self.phrase.verb)
        is_plural = self.person_of(self.phrase.subject).is_plural
        said = getattr(forms, form) if form else self._finite(is_plural)
        return f"{said} {self.rest(name, without)}".strip()

    def _finite(self, is_plural: bool) -> str:
        forms = verb(self.phrase.verb)
        if self.tense in ("future", "perfect"):
            return f"will {forms.base}" if self.tense == "future" else f"had {forms.participle}"
        if forms.base == "be":
            return _be(self.tense, is_plural)
        if self.tense == "present":
            return forms.base if is_plural else forms.third
        return forms.past

    def active(self, name: Naming) -> str:
        return f"{name(self.phrase.subject, 'subject')} {self.predicate(name)}"

    def passive(self, name: Naming, *, has_agent: bool = True) -> str:
        return f"{name(self.phrase.passive, 'subject')} {self.passive_predicate(name, has_agent=has_agent)}"

    def passive_predicate(self, name: Naming, *, has_agent: bool = True) -> str:
        is_plural = self.person_of(self.phrase.passive).is_plural
        be = {"future": "will be", "perfect": "had been"}.get(self.tense) or _be(self.tense, is_plural)
        return self._passive_with(be, name, has_agent)

    def _passive_with(self, be: str, name: Naming, has_agent: bool) -> str:
        said = f"{be} {verb(self.phrase.verb).participle} {self.rest(name, self.phrase.passive)}".strip()
        return f"{said} by {name(self.phrase.subject, 'object')}" if has_agent else said

    def inverted(self, name: Naming, without: str = "") -> str:
        """ "did Ann mend the clock"."""
        subject = self.phrase.subject
        is_plural = self.person_of(subject).is_plural
        if self.phrase.verb == "be" and self.tense != "future":
            be = _be("past" if self.tense == "perfect" else self.tense, is_plural)
            return f"{be} {name(subject, 'subject')} {self.rest(name, without)}".strip()
        aux, form = _AUXILIARY[self.tense]
        if self.tense == "present" and is_plural:
            aux = "do"
        return f"{aux} {name(subject, 'subject')} {self.predicate(name, form, without)}"

    def inverted_passive(self, name: Naming, *, has_agent: bool, asked: str = "") -> str:
        """ "was the clock mended (by Ann)"; with `asked`, without its subject, which that asks for."""
        passive = self.phrase.passive
        is_plural = "how many" in asked or (not asked and self.person_of(passive).is_plural)
        subject = "" if asked else name(passive, "subject") + " "
        if self.tense in ("future", "perfect"):
            aux, be = ("will", "be") if self.tense == "future" else ("had", "been")
            return f"{aux} {subject}{self._passive_with(be, name, has_agent)}"
        return f"{_be(self.tense, is_plural)} {subject}{self._passive_with('', name, has_agent).strip()}"

    def preposition_of(self, role: str) -> str:
        """The preposition that the role hangs on, or ""."""
        at = self.words.index(role)
        before = self.words[at - 1] if at else ""
        return before if before in PREPOSITIONS and not (at == 1 and self.phrase.passive == role) else ""


def _be(tense: Tense, is_plural: bool) -> str:
    if tense == "present":
        return "are" if is_plural else "is"
    return "were" if is_plural else "was"


_OPENS_CLAUSE = frozenset({"that", "whether", "how", "what", "until", "when"})  # "saw to it that they had water"
_PRONOUNS = frozenset({"it", "them", "her", "him"})
_SEPARABLE = frozenset({"up", "out", "off", "down", "away", "back", "on", "in", "over"})
_NOMINATIVE = {"her": "she", "him": "he", "it": "it", "them": "they"}
_AUXILIARY = {
    "past": ("did", "base"),
    "present": ("does", "base"),
    "future": ("will", "base"),
    "perfect": ("had", "participle"),
}


def draw_words(phrase: Phrase, rng: Random, told: Set[str], needed: Set[str] = frozenset()) -> tuple[str, ...]:
    """What follows the verb: every optional part that only names roles of `told`, at random unless it is needed."""
    words: list[str] = []
    for segment in phrase.segments:
        is_free = segment.is_optional
        if is_free and not (segment.roles <= told and (segment.roles & needed or rng.random() < 0.5)):
            continue
        words += segment.words
    return tuple(words)
