"""What docs/ names is there: files, folders, links and the labels of metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from every_metric import render_every_metric
from quire.cli.serve_arguments import FOREIGN_OPTIONS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quire"
PAGES = sorted((ROOT / "docs").glob("*.md"))
HOUSE = [
    (re.findall(r"`([^`]+)`", row[0]), re.findall(r"`(\w+(?:/\w+)*\.py)`", row[1]))
    for row in re.findall(
        r"^\| (`.+?) \| (.+?) \|", (ROOT / "docs" / "architecture.md").read_text().partition("## Who may")[0], re.M
    )
]


def test_every_folder_of_the_package_has_a_row_in_the_house() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= {name.rstrip("/") for names, _ in HOUSE for name in names}


@pytest.mark.parametrize(("names", "files"), HOUSE)
def test_what_a_row_of_the_house_names_is_there(names: list[str], files: list[str]) -> None:
    for name in names:
        assert (PACKAGE / name).exists(), name
    for file in files:
        assert (PACKAGE / names[0] / file).exists() or (PACKAGE / file).exists(), file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_or_links_is_there(page: Path) -> None:
    text = page.read_text()
    for file in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((root / file).exists() for root in (PACKAGE, PACKAGE.parent, ROOT)), file
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link


def test_the_page_on_serving_names_every_metric_by_its_labels() -> None:
    series = re.findall(r"^(quire_\w+)\{(.+)\}", render_every_metric(), re.M)
    labels = {re.sub(r"_(bucket|count|sum)$", "", name): set(re.findall(r"(\w+)=", text)) for name, text in series}
    text = (ROOT / "docs" / "serving.md").read_text()
    rows = re.findall(r"^\| ((?:gauges|counters|histograms?)[^|]*) \| (.+) \|$", text, re.M)
    documented = {}
    for kind, cell in rows:
        for name, by in re.findall(r"`(quire_\w+)`(?: by ((?:`\w+`,? ?(?:and )?)+))?", cell):
            documented[name] = set(re.findall(r"by `(\w+)`", kind)) | set(re.findall(r"`(\w+)`", by))
    hidden = {"model_name", "le"}
    assert documented == {name: found - hidden for name, found in labels.items() if not name.endswith("_created")}


def test_the_page_on_serving_names_every_option_of_other_engines_and_what_is_done_instead() -> None:
    text = (ROOT / "docs" / "serving.md").read_text()
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", text.partition("## Coming from vLLM")[2], re.M))
    documented = {
        name: (value, instead)
        for names, instead in rows.items()
        for name, value in re.findall(r"`(--[\w-]+)`(?: \(`(\w+)`\))?", names)
    }
    wanted = {name: (takes.replace("any", ""), instead) for name, (takes, instead) in FOREIGN_OPTIONS.items()}
    assert documented == wanted
