"""A frame: one sort of fact, the sentences that can tell it and the questions that can be asked about it.

In the tables of frames a block is a frame. Its head names the slots with their kinds, a line is a telling, and after
`slot?` stand questions whose answer that slot is.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from train import tables

_PARSER = string.Formatter()
_ASKED = re.compile(r"(\w+)\? (.*)")
FORMS = frozenset({"", "a", "A", "s", "they", "them", "their", "They", "Their"})


@dataclass(frozen=True)
class Frame:
    """A sort of fact with named slots.

    A template names slots in braces: `{who}` is the value itself, `{thing:a}` has its indefinite article,
    `{who:s}` is possessive, and `{who:they}`, `{who:them}`, `{who:their}` are the pronouns of a person who was
    named earlier in the same sentence. A question may be asked of a sentence that tells the slot itself and every
    slot that the question names; one that names none only where the passage tells the frame once.
    """

    name: str  # unique among all frames
    slots: Mapping[str, str]  # slot -> kind of value, a name in `words.KINDS`
    sentences: tuple[str, ...]  # one or a few that belong together; each names two slots or more, and need not name all
    questions: Mapping[str, tuple[str, ...]]  # slot -> questions whose answer it is
    named: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)  # template -> its slots

    @property
    def num_facts(self) -> int:
        """How many facts a telling counts for: two where a scene is told in several sentences."""
        return 2 if any(". " in sentence for sentence in self.sentences) else 1

    def __post_init__(self) -> None:
        named = {}
        for template in (*self.sentences, *(q for asked in self.questions.values() for q in asked)):
            names = slots_of(template)
            if unknown := names - self.slots.keys():
                raise ValueError(f"frame {self.name}: {template!r} names {sorted(unknown)}, which it has no slot for")
            named[template] = names
        for sentence in self.sentences:
            if len(named[sentence]) < 2:
                raise ValueError(f"frame {self.name}: {sentence!r} tells fewer than two slots")
        for slot, asked in self.questions.items():
            if slot not in self.slots:
                raise ValueError(f"frame {self.name}: questions about {slot!r}, which is no slot")
            for question in asked:
                if slot in named[question]:
                    raise ValueError(f"frame {self.name}: {question!r} tells the slot that it asks for")
                if not any({slot, *named[question]} <= named[sentence] for sentence in self.sentences):
                    raise ValueError(f"frame {self.name}: no sentence tells what {question!r} needs")
        object.__setattr__(self, "named", named)


def slots_of(template: str) -> frozenset[str]:
    """The slots that a template names.

    Raises:
        ValueError: if a form such as `{who:xyz}` is none of `FORMS`.
    """
    names = set()
    for _, name, form, _ in _PARSER.parse(template):
        if name is not None:
            if form not in FORMS:
                raise ValueError(f"{template!r}: {form!r} is no form; there are {', '.join(sorted(FORMS - {''}))}")
            names.add(name)
    return frozenset(names)


def read_frames(*names: str) -> tuple[Frame, ...]:
    """The frames of these tables; of a line that `Frame` refuses, the error names file and line."""
    return tuple(frame_of(block) for name in names for block in tables.read(f"frames/{name}"))


def frame_of(block: tables.Block) -> Frame:
    entries = block.head.text.split()
    if wrong := [entry for entry in entries if "=" not in entry]:
        raise block.head.error(f"frame {block.name}: {wrong[0]!r} is no slot; expected slot=kind")
    slots = dict(entry.split("=") for entry in entries)
    sentences: list[str] = []
    questions: dict[str, tuple[str, ...]] = {}
    for line in block.lines:
        if asked := _ASKED.fullmatch(line.text):
            questions[asked[1]] = questions.get(asked[1], ()) + tables.wordings(asked[2])
        else:
            sentences.append(line.text)
    try:
        return Frame(block.name, slots, tuple(sentences), questions)
    except ValueError as error:
        raise block.head.error(error) from None
