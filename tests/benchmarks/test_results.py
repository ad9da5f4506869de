"""RESULTS.md is generated from the result files, and each result's command exists."""

from __future__ import annotations

import importlib.util
import re

import pytest

from benchmarks.report import FOLDER, read_results, render

RESULTS = read_results()


def test_the_page_is_what_the_generator_writes() -> None:
    assert (FOLDER / "RESULTS.md").read_text() == render(RESULTS), "run python -m benchmarks.report"


def test_every_plot_of_the_page_is_there() -> None:
    plots = {result["plot"] for result in RESULTS if "plot" in result}
    assert plots == {path.name for path in (FOLDER / "results").glob("*.png")}


@pytest.mark.parametrize("page", ["RESULTS.md", "README.md"])
def test_every_script_of_a_page_exists(page: str) -> None:
    names = set(re.findall(r"python -m (benchmarks[a-z_.]*[a-z])", (FOLDER / page).read_text()))
    assert len(names) > 10
    assert not [name for name in names if importlib.util.find_spec(name) is None]


def test_the_readme_or_the_page_of_the_papers_names_every_script() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py") if '"__main__"' in path.read_text()}
    scripts |= {path.parent.name for path in FOLDER.glob("*/__main__.py")}
    text = (FOLDER / "README.md").read_text() + (FOLDER.parent / "docs" / "papers.md").read_text()
    assert not [name for name in scripts if f"benchmarks.{name}" not in text]
