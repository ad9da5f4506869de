"""Tables: the text files in `tables/` that all words and sentences of the recipe stand in, and how a file is read.

    # Frames about people's lives.
    people_born : who=person town=town year=year
      {who} was born in {town} in {year}.
      town? Where was {who} born? | In which town was {who} born? | What is the birthplace of {who}?
        | {who} was born in which town?

A block begins with its name and " : ", then whatever holds for all of it. Its entries are indented by two blanks; what
is indented further goes on with the line above. "|" stands between wordings of the same, a comma between words. What
stands there twice is drawn twice as often. A line that begins with "#" is a comment.

What an entry means is for the module that draws from the table to say. Draws depend on the order of the entries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

_FOLDER = Path(__file__).parent / "tables"
_HEAD = re.compile(r"(\S[^:]*) :(?: (\S.*))?")


@dataclass(frozen=True)
class Line:
    text: str  # without indentation, with what goes on with it
    place: str  # file and number of the line

    def error(self, what: object) -> ValueError:
        return ValueError(f"{self.place}: {what}")

    @property
    def wordings(self) -> tuple[str, ...]:
        return wordings(self.text)


@dataclass(frozen=True)
class Block:
    name: str  # unique in its table
    head: Line  # what stands after the name
    lines: tuple[Line, ...]  # the entries

    @property
    def words(self) -> tuple[str, ...]:
        """All its words and phrases, which stand between commas."""
        return phrases(" ".join(line.text for line in self.lines))

    @property
    def wordings(self) -> tuple[str, ...]:
        """The wordings of all its lines."""
        return tuple(wording for line in self.lines for wording in line.wordings)


def phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(",") if phrase.strip())


def wordings(text: str) -> tuple[str, ...]:
    return tuple(wording.strip() for wording in text.split("|"))


def read(name: str) -> tuple[Block, ...]:
    """The blocks of `tables/<name>.txt`; `parse` says what is refused."""
    file = _FOLDER / f"{name}.txt"
    return parse(file.read_text(encoding="utf-8"), f"tables/{name}.txt")


def words(name: str) -> dict[str, tuple[str, ...]]:
    """The lists of words of a table that holds nothing else, by name."""
    return {block.name: block.words for block in read(name)}


def sentences(name: str) -> dict[str, tuple[str, ...]]:
    """Likewise the lists of wordings."""
    return {block.name: block.wordings for block in read(name)}


def parse(text: str, source: str = "table") -> tuple[Block, ...]:
    """The blocks of a table.

    Args:
        text: the table.
        source: what errors call it.

    Raises:
        ValueError: a line belongs to no block, a block has no entries, or two have one name.
    """
    blocks: dict[str, Block] = {}
    name = ""
    for indent, line in _lines(text, source):
        if indent and not name:
            raise line.error("a table begins with a block's name, which is not indented")
        if indent:
            blocks[name] = replace(blocks[name], lines=(*blocks[name].lines, line))
            continue
        head = _HEAD.fullmatch(line.text)
        if head is None:
            raise line.error(f'{line.text!r}: expected "name : ...", or two blanks before an entry')
        name = head[1]
        if name in blocks:
            raise line.error(f"{name!r} is there already, at {blocks[name].head.place}")
        blocks[name] = Block(name, replace(line, text=head[2] or ""), ())
    for block in blocks.values():
        if not block.lines:
            raise block.head.error(f"{block.name!r} has no entries")
    return tuple(blocks.values())


def _lines(text: str, source: str) -> list[tuple[int, Line]]:
    """Each line with its indentation, 0 or 2, and with the lines that go on with it."""
    found: list[tuple[int, Line]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        said = raw.strip()
        if not said or raw.startswith("#"):
            continue
        indent, line = len(raw) - len(raw.lstrip()), Line(said, f"{source}:{number}")
        if indent == 4 and found:
            before, held = found[-1]
            found[-1] = before, replace(held, text=f"{held.text} {said}")
        elif indent in (0, 2):
            found.append((indent, line))
        else:
            raise line.error(f"it is indented by {indent} blanks; expected none, two, or four below a line")
    return found
