"""Write the tables of docs/models.md: the architectures that Quire serves. A test checks that they are current."""

from __future__ import annotations

import re
from pathlib import Path

from quire.models.registry import ARCHITECTURES, MULTIMODAL

PAGE = Path(__file__).parents[1] / "docs" / "models.md"


def rendered(text: str) -> str:
    """Return a page's text with current tables."""
    rows = [f"| `{each.name}` | {each.families} |" for each in ARCHITECTURES.values()]
    rows += [f"| `{name}`, the text part | {families} |" for name, families in MULTIMODAL.items()]
    table = "\n".join(["| architecture | models |", "|---|---|", *rows])
    return re.sub(
        r"(<!-- architectures -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
