"""An answer's text, from one choice's deltas to events: thoughts first, then content and calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from quire.server.tools.events import CallArguments, CallStart, Content, Event, Reasoning, merge
from quire.server.tools.parser import ToolParser
from quire.server.tools.reasoning import ReasoningParser

_PIECE = 4096  # characters of a whole answer that are read at once: a parser copies what is left behind each marker


@dataclass(frozen=True)
class ParsedCall:
    """A call of a function."""

    id: str
    name: str
    arguments: str  #: a JSON object, if the model came to its end


@dataclass(frozen=True)
class ParsedAnswer:
    """All that an answer's events say."""

    reasoning: str
    content: str
    calls: list[ParsedCall]

    @classmethod
    def of(cls, events: Sequence[Event]) -> Self:
        arguments: defaultdict[int, list[str]] = defaultdict(list)
        for event in events:
            if isinstance(event, CallArguments):
                arguments[event.index].append(event.text)
        return cls(
            "".join(event.text for event in events if isinstance(event, Reasoning)),
            "".join(event.text for event in events if isinstance(event, Content)),
            [
                ParsedCall(each.id, each.name, "".join(arguments[each.index]))
                for each in events
                if isinstance(each, CallStart)
            ],
        )


class AnswerReader:
    """Reads one answer. However its text is split, the events say the same.

    Blanks around thoughts, and those between content and calls, belong to the template: they are left out.

    Args:
        reasoning: None where the model does not think.
        tools: None where it calls nothing.
        is_parallel: False leaves out all calls but the first.
        shows_reasoning: False leaves out the thoughts.
    """

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolParser | None,
        *,
        is_parallel: bool = True,
        shows_reasoning: bool = True,
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._is_parallel = is_parallel
        self._shows_reasoning = shows_reasoning
        self._thought_blanks = _Blanks(at_start=True)
        self._content_blanks = _Blanks(at_start=False)
        self.num_calls = 0  #: that have begun

    def feed(self, text: str) -> list[Event]:
        """What a further piece of text turns out to be."""
        thought = ""
        if self._reasoning is not None:
            thought, text = self._reasoning.feed(text)
        return self._show(thought, self._tools.feed(text) if self._tools is not None else [Content(text)])

    def finish(self) -> list[Event]:
        """What the rest is, now that the text has ended."""
        thought, text = self._reasoning.finish() if self._reasoning is not None else ("", "")
        events = [Content(text)] if self._tools is None else [*self._tools.feed(text), *self._tools.finish()]
        shown = self._show(thought, events)
        return merge([*shown, Content(self._content_blanks.flush())])

    def read(self, text: str) -> list[Event]:
        """A whole answer."""
        pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        return merge([*(event for piece in pieces for event in self.feed(piece)), *self.finish()])

    def _show(self, thought: str, events: Iterable[Event]) -> list[Event]:
        shown: list[Event] = []
        if thought:
            self._content_blanks = _Blanks(at_start=True)
            if self._shows_reasoning:
                shown.append(Reasoning(self._thought_blanks.pass_on(thought)))
        for event in events:
            match event:
                case Content():
                    shown.append(Content(self._content_blanks.pass_on(event.text)))
                case CallStart(index=index):
                    self._content_blanks = _Blanks(at_start=True)
                    if self._is_parallel or not index:
                        self.num_calls += 1
                        shown.append(event)
                case CallArguments(index=index) if self._is_parallel or not index:
                    shown.append(event)
        return merge(shown)


class _Blanks:
    """Holds the blanks at a text's end back until more of it comes.

    Args:
        at_start: leave out those at its beginning.
    """

    def __init__(self, *, at_start: bool) -> None:
        self._at_start = at_start
        self._held = ""

    def pass_on(self, text: str) -> str:
        if self._at_start:
            text = text.lstrip()
            self._at_start = not text
        text = self._held + text
        shown = text.rstrip()
        self._held = text[len(shown) :]
        return shown

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held
