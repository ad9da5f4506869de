"""What an answer turns out to hold, piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Text that the model said."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a function; its arguments follow."""

    index: int  #: of the answer's calls, from 0
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a call's arguments, which are together a JSON object as the model wrote it."""

    index: int
    text: str


Event = Reasoning | Content | CallStart | CallArguments


def merge(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours of one kind joined, and none that says nothing."""
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
