"""`quire stages map`: fit a linear map that replaces a stage's missing layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.cli.options import Json, check_json
from quire.cli.stages.texts import (
    Dtype,
    Generate,
    Model,
    PlanFile,
    Samples,
    Start,
    Text,
    Tokens,
    check_texts,
    gather_texts,
    progress_bar,
)
from quire.cli.tables import write_figures

EXAMPLE = "Example: quire stages map --model quire-mini --plan plan.json --generate 64 -o map.safetensors"


def map_(
    model: Model,
    plan: PlanFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", callback=check_json, help="Output file (safetensors).")
    ],
    stage: Annotated[int, typer.Option(min=1, help="The stage whose missing layers the map replaces.")] = 1,
    text: Text = None,
    generate: Generate = 0,
    start: Start = "",
    samples: Samples = 256,
    tokens: Tokens = 256,
    ridge: Annotated[float, typer.Option(help="Strength of the regularisation towards the identity.")] = 1e-4,
    dtype: Dtype = "float32",
    json: Json = None,
) -> None:
    """Fit a linear map from the input to the output of a stage's missing layers, by least squares."""
    from quire.loading import load_model, resolve_model
    from quire.progressive.linear_map import fit_linear_map
    from quire.progressive.plans import gap_of, plan_for

    check_texts(text, generate, start)
    first, end = gap_of(plan_for(plan, resolve_model(model, load_format="random").config.num_layers), stage)
    texts, sources = gather_texts(model, text, generate, dtype=dtype, start=start, samples=samples, tokens=tokens)
    loaded = load_model(resolve_model(model), dtype=dtype, use_tqdm=False)
    with progress_bar("fitting", len(texts)) as advance:
        linear_map, fit = fit_linear_map(loaded, texts, first, end, ridge=ridge, advance=advance)
    linear_map.save(out, model=model, layers=f"{first}:{end}", texts=", ".join(sources))
    typer.echo(
        f"replaces layers {first} to {end - 1}, fitted on {fit.num_tokens:,} tokens; squared error on "
        f"{fit.num_held_out:,} others: {100 * fit.error:.1f} % (100 % without a map)"
    )
    typer.echo(f"written to {out}")
    write_figures(json, {"model": model, "stage": stage, "layers": [first, end], "texts": sources, **vars(fit)})
