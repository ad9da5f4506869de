"""Serialize messages between processes. The many small objects of a step's report are sent as tuples, for speed."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from quire.async_engine.messages import Progress, StepReport
from quire.forecast import Forecast
from quire.outputs import Delta, Stats

_LENGTH = struct.Struct("!Q")
_values_of_delta = attrgetter(*(field.name for field in fields(Delta)))
_values_of_stats = attrgetter(*(field.name for field in fields(Stats) if field.name != "forecast"))
_values_of_forecast = attrgetter(*(field.name for field in fields(Forecast)))


def dump(message: Any) -> bytes:
    """Serialize a message. Raises the errors of pickling."""
    if type(message) is StepReport:
        events = [
            (key, list(map(_values_of_delta, event.deltas)) if type(event) is Progress else event)
            for key, event in message.events
        ]
        stats = message.stats and _values_of_stats(message.stats)
        forecast = message.stats and message.stats.forecast and _values_of_forecast(message.stats.forecast)
        message = (events, message.outputs, message.received, stats, forecast)
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def load(data: bytes) -> Any:
    """Deserialize a message of `dump`."""
    message = pickle.loads(data)
    if type(message) is not tuple:
        return message
    events, outputs, received, stats, forecast = message
    if stats is not None:
        stats = Stats(*stats)
        stats.forecast = forecast and Forecast(*forecast)
    return StepReport(
        [
            (key, Progress([Delta(*values) for values in event]) if type(event) is list else event)
            for key, event in events
        ],
        outputs,
        stats,
        received,
    )


def frame(message: Any) -> bytes:
    """Serialize a message with its length in front."""
    data = dump(message)
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Reads messages from a stream of frames that arrives in arbitrary pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Iterate over the messages that a piece completes. Exhaust it before the next piece."""
        self._rest += piece
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            data = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield load(data)
