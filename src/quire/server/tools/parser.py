"""What the parsers of all families share: text up to a marker is content, what follows the marker may be calls."""

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
    """Tells content and tool calls apart, in text that may be split anywhere.

    What begins like a call and turns out to be none is content, word for word. So is half a marker at the text's end.

    Args:
        tool_names: the functions that there are.
    """

    markers: ClassVar[tuple[str, ...]]  #: that begin calls, and others that the text must still have: often special
    openings: ClassVar[tuple[str, ...]]  #: of them, those that begin calls
    closing: ClassVar[str | None] = None  #: stands behind a call and says nothing

    def __init__(self, tool_names: Collection[str]) -> None:
        self.tool_names = frozenset(tool_names)
        self._events: list[Event] = []
        self._num_calls = 0
        self._search: MarkerSearch | None = MarkerSearch(self.openings)  # None while calls are read
        self._marker = ""  # behind which they are read
        self._reading: Generator[None, str, str] | None = None
        self._attempt: list[str] | None = None  # what was read of a call that has no name yet
        self._has_call = False  # behind this marker

    @property
    def num_calls(self) -> int:
        """That have begun."""
        return self._num_calls

    def feed(self, text: str) -> list[Event]:
        """What a further piece of text turns out to be."""
        self._take(text)
        events, self._events = self._events, []
        return merge(events)

    def finish(self) -> list[Event]:
        """What the rest is, now that the text has ended."""
        if self._search is None:
            self._step("")
        if self._search is not None:
            self._say(self._search.flush())
        events, self._events = self._events, []
        return merge(events)

    @abstractmethod
    def _read(self, marker: str, character: str) -> Reading[str]:
        """Read the calls behind a marker, beginning with this character."""

    def start(self, name: str) -> bool:
        """A call begins. (`CallSink`)"""
        self._events.append(CallStart(self._num_calls, self._new_id(), name))
        self._num_calls += 1
        self._attempt, self._has_call = None, True
        return True

    def arguments(self, text: str) -> None:
        """More of its arguments. (`CallSink`)"""
        if text:
            self._events.append(CallArguments(self._num_calls - 1, text))

    def expect_another(self) -> None:
        """A call was read to its end: what follows is content again, unless it becomes a call."""
        self._attempt = []

    def _new_id(self) -> str:
        return f"call_{random_id(24)}"

    def _take(self, text: str) -> None:
        while text:
            if self._search is None:
                position = 0
                while position < len(text) and self._search is None:
                    position += 1
                    rest = self._step(text[position - 1])
                text = rest + text[position:]
                continue
            before, marker, text = self._search.feed(text)
            self._say(before)
            if marker is not None and marker != self.closing:
                self._begin(marker)
            elif marker is not None:
                self._search = MarkerSearch(self.openings)

    def _begin(self, marker: str) -> None:
        """Read calls from here on."""
        self._search, self._reading = None, None
        self._marker, self._attempt, self._has_call = marker, [marker], False

    def _step(self, character: str) -> str:
        """Read a character of a call, "" at the end. Returns it where it is none of the call's."""
        try:
            if self._reading is None:
                self._reading = self._read(self._marker, character)
                next(self._reading)
            else:
                self._reading.send(character)
        except StopIteration as stop:
            return self._end(stop.value)
        except NotACall as error:
            self._say("".join(self._attempt or ()))
            return self._end(error.rest)
        if self._attempt is not None:
            self._attempt.append(character)
        return ""

    def _end(self, rest: str) -> str:
        """Go back to content."""
        closing = () if self.closing is None or not self._has_call else (self.closing,)
        self._search = MarkerSearch((*self.openings, *closing))
        self._reading, self._attempt = None, None
        return rest

    def _say(self, text: str) -> None:
        if text:
            self._events.append(Content(text))
