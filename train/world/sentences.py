"""Sentence forms: a happening or two told plainly, by whom rather than not, when rather than not, in direct speech."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from train.world.cast import Entity
from train.world.circumstances import Circumstance
from train.world.clause import Case, Clause, Tense
from train.world.discourse import ATTITUDES, DUTIES, SAID, Attitude
from train.world.english import series
from train.world.happening import Drawing, Happening
from train.world.meaning import Phrase, is_role
from train.world.telling import Teller

_LAST = {"where": 0, "site": 0, "span": 1, "when": 1, "long": 1, "purpose": 2, "why": 3}  # others go first


def ordered(happening: Happening) -> list[str]:
    """The names of the circumstances in the order in which they stand at a clause's end."""
    return sorted(happening.circumstances, key=lambda name: _LAST.get(name, -1))


def plain(teller: Teller, happening: Happening, tense: Tense = "past", *, can_lead: bool = True) -> str:
    """Active or passive, its circumstances before or after it."""
    rng = teller.rng
    phrase = teller.phrase_of(happening)
    assert phrase is not None
    clause = teller.clause(happening, phrase, tense)
    names = ordered(happening)
    leads = [name for name in names if happening.circumstances[name].can_lead]
    lead = rng.choice(leads) if can_lead and leads and rng.random() < 0.35 else ""
    front = ""
    if lead:
        names.remove(lead)
        happening.told.add(lead)
        front = happening.circumstances[lead].text + rng.choice((", ", " ") if lead in ("when", "where") else (", ",))
    elif "long" in names and phrase.subject == _actor_role(happening) and tense == "past" and rng.random() < 0.5:
        return _took(teller, happening, clause, names)
    if phrase.passive and rng.random() < 0.35:
        return front + clause.passive(teller.naming(happening)) + teller.tail(happening, names)
    subject = teller.naming(happening)(phrase.subject, "subject")
    deed = clause.predicate(teller.naming(happening))
    is_whole = not {",", "it"} & set(deed.replace(",", " ,").split())
    if phrase.subject == _actor_role(happening) and is_whole and phrase.verb != "be":
        happening.deed = deed
        happening.told.add("deed")
    return f"{front}{subject} {deed}" + teller.tail(happening, names)


def _took(teller: Teller, happening: Happening, clause: Clause, names: list[str]) -> str:
    names.remove("long")
    happening.told.add("long")
    time = happening.circumstances["long"].answer
    naming = teller.naming(happening)
    who = naming(clause.phrase.subject, "object")
    return f"it took {who} {time} to {clause.predicate(naming, 'base')}" + teller.tail(happening, names)


def _actor_role(happening: Happening) -> str:
    return next(iter(happening.meaning.roles))


def _of_actor(happening: Happening) -> list[Phrase]:
    """The wordings, but those with "be", whose subject is who did it."""
    return [p for p in happening.meaning.told if p.subject == _actor_role(happening) and p.verb != "be"]


def _by_actor(teller: Teller, happening: Happening, tense: Tense = "past") -> Clause | None:
    """A wording whose subject is who did it."""
    phrase = teller.phrase_of(happening, subject=_actor_role(happening))
    return teller.clause(happening, phrase, tense) if phrase else None


def _filled(pattern: str, parts: dict[str, Callable[[], str]]) -> str:
    """The pattern with its parts made in the order of the words, so that who comes first is named first."""
    said = []
    for piece in pattern.split("{"):
        name, brace, rest = piece.partition("}")
        said.append(parts[name]() + rest if brace else piece)
    return "".join(said)


def _parts(teller: Teller, happening: Happening, clause: Clause, tail: list[str]) -> dict[str, Callable[[], str]]:
    """What a pattern may hold of one happening."""
    naming = teller.naming(happening)
    actor = happening.roles[clause.phrase.subject]

    def with_tail(make: Callable[[], str]) -> Callable[[], str]:
        return lambda: make() + teller.tail(happening, tail)

    def done() -> str:
        if clause.phrase.passive and teller.rng.random() < 0.35:
            return clause.passive(naming)
        return clause.active(naming)

    return {
        "a": lambda: teller.name(actor, "subject"),
        "whom": lambda: teller.name(actor, "object"),
        "they": lambda: actor.pronouns["they"],
        "was": lambda: actor.pronouns["was"],
        "self": lambda: {"her": "herself", "him": "himself"}.get(actor.pronouns["them"], "themselves"),
        "did": with_tail(done),
        "pred": with_tail(lambda: clause.predicate(naming)),
        "inf": with_tail(lambda: clause.predicate(naming, "base")),
        "ing": with_tail(lambda: clause.predicate(naming, "ing")),
        "inf_it": lambda: "do it",
    }


def duty(teller: Teller, happening: Happening) -> str | None:
    """ "It fell to Ann to mend the clock"."""
    clause = _by_actor(teller, happening)
    if clause is None or clause.phrase.verb == "be" or happening.roles[clause.phrase.subject].is_plural:
        return None
    is_task = "help" in happening.meaning.circumstances or "long" in happening.meaning.circumstances
    pattern = teller.rng.choice([text for text, needs_task in DUTIES if is_task or not needs_task])
    return _filled(pattern, _parts(teller, happening, clause, ordered(happening)))


def turn(teller: Teller, happening: Happening, other: Entity) -> tuple[str, Attitude] | None:
    """Somebody else wanted to, or refused, ...; and what that was."""
    clause = _by_actor(teller, happening)
    if clause is None or clause.phrase.verb == "be" or other.is_plural:
        return None
    attitude = teller.rng.choice(ATTITUDES)
    told = teller.rng.choice(attitude.told).format(**other.pronouns)
    parts = _parts(teller, happening, clause, [])
    names = ordered(happening)
    parts |= {"c": lambda: teller.name(other, "subject"), "attitude": lambda: told}
    finished = _parts(teller, happening, clause, names)
    parts |= {"did": finished["did"], "pred": finished["pred"]}
    patterns = SAID["turns"] + SAID["turns after no"] if attitude.is_no else SAID["turns"]
    return _filled(teller.rng.choice(patterns), parts), attitude


def denial(teller: Teller, happening: Happening, other: Entity, patterns: tuple[str, ...]) -> str | None:
    """It was not somebody else; or somebody else tells of it."""
    clause = _by_actor(teller, happening)
    if clause is None or other.is_plural:
        return None
    parts = _parts(teller, happening, clause, ordered(happening))
    parts["c"] = lambda: teller.name(other, "subject")
    return _filled(teller.rng.choice(patterns), parts)


def said(teller: Teller, happening: Happening, other: Entity) -> str | None:
    """In the words of who did it."""
    clause = _by_actor(teller, happening)
    own = {"their", "themself", "they"}
    if clause is None or clause.phrase.verb == "be" or own & set(clause.words):
        return None
    actor = happening.roles[clause.phrase.subject]
    pronouns = {"she", "he", "they", "her", "him", "his", "their", "them"}
    names = [n for n in ordered(happening) if not pronouns & set(happening.circumstances[n].text.split())]
    parts = _parts(teller, happening, clause, names)
    words = parts["pred"]
    parts["a"] = lambda: teller.name(actor, "subject", is_plain=True)
    parts["mine"] = lambda: ("We " if actor.is_plural else "I ") + words()
    parts["c"] = lambda: teller.name(other, "subject")
    return _filled(teller.rng.choice(SAID["said"]), parts)


def other_thing(teller: Teller, happening: Happening, other: Entity, role: str) -> str | None:
    """What was done to one thing was not done to another."""
    phrases = [p for p in _of_actor(happening) if p.segments and p.segments[0].words == (role,)]
    if not phrases or happening.roles[role].is_plural != other.is_plural:
        return None
    parts = _parts(teller, happening, teller.clause(happening, teller.rng.choice(phrases), words=(role,)), [])
    parts["y"] = lambda: teller.name(other, "object")
    return _filled(teller.rng.choice(SAID["other things"]), parts)


def other_role(teller: Teller, happening: Happening, drawing: Drawing, others: list[Entity]) -> str | None:
    """It was this town or container, not another. The other one is drawn, and added to `others`."""
    clause = _by_actor(teller, happening)
    if clause is None or clause.phrase.verb == "be" or not clause.words or not is_role(clause.words[-1]):
        return None
    role = clause.words[-1]
    mine = happening.roles[role]
    other = drawing.entity(happening.meaning.roles[role])
    if other.is_plural != mine.is_plural or other.count or mine.count:
        return None
    others.append(other)
    naming = teller.naming(happening)

    def instead(asked: str, case: Case) -> str:
        return teller.name(other, case) if asked == role else naming(asked, case)

    preposition = clause.preposition_of(role)
    actor = happening.roles[clause.phrase.subject]
    parts = _parts(teller, happening, clause, [])
    parts |= {
        "them": lambda: actor.pronouns["them"],
        "did_last": lambda: clause.active(naming),
        "inf_y": lambda: clause.predicate(instead, "base"),
        "ing_y": lambda: clause.predicate(instead, "ing"),
        "prep_y": lambda: f"{preposition} {teller.name(other, 'object')}".strip(),
    }
    patterns = SAID["corrections"] if happening.meaning.is_chance else SAID["other roles"]
    return _filled(teller.rng.choice(patterns), parts)


def other_circumstance(teller: Teller, happening: Happening, name: str, other: Circumstance) -> str | None:
    """Not on Monday but on Friday."""
    clause = _by_actor(teller, happening)
    if clause is None or clause.phrase.verb == "be":
        return None
    happening.told.add(name)
    mine = happening.circumstances[name]
    rest = [n for n in ordered(happening) if n != name and n not in ("why", "purpose", "when", "where", "site")]
    parts = _parts(teller, happening, clause, rest)
    texts = (mine.answer, other.answer) if name == "why" else (mine.text, other.text)
    parts |= {"s": lambda: texts[0], "t": lambda: texts[1]}
    patterns = {"when": SAID["other times"], "why": SAID["other reasons"]}.get(name, SAID["other places"])
    return _filled(teller.rng.choice(patterns), parts)


def two_of_one(teller: Teller, one: Happening, two: Happening) -> str | None:
    """Two things that the same person did, in one sentence."""
    first, second = _by_actor(teller, one), _by_actor(teller, two)
    if first is None or second is None or "be" in (first.phrase.verb, second.phrase.verb):
        return None
    actor = one.roles[first.phrase.subject]
    pattern = teller.rng.choice(SAID["same person"])

    def did(happening: Happening, clause: Clause, form: str = "") -> Callable[[], str]:
        return lambda: clause.predicate(teller.naming(happening), form) + teller.tail(happening, ordered(happening))

    parts = {"a": lambda: teller.name(actor, "subject", is_plain=", who" in pattern)}
    parts |= {"one": did(one, first), "one_perfect": did(one, replace(first, tense="perfect"))}
    parts |= {"ing_one": did(one, first, "ing"), "part_one": did(one, first, "participle")}
    parts |= {"two": did(two, second), "ing_two": did(two, second, "ing")}
    return _filled(pattern, parts)


def two_at_once(teller: Teller, one: Happening, two: Happening) -> str | None:
    """Two happenings as clauses of one sentence."""
    pattern = teller.rng.choice(SAID["two at once"])
    parts = {
        "one": lambda: plain(teller, one, can_lead=False),
        "two": lambda: plain(teller, two, can_lead=False),
        "one_perfect": lambda: plain(teller, one, "perfect", can_lead=False),
    }
    return _filled(pattern, parts)


def gapping(teller: Teller, happenings: list[Happening]) -> str | None:
    """ "Ann mended the clock, Tom the chair, and Ruth the lamp": the verb is told once."""
    if len({id(happening.actor) for happening in happenings}) < len(happenings):
        return None
    names = [name for name in ordered(happenings[0]) if name in ("when", "where", "price", "why")]
    role = _actor_role(happenings[0])
    fitting = [p for p in _of_actor(happenings[0]) if p.segments and len(p.segments[0].words) == 1]
    if not fitting:
        return None
    phrase = teller.rng.choice(fitting)
    said = []
    for at, happening in enumerate(happenings):
        clause = teller.clause(happening, phrase, words=phrase.segments[0].words)
        naming = teller.naming(happening)
        told = [name for name in names if name in happening.circumstances]
        subject = naming(role, "subject")
        rest = clause.rest(naming) if at else clause.predicate(naming)
        said.append(f"{subject} {rest}{teller.tail(happening, told)}")
    return series(said, "and") if teller.rng.random() < 0.5 else f"{', '.join(said[:-1])}, and {said[-1]}"


def passives_of_one(teller: Teller, happenings: list[Happening], thing: Entity) -> str | None:
    """ "The clock was mended by Ann and sold by Tom"."""
    clauses: list[tuple[Happening, Clause]] = []
    for happening in happenings:
        role = next((r for r, e in happening.roles.items() if e is thing), "")
        phrase: Phrase | None = teller.phrase_of(happening, passive=role) if role else None
        if phrase is None:
            return None
        clauses.append((happening, teller.clause(happening, phrase)))
    subject = teller.name(thing, "subject")
    said = [clause.passive_predicate(teller.naming(h)) + teller.tail(h, ordered(h)) for h, clause in clauses]
    said[1:] = [text.split(" ", 1)[1] if teller.rng.random() < 0.6 else text for text in said[1:]]
    return f"{subject} {series(said, teller.rng.choice(('and', 'and later', 'and then')))}"
