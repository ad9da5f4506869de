"""Messages between processes as bytes.

A step's report is written once a step, so its many small objects go as tuples.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from quire.async_engine.messages import Progress, StepReport
from quire.outputs import Delta, Stats

_LENGTH = struct.Struct("!Q")
_values_of_delta = attrgetter(*(field.name for field in fields(Delta)))
_values_of_stats = attrgetter(*(field.name for field in fields(Stats)))


def dump(message: Any) -> bytes:
    """Any message as bytes. Raises whatever pickling does."""
    if type(message) is StepReport:
        events = [
            (key, list(map(_values_of_delta, event.deltas)) if type(event) is Progress else event)
            for key, event in message.events
        ]
        stats = message.stats and _values_of_stats(message.stats)
        message = (events, message.outputs, stats, message.taken)
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def load(data: bytes) -> Any:
    """The message of `dump`."""
    message = pickle.loads(data)
    if type(message) is not tuple:
        return message
    events, outputs, stats, taken = message
    return StepReport(
        [
            (key, Progress([Delta(*values) for values in event]) if type(event) is list else event)
            for key, event in events
        ],
        outputs,
        stats and Stats(*stats),
        taken,
    )


def frame(message: Any) -> bytes:
    """Any message with its length before it, so that `FrameReader` knows where the next one begins."""
    data = dump(message)
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Finds the messages in a stream of frames that arrives in pieces, wherever those are cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The messages that a piece completes. Read them all before the next piece."""
        self._rest += piece
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            data = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield load(data)
