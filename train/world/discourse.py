"""How English strings happenings together: openings, joints, contrasts, and what is said beside the point.

`tables/discourse.txt` says what its patterns hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from train import tables

_SAID = tables.sentences("discourse")

APPOSITIONS = _SAID["appositions"]
"""How somebody is named together with a description."""
DEFINITE_APPOSITIONS = _SAID["definite appositions"]

INTRODUCTIONS = _SAID["introductions"]
TRADE_INTRODUCTIONS = (*INTRODUCTIONS, *_SAID["trade introductions"])
"""For descriptions that are trades."""
DEFINITE = (*(pattern for pattern in INTRODUCTIONS if "{a_label}" not in pattern), *_SAID["definite"])
"""For descriptions that fit one person only, such as "younger sister"."""
LABEL_QUESTIONS = _SAID["label questions"]
DEFINITE_QUESTIONS = (
    *(question for question in LABEL_QUESTIONS if "{a_label}" not in question),
    *_SAID["definite questions"],
)
TRADE_QUESTIONS = _SAID["trade questions"]

DUTIES = tuple((text.removeprefix("! "), text.startswith("! ")) for text in _SAID["duties"])
"""Ways to say who did it, and whether they only suit what is a task."""


@dataclass(frozen=True)
class Attitude:
    """What somebody felt about doing something that, in the end, somebody else did.

    Args:
        told: before the infinitive.
        asked: likewise, in a question after "who".
        is_no: whether it is a reason why somebody else had to.
    """

    told: tuple[str, ...]
    asked: tuple[str, ...]
    is_no: bool = False


def _attitude(block: tables.Block) -> Attitude:
    told = [line for line in block.lines if not line.text.startswith("? ")]
    asked = [line for line in block.lines if line.text.startswith("? ")]
    return Attitude(
        tuple(wording for line in told for wording in line.wordings),
        tuple(wording for line in asked for wording in tables.wordings(line.text[2:])),
        is_no=block.head.text == "no",
    )


ATTITUDES = tuple(_attitude(block) for block in tables.read("attitudes"))

TURNS = _SAID["turns"]
"""Somebody wished, refused, ...; somebody else did it."""
TURNS_AFTER_NO = _SAID["turns after no"]
"""Those that only follow a refusal or the like."""
DENIALS = _SAID["denials"]
"""Somebody is named who did not do it."""
OTHER_THINGS = _SAID["other things"]
"""Another thing is named to which it did not happen. The last word of what is told is the thing itself."""
CORRECTIONS = _SAID["corrections"]
"""The same with somebody or something else in one place, which is not what happened."""
OTHER_ROLES = (*CORRECTIONS, *_SAID["other roles"])
"""Those of what somebody sets out to do."""
OTHER_TIMES = _SAID["other times"]
OTHER_PLACES = _SAID["other places"]
OTHER_REASONS = _SAID["other reasons"]

SAID = _SAID["said"]
SAID_BY_OTHERS = _SAID["said by others"]

TWO_AT_ONCE = (*_SAID["two at once"], *(f"{{one}}{joint} {{two}}" for joint in _SAID["joints"]))
SAME_PERSON = _SAID["same person"]
LINKS = _SAID["links"]
OPENINGS = _SAID["openings"]
ASIDES = _SAID["asides"]
WRAPPERS = _SAID["wrappers"]
"""Round about an indirect question: "who mended the clock"."""
