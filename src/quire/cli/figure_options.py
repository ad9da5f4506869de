"""Options that commands with figures share: where the figures go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures for programs.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture (PNG, SVG or PDF).")]
