"""Write the tables of docs/models.md: the architectures that Quire serves, with a mark where a test holds each of them
in some respect. The marks come from the parameters of tests. A test checks that the page is current."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from quire.models.registry import ARCHITECTURES, MULTIMODAL

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"
TESTS = {  # column -> a test whose parameters begin with variants of architectures
    "exact": "models/test_same_logits.py::test_logits_equal_those_of_transformers",
    "recompute": "engine/test_same_tokens.py::test_a_pool_too_small_for_all",
    "swap": "engine/test_same_tokens.py::test_every_victim_is_swapped",
    "prefix": "engine/test_mutation.py::test_one_wrong_cached_block_changes_nearly_every_output",
    "stages": "engine/test_stages.py::test_a_stage_gives_the_tokens_of_transformers_without_its_layers",
    "ranks": "models/test_parallel.py::test_two_and_four_ranks_give_one_ranks_logits",
    "GGUF": "loading/test_gguf.py::test_its_logits_are_those_of_the_checkpoint",
    "int8, int4": "models/test_quantized_weight.py::test_every_architecture",
}
TEXT_PARTS = "models/test_same_logits.py", "test_a_multimodal_"  # parameters begin with architectures


def tested() -> dict[str, set[str]]:
    """Return the architectures that each column's test has among its parameters, those of slow tests too."""
    sys.path.insert(0, str(ROOT / "tests"))
    from checkpoints import ARCHITECTURES as VARIANTS
    from checkpoints import make_config

    kinds = {each.model_type: each.name for each in ARCHITECTURES.values()}
    by_variant = {name: kinds[make_config(name).model_type] for name in VARIANTS}
    found: dict[str, set[str]] = {}
    for column, test in TESTS.items():
        path, _, name = test.partition("::")
        function = getattr(_module(path), name)
        found[column] = {by_variant[each] for each in _parameters(function) if each in by_variant}
    tests = [each for name, each in vars(_module(TEXT_PARTS[0])).items() if name.startswith(TEXT_PARTS[1])]
    found["exact"] |= {each.partition("-")[0] for test in tests for each in _parameters(test)}
    return found


def _module(path: str) -> ModuleType:
    return importlib.import_module(path.removesuffix(".py").replace("/", "."))


def _parameters(test: Callable[..., None]) -> Iterator[str]:
    """Yield the texts among a test's parameters, or their ids."""
    for mark in (each for each in test.pytestmark if each.name == "parametrize"):  # type: ignore[attr-defined]
        for value in mark.args[1]:
            values = getattr(value, "values", value)
            values = [values] if isinstance(values, str) else values
            make_id = mark.kwargs.get("ids")
            yield from (make_id(each) if callable(make_id) else each for each in values if isinstance(each, str))


def rendered(text: str) -> str:
    """Return a page's text with current tables."""
    marks = tested()
    rows = [["architecture", "models", *TESTS], ["---"] * (2 + len(TESTS))]
    models = [(each.name, f"`{each.name}`", each.families) for each in ARCHITECTURES.values()]
    models += [(name, f"`{name}`, the text part", families) for name, families in MULTIMODAL.items()]
    for name, shown, families in models:
        rows.append([shown, families, *("✓" if name in marks[column] else "" for column in TESTS)])
    table = "\n".join("".join(f"| {each} " if each else "| " for each in row) + "|" for row in rows)
    return re.sub(
        r"(<!-- architectures -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
