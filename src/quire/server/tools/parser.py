"""Parts of parsers: an incremental JSON reader, events, a search for markers, reasoning, and the base of tool parsers.

Each reading function is a generator: it receives characters, "" at the end of the text, starts with its first character
as an argument, and returns the first character behind its own part. So a text may be split anywhere, and arguments are
passed on as they are written. (pydantic's partial JSON returns values: it knows neither their place nor spelling.)
"""

from __future__ import annotations

import json
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
Reading = Generator[None, str, T]

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_-.")  #: of functions
_BLANKS = frozenset(" \t\r\n")
_ARGUMENTS = frozenset({"arguments", "parameters"})


class NotACall(Exception):
    """The text is no call. `rest` is the unread character that showed it, "" at the end of the text."""

    def __init__(self, rest: str) -> None:
        super().__init__(rest)
        self.rest = rest


def skip_blanks(character: str) -> Reading[str]:
    while character and character in _BLANKS:
        character = yield
    return character


def skip(literal: str, character: str) -> Reading[str]:
    """Read a literal. Raises NotACall for other text."""
    for expected in literal:
        if character != expected:
            raise NotACall(character)
        character = yield
    return character


def read_name(character: str) -> Reading[tuple[str, str]]:
    """Return a function's name, and the next character. Raises NotACall if there is none."""
    name = ""
    while character and character in NAME_CHARACTERS:
        name += character
        character = yield
    if not name:
        raise NotACall(character)
    return name, character


def read_until(ends: Sequence[str], character: str, sink: Callable[[str], None]) -> Reading[tuple[str, str]]:
    """Pass text on up to one of the ends. Returns that end, "" at the end of the text, and the next character."""
    search = MarkerSearch(ends)
    while character:
        piece, end, _ = search.feed(character)
        sink(piece)
        character = yield
        if end is not None:
            return end, character
    return "", character


def read_string(character: str) -> Reading[tuple[str, str]]:
    """Return a JSON string's value, and the next character. Raises NotACall for other text."""
    if character != '"':
        raise NotACall(character)
    raw: list[str] = []
    character = yield from pass_value(character, raw.append)
    try:
        value = json.loads("".join(raw), strict=False)
        value.encode()  # fails for half of a surrogate pair
    except ValueError:
        raise NotACall(character) from None
    return value, character


def pass_value(character: str, sink: Callable[[str], None]) -> Reading[str]:
    """Pass a JSON value on, character by character; it may be cut off by the end of the text."""
    if character not in ('"', "{", "["):
        while character and character not in ",}]" and character not in _BLANKS:
            sink(character)
            character = yield
        return character
    depth, is_string, is_escaped = 0, False, False
    while character:
        sink(character)
        if is_escaped:
            is_escaped = False
        elif is_string:
            is_escaped = character == "\\"
            is_string = character != '"'
        elif character == '"':
            is_string = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
        character = yield
        if not depth and not is_string:
            break
    return character


def read_call(character: str, parser: ToolParser) -> Reading[str]:
    """Read {"name": ..., "arguments": {...}}. `parameters` is a synonym for arguments; other keys are skipped. Raises
    NotACall if the text is something else, or ends too early, maybe after the call has started."""
    early: list[str] | None = []  # arguments before the name; None once the name is known
    has_arguments = False
    character = yield from skip("{", character)
    character = yield from skip_blanks(character)
    while True:
        key, character = yield from read_string(character)
        character = yield from skip_blanks(character)
        character = yield from skip(":", character)
        character = yield from skip_blanks(character)
        if key == "name" and early is not None:
            name, character = yield from read_string(character)
            if not parser.start(name):
                raise NotACall(character)
            parser.arguments("".join(early))
            early = None
        elif key in _ARGUMENTS and not has_arguments:
            has_arguments = True
            character = yield from read_arguments(character, parser.arguments if early is None else early.append)
        else:
            character = yield from pass_value(character, lambda skipped: None)
        character = yield from skip_blanks(character)
        if character != ",":
            break
        character = yield from skip_blanks((yield))
    if early is not None:
        raise NotACall(character)
    character = yield from skip("}", character)
    if not has_arguments:
        parser.arguments("{}")
    return character


def read_arguments(character: str, sink: Callable[[str], None]) -> Reading[str]:
    """Pass arguments on: an object as written, a string as the text in it, null as {}."""
    if character == "{":
        return (yield from pass_value(character, sink))
    if character == '"':
        text, character = yield from read_string(character)
        sink(text or "{}")
        return character
    given: list[str] = []
    character = yield from pass_value(character, given.append)
    sink("{}" if given == list("null") else "".join(given))
    return character


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a function call; its arguments follow."""

    index: int  #: number of the call in the answer, from 0
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments, a JSON object as the model wrote it."""

    index: int
    text: str


Event = Reasoning | Content | CallStart | CallArguments


def merge(events: Iterable[Event]) -> list[Event]:
    """Join neighbouring events of one kind, and drop empty ones."""
    merged: list[Event] = []
    for event in events:
        if isinstance(event, CallStart):
            merged.append(event)
        elif event.text:
            last = merged[-1] if merged else None
            if isinstance(last, CallStart) or last is None or replace(last, text="") != replace(event, text=""):
                merged.append(event)
            else:
                merged[-1] = replace(last, text=last.text + event.text)
    return merged


class MarkerSearch:
    """Finds the first of several non-empty markers."""

    def __init__(self, markers: Sequence[str]) -> None:
        self.markers = tuple(markers)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None, str]:
        """Return the text before a marker, the marker or None, and the text behind it."""
        text = self._held + text
        found = min(((text.find(marker), marker) for marker in self.markers if marker in text), default=None)
        if found is not None:
            start, marker = found
            self._held = ""
            return text[:start], marker, text[start + len(marker) :]
        cut = len(text) - max((_overlap(text, marker) for marker in self.markers), default=0)
        self._held = text[cut:]
        return text[:cut], None, ""

    def flush(self) -> str:
        """Return the held text, at the end."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of `text` that begins `marker`."""
    start = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while start >= 0:
        if marker.startswith(text[start:]):
            return len(text) - start
        start = text.find(marker[0], start + 1)
    return 0


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    opening: str
    closing: str


class ReasoningParser:
    """Separates reasoning from the answer, in text that may be split anywhere. It `is_open` if the prompt ends with the
    opening marker, as many templates write it."""

    def __init__(self, markers: ReasoningMarkers, *, is_open: bool) -> None:
        self._markers = markers
        self._closing = MarkerSearch([markers.closing])
        self._is_inside = is_open
        self._is_over = False
        self._held = ""  # beginning of the text, while it may still be the opening marker

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the answer in a further piece of text."""
        if self._is_over:
            return "", text
        if not self._is_inside:
            self._held += text
            start = self._held.lstrip()
            if start.startswith(self._markers.opening):
                self._is_inside, self._held, text = True, "", start[len(self._markers.opening) :]
            elif self._markers.opening.startswith(start):
                return "", ""
            else:
                self._is_over = True
                return "", self.finish()[1]
        reasoning, marker, answer = self._closing.feed(text)
        self._is_over = marker is not None
        return reasoning, answer

    def finish(self) -> tuple[str, str]:
        """Return the held reasoning and answer, at the end of the text."""
        held, self._held = self._held, ""
        return (self._closing.flush(), "") if self._is_inside else ("", held)


_ID_CHARACTERS = string.ascii_letters + string.digits


def random_id(length: int) -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(length))


class ToolParser(ABC):
    """Separates content from tool calls, in text that may be split anywhere.

    A text that starts like a call and is none is content, as is half a marker at the end. `schemas` are those of the
    functions' parameters, by name.
    """

    markers: ClassVar[tuple[str, ...]]  #: all markers, often special tokens, which the text must keep
    openings: ClassVar[tuple[str, ...]]  #: markers that open calls
    closing: ClassVar[str | None] = None  #: marker behind a call, without meaning
    is_bare: ClassVar[bool] = False  #: a call may begin the text, without a marker
    # Parts of grammars in Lark, which give calls another form than the parser may read.
    trigger: ClassVar[str] = "<tool_call>"  #: text that opens a call and nothing else
    before: ClassVar[str] = ""  #: Lark text before the trigger, where there is no other text
    bare: ClassVar[str] = ""  #: first character of calls without a trigger
    #: behind the trigger, from `body` (a call as JSON), `function` (a call in the form below) and BLANK
    calls: ClassVar[str] = 'BLANK body BLANK "</tool_call>"'
    keys: ClassVar[Sequence[str]] = ("arguments",)  #: names of arguments in `body`
    function: ClassVar[str] = "NAME ALL"  #: a call: name and all arguments, as JSON unless there are pairs
    pair: ClassVar[str] = ""  #: an argument: KEY and VALUE
    between: ClassVar[str] = ""  #: text between pairs
    quotes: ClassVar[tuple[str, str]] = ("", "")  #: of texts, none if JSON; without an opening one, of all values

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.schemas = schemas
        self.num_calls = 0  #: started calls
        self._events: list[Event] = []
        self._search: MarkerSearch | None = MarkerSearch(self.openings)  # None within calls
        self._marker = ""  # before the present calls
        self._reading: Generator[None, str, str] | None = None
        self._attempt: list[str] | None = None  # text of a call without a name yet
        self._has_call = False  # behind the present marker
        if self.is_bare:
            self._open("")

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
        """Start a call. Returns False for an unknown function, which makes the text no call."""
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


class BareParser(ToolParser):
    """Calls may begin the text without a marker; then they are of known functions only."""

    is_bare = True

    def start(self, name: str) -> bool:
        return (bool(self._marker) or name in self.schemas) and super().start(name)
