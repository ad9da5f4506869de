"""Cost of loading for running streams: on the first stage, beside loading and without."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.stream_client import Stream, StreamClient
from quire.bench.coldstart.cold_server import POLL_S, ColdServer, completion, make_prompt
from quire.config import EngineConfig

_FEWEST_GAPS = 8  #: of all streams, by which a mean is worth anything
_ALONE_TOKENS = 64  #: of a stream without loading


@dataclass(frozen=True)
class StreamCost:
    """Streams on a pack's first stage, beside loading and without."""

    num_streams: int
    bandwidth: float
    tpot_s: float | None  #: beside loading; None where the next stage came too soon
    alone_s: float | None  #: seconds per token without loading
    full_s: float  #: from process start to the full model, under this load


def run_while_loading(
    config: EngineConfig, options: Sequence[str], num_streams: int, prompt_len: int
) -> tuple[float | None, float]:
    """Start a pack, and run streams from its first stage until the full model serves. Returns TPOT and that time."""
    with closing(ColdServer(config, options)) as server:
        server.wait_stage(1)
        assert server.max_model_len is not None
        streams = _run(server, num_streams, prompt_len, server.max_model_len - prompt_len)
        full_s = server.wait_stage()
        next_s = min(seconds for stage, seconds in server.stages.items() if stage > 1)
        return _tpot(streams, server.started + next_s - POLL_S), full_s


def run_alone(config: EngineConfig, num_streams: int, prompt_len: int) -> float | None:
    """Seconds a token of the same streams on the first stage, where nothing more is to come."""
    with closing(ColdServer(config, ["--last-stage", "1"])) as server:
        server.wait_stage(1)
        return _tpot(_run(server, num_streams, prompt_len, _ALONE_TOKENS, to_end=True), math.inf)


def _run(
    server: ColdServer, num_streams: int, prompt_len: int, max_tokens: int, *, to_end: bool = False
) -> list[Stream]:
    client = StreamClient(server.url)
    try:
        streams = [client.open(completion(make_prompt(prompt_len, i), max_tokens)) for i in range(num_streams)]
        client.read(lambda: all(stream.is_ended for stream in streams) or (not to_end and server.is_complete))
        return streams
    finally:
        client.close()


def _tpot(streams: Sequence[Stream], until_s: float) -> float | None:
    times = [stream.token_s(is_cut=not stream.is_ended) for stream in streams]
    if not all(times):
        return None
    since_s = max(each[0] for each in times)
    gaps = [
        later - earlier
        for each in times
        for earlier, later in pairwise(came_s for came_s in each if since_s <= came_s <= until_s)
    ]
    return statistics.mean(gaps) if len(gaps) >= _FEWEST_GAPS else None
