"""Cold start of a Ray replica: seconds from the creation of its actor to the first token, by phase and loading mode.

Every start is a scale-up from zero of `quire serve --ray`: a request arrives, Ray Serve creates the actor, the actor
starts its engine process, and that loads the model. Weights are dropped from the page cache before each start; Python's
modules stay cached. Modes take turns, after one start that is not counted.
"""

from __future__ import annotations

import json as jsons
import math
import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.coldstart.logged_replica import LoggedReplica
from benchmarks.script import start
from quire.bench.bench_settings import ColdStartSettings
from quire.bench.coldstart.cold_server import make_prompt
from quire.bench.coldstart.cold_start_report import PHASES, starts_by_kind
from quire.bench.coldstart.coldstart import ColdStart, ColdStartBench, describe_bandwidth
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.cluster.application import APPLICATION, deploy, describe
from quire.cluster.run import node_environment
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.server.settings import ServerSettings

_REQUEST, _ACTOR = "request to actor", "actor to engine"  #: Serve's decision; worker process, its imports, constructor
_REST = "all else"
_TIMEOUT_S = 900.0
_PHASE = re.compile(r"([a-z][a-z ]*?) (\d+(?:\.\d+)?) s\b")
_COLUMNS = (
    Column("bandwidth", "reads"),
    Column("mode", "mode"),
    Column("ttft_s", "TTFT s"),
    Column("gain", "sooner", scale=100, digits=1, unit=" %"),
    *(Column(f"phases.{phase}", f"{phase} s") for phase in (_ACTOR, *PHASES, _REST, _REQUEST)),
)


class ReplicaStarts(ColdStartBench):
    """Starts of one application's deployments, one for each mode and bandwidth."""

    def __init__(self, config: EngineConfig, settings: ColdStartSettings, port: int) -> None:
        super().__init__(config, settings)
        self.port = port

    def measure(self) -> list[ColdStart]:
        kinds = {
            f"model-{number}": kind
            for number, kind in enumerate(
                (mode, bandwidth)
                for bandwidth in self.settings.storage_bandwidth
                for mode in self.modes
                if self.can_start(mode, bandwidth)
            )
        }
        self._names = {kind: name for name, kind in kinds.items()}
        with serving({name: self._engine(*kind) for name, kind in kinds.items()}, self.port):
            self.start(*next(iter(kinds.values())))  # also starts the application
            return super().measure()

    def start(self, mode: str, bandwidth: float) -> ColdStart:
        name, directory = self._names[mode, bandwidth], Path(self.server_options(mode, bandwidth)[0].model)
        _wait_until_idle()
        resident = self.drop_files(directory)
        requested = time.time()
        self._request(name)
        ended = time.time()
        (replica,) = replicas()
        created = replica["start_time_s"]
        began, phases = _read_log(replica["pid"])
        phases |= {_ACTOR: began - created, _REQUEST: created - requested}
        ttft_s = ended - created
        return ColdStart(mode, bandwidth, ttft_s, ttft_s, phases, resident)

    def _engine(self, mode: str, bandwidth: float) -> EngineConfig:
        config, _ = self.server_options(mode, bandwidth)
        limit = None if bandwidth == math.inf else int(bandwidth)
        return replace(config, storage_bandwidth=limit, load_overlap=mode == "overlap")

    def _request(self, name: str) -> None:
        body = {"model": name, "prompt": make_prompt(self.settings.prompt_len), "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            jsons.dumps({**body, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()


@contextmanager
def serving(engines: Mapping[str, EngineConfig], port: int) -> Iterator[None]:
    """Serve models on a Ray cluster of this process, without a replica while there are no requests."""
    os.environ.update(node_environment(2**20))
    import ray
    from ray import serve

    ray.init("local", include_dashboard=False, object_store_memory=256 * 2**20, logging_level="WARNING")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "WARNING"})
        cluster = ClusterSettings(ray=True, min_replicas=0, scale_down_after_s=1)
        spec = describe(dict(engines), ServerSettings(load_wait_s=_TIMEOUT_S), cluster)
        with patch("quire.cluster.replica.ModelReplica", LoggedReplica):
            app = deploy(spec)
        serve.run(app, name=APPLICATION, logging_config={"enable_access_log": False})
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def replicas() -> list[dict[str, Any]]:
    """Ray Serve's details of the models' replicas."""
    from ray.serve.context import _get_global_client

    found = _get_global_client().get_serve_details()["applications"][APPLICATION]["deployments"]
    return [each for name, details in found.items() if name != "ingress" for each in details["replicas"]]


def _read_log(pid: int) -> tuple[float, dict[str, float]]:
    """The time at which the engine process was started, and the engine's phases, from the replica's log."""
    log = Path(f"/proc/{pid}/fd/2").readlink().read_text()
    began = float(log.rpartition("engine started at ")[2].partition("\n")[0])
    line = log.rpartition("cold start: ")[2].partition("\n")[0]
    return began, {name: float(seconds) for name, seconds in _PHASE.findall(line)}


def _wait_until_idle() -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while replicas():
        if time.monotonic() > deadline:
            raise RuntimeError("the last replica did not end")
        time.sleep(0.1)


@options(without=("storage_bandwidth", "load_overlap"))
def main(settings: ColdStartSettings, engine: EngineConfig, port: int = 8790, json: Json = None) -> None:
    """From the creation of a replica's actor to its first token: at once, overlapped, in stages."""
    bench = ReplicaStarts(engine, settings, port)
    starts = bench.measure()
    report = Report("replica", f"Cold start of a Ray replica of {engine.model}", _COLUMNS)
    kinds = starts_by_kind(starts, settings.storage_bandwidth)
    report.figures = [_figure(of_mode, at_once) for of_mode, at_once in kinds]
    report.notes = [
        f"TTFT counts from the creation of the actor, as ProgressiveServe's; median of {settings.runs} and range.",
        f"{_REQUEST}: before that, Serve decides to start a replica. sooner: than at-once, in the same turn.",
    ]
    report.settings = {**settings.as_json(), "engine": engine.as_json()}
    report.more = {"starts": [{**asdict(each), "bandwidth": describe_bandwidth(each.bandwidth)} for each in starts]}
    report.publish(json)


def _figure(starts: list[ColdStart], at_once: list[ColdStart]) -> dict[str, Any]:
    phases = (_ACTOR, *PHASES, _REQUEST)
    figure: dict[str, Any] = {
        "bandwidth": describe_bandwidth(starts[0].bandwidth),
        "mode": starts[0].mode,
        "ttft_s": summarise(each.ttft_s for each in starts),
        "phases": {phase: summarise(each.phases[phase] for each in starts if phase in each.phases) for phase in phases},
    }
    figure["phases"][_REST] = summarise(each.rest_s + each.phases[_REQUEST] for each in starts)
    if at_once and starts[0].mode != "at-once":
        pairs = zip(starts, at_once, strict=True)
        figure["gain"] = summarise(1 - each.ttft_s / other.ttft_s for each, other in pairs)
    return figure


if __name__ == "__main__":
    start(main)
