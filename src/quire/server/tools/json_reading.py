"""An incremental JSON reader that finds the name and the arguments of a call.

Each function is a generator: it receives characters, "" at the end of the text, starts with its first character as an
argument, and returns the first character behind its own part. So a text may be split anywhere, and arguments are passed
on as they are written. (pydantic's partial JSON returns values: it knows neither their place nor their spelling.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

T = TypeVar("T")
Reading = Generator[None, str, T]

_BLANKS = frozenset(" \t\r\n")
_ARGUMENTS = frozenset({"arguments", "parameters"})


class NotACall(Exception):
    """The text is no call.

    Attributes:
        rest: unread character that showed it, "" at the end of the text.
    """

    def __init__(self, rest: str) -> None:
        super().__init__(rest)
        self.rest = rest


class CallSink(Protocol):
    """Receives a call while it is read."""

    def start(self, name: str) -> bool:
        """Start a call. Returns False for an unknown function, which makes the text no call."""

    def arguments(self, text: str) -> None:
        """Append to its arguments."""


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


def read_call(character: str, sink: CallSink) -> Reading[str]:
    """Read {"name": ..., "arguments": {...}}. `parameters` is a synonym for arguments; other keys are skipped.

    Raises:
        NotACall: the text is something else, or ends too early, maybe after the call has started.
    """
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
            if not sink.start(name):
                raise NotACall(character)
            sink.arguments("".join(early))
            early = None
        elif key in _ARGUMENTS and not has_arguments:
            has_arguments = True
            character = yield from read_arguments(character, sink.arguments if early is None else early.append)
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
        sink.arguments("{}")
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
