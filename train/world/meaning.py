"""Meanings: one sort of happening, and the phrases of English that say it. Knows neither people nor passages.

`tables/meanings/work.txt` says how a block of the tables is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from train import tables
from train.tables import Block, Line
from train.world.english import GRAMMAR

_ROLE = re.compile(r"(?<![\w'])([A-Z])\b")
_GROUP = re.compile(r"\(([^)]*)\)|([^()]+)")
PREPOSITIONS = frozenset(GRAMMAR["preposition"])
_NEVER_PASSIVE = frozenset(GRAMMAR["has no passive"])
_PARTICLES = frozenset(GRAMMAR["particle"])  # "look after X", "sew up X"


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
    """One way to say what happened."""

    subject: str  # a role
    verb: str  # in its base form
    segments: tuple[Segment, ...]  # what follows the verb
    passive: str  # the role that is the subject of the passive, or ""
    is_asked: bool = True  # whether questions use it
    is_told: bool = True  # whether passages use it

    @property
    def is_broad(self) -> bool:
        """Whether it says less than what happened, so that another happening may fit it too."""
        return self.is_asked and not self.is_told

    @cached_property
    def roles(self) -> frozenset[str]:
        """All that it can name."""
        return frozenset({self.subject}).union(*(segment.roles for segment in self.segments))

    @cached_property
    def needed(self) -> frozenset[str]:
        """Those that it has to name."""
        return frozenset({self.subject}).union(*(s.roles for s in self.segments if not s.is_optional))


@dataclass(frozen=True)
class Meaning:
    """One sort of happening; see this module for how its table is written."""

    name: str  # unique among all meanings
    roles: dict[str, tuple[str, ...]]  # role -> kinds that may fill it
    circumstances: tuple[str, ...]  # what may be told beside the roles, by name
    stage: int  # 0 for what makes a thing, 1 for what is done with it, 2 for what ends it
    is_state: bool  # whether it is told in the present too
    is_chance: bool  # whether nobody sets out to do it
    phrases: tuple[Phrase, ...]  # the ways to say it
    nominals: tuple[str, ...]  # its names, such as "the sale of X"
    questions: dict[str, tuple[str, ...]]  # role or circumstance -> whole questions

    @cached_property
    def told(self) -> tuple[Phrase, ...]:
        return tuple(phrase for phrase in self.phrases if phrase.is_told)

    @cached_property
    def asked(self) -> tuple[Phrase, ...]:
        return tuple(phrase for phrase in self.phrases if phrase.is_asked)


def is_role(word: str) -> bool:
    return len(word) == 1 and word.isupper()


def roles_in(template: str) -> frozenset[str]:
    """The roles that a nominal or a whole question names."""
    return frozenset(_ROLE.findall(template))


def meaning_of(block: Block) -> Meaning:
    """The meaning of a block.

    Raises:
        ValueError: if a line names a role that the meaning has not, or no phrase tells it.
    """
    rest, _, stage = block.head.text.partition(" @")
    declared, _, circumstances = rest.partition(" + ")
    is_state, is_chance = "now" in rest.split(), "chance" in rest.split()
    kinds = {role: tuple(of.split(",")) for role, _, of in (e.partition("=") for e in declared.split() if "=" in e)}
    phrases: list[Phrase] = []
    nominals: list[str] = []
    questions: dict[str, tuple[str, ...]] = {}
    for line in block.lines:
        mark, _, text = line.text.partition(" ")
        if asked := mark[:-1] if re.fullmatch(r"([A-Z]|[a-z]+)\?", mark) else "":
            questions[asked] = questions.get(asked, ()) + tables.wordings(text)
            named = {role for question in questions[asked] for role in roles_in(question)}
            named |= {asked} if is_role(asked) else set()
        elif mark == "=":
            nominals += tables.wordings(text)
            named = {role for nominal in nominals for role in roles_in(nominal)}
        else:
            entries = tables.wordings(text) if mark in "?!" else line.wordings
            phrases += (_phrase(entry, line, is_asked=mark != "!", is_told=mark != "?") for entry in entries)
            named = {role for phrase in phrases for role in phrase.roles}
        if unknown := named - kinds.keys():
            raise line.error(f"meaning {block.name}: it names {sorted(unknown)}, which it has no role for")
    if not any(phrase.is_told for phrase in phrases):
        raise block.head.error(f"meaning {block.name}: no phrase tells it")
    taken = tuple(name for name in circumstances.split() if name not in ("now", "chance"))
    told, named_as = tuple(phrases), tuple(nominals)
    return Meaning(block.name, kinds, taken, int(stage or 1), is_state, is_chance, told, named_as, questions)


def _phrase(text: str, line: Line, *, is_asked: bool, is_told: bool) -> Phrase:
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
        raise line.error(f"phrase {text!r}: it has to begin with a role")
    return Phrase(subject, verb, segments, passive, is_asked, is_told)


_TABLES = ("work", "goods", "ways", "people", "states")
MEANINGS = tuple(meaning_of(block) for name in _TABLES for block in tables.read(f"meanings/{name}"))


def _alike() -> dict[str, frozenset[str]]:
    known = {meaning.name for meaning in MEANINGS}
    found: dict[str, frozenset[str]] = {}
    for block in tables.read("meanings/alike"):
        for line in block.lines:
            names = frozenset(line.text.split())
            if unknown := names - known:
                raise line.error(f"there are no meanings {sorted(unknown)}")
            for name in names:
                found[name] = found.get(name, frozenset()) | names
    return found


ALIKE = _alike()
"""Name of a meaning -> names of those that must not stand beside it."""
