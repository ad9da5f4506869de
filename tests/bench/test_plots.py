"""Plots name the better direction, show all data, and draw no intervals for a handful of values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quire.bench.plots import COLOURS, PlotRow, check_plot, draw_rows, save_plot
from quire.simulate.study import Case, draw


def drawn(tmp_path: Path, draw: Any) -> Any:
    """Return the figure after saving it."""
    kept: list[Any] = []
    save_plot(tmp_path / "p.svg", lambda figure: (kept.append(figure), draw(figure)))
    assert "<svg" in (tmp_path / "p.svg").read_text()
    return kept[0]


def case(policy: str, *seconds: float) -> Case:
    spreads = [SimpleNamespace(mean=value, p50=value, p99=value) for value in seconds]
    return Case(policy, 1.0, [SimpleNamespace(ttft_s=spread, tpot_s=spread) for spread in spreads])


def lines(axes: Any) -> list[list[float]]:
    """Return each line's points from left to right."""
    return [sorted(map(float, line.get_xdata())) for line in axes.get_lines()]


def test_two_seeds_are_two_points_of_the_change_and_no_interval(tmp_path: Path) -> None:
    cases = [case("recompute", 1.0, 3.0), case("swap", 1.1, 3.6)]
    figure = drawn(tmp_path, lambda figure: draw(figure, cases))
    assert "Against recompute on the same requests: left of the line is better" in figure.get_suptitle()
    points, mean, zero = lines(figure.axes[0])
    assert points == pytest.approx([10.0, 20.0])  # %, although the seeds differ threefold
    assert mean == pytest.approx([15.0])
    assert zero == [0.0, 0.0]
    assert figure.axes[0].get_xlabel() == "mean TTFT, change in %"


@pytest.mark.parametrize(("seeds", "num_lines"), [(5, 4), (30, 3)])
def test_five_seeds_have_an_interval_and_thirty_no_single_points(tmp_path: Path, seeds: int, num_lines: int) -> None:
    cases = [case("recompute", *[1.0] * seeds), case("swap", *[1.1, *[1.2] * (seeds - 1)])]
    figure = drawn(tmp_path, lambda figure: draw(figure, cases))
    assert "95 % interval" in figure.get_suptitle()
    assert len(lines(figure.axes[0])) == num_lines


def test_a_lone_policy_has_its_own_seconds_drawn(tmp_path: Path) -> None:
    figure = drawn(tmp_path, lambda figure: draw(figure, [case("cost", 0.5)]))
    assert figure.axes[0].get_xlabel() == "mean TTFT, ms"
    assert lines(figure.axes[0])[-1] == [500.0]


def test_the_legend_stands_beside_the_data_and_names_each_thing_once(tmp_path: Path) -> None:
    def two_panels(figure: Any) -> None:
        for axes in figure.subplots(1, 2):
            axes.plot([0, 1], [0, 1], label="one")
            axes.plot([0, 1], [1, 0], label="two")
            assert [line.get_color() for line in axes.get_lines()] == list(COLOURS[:2])

    figure = drawn(tmp_path, two_panels)
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    assert legend.get_window_extent().y1 < min(axes.get_window_extent().y0 for axes in figure.axes)


def test_rows_stand_in_their_order_from_above(tmp_path: Path) -> None:
    rows = [PlotRow("first", 1.0, 0.5, 2.0), PlotRow("second", 3.0)]
    [axes] = drawn(tmp_path, lambda figure: draw_rows(figure.subplots(), rows, "s")).axes
    names = (text.get_text() for text in axes.get_yticklabels())
    places = dict(zip(names, axes.get_yticks(), strict=True))
    assert places["first"] > places["second"]


def test_a_picture_that_cannot_be_drawn_is_told_beforehand(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no known format"):
        check_plot(tmp_path / "p.xyz")
    with pytest.raises(ValueError, match="cannot write"):
        check_plot(tmp_path / "no" / "p.png")
    check_plot(tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []
