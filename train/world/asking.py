"""Asking about happenings that a passage tells, in other words than it tells them, and only what has one answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random

from train import tables
from train.world.cast import DEFINITE_LABELS, Entity, indefinite
from train.world.clause import Case, Clause, Naming, Person, draw_words
from train.world.discourse import SAID, Attitude
from train.world.english import GRAMMAR, capital, possessive
from train.world.happening import Happening
from train.world.meaning import Phrase, is_role, roles_in
from train.world.telling import Teller
from train.world.words import NAMES, TRADES

_WHOLE_ONLY = frozenset(GRAMMAR["kind that whole questions ask for"])
_CALLED_BY_SORT = frozenset(GRAMMAR["kind that may be called by its sort"])
_PLACES = frozenset({"town", "country", "region", "place", "land", "building", "room", "water", "forest"})
_PLURAL = {"was": "were", "is": "are", "has": "have", "does": "do"}
_PLACE_SORTS = ("town", "place", "country", "region", "building", "room", "island")
_OPAQUE = frozenset({"that", "how", "whether", "where", "until", "when", "of", "if", "their"})
_DITRANSITIVE = frozenset(GRAMMAR["takes two objects"])
_NOMINAL = tables.sentences("nominals")


class Asker:
    """Asks about the happenings of one passage; `others` are persons and things that it names beside them."""

    def __init__(self, rng: Random, teller: Teller, happenings: Sequence[Happening], others: Sequence[Entity]) -> None:
        self._rng = rng
        self._teller = teller
        self._happenings = happenings
        held = [e for h in happenings for e in (*h.roles.values(), *h.helpers.values())]
        self._cast = list(dict.fromkeys((*held, *others)))

    # naming

    def name(self, entity: Entity, case: Case) -> str:
        said = self._reference(entity, case)
        return possessive(said) if case == "possessive" and said not in ("her", "his", "their", "its") else said

    def _reference(self, entity: Entity, case: Case) -> str:
        rng = self._rng
        pronoun = entity.pronouns[{"subject": "they", "object": "them", "possessive": "their"}[case]]
        is_clear = not any(other.is_like(entity) for other in self._cast if other is not entity)
        is_clear = is_clear and entity.kind not in (_PLACES | NAMES.keys()) - {"person"}
        if is_clear and rng.random() < (0.12 if entity.is_person else 0.06):
            return pronoun
        if not entity.is_person:
            return f"{entity.article} {self._thing(entity)}".strip()
        if entity in self._teller.introduced and rng.random() < 0.25:
            return f"the {self._teller.labels[entity]}"
        if not entity.article and rng.random() < 0.2:
            return entity.head
        return entity.definite

    def _thing(self, entity: Entity) -> str:
        rng = self._rng
        if entity.kind in _CALLED_BY_SORT and not entity.is_plural and rng.random() < 0.08:
            sort = entity.asked[0]
            if sum(sort in other.sorts for other in self._cast) == 1:
                return sort
        return entity.head if entity.head and rng.random() < 0.35 else entity.text

    # questions

    def ask(self, happening: Happening) -> list[tuple[str, str]]:
        """Questions with their answers, one about each thing that the passage tells of it."""
        found = []
        for told in sorted(happening.told):
            for _ in range(4):
                question = self._one(happening, told)
                if question:
                    found.append((question, self._answer(happening, told, question)))
                    break
        return found

    @staticmethod
    def _answer(happening: Happening, told: str, question: str) -> str:
        if told in happening.roles and happening.roles[told].count and "ow many" in question:
            return happening.roles[told].count
        return happening.value(told)

    def _one(self, happening: Happening, told: str) -> str | None:
        rng = self._rng
        whole = happening.meaning.questions.get(told)
        if whole and rng.random() < 0.4:
            return self._whole(happening, told, rng.choice(whole))
        if told == "deed":
            return None if whole or rng.random() < 0.5 else self._about_deed(happening)
        if told in happening.roles:
            return self._about_role(happening, told)
        if told in _NOMINAL and happening.meaning.nominals and rng.random() < 0.2:
            nominal = rng.choice(happening.meaning.nominals)
            return self._whole(happening, told, rng.choice(_NOMINAL[told]).format(n=nominal) + "?")
        return self._about_circumstance(happening, told)

    def _whole(self, happening: Happening, told: str, template: str) -> str | None:
        given = roles_in(template)
        if not given <= happening.told or self._is_ambiguous(happening, told, given):
            return None
        if self._is_shared(happening, given):
            return None
        said: list[str] = []
        for word in template.split():
            bare = word.rstrip("?,")
            role = bare.removesuffix("'s")
            if is_role(role) and role in happening.roles:
                entity, is_possessive = happening.roles[role], bare.endswith("'s")
                # Never a pronoun: a whole question doesn't say which case a role has there.
                if said and said[-1] == "Whose":
                    named = self._thing(entity)
                else:
                    named = entity.definite if entity.is_person else f"{entity.article} {self._thing(entity)}".strip()
                    named = possessive(named) if is_possessive else named
                if entity.is_plural and not is_possessive and said[-2:-1] != ["it"]:
                    said[-1:] = [_PLURAL.get(before, before) for before in said[-1:]]
                word = named + word[len(bare) :]
            said.append(word)
        return " ".join(said)

    def _phrase(self, happening: Happening, fits: Callable[[Phrase], bool]) -> Phrase | None:
        """A wording whose roles were told, rather one that the passage does not use."""
        fitting = [p for p in happening.meaning.asked if p.needed <= happening.told and fits(p)]
        fresh = [p for p in fitting if p.verb not in happening.wordings]
        if fresh and self._rng.random() < 0.75:
            fitting = fresh
        if not fitting:
            return None
        phrase = self._rng.choice(fitting)
        return None if phrase.is_broad and any(self._is_shared(happening, {role}) for role in phrase.needed) else phrase

    def _is_shared(self, happening: Happening, roles: Collection[str]) -> bool:
        """Whether another happening is about all of these people and things, too."""
        named = {happening.roles[role] for role in roles}
        return bool(named) and any(named <= set(h.roles.values()) for h in self._happenings if h is not happening)

    def _clause(self, happening: Happening, phrase: Phrase, needed: frozenset[str]) -> Clause:
        words = draw_words(phrase, self._rng, frozenset(happening.told), needed)
        return Clause(phrase, words, happening.tense, Teller.person_of(happening))

    def _naming(self, happening: Happening) -> Naming:
        return lambda role, case: self.name(happening.roles[role], case)

    def _about_role(self, happening: Happening, role: str) -> str | None:
        phrase = self._phrase(happening, lambda p: role in p.roles and _can_ask(p, role, happening))
        if phrase is None:
            return None
        clause = self._clause(happening, phrase, frozenset({role}))
        if role not in clause.roles:
            return None
        wh, sort = self._wh(happening, role)
        given = clause.roles - {role}
        is_ambiguous = self._is_ambiguous(happening, role, given, sort)
        extra = self._more(happening, role, given, sort) if is_ambiguous else ""
        if is_ambiguous and not extra:
            return None
        naming = self._naming(happening)
        if role == phrase.subject:
            return self._about_subject(clause, naming, wh, extra, happening.roles[role])
        if role == phrase.passive and self._rng.random() < 0.35:
            rest = given - {phrase.subject}
            is_needed = phrase.subject in given and (self._is_ambiguous(happening, role, rest, sort) or not rest)
            has_agent = is_needed or (phrase.subject in given and self._rng.random() < 0.5)
            return f"{capital(wh)} {clause.inverted_passive(naming, has_agent=has_agent, asked=wh)}{extra}?"
        return self._about_object(clause, naming, role, wh, extra)

    def _about_subject(self, clause: Clause, naming: Naming, wh: str, extra: str, subject: Entity) -> str:
        rng = self._rng
        person_of = clause.person_of
        asked = clause.phrase.subject
        anyone = Person(False, "their", "them")
        if not subject.is_person:
            anyone = Person(wh.startswith("how many"), person_of(asked).their, person_of(asked).them)
        clause = replace(clause, person_of=lambda role: anyone if role == asked else person_of(role))
        chance = rng.random()
        if clause.phrase.passive and subject.is_person and chance < 0.12:
            did = clause.inverted_passive(naming, has_agent=False)
            return rng.choice((f"By whom {did}{extra}?", f"Who {did} by{extra}?"))
        predicate = clause.predicate(naming) + extra
        if subject.is_person:
            if chance < 0.17:
                return f"Who was it that {predicate}?"
            if chance < 0.24 and subject.is_plural:
                return f"Who {predicate}?"
            if chance < 0.24:
                return f"Name the person who {predicate}." if chance < 0.2 else f"Which person {predicate}?"
        if chance < 0.32:
            return rng.choice(SAID["wrappers"]).format(q=f"{wh} {predicate}")
        return f"{capital(wh)} {predicate}?"

    def _about_object(self, clause: Clause, naming: Naming, role: str, wh: str, extra: str) -> str:
        rng = self._rng
        preposition = clause.preposition_of(role)
        at = clause.words.index(role)
        bare = clause.without(at - 1, at + 1) if preposition else clause
        if preposition and wh.endswith(_PLACE_SORTS) and rng.random() < 0.6:
            if preposition in ("to", "in", "at"):
                return f"Where {bare.inverted(naming)}{extra}?"
            if preposition == "from" and clause.words[-1] == role:
                return f"Where {bare.inverted(naming)} from{extra}?"
        if preposition and (clause.words[-1] != role or rng.random() < 0.4):
            wh = "whom" if wh == "who" else wh
            return f"{capital(preposition)} {wh} {bare.inverted(naming)}{extra}?"
        chance = rng.random()
        if chance < 0.1 or (chance < 0.16 and clause.tense == "past"):
            said = naming(clause.phrase.subject, "subject") + " " + clause.predicate(naming, without=role) + extra
            if chance < 0.1:
                return rng.choice(SAID["wrappers"]).format(q=f"{wh} {said}")
            return f"{capital(wh)} was it that {said}?"
        wh = "Whom" if wh == "who" and rng.random() < 0.4 else capital(wh)
        return f"{wh} {clause.inverted(naming, without=role)}{extra}?"

    def _wh(self, happening: Happening, role: str) -> tuple[str, str]:
        """The question word or words, and the sort that they ask for, if any."""
        rng, entity = self._rng, happening.roles[role]
        if entity.is_person:
            return "who", ""
        if entity.kind in ("price", "money"):
            return rng.choice(("how much", "how much money")), ""
        if entity.count and rng.random() < 0.8:
            return f"how many {entity.text}", ""
        if entity.kind in NAMES or entity.kind in _PLACES:
            sort = rng.choice(entity.asked or ("place",))
            return f"which {sort}", sort
        if entity.asked and rng.random() < 0.45:
            sort = rng.choice(entity.asked)
            words_before = ("which", "which", "what") if " of " in sort else ("which", "what", "what kind of")
            return f"{rng.choice(words_before)} {sort}", sort
        return "what", ""

    def _about_deed(self, happening: Happening) -> str | None:
        """What somebody did, and when: all that is asked is which clause it was."""
        actor = happening.actor
        when = happening.circumstances.get("when")
        if not actor.is_person or "when" not in happening.told or when is None or happening.tense != "past":
            return None
        for other in self._happenings:
            if other is not happening and actor in (*other.roles.values(), *other.helpers.values()):
                return None
        pattern = self._rng.choice(SAID["deed questions"])
        return pattern.format(who=self.name(actor, "subject"), when=when.text, When=capital(when.text))

    def _about_circumstance(self, happening: Happening, name: str) -> str | None:
        circumstance = happening.circumstances[name]
        pattern = self._rng.choice(circumstance.asked)
        actor = next(iter(happening.meaning.roles))
        needs_actor = "{did}" not in pattern
        phrase = self._phrase(happening, lambda p: p.verb != "be" and (not needs_actor or p.subject == actor))
        if phrase is None:
            return None
        clause = self._clause(happening, phrase, frozenset())
        is_passive = "{did}" in pattern and bool(phrase.passive) and self._rng.random() < 0.35
        is_passive = is_passive and not pattern.endswith("} with")
        given = clause.roles
        has_agent = True
        if is_passive and not self._is_ambiguous(happening, name, given - {phrase.subject}):
            has_agent = self._rng.random() < 0.3
        elif self._is_ambiguous(happening, name, given):
            return None
        naming, subject = self._naming(happening), happening.roles[phrase.subject]
        did = clause.inverted_passive(naming, has_agent=has_agent) if is_passive else clause.inverted(naming)
        parts = {"did": did, "that": clause.active(naming)}
        parts |= {"inf": clause.predicate(naming, "base"), "ing": clause.predicate(naming, "ing")}
        parts["who"] = self.name(subject, "subject" if "did {who}" in pattern else "object")
        return pattern.format(**parts, whose=self.name(subject, "possessive")) + "?"

    def about_wish(self, happening: Happening, other: Entity, attitude: Attitude) -> tuple[str, str] | None:
        """Who wanted to, or refused to, do what somebody else did."""
        actor = next(iter(happening.meaning.roles))
        phrase = self._phrase(happening, lambda p: p.verb != "be" and p.subject == actor and not p.is_broad)
        if phrase is None:
            return None
        clause = self._clause(happening, phrase, frozenset())
        if len(clause.roles) < 2:
            return None
        doing = clause.predicate(self._naming(happening), "base")
        return f"Who {self._rng.choice(attitude.asked)} {doing}?", other.text

    def about_label(self, person: Entity) -> tuple[str, str]:
        """What somebody is, or who is it."""
        label = self._teller.labels[person]
        if label in TRADES and self._rng.random() < 0.5:
            question = self._rng.choice(SAID["trade questions"])
            return question.format(who=person.text, whose=possessive(person.text)), label
        asked = SAID["definite questions"] if label in DEFINITE_LABELS else SAID["label questions"]
        question = self._rng.choice(asked)
        return question.format(label=label, a_label=indefinite(Entity(label, ""))), person.text

    # what is clear

    def _is_ambiguous(self, happening: Happening, asked: str, given: frozenset[str], sort: str = "") -> bool:
        """Whether another happening of the same meaning answers otherwise, or might."""
        for other in self._happenings:
            if other is happening or other.meaning is not happening.meaning:
                continue
            is_other = other.value(asked) != happening.value(asked)
            is_of_sort = not sort or asked not in other.roles or sort in other.roles[asked].sorts
            if is_other and is_of_sort and not any(self._differs(happening, other, name) for name in given):
                return True
        return False

    @staticmethod
    def _differs(one: Happening, two: Happening, name: str) -> bool:
        return bool(two.value(name)) and name in two.told and one.value(name) != two.value(name)

    def _more(self, happening: Happening, role: str, given: frozenset[str], sort: str) -> str:
        """A circumstance that tells the happening from the others, or ""."""
        for name, circumstance in happening.circumstances.items():
            can_tell = name in happening.told and circumstance.can_disambiguate
            if can_tell and not self._is_ambiguous(happening, role, given | {name}, sort):
                return f" {circumstance.text}"
        return ""


def _can_ask(phrase: Phrase, role: str, happening: Happening) -> bool:
    """Whether English can ask for this role of the phrase by a question word at its front."""
    if role == phrase.subject:
        return True
    if phrase.verb == "be" or set(happening.meaning.roles[role]) & _WHOLE_ONLY:
        return False
    for segment in phrase.segments:
        if role not in segment.words:
            continue
        at = segment.words.index(role)
        before = segment.words[:at]
        if _OPAQUE & set(before) or any(map(is_role, before[:-1])):
            return bool(before) and before[-1] in ("to", "from", "for", "with") and not _OPAQUE & set(before)
        if before and is_role(before[-1]):
            return phrase.verb in _DITRANSITIVE and not happening.roles[role].is_person
        if len(before) > 1 and before[-1] == "in" and happening.roles[role].kind not in _PLACES:
            return False
        return not any(map(is_role, segment.words[at + 1 : at + 2]))
    return False
