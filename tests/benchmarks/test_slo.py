"""Routing by forecasts against fixed policies, on a virtual clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.script import make_app
from benchmarks.slo.__main__ import main
from benchmarks.slo.fleet import Served, VirtualEngine, simulate_fleet
from benchmarks.slo.study import draw_rising, keeps, make_route, summarise
from benchmarks.slowed_costs import slowed
from quire.routing import SLO
from quire.simulate.simulation import Arrival
from simulate.machines import limits, machine

SMALL = machine()  # a step takes a second plus 1/16 per token
CONFIG = limits(num_blocks=120, max_num_seqs=4)


def test_slo_takes_the_large_model_while_it_keeps_up_and_loses_it_alone_when_both_do_not() -> None:
    slo = SLO(40.0, 12.0)
    arrivals = [
        Arrival(each.time_s, 4 + number % 9, 6 + number % 7)
        for number, each in enumerate(draw_rising((0.3, 1.0, 3.0), 0.5, 40, 0))
    ]
    served: dict[str, list[Served]] = {}
    for policy in ("slo", "large", "small", "round-robin", "mix"):
        engines = {"large": VirtualEngine(slowed(SMALL, 4), CONFIG), "small": VirtualEngine(SMALL, CONFIG)}
        served[policy] = simulate_fleet(arrivals, engines, make_route(policy, slo, served))
    of_slo = summarise(served["slo"], slo)
    for policy, found in served.items():
        if policy != "slo":
            assert of_slo["kept"] >= summarise(found, slo)["kept"], policy
            assert of_slo["rank_in_time"] > summarise(found, slo)["rank_in_time"], policy
    late = [each.engine for each in served["slo"][80:] if not keeps(each, slo)]
    assert late.count("large") > len(late) / 2 > 1
    assert of_slo["ttft_error"] < 0.3


def test_the_command_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.slo.study._NUM_TO_FILL", 8)
    written = tmp_path / "slo.json"
    options = ["--loads", "0.2,1.5", "--num-requests", "4", "--policies", "slo,mix", "--json", str(written)]
    result = CliRunner().invoke(make_app(main), options)
    assert result.exit_code == 0, result.output
    assert "slo: TTFT off by" in result.output
    slo, mix = json.loads(written.read_text())["figures"]
    assert [each["load"] for each in slo["by_load"]] == [each["load"] for each in mix["by_load"]] == [0.2, 1.5]
    assert slo["by_load"][0]["kept"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "mix:2"], "policies='mix:2' is none of slo, large"),
        (["--policies", "mix,slo"], "name slo first"),
        (["--slo", "e2el:3"], "of ttft and tpot"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str) -> None:
    [line] = CliRunner().invoke(make_app(main), options).stderr.splitlines()
    assert message in line
