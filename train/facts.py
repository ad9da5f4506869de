"""Simple true facts of the real world, each with several wordings of the question and a short answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from train import tables


class Fact(NamedTuple):
    """A fact: wordings of one question, and the answer to all of them."""

    questions: tuple[str, ...]
    answer: str


def _facts(block: tables.Block) -> Iterator[Fact]:
    forms: tuple[str, ...] = ()  # of a question about each thing of the block
    for line in block.lines:
        if line.text.startswith("? "):
            forms = tables.wordings(line.text[2:])
            continue
        for entry in tables.phrases(line.text) if forms else (line.text,):
            asked, equals, answer = entry.rpartition(" = ")
            if not equals:
                raise line.error(f"{entry!r} has no answer; expected one after =")
            questions = tuple(form.replace("*", asked) for form in forms) or tables.wordings(asked)
            yield Fact(questions, answer)


FACTS = tuple(fact for block in tables.read("facts") for fact in _facts(block))
