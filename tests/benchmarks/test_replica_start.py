"""Starts of Ray replicas: time from the creation of the actor, and its phases."""

from __future__ import annotations

import socket

import pytest

from benchmarks.coldstart.replica import ReplicaStarts
from cluster.ray_server import HAS_RAY, WITHOUT_RAY
from quire.bench.bench_settings import ColdStartSettings
from quire.config import EngineConfig


@pytest.mark.skipif(not HAS_RAY, reason=WITHOUT_RAY)
@pytest.mark.slow  # half a minute of cluster
@pytest.mark.timeout(300)
def test_the_phases_of_a_replicas_start_add_up_to_the_first_token() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = ColdStartSettings(modes=("at-once",), runs=1)
    bench = ReplicaStarts(EngineConfig("quire-mini", num_kv_blocks=64, max_model_len=64), settings, port)
    (start,) = bench.measure()
    phases = dict(start.phases)
    assert phases.pop("request to actor") > 0
    assert set(phases) == {"actor to engine", "imports", "config", "weights", "pool", "first step"}
    assert min(phases.values()) >= 0
    assert 0 < sum(phases.values()) < start.ttft_s
