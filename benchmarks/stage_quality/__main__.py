"""Exact match and F1 of each stage, with sign tests of the differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.script import start
from quire.cli.options import Json, Plot
from quire.cli.stages.texts import Dtype, Model, by_stage, progress_bar
from quire.cli.tables import print_table, write_figures

if TYPE_CHECKING:
    from benchmarks.stage_quality.variants import Variant, VariantAnswers, VariantComparison
    from quire.progressive.stage_plan import StagePlan


def main(
    model: Model,
    questions: Annotated[
        Path,
        typer.Option(metavar="FILE", help="SQuAD questions (.json), or open questions with lists of answers (.jsonl)."),
    ],
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Plan file; not needed for a pack.")] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="STAGE=DIR", help="A stage's adapter; may be repeated.")
    ] = None,
    control: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Adapter of the whole model, trained on the same data.")
    ] = None,
    mantissa_bits: Annotated[
        str, typer.Option(metavar="M[,...]", help="Also the whole model with M mantissa bits of each weight, 0 to 6.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 10,
    dtype: Dtype = "float32",
    paper: Annotated[
        bool, typer.Option("--paper", help="Also print ProgressiveServe's figures (Llama-2-7B on TriviaQA).")
    ] = False,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Answer the same questions greedily with every stage: bare, healed, full, truncated, and with the control."""
    from benchmarks.stage_quality.picture import add_shares, draw
    from benchmarks.stage_quality.variants import compare, evaluate_stages
    from quire.progressive.healing.reference import load_reference
    from quire.progressive.questions import read_questions

    bits = [int(each) for each in mantissa_bits.split(",") if each]
    stage_plan, variants = _variants(model, plan, by_stage("--adapter", adapter), control, bits)
    if paper and stage_plan.num_stages != 3:
        raise ValueError(f"the paper has 3 stages, and this plan has {stage_plan.num_stages}; leave out --paper")
    try:
        asked = read_questions(questions)[:limit]
    except OSError as error:
        raise ValueError(f"{questions} cannot be read: {error.strerror}") from None
    reference, tokenizer = load_reference(model, dtype)
    with progress_bar("answering", len(asked) * len(variants)) as advance:
        answered = list(
            evaluate_stages(reference, tokenizer, stage_plan, variants, asked,
                            max_new_tokens=max_new_tokens, advance=advance)
        )  # fmt: skip
    pairs = compare(answered)
    rows = _rows(answered, stage_plan, paper)
    add_shares(model, stage_plan, rows)
    write_figures(  # before the tables: an error in printing loses no answers
        json,
        {
            "model": model,
            "questions": questions.name,
            "num_questions": len(asked),
            "max_new_tokens": max_new_tokens,
            "dtype": dtype,
            "plan": stage_plan.to_dict(),
            "results": rows,
            "pairs": [{"first": pair.first, "second": pair.second, **vars(pair.result)} for pair in pairs],
            "predictions": {each.variant.name: each.predictions for each in answered},
        },
    )
    if plot is not None:
        from quire.bench.plots import save_plot

        save_plot(plot, lambda figure: draw(figure, model, rows))
    _show(answered, rows, paper)
    typer.echo()
    _show_pairs(pairs, len(asked))


def _variants(
    model: str, plan: Path | None, adapters: dict[int, Path], control: Path | None, mantissa_bits: list[int]
) -> tuple[StagePlan, list[Variant]]:
    from benchmarks.stage_quality.variants import variants_of, variants_of_pack
    from quire.loading import resolve_model
    from quire.loading.stage_manifest import is_pack, read_stage_manifest
    from quire.progressive.plans import plan_for

    source = resolve_model(model, load_format="random")  # reads the config only
    if plan is None:
        if source.path is None or not is_pack(source.path):
            raise ValueError(f"{model} is not a pack; name the file of `quire stages plan` with --plan")
        if adapters:
            raise ValueError("a pack has its own adapters; to use others, add --plan")
        return variants_of_pack(read_stage_manifest(source.path), control, mantissa_bits)
    found = plan_for(plan, source.config.num_layers)
    return found, variants_of(found, adapters, control, mantissa_bits)


def _rows(answered: list[VariantAnswers], plan: StagePlan, paper: bool) -> list[dict[str, Any]]:
    """Return a row per variant, for --json."""
    from benchmarks.stage_quality.variants import PAPER, won_back

    rows = []
    for each in answered:
        variant = each.variant
        row = {"stage": variant.stage, "kind": variant.kind, "num_layers": len(plan.layers_in_place(variant.stage))}
        row |= {"exact_match": each.exact_match, "f1": each.f1, "won_back": won_back(each, answered)}
        row |= {"adapter": _name(variant.adapter), "mantissa_bits": variant.mantissa_bits}
        if paper and variant.kind in ("healed", "full"):
            row["paper"] = PAPER[variant.stage]
        rows.append(row)
    return rows


def _show(answered: list[VariantAnswers], rows: list[dict[str, Any]], paper: bool) -> None:
    """Print a row per variant."""
    head = ["", "layers", "bytes", "EM", "F1", "won back"] + ["paper's EM", "F1"] * paper
    lines = []
    for each, row in zip(answered, rows, strict=True):
        share = None if row["kind"] in ("full", "control") else row["won_back"]
        line = [each.variant.name, row["num_layers"], f"{row['share']:.1%}"]
        line += [f"{each.exact_match:.2f}", f"{each.f1:.2f}"]
        line.append("" if share is None else f"{100 * share:.0f} %")
        beside = [f"{value:.2f}" for value in row["paper"]] if "paper" in row else ["", ""]
        lines.append(line + beside * paper)
    print_table(head, lines)


def _show_pairs(pairs: list[VariantComparison], num_questions: int) -> None:
    print_table(
        ("question by question", "", "only the first", "only the second", "p"),
        [(pair.first, pair.second, pair.result.only_first, pair.result.only_second, f"{pair.result.p:.2g}")
         for pair in pairs],
    )  # fmt: skip
    typer.echo(f"\n{num_questions:,} questions; p: two-sided sign test over questions that only one answers correctly")


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


if __name__ == "__main__":
    start(main)
