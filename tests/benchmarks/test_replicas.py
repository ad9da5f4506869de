"""The replica benchmark: one row per size and policy, and errors of options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.replicas import study as replicas
from benchmarks.replicas.__main__ import main
from benchmarks.replicas.study import ReplicaSettings
from benchmarks.script import make_app
from quire.simulate.simulation import Arrival


def test_sizes_and_policies_are_compared(tmp_path: Path) -> None:
    written, drawn = tmp_path / "r.json", tmp_path / "r.png"
    options = ["--num-requests", "12", "--conversations", "5", "--num-blocks", "1024", "--replicas", "1,2"]
    files = ["--json", str(written), "--plot", str(drawn)]
    result = CliRunner().invoke(make_app(main), [*options, "--routing", "round-robin,slo", *files])
    assert result.exit_code == 0, result.output
    for text in ("keep the SLO", "replica-s", "turns of conversations", "SLO: TTFT 1000 ms, TPOT 50 ms", "Assumed"):
        assert text in result.output
    figures = json.loads(written.read_text())["figures"]
    rows = [("1", "round-robin"), ("1", "slo"), ("2", "round-robin"), ("2", "slo")]
    assert [(each["replicas"], each["routing"]) for each in figures] == rows
    assert figures[0]["by_replica"] == figures[1]["by_replica"], "one replica leaves nothing to route"
    assert figures[2]["num_requests"] == 12
    assert drawn.stat().st_size > 1000


def made(**given: Any) -> ReplicaSettings:
    return ReplicaSettings(**{"num_requests": 4, "conversations": 5.0, "num_blocks": 512, "replicas": "2"} | given)


def played(settings: ReplicaSettings) -> dict[replicas.Case, replicas.FleetFigures]:
    config = replicas.scheduler_config(settings.engine, replicas.make_profile(settings.engine, 1.0))
    return replicas.play(settings, config, "cost", replicas.make_load(settings))


def test_processes_of_their_own_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = made(replicas="1,2", routing="slo")
    here = played(settings)
    monkeypatch.setattr("benchmarks.replicas.study._FEW", 0)
    assert played(settings) == here


def test_without_shared_prefixes_routing_by_prefix_is_routing_by_load() -> None:
    settings = made(replicas="3", routing="prefix,least-loaded")
    arrivals = [Arrival(0.01 * at, 50 + 37 * at % 400, 20 + 53 * at % 90) for at in range(60)]
    config = replicas.scheduler_config(settings.engine, replicas.make_profile(settings.engine, 1.0))
    both = [
        replicas._play_one(replicas._Run(settings, config, "cost", arrivals, (3, routing)), lambda count: None)
        for routing in settings.routing
    ]
    assert both[0] == both[1]
    assert {replicas._same((3, routing), settings, arrivals) for routing in settings.routing} == {(3, "least-loaded")}


def test_a_fleet_may_follow_its_load() -> None:
    settings = made(routing="prefix", cold_start="1,3", idle=2.0)
    (figures,) = played(settings).values()
    assert figures.ttft_s is not None
    assert figures.ttft_s.largest > 1
    assert 1 <= figures.most_replicas <= 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"idle": 3.0}, "--idle is for a changing number of replicas"),
        ({"cold_start": "1,2,3"}, "FIRST or FIRST,WHOLE"),
        ({"cold_start": "3,2"}, "expected 0 <= FIRST <= WHOLE"),
        ({"routing": "fastest"}, "'fastest' is none of"),
        ({"slo": "e2el:3"}, "of ttft and tpot"),
    ],
)
def test_a_mistake_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replicas.run(made(**given))
