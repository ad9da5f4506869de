"""Results of all benchmarks share one schema."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from quire.bench.files import check_writable, write_json, writing
from quire.bench.report import Column, Repetition, Report, summarise, timing_figures


def test_a_measured_quantity_has_median_minimum_and_maximum() -> None:
    assert summarise([3.0, 1.0, 8.0]) == {"median": 3.0, "min": 1.0, "max": 8.0}
    assert summarise([]) is None


def test_the_figures_of_repetitions_by_hand() -> None:
    figures = timing_figures(
        [
            Repetition(2.0, 100, 20, ttft_s=[0.1, 0.3], tpot_s=[0.01, 0.03], peak_rss_mib=50),
            Repetition(4.0, 100, 20, ttft_s=[0.4, 0.4], tpot_s=[0.04], peak_rss_mib=60),
        ]
    )
    assert figures["wall_s"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert figures["out_tok_s"] == {"median": 7.5, "min": 5.0, "max": 10.0}
    assert figures["total_tok_s"] == {"median": 45.0, "min": 30.0, "max": 60.0}
    assert figures["ttft_s"] == pytest.approx({"median": 0.3, "min": 0.2, "max": 0.4})
    assert figures["tpot_s"] == pytest.approx({"median": 0.03, "min": 0.02, "max": 0.04})
    assert figures["peak_rss_mib"] == {"median": 55.0, "min": 50, "max": 60}
    assert (figures["in"], figures["out_got"]) == (100, 20)


def test_what_was_not_measured_is_null_and_prints_as_a_dash() -> None:
    figures = timing_figures([Repetition(1.0, 10, 1)])
    assert figures["ttft_s"] is None
    assert Column("ttft_s", "TTFT ms").cell(figures) == "–"


def test_a_cell_shows_the_range_only_where_there_is_one() -> None:
    column = Column("x", "x ms", scale=1e3, digits=1)
    assert column.cell({"x": {"median": 0.002, "min": 0.001, "max": 0.004}}) == "2.0\n1.0–4.0"
    assert column.cell({"x": {"median": 0.002, "min": 0.002, "max": 0.002}}) == "2.0"
    assert column.cell({"x": "text"}) == "text"


def test_the_table_shows_rows_and_notes_and_the_json_keeps_the_figures(tmp_path: Path) -> None:
    report = Report("demo", "A demo", [Column("label", ""), Column("v", "value", digits=0)])
    report.figures = [{"label": "one", "v": 1}, {"label": "two", "v": 2}]
    report.notes = ["Read [this]."]
    console = Console(file=StringIO(), width=80)
    report.show(console)
    assert "two" in console.file.getvalue()
    assert "Read [this]." in console.file.getvalue()
    write_json(report.as_json(), tmp_path / "demo.json")
    data = json.loads((tmp_path / "demo.json").read_text())
    assert (data["schema"], data["benchmark"], data["figures"][1]) == (1, "demo", {"label": "two", "v": 2})


def test_a_table_wider_than_a_terminal_is_turned() -> None:
    columns = [Column("label", "policy"), *(Column(f"v{number}", f"metric {number}") for number in range(15))]
    report = Report("demo", "A demo", columns)
    report.figures = [{"label": label, **{f"v{number}": 1.5 for number in range(15)}} for label in ("one", "two")]
    console = Console(file=StringIO(), width=80)
    report.show(console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["metric", "3", "1.50", "1.50"] for line in lines)


@pytest.mark.parametrize("write", [check_writable, partial(write_json, {})])
def test_a_path_that_cannot_be_written_is_a_clear_error(tmp_path: Path, write: Callable[[Path], None]) -> None:
    for wrong in (tmp_path / "no" / "x.json", tmp_path):
        with pytest.raises(ValueError, match="cannot write"):
            write(wrong)


def test_what_is_checked_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    for path in (tmp_path / "old.json", tmp_path / "new.json"):
        check_writable(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.json", "old")]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_no_half_of_a_file_stays(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "f.json"

    def write_half() -> None:
        with writing(path) as file:
            file.write("{")
            raise failure

    with pytest.raises((ValueError, KeyboardInterrupt)):
        write_half()
    assert not path.exists()


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(ValueError, match="cannot write /dev/full: No space left on device"):
        write_json({"figures": "x" * 100_000}, Path("/dev/full"))


def test_a_picture_is_drawn_where_the_figures_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No space left"):
        Report("demo", "", [], settings={"long": "x" * 100_000}).publish(Path("/dev/full"), tmp_path / "p.svg")
    assert (tmp_path / "p.svg").exists()
