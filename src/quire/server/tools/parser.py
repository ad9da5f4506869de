"""The base of tool parsers: text before a marker is content, text behind it may be calls."""

from __future__ import annotations

import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator
from typing import ClassVar

from quire.server.tools.events import CallArguments, CallStart, Content, Event, merge
from quire.server.tools.json_reading import NotACall, Reading
from quire.server.tools.markers import MarkerSearch

_ID_CHARACTERS = string.ascii_letters + string.digits


def random_id(length: int) -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(length))


class ToolParser(ABC):
    """Separates content from tool calls, in text that may be split anywhere. Implements `CallSink`.

    A text that starts like a call and is none is content, as is half a marker at the end.

    Args:
        tool_names: names of the functions.
    """

    markers: ClassVar[tuple[str, ...]]  #: all markers, often special tokens, which the text must keep
    openings: ClassVar[tuple[str, ...]]  #: markers that open calls
    closing: ClassVar[str | None] = None  #: marker behind a call, without meaning

    def __init__(self, tool_names: Collection[str]) -> None:
        self.tool_names = frozenset(tool_names)
        self.num_calls = 0  #: started calls
        self._events: list[Event] = []
        self._search: MarkerSearch | None = MarkerSearch(self.openings)  # None within calls
        self._marker = ""  # before the present calls
        self._reading: Generator[None, str, str] | None = None
        self._attempt: list[str] | None = None  # text of a call without a name yet
        self._has_call = False  # behind the present marker

    def feed(self, text: str) -> list[Event]:
        """Return the events in a further piece of text."""
        while text:
            if self._search is None:
                position = 0
                while position < len(text) and self._search is None:
                    position += 1
                    rest = self._step(text[position - 1])
                text = rest + text[position:]
                continue
            before, marker, text = self._search.feed(text)
            self._add_content(before)
            if marker is not None and marker != self.closing:
                self._open(marker)
            elif marker is not None:
                self._search = MarkerSearch(self.openings)
        return self._take_events()

    def finish(self) -> list[Event]:
        """Return the events in the rest, at the end of the text."""
        if self._search is None:
            self._step("")
        if self._search is not None:
            self._add_content(self._search.flush())
        return self._take_events()

    @abstractmethod
    def _read(self, marker: str, character: str) -> Reading[str]:
        """Read the calls behind a marker, from this character on."""

    def start(self, name: str) -> bool:
        self._events.append(CallStart(self.num_calls, self._new_id(), name))
        self.num_calls += 1
        self._attempt, self._has_call = None, True
        return True

    def arguments(self, text: str) -> None:
        if text:
            self._events.append(CallArguments(self.num_calls - 1, text))

    def end_call(self) -> None:
        """End a call: further text is content, unless it becomes a call."""
        self._attempt = []

    def _new_id(self) -> str:
        return f"call_{random_id(24)}"

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return merge(events)

    def _open(self, marker: str) -> None:
        self._search, self._reading = None, None
        self._marker, self._attempt, self._has_call = marker, [marker], False

    def _step(self, character: str) -> str:
        """Read one character of a call, "" at the end. Returns it if it belongs to no call."""
        try:
            if self._reading is None:
                self._reading = self._read(self._marker, character)
                next(self._reading)
            else:
                self._reading.send(character)
        except StopIteration as stop:
            return self._return_to_content(stop.value)
        except NotACall as error:
            self._add_content("".join(self._attempt or ()))
            return self._return_to_content(error.rest)
        if self._attempt is not None:
            self._attempt.append(character)
        return ""

    def _return_to_content(self, rest: str) -> str:
        closing = () if self.closing is None or not self._has_call else (self.closing,)
        self._search = MarkerSearch((*self.openings, *closing))
        self._reading, self._attempt = None, None
        return rest

    def _add_content(self, text: str) -> None:
        if text:
            self._events.append(Content(text))
