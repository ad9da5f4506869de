"""Things of everyday life by kind, and what a question calls a thing of that kind: "Which tool ...?"

A table of kinds is text, an empty line between two of them:

    tool : tool
      / old, new, rusty
      hammer, saw, pliers*

The first line names the kind, then what a question calls it, if anything; after `/` stand adjectives that go with any
of its things. A noun may be of several kinds; a plural ends in `*`, and what takes no "a" ends in `~`.
"""

from __future__ import annotations

from dataclasses import dataclass

from train.world import nouns_few, nouns_things
from train.world.words import phrases


@dataclass(frozen=True)
class Noun:
    """Args:
    text: without an article.
    is_plural: takes "are" and "they".
    is_mass: takes no "a".
    """

    text: str
    is_plural: bool = False
    is_mass: bool = False


@dataclass(frozen=True)
class Kind:
    """Args:
    asked: nouns after "which" for things of this kind; may be empty.
    adjectives: which go with any of them.
    nouns: the things.
    """

    asked: tuple[str, ...]
    adjectives: tuple[str, ...]
    nouns: tuple[Noun, ...]


def parse(table: str) -> dict[str, Kind]:
    """The kinds of a table, by name."""
    return dict(_kind(block) for block in table.strip().split("\n\n"))


def _kind(block: str) -> tuple[str, Kind]:
    head, *lines = block.splitlines()
    name, _, asked = head.partition(" :")
    adjectives = " ".join(line.strip()[2:] for line in lines if line.startswith("  / "))
    nouns = " ".join(line.strip() for line in lines if not line.startswith("  / "))
    return name, Kind(phrases(asked), phrases(adjectives), tuple(_noun(text) for text in phrases(nouns)))


def _noun(text: str) -> Noun:
    return Noun(text.rstrip("*~"), is_plural="*" in text, is_mass="~" in text or "*" in text)


KINDS: dict[str, Kind] = {**parse(nouns_things.TABLE), **parse(nouns_few.TABLE)}


def _kinds_of() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for kind in KINDS.values():
        for noun in kind.nouns:
            found.setdefault(noun.text, set()).update(kind.asked)
    return {text: frozenset(asked) for text, asked in found.items()}


ASKED_AS = _kinds_of()
"""Noun -> what a question may call it after "which"."""
