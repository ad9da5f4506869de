"""The CPS paper's experiment: the fit can be repeated, and the map's machines cross where they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cps.fit import Loads, fit_rate
from benchmarks.cps.map import LOADS, Cell, main, make_machine
from benchmarks.cps.runs import VLLM
from benchmarks.script import make_app
from quire.core.decisions.costs import find_crossings
from quire.simulate.study import PAPERS_FIGURES


@pytest.mark.slow
def test_a_fit_gives_the_same_point_again() -> None:
    first, second = (fit_rate(Loads(512, "chat", 1), 1.0, (2.0, 8.0), 3) for _ in range(2))
    assert first == second
    assert first.rate is not None
    assert 2.0 < first.rate < 8.0
    assert first.ttft_mean_s == pytest.approx(PAPERS_FIGURES["ttft_mean_s"], rel=0.5)


@pytest.mark.parametrize("crossing", [256, 1024])
@pytest.mark.parametrize("link", [0.5, 3.0])
def test_a_machine_of_the_map_has_its_crossing(link: float, crossing: int) -> None:
    machine = make_machine(Cell(VLLM, LOADS["chat"], link, crossing))
    costs, size = machine.costs, machine.bytes_per_token
    [found] = find_crossings(costs, size, 4096)
    assert found == pytest.approx(crossing, abs=16)
    swap_s = costs.save(64 * size) + costs.load(64 * size)
    assert (swap_s < costs.recompute(64, chunk=64)) == (link > 1)
    slopes = [costs.save(at * size) + costs.load(at * size) for at in (1000, 2000)]
    recomputes = [costs.recompute(at, chunk=at) for at in (1000, 2000)]
    assert (slopes[1] - slopes[0]) / (recomputes[1] - recomputes[0]) == pytest.approx(link)


@pytest.mark.slow
def test_the_map_compares_with_the_better_static_policy(tmp_path: Path) -> None:
    options = ["--loads", "chat", "--links", "3", "--crossings", "512", "--seeds", "2", "--engines", VLLM]
    written, drawn = tmp_path / "map.json", tmp_path / "map.png"
    files = ["--json", str(written), "--plot", str(drawn), "--processes", "1"]
    result = CliRunner().invoke(make_app(main), [*options, *files])
    assert result.exit_code == 0, result.output
    [cell] = json.loads(written.read_text())["figures"]
    assert cell["p99"] == cell["p99_changes"][cell["p99_better"]]
    assert cell["p99"]["mean"] == max(each["mean"] for each in cell["p99_changes"].values())
    assert sum(cell["modes"].values()) == pytest.approx(cell["cost_preemptions"])
    assert drawn.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "message"), [(["--links", "1"], "do not cross"), (["--loads", "night"], "no such engine or load")]
)
def test_a_mistake_is_one_line(options: list[str], message: str) -> None:
    result = CliRunner().invoke(make_app(main), options)
    assert result.exit_code == 2
    assert message in result.output
