"""What was measured of cold starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ColdStart:
    """One start, in seconds since the process was started."""

    mode: str
    bandwidth: float  #: bytes a second that reads were held to; infinite: not at all
    ttft_s: float
    full_s: float  #: the model is whole
    phases: Mapping[str, float] = field(default_factory=dict)  #: the seconds of each, as the process says
    resident: float = 0.0  #: share of the files' pages that were in memory before
    listening_s: float | None = None  #: the port answers; None for a script
    stages: Mapping[int, float] = field(default_factory=dict)  #: when each was first seen serving


@dataclass(frozen=True)
class Running:
    """Streams on a pack's first stage."""

    num_streams: int
    bandwidth: float
    tpot_s: float | None  #: while more was on its way; None where that was over too soon
    alone_s: float | None  #: seconds a token where nothing was
    full_s: float  #: from the start of the process to the whole model, under this load


@dataclass(frozen=True)
class WeightSizes:
    """The files that are started from."""

    model: str
    num_bytes: int  #: of all weights
    first_bytes: int  #: of those that the first stage needs
    filesystem: str  #: ext4, tmpfs, ...

    @property
    def share_left_out(self) -> float:
        return max(0.0, 1.0 - self.first_bytes / self.num_bytes)


def describe_bandwidth(bandwidth: float) -> str:
    """As people write it: `125 MB/s`."""
    return "not held" if bandwidth == math.inf else f"{bandwidth / 1e6:g} MB/s"
