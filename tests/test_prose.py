"""The prose lint finds indirect descriptions and vague words, and the project has none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "code",
    [
        '"""What happens to a request."""',
        'def f(a):\n    """Add a block.\n\n    Args:\n        a: of the block.\n    """',
        'class A:\n    """A block.\n\n    Attributes:\n        *a, b: That were stored.\n    """',
        'option = setting(None, "Those that are kept")',
        'field = Field(description="Of the document." + "More.")',
        'option = typer.Option("--a", help=f"Whose {key}")',
        "# taken by whoever comes first",
        'message = "Nobody reads this"',
    ],
)
def test_a_bad_start_or_word_is_found(prose: ModuleType, code: str) -> None:
    assert prose.check_text(code, ".py")


@pytest.mark.parametrize(
    "code",
    [
        '"""Blocks of one request."""',
        'def f(a):\n    """Add a block.\n\n    Args:\n        a: the block.\n\n    Returns:\n        That.\n    """',
        'option = setting(None, "Offload blocks to disk")',
        'text = "what is it"',
    ],
)
def test_plain_text_passes(prose: ModuleType, code: str) -> None:
    assert not prose.check_text(code, ".py")


def test_pages_are_checked_for_words_only(prose: ModuleType) -> None:
    assert prose.check_text("Somebody", ".md")
    assert not prose.check_text("What is new", ".md")


@pytest.mark.slow  # `make lint` runs it
def test_the_project_is_clean(prose: ModuleType) -> None:
    assert prose.main([]) == 0
