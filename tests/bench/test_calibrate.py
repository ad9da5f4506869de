"""`quire calibrate`: table, crossing point, plot and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import app
from quire.bench.calibrate import COLUMNS, describe_crossing, describe_dependence, make_report
from quire.calibration.calibrate import Calibration, LengthRow, Spread, Swapping
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import EMPTY_STEP
from quire.simulate.hardware import read_profile

CHUNK = 4096


def calibration(seconds_per_byte: float, *, latency: float = 0.0) -> Calibration:
    """A calibration with steps of 10 ms and 0.1 ms per token, and the given transfers."""
    model, rows = CostModel(), []
    for n in (64, 128, 256, 512, 1024):
        swap, recompute = latency + seconds_per_byte * 1000 * n, 0.01 + 1e-4 * n
        for _ in range(8):
            model.observe_step(EMPTY_STEP.plus_chunk(0, n), recompute)
            for kind in ("save", "load"):
                model.observe_transfer(kind, 1000 * n, swap)
        one, both = Spread.of([swap]), Spread.of([2 * swap])
        swapping = Swapping(one, Spread.of([0.0]), one, both, Spread.of([0.0]))
        rows.append(LengthRow(n, 1000 * n, swapping, Spread.of([recompute])))
    return Calibration(rows, [], model, bytes_per_token=1000, block_size=16, chunk=CHUNK)


def test_a_crossing_point_is_told_with_the_road_on_either_side() -> None:
    # Both ways take 0.14 ms per token, as does computing 250 tokens.
    (line,) = describe_crossing(calibration(0.07e-6))
    assert "below it swap is cheaper and from it on recompute" in line
    point = int(line.split()[2].replace(",", ""))
    assert 200 <= point <= 300
    # A latency of 2 x 20 ms and 0.05 ms per token reverse the order.
    (line,) = describe_crossing(calibration(0.025e-6, latency=0.02))
    assert "below it recompute is cheaper and from it on swap" in line


@pytest.mark.parametrize(
    ("seconds_per_byte", "mode", "condition"), [(1e-9, "swap", "slower"), (1e-5, "recompute", "faster")]
)
def test_where_there_is_none_it_says_so_and_from_which_link_on_there_would_be(
    seconds_per_byte: float, mode: str, condition: str
) -> None:
    (line,) = describe_crossing(calibration(seconds_per_byte))
    assert line.startswith("There is no crossing point up to 1,024 tokens")
    assert f"{mode} is cheaper at every length" in line
    assert f"with a link {condition} than" in line
    assert "MB/s each way" in line


def test_what_it_depends_on_is_named() -> None:
    line = describe_dependence(calibration(1e-8))
    for text in ("1000 B", "100.0 MB/s out", "100.0 MB/s in", "9,110 tokens/s", "at most 4,096"):
        assert text in line


def test_the_table_has_the_papers_columns(capsys: pytest.CaptureFixture[str]) -> None:
    report = make_report(EngineConfig("random:tiny"), calibration(1e-8), repeats=1)
    report.show()
    printed = capsys.readouterr().out
    for heading in ("input length", "swap out ms", "prep ms", "swap in ms", "swap latency ms", "recompute latency ms"):
        assert heading in printed
    assert [figure["num_tokens"] for figure in report.figures] == [64, 128, 256, 512, 1024]
    assert all(column.key in figure for column in COLUMNS for figure in report.figures)


SMALL = [
    "--model", "random:tiny", "--device", "cpu", "--num-kv-blocks", "20", "--max-model-len", "128",
    "--max-num-seqs", "2", "--no-use-tqdm",
]  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "quire" / "profiles"


def test_the_command_measures_without_a_swap_tier_and_keeps_a_profile(tmp_path: Path, cache: Path) -> None:
    written, picture = tmp_path / "c.json", tmp_path / "c.png"
    files = ["--json", str(written), "--plot", str(picture)]
    result = CliRunner().invoke(app, ["calibrate", *SMALL, "--repeats", "2", *files])
    assert result.exit_code == 0, result.output
    assert "rossing point" in result.output
    data = json.loads(written.read_text())
    assert data["benchmark"] == "calibrate"
    assert data["bytes_per_token"] == 2048
    assert [figure["num_tokens"] for figure in data["figures"]] == [64, 96, 128]
    profile = read_profile(written)
    assert profile.measured
    assert profile.model == "random:tiny"
    assert picture.read_bytes().startswith(b"\x89PNG")
    (kept,) = cache.iterdir()
    assert str(kept) in result.output.replace("\n", "")
    again = CliRunner().invoke(app, ["calibrate", *SMALL, "--lengths", "64", "--repeats", "1"])
    assert again.exit_code == 0, again.output
    assert list(cache.iterdir()) == [kept]


def test_a_cache_that_cannot_be_written_is_reported_only(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    result = CliRunner().invoke(app, ["calibrate", *SMALL, "--lengths", "64", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "could not be saved" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "64,x"], "lengths='64,x'"),
        (["--lengths", "64,4096"], "a length of 4096 tokens"),
        (["--swap-space", "0"], "swap_space=0"),
    ],
)
def test_a_mistake_is_reported_in_one_line(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["calibrate", *SMALL, *options])
    assert result.exit_code == 2
    assert message in result.stderr
