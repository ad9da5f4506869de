"""Write the tables of docs/models.md: the architectures that Quire serves, with a mark where a test holds each of them
in some respect. The marks come from the names of the collected tests. A test checks that the page is current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
    """Return the architectures that each column's test has among its parameters."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        *(f"tests/{t}" for t in (*TESTS.values(), TEXT_PARTS[0])),
    ]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sys.path.insert(0, str(ROOT / "tests"))
    from checkpoints import ARCHITECTURES as VARIANTS
    from checkpoints import make_config

    kinds = {each.model_type: each.name for each in ARCHITECTURES.values()}
    by_variant = {name: kinds[make_config(name).model_type] for name in VARIANTS}
    found: dict[str, set[str]] = {}
    for column, test in TESTS.items():
        ids = re.findall(rf"^tests/{re.escape(test)}\[(.*)\]$", output, re.MULTILINE)
        longest_first = sorted(VARIANTS, key=len, reverse=True)
        variants = (next((v for v in longest_first if f"-{v}-" in f"-{each}-"), "") for each in ids)
        found[column] = {by_variant[variant] for variant in variants if variant}
    found["exact"] |= set(re.findall(rf"::{TEXT_PARTS[1]}\w+\[(\w+)-", output))
    return found


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
