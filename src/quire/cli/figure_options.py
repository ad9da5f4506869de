"""Options that commands with figures share: which policies they compare, and where the figures go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures for programs.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture (PNG, SVG or PDF).")]
Policies = Annotated[
    str,
    typer.Option(
        metavar="POLICY[,POLICY...]", help="Of recompute, swap, threshold:N, threshold:N:swap-above and cost."
    ),
]

ALL_POLICIES = "recompute,swap,threshold:1024,cost"


def policy_names(text: str) -> list[str]:
    """The policies of a list such as swap,cost; whether there are such is theirs to know who make them."""
    return [policy.strip() for policy in text.split(",")]
