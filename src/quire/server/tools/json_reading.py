"""Reads JSON a character at a time, as far as it takes to find a call's name and arguments.

Each function is a generator that is sent characters, and "" at the end of the text. It gets its first character as an
argument and returns the first one that is no longer its own. So a text may be split anywhere.
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
    """The text is no call after all.

    Attributes:
        rest: the character that showed it, "" at the text's end; it was not read.
    """

    def __init__(self, rest: str) -> None:
        super().__init__(rest)
        self.rest = rest


class CallSink(Protocol):
    """Takes in a call while it is read."""

    def start(self, name: str) -> bool:
        """A call begins. Returns False where there is no such function, so that it is no call."""

    def arguments(self, text: str) -> None:
        """More of its arguments."""


def skip_blanks(character: str) -> Reading[str]:
    while character and character in _BLANKS:
        character = yield
    return character


def skip(literal: str, character: str) -> Reading[str]:
    """What is there must be this. Raises NotACall where it is not."""
    for expected in literal:
        if character != expected:
            raise NotACall(character)
        character = yield
    return character


def read_string(character: str) -> Reading[tuple[str, str]]:
    """A JSON string's value, and the character behind it. Raises NotACall for anything else."""
    raw: list[str] = []
    character = yield from pass_value(character, raw.append, only='"')
    try:
        value = json.loads("".join(raw), strict=False)
        value.encode()  # half of a surrogate pair is no text
    except ValueError:
        raise NotACall(character) from None
    return value, character


def pass_value(character: str, tell: Callable[[str], None], *, only: str = "") -> Reading[str]:
    """A JSON value, which is told character by character as it stands; at the text's end it may be incomplete.

    Args:
        only: the characters with which it may begin; any, if empty. Raises NotACall for others.
    """
    if only and (not character or character not in only):
        raise NotACall(character)
    if character not in ('"', "{", "["):
        while character and character not in ",}]" and character not in _BLANKS:
            tell(character)
            character = yield
        return character
    depth, is_string, is_escaped = 0, False, False
    while character:
        tell(character)
        if is_string:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                is_string = False
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
    """{"name": ..., "arguments": {...}}; `parameters` is another word for arguments, other keys are passed over.

    Raises:
        NotACall: it is something else, or ends too early. If that shows after its name, the call was started.
    """
    early: list[str] | None = []  # arguments that come before the name; None once the name is known
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
            character = yield from pass_value(character, _ignore)
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


def read_arguments(character: str, tell: Callable[[str], None]) -> Reading[str]:
    """An object as it stands; one that is written as a string, as its text; null as none."""
    if character == "{":
        return (yield from pass_value(character, tell))
    if character == '"':
        text, character = yield from read_string(character)
        tell(text or "{}")
        return character
    given: list[str] = []
    character = yield from pass_value(character, given.append)
    tell("{}" if given == list("null") else "".join(given))
    return character


def _ignore(character: str) -> None:
    pass
