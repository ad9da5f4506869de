"""Parsing answers: reasoning first, then content and calls, from the text of one choice."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from quire.server.tools.parser import (
    CallArguments,
    CallStart,
    Content,
    Event,
    Reasoning,
    ReasoningMarkers,
    ReasoningParser,
    ToolParser,
    merge,
)

_HEAD_TOKENS = 16  # enough for blanks and a marker
_PIECE = 4096  # characters to parse at once: a parser copies the rest behind each marker


@dataclass(frozen=True)
class ParsedCall:
    id: str
    name: str
    arguments: str  #: JSON object, unless the answer was cut off


@dataclass(frozen=True)
class ParsedAnswer:
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


@dataclass(frozen=True)
class AnswerForm:
    reasoning: ReasoningMarkers | None = None
    is_thinking: bool = False  #: whether the prompt ends within reasoning
    shows_reasoning: bool = True  #: False removes reasoning
    is_exact: bool = False  #: keep blanks behind reasoning, which a grammar allows
    tools: type[ToolParser] | None = None  #: parser of calls
    schemas: Mapping[str, Any] = field(default_factory=dict)  #: of parameters, by function
    is_parallel: bool = True  #: False removes all calls but the first
    specials: tuple[int, ...] = ()  #: ids of special tokens that the text must keep

    def num_reasoning_tokens(self, token_ids: Sequence[int], tokenizer: Any) -> int:
        """Return the number of tokens up to the end of the reasoning; all if it has no end, 0 if it has no start."""
        if self.reasoning is None:
            return 0
        head: str = tokenizer.decode(token_ids[:_HEAD_TOKENS], skip_special_tokens=False)
        if not self.is_thinking and not head.lstrip().startswith(self.reasoning.opening):
            return 0
        closing = tokenizer.backend.token_to_id(self.reasoning.closing)
        if closing in token_ids:
            return token_ids.index(closing)
        text: str = tokenizer.decode(token_ids, skip_special_tokens=False)
        thought, marker, _ = text.partition(self.reasoning.closing)
        if not marker:
            return len(token_ids)

        def num_characters(num_tokens: int) -> int:
            return len(tokenizer.decode(token_ids[:num_tokens], skip_special_tokens=False))

        return bisect_left(range(len(token_ids)), len(thought), key=num_characters)


class AnswerReader:
    """Parses one answer. The events do not depend on how its text is split.

    Blanks around reasoning, and between content and calls, belong to the template and are removed.
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        markers = form.reasoning
        self._reasoning = None if markers is None else ReasoningParser(markers, is_open=form.is_thinking)
        self._tools = None if form.tools is None else form.tools(form.schemas)
        self._reasoning_blanks = _Blanks(at_start=True)
        self._content_blanks = _Blanks(at_start=False)
        self.num_calls = 0  #: started calls

    def feed(self, text: str) -> list[Event]:
        """Return the events in a further piece of text."""
        thought = ""
        if self._reasoning is not None:
            thought, text = self._reasoning.feed(text)
        events = self._tools.feed(text) if self._tools is not None else [Content(text)]
        return self._show([Reasoning(thought), *events])

    def finish(self) -> list[Event]:
        """Return the events in the rest, at the end of the text."""
        thought, text = self._reasoning.finish() if self._reasoning is not None else ("", "")
        events = [Content(text)] if self._tools is None else [*self._tools.feed(text), *self._tools.finish()]
        shown = self._show([Reasoning(thought), *events])
        return merge([*shown, Content(self._content_blanks.flush())])

    def read(self, text: str) -> list[Event]:
        """Return the events of a whole answer."""
        pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        return merge([*(event for piece in pieces for event in self.feed(piece)), *self.finish()])

    def _show(self, events: Iterable[Event]) -> list[Event]:
        shown: list[Event] = []
        for event in events:
            match event:
                case Reasoning(text="") | Content(text=""):
                    continue
                case Reasoning() if self._form.reasoning is not None:
                    self._content_blanks = _Blanks(at_start=not self._form.is_exact)
                    if self._form.shows_reasoning:
                        shown.append(Reasoning(self._reasoning_blanks.strip(event.text)))
                case Reasoning() | Content():
                    shown.append(Content(self._content_blanks.strip(event.text)))
                case CallStart(index=index):
                    self._content_blanks = _Blanks(at_start=True)
                    if self._form.is_parallel or not index:
                        self.num_calls += 1
                        shown.append(event)
                case CallArguments(index=index) if self._form.is_parallel or not index:
                    shown.append(event)
        return merge(shown)


class _Blanks:
    """Holds blanks at the end of streamed text back until more text follows, and removes those `at_start`."""

    def __init__(self, *, at_start: bool) -> None:
        self._at_start = at_start
        self._held = ""

    def strip(self, text: str) -> str:
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
