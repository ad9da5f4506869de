"""docs/models.md is current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("models_page", ROOT / "tools" / "models_page.py")
assert _SPEC is not None
assert _SPEC.loader is not None
models_page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(models_page)


def test_the_tables_of_the_models_page_are_current() -> None:
    text = models_page.PAGE.read_text()
    assert models_page.rendered(text) == text, "run python tools/models_page.py"
