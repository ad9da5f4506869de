"""Events of an answer: pieces of reasoning, content and calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


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
