"""Messages between the application and a model's replicas over Ray. `ReplicaClock` converts a replica's times to
ours."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any, Self

from quire import __version__
from quire.async_engine.messages import Add, Event, Finished, StepReport, dump, load
from quire.forecast import Forecast
from quire.outputs import LoadProgress, RequestMetrics, RequestOutput

_values_of_forecast = attrgetter(*(field.name for field in fields(Forecast)))


@dataclass(frozen=True, slots=True)
class ReplicaNews:
    """A replica's periodic report."""

    number: int  #: increases with each report
    stage: int = 0  #: the served stage; 0 before the first
    forecast: Forecast | None = None
    progress: LoadProgress | None = None  #: state of loading
    num_blocks: int = 0  #: size of its KV pool; 0 if unknown
    block_size: int = 16
    metrics: Sequence[float] = ()  #: values of its step metrics (`metric_values`)

    def as_stats(self) -> dict[str, Any]:
        """Convert to plain values for Ray Serve."""
        return asdict(self)

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Self | None:
        """Convert from `as_stats`; None if the replica has not reported yet."""
        if not stats:
            return None
        known = dict(stats)
        known["forecast"] = known["forecast"] and Forecast(**known["forecast"])
        known["progress"] = known["progress"] and LoadProgress(**known["progress"])
        return cls(**known)


def check_version(version: str) -> None:
    """Raise RuntimeError if the application has another version of Quire than this machine."""
    if version != __version__:
        where = f"{socket.gethostname()} has Quire {__version__}, the application Quire {version}"
        raise RuntimeError(f"{where}; install one version on all machines")


def pack_request(add: Add) -> bytes:
    return pickle.dumps((time.monotonic(), add), pickle.HIGHEST_PROTOCOL)


def unpack_request(data: bytes) -> Add:
    """Deserialize a request, with times of this machine."""
    sent_at, add = pickle.loads(data)
    shift = time.monotonic() - sent_at
    resumption = add.resumption
    if resumption is not None:
        resumption = replace(
            resumption,
            first_scheduled_time=_shifted(resumption.first_scheduled_time, shift),
            first_token_time=_shifted(resumption.first_token_time, shift),
        )
    return replace(add, arrival_time=add.arrival_time + shift, resumption=resumption)


def pack_events(key: int, events: Sequence[Event | Exception], forecast: Forecast | None = None) -> bytes:
    """Serialize events of one request, and the replica's new forecast."""
    report = StepReport([(key, event) for event in events])
    values = forecast and _values_of_forecast(forecast)
    return pickle.dumps((time.monotonic(), values, dump(report)), pickle.HIGHEST_PROTOCOL)


class ReplicaClock:
    """Deserializes one replica's events, with times of this machine."""

    def __init__(self) -> None:
        self._shift = float("inf")  #: our time minus the replica's; the fastest message gives the best estimate

    def unpack_events(self, data: bytes) -> tuple[StepReport, Forecast | None]:
        sent_at, forecast, packed = pickle.loads(data)
        self._shift = min(self._shift, time.monotonic() - sent_at)
        report = load(packed)
        for _, event in report.events:
            if isinstance(event, Finished):
                self._set(event.output)
                report.outputs.append(event.output)
        return report, forecast and Forecast(*forecast)

    def _set(self, output: RequestOutput) -> None:
        if output.metrics is not None:
            times: dict[str, Any] = {
                field.name: _shifted(getattr(output.metrics, field.name), self._shift)
                for field in fields(RequestMetrics)
                if field.name.endswith("_time")
            }
            output.metrics = replace(output.metrics, **times)


def _shifted(time_s: float | None, shift: float) -> float | None:
    return None if time_s is None else time_s + shift
