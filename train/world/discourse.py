"""How English strings happenings together: openings, joints, contrasts, and what is said beside the point."""

from __future__ import annotations

from dataclasses import dataclass

from train import tables

SAID = tables.sentences("discourse")
"""Patterns by what they do; the table says what they hold."""


def _of_one(name: str) -> tuple[str, ...]:
    """The patterns that suit a description of one person only, such as "younger sister"."""
    return tuple(pattern for pattern in SAID[name] if "{a_label}" not in pattern)


SAID["definite introductions"] = _of_one("introductions") + SAID["definite introductions"]
SAID["definite questions"] = _of_one("label questions") + SAID["definite questions"]
SAID["trade introductions"] = SAID["introductions"] + SAID["trade introductions"]
SAID["other roles"] = SAID["corrections"] + SAID["other roles"]
SAID["two at once"] += tuple(f"{{one}}{joint} {{two}}" for joint in SAID["joints"])

DUTIES = tuple((text.removeprefix("! "), text.startswith("! ")) for text in SAID["duties"])
"""Ways to say who did it, and whether they only suit what is a task."""


@dataclass(frozen=True)
class Attitude:
    """What somebody felt about doing something that, in the end, somebody else did."""

    told: tuple[str, ...]  # before the infinitive
    asked: tuple[str, ...]  # likewise, in a question after "who"
    is_no: bool = False  # whether it is a reason why somebody else had to


ATTITUDES = tuple(
    Attitude(told.wordings, tables.wordings(asked.text.removeprefix("? ")), is_no=block.head.text == "no")
    for block in tables.read("attitudes")
    for told, asked in [block.lines]
)
