"""Meanings: one sort of happening, and the phrases of English that say it. Knows neither people nor passages.

A table of meanings is text, an empty line between two of them:

    sell : A=person B=person X=animal,tool + when where price @1
      A sell X (to B) | B buy X (from A) | B get X (from A) ~
      = the sale of X
      ? A part with X
      X? What changed hands?

The first line names the meaning, its roles with the kinds that fill them, the circumstances that it takes, and at what
stage of a thing's life it comes: `@0` making, `@1` using, `@2` the end. `now` says that it is a state, which is told
in the present too; `chance` that nobody sets out to do it.

Then come phrases: a role as the subject, a verb in its base form, and what follows; in parentheses what may be left
out. A phrase whose verb is followed by a role, at most with a particle before it, has a passive, unless it ends in `~`.
Phrases after `?` are only asked, since they say less than what happened; those after `!` are only told, since they say
more. After `=` stand names of the happening. `X?` or `price?` begins whole questions about a role or a circumstance.
"their" in a phrase is its subject's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from train.world.words import words

_ROLE = re.compile(r"(?<![\w'])([A-Z])\b")
_GROUP = re.compile(r"\(([^)]*)\)|([^()]+)")
PREPOSITIONS = frozenset(words("to from with for at in on by of about into against over under near as behind through"))
_NEVER_PASSIVE = frozenset(words("be have get let cost"))
_PARTICLES = frozenset(words("up down off out away back in on over after for together"))  # "look after X", "sew up X"


@dataclass(frozen=True)
class Segment:
    """Words and roles (single capitals) that stand or are left out together."""

    words: tuple[str, ...]
    is_optional: bool

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(word[0] for word in self.words if is_role(word.removesuffix("'s")))


@dataclass(frozen=True)
class Phrase:
    """One way to say what happened.

    Args:
        subject: a role.
        verb: in its base form.
        segments: what follows the verb.
        passive: the role that is the subject of the passive, or "".
        is_asked: whether questions use it.
        is_told: whether passages use it.
        is_broad: whether it says less than what happened, so that another happening may fit it too.
    """

    subject: str
    verb: str
    segments: tuple[Segment, ...]
    passive: str
    is_asked: bool = True
    is_told: bool = True
    is_broad: bool = False
    roles: frozenset[str] = field(init=False)  # all that it can name
    needed: frozenset[str] = field(init=False)  # those that it has to name

    def __post_init__(self) -> None:
        named = [(segment.roles, segment.is_optional) for segment in self.segments]
        object.__setattr__(self, "roles", frozenset({self.subject}).union(*(roles for roles, _ in named)))
        needed = (roles for roles, is_optional in named if not is_optional)
        object.__setattr__(self, "needed", frozenset({self.subject}).union(*needed))


@dataclass(frozen=True)
class Meaning:
    """One sort of happening; see this module for how its table is written.

    Args:
        name: unique among all meanings.
        roles: role -> kinds that may fill it.
        circumstances: what may be told beside the roles, by name.
        stage: 0 for what makes a thing, 1 for what is done with it, 2 for what ends it.
        is_state: whether it is told in the present too.
        is_chance: whether nobody sets out to do it.
        phrases: the ways to say it.
        nominals: its names, such as "the sale of X".
        questions: role or circumstance -> whole questions.
    """

    name: str
    roles: dict[str, tuple[str, ...]]
    circumstances: tuple[str, ...]
    stage: int
    is_state: bool
    is_chance: bool
    phrases: tuple[Phrase, ...]
    nominals: tuple[str, ...]
    questions: dict[str, tuple[str, ...]]
    told: tuple[Phrase, ...] = field(init=False)
    asked: tuple[Phrase, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", tuple(p for p in self.phrases if p.is_told))
        object.__setattr__(self, "asked", tuple(p for p in self.phrases if p.is_asked))


def is_role(word: str) -> bool:
    return len(word) == 1 and word.isupper()


def roles_in(template: str) -> frozenset[str]:
    """The roles that a nominal or a whole question names."""
    return frozenset(_ROLE.findall(template))


def parse(table: str) -> tuple[Meaning, ...]:
    """The meanings of a table.

    Raises:
        ValueError: if a line names a role that its meaning has not, or a meaning has no phrase to be told in.
    """
    return tuple(_meaning(block.strip()) for block in table.strip().split("\n\n"))


def _meaning(block: str) -> Meaning:
    head, *lines = (line.strip() for line in block.splitlines())
    if lines[0].startswith("+ "):
        head += " " + lines.pop(0)
    name, _, rest = head.partition(" : ")
    rest, _, stage = rest.partition(" @")
    declared, _, circumstances = rest.partition(" + ")
    is_state, is_chance = "now" in rest.split(), "chance" in rest.split()
    roles = dict(entry.split("=") for entry in declared.split() if "=" in entry)
    phrases: list[Phrase] = []
    nominals: list[str] = []
    questions: dict[str, tuple[str, ...]] = {}
    for line in lines:
        mark, _, text = line.partition(" ")
        if re.fullmatch(r"([A-Z]|[a-z]+)\?", mark):
            questions[mark[:-1]] = questions.get(mark[:-1], ()) + _split(text)
        elif mark == "=":
            nominals += _split(text)
        elif mark in "?!":
            phrases += (_phrase(entry, is_asked=mark == "?", is_told=mark == "!") for entry in _split(text))
        else:
            phrases += (_phrase(entry) for entry in _split(line))
    named = {role for phrase in phrases for role in phrase.roles}
    named |= {role for text in nominals for role in roles_in(text)}
    named |= {role for asked in questions.values() for text in asked for role in roles_in(text)}
    named |= {asked for asked in questions if is_role(asked)}
    if unknown := named - roles.keys():
        raise ValueError(f"meaning {name}: it names {sorted(unknown)}, which it has no role for")
    if not any(phrase.is_told for phrase in phrases):
        raise ValueError(f"meaning {name}: no phrase tells it")
    kinds = {role: tuple(kind.split(",")) for role, kind in roles.items()}
    return Meaning(
        name.strip(),
        kinds,
        tuple(name for name in circumstances.split() if name not in ("now", "chance")),
        int(stage or 1),
        is_state,
        is_chance,
        tuple(phrases),
        tuple(nominals),
        questions,
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split("|"))


def _phrase(text: str, *, is_asked: bool = True, is_told: bool = True) -> Phrase:
    has_passive = not text.endswith("~")
    subject, verb, *rest = text.removesuffix("~").split(maxsplit=2)
    segments = tuple(
        Segment(tuple((optional or needed).split()), bool(optional))
        for optional, needed in _GROUP.findall(rest[0] if rest else "")
        if (optional or needed).strip()
    )
    passive = ""
    if has_passive and verb not in _NEVER_PASSIVE and segments and not segments[0].is_optional:
        first = segments[0].words
        at = next((i for i, word in enumerate(first) if is_role(word)), None)
        if at == 0 or (at == 1 and first[0] in _PARTICLES):
            passive = first[at]
    if not is_role(subject):
        raise ValueError(f"phrase {text!r}: it has to begin with a role")
    return Phrase(subject, verb, segments, passive, is_asked, is_told, is_broad=is_asked and not is_told)
