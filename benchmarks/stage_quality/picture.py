"""Picture of stages: exact match against the bytes that must arrive before."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quire.bench.plots import COLOURS
from quire.loading import resolve_model
from quire.loading.stage_manifest import WHOLE_BITS
from quire.progressive.packs.pack import pack
from quire.progressive.plans import model_bytes, plan_precision
from quire.progressive.stage_plan import StagePlan


def add_shares(model: str, plan: StagePlan, rows: Sequence[dict[str, Any]]) -> None:
    """Add the bytes of each row's stage as a share of the plain files: of layers in place, or of a pack's first stage.
    Beside truncated ones, the row of the original gets that of the whole pack, too."""
    sizes = model_bytes(resolve_model(model))
    packed = _packed_bytes(model, plan) if plan.mantissa_bits is not None else None
    has_truncated = any(row["kind"] == "truncated" for row in rows)
    for row in rows:
        out = sum(sizes.layers[layer] for layer in plan.layers_out(row["stage"]))
        row["share"] = (sizes.total - out) / sizes.total
        if packed is not None and row["kind"] != "control":
            row["share"] = packed[row["stage"]] / sizes.total
        if row["kind"] == "truncated":
            row["share"] = _packed_bytes(model, plan_precision(plan.num_layers, row["mantissa_bits"]))[1] / sizes.total
        if row["kind"] == "full" and has_truncated:
            row["coded_share"] = _packed_bytes(model, plan_precision(plan.num_layers, WHOLE_BITS))[1] / sizes.total


def _packed_bytes(model: str, plan: StagePlan) -> dict[int, int]:
    """Return the bytes of a plan's stages, each with all before it."""
    with tempfile.TemporaryDirectory() as folder:
        packed = pack(model, plan, Path(folder) / "pack", use_tqdm=False)
        return {stage: packed.stage_bytes(stage) for stage in range(1, plan.num_stages + 1)}


def draw(figure: Any, model: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a line per kind of stage, from its `share` of bytes to its exact match."""
    axes = figure.subplots()
    full = next(row for row in rows if row["kind"] == "full")
    kinds = {"truncated": "all layers, N mantissa bits", "healed": "fewer layers, trained adapter",
             "bare": "fewer layers"}  # fmt: skip
    for colour, (kind, label) in zip(COLOURS, kinds.items(), strict=False):
        of_kind = sorted((dict(row) for row in rows if row["kind"] == kind), key=lambda row: row["share"])
        if not of_kind:
            continue
        if kind == "truncated":
            of_kind.append({**full, "mantissa_bits": WHOLE_BITS, "share": full["coded_share"]})
        ends = of_kind if kind == "truncated" else [*of_kind, full]
        axes.plot([100 * row["share"] for row in ends], [row["exact_match"] for row in ends], "o-", color=colour,
                  label=label)  # fmt: skip
        for row in of_kind:
            text = f"{row['mantissa_bits']}" if kind == "truncated" else f"{row['num_layers']} layers"
            where, side = ((0, -14), "center") if kind == "truncated" else ((-8, -3), "right")
            axes.annotate(text, (100 * row["share"], row["exact_match"]), where, textcoords="offset points", ha=side,
                          fontsize=8, color=colour)  # fmt: skip
    axes.plot(100, full["exact_match"], "ko", label="the original, plain")
    axes.axhline(full["exact_match"], color="0.7", lw=1, ls=":")
    axes.set_xlim(0, 104)
    axes.margins(y=0.1)
    axes.set_xlabel("bytes that must arrive, % of the plain files")
    axes.set_ylabel("exact match, %")
    figure.suptitle(f"What a stage of {model} answers, and its bytes: upper left is better", x=0.01, ha="left")
