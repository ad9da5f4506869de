"""Things of everyday life by kind, and what a question calls a thing of that kind: "Which tool ...?"

`tables/nouns/things.txt` says how a block of the tables is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from train import tables
from train.tables import Block, phrases


@dataclass(frozen=True)
class Noun:
    text: str  # without an article
    is_plural: bool = False  # takes "are" and "they"
    is_mass: bool = False  # takes no "a"


@dataclass(frozen=True)
class Kind:
    asked: tuple[str, ...]  # nouns after "which" for things of this kind; may be empty
    adjectives: tuple[str, ...]  # which go with any of them
    nouns: tuple[Noun, ...]  # the things


def _kind(block: Block) -> Kind:
    adjectives = " ".join(line.text[2:] for line in block.lines if line.text.startswith("/ "))
    nouns = " ".join(line.text for line in block.lines if not line.text.startswith("/ "))
    marked = (Noun(noun.rstrip("*~"), "*" in noun, "~" in noun or "*" in noun) for noun in phrases(nouns))
    return Kind(phrases(block.head.text), phrases(adjectives), tuple(marked))


KINDS = {block.name: _kind(block) for name in ("things", "few") for block in tables.read(f"nouns/{name}")}


def _asked_as() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for noun, asked in ((noun, kind.asked) for kind in KINDS.values() for noun in kind.nouns):
        found.setdefault(noun.text, set()).update(asked)
    return found


ASKED_AS = _asked_as()
"""Noun -> what a question may call it after "which"."""
