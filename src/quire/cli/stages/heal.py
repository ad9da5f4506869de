"""`quire stages heal`: train an adapter that compensates for a stage's missing layers."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import options
from quire.cli.stages.texts import Generate, Model, Start, check_texts
from quire.progressive.healing.settings import HealSettings

if TYPE_CHECKING:
    from quire.progressive.healing.trainer import HealProgress

EXAMPLE = "Example: quire stages heal --model quire-mini --plan plan.json --stage 1 --data train.json --out adapter-1"
_HOW_TO_RESUME = "to continue, repeat the command with --resume"
_SECONDS_BETWEEN_LINES = 30  # if stderr is not a terminal


@options()
def heal(
    settings: HealSettings,
    model: Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output directory, in PEFT's format.")],
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Plan file of `quire stages plan`.")] = None,
    stage: Annotated[int | None, typer.Option(min=1, help="The stage to heal, counted from 1.")] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Train an adapter of the full model instead, as a control.")
    ] = False,
    data: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="SQuAD questions (.json) or plain text; may be repeated.")
    ] = None,
    generate: Generate = 0,
    start: Start = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run with the same options and files.")
    ] = False,
) -> None:
    """Train a LoRA adapter of a stage, with its missing layers left out.

    Questions train only the tokens of their answers. Evaluate with other questions than those trained on. Ctrl-C keeps
    a checkpoint; a resumed run ends with the same bytes as an uninterrupted one.
    """
    layers_out = _layers_out(model, plan, stage, control)
    check_texts(data, generate, start, "--data")
    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise ValueError(f"healing needs {', '.join(missing)}: pip install 'quire-llm[heal]'")

    from quire.progressive.healing.heal import heal as train

    try:
        with _progress(settings.steps, generate) as (advance, advance_texts), _stopped_by_ctrl_c() as should_stop:
            healed = train(
                model,
                layers_out,
                out,
                settings,
                data=data or (),
                num_generated=generate,
                start=start,
                resume=resume,
                advance=advance,
                advance_texts=advance_texts,
                should_stop=should_stop,
            )
    except KeyboardInterrupt:  # before the first step, or a second Ctrl-C
        typer.echo(f"interrupted; {_HOW_TO_RESUME}", err=True)
        raise
    if not healed.is_finished:
        typer.echo(f"stopped after step {healed.step} of {settings.steps}; {_HOW_TO_RESUME}", err=True)
        raise typer.Exit(130)
    typer.echo(f"{out} has the adapter, after {healed.step} steps: loss {healed.loss:.4f}")


def _layers_out(model: str, plan: Path | None, stage: int | None, control: bool) -> tuple[int, ...]:
    from quire.loading import resolve_model
    from quire.progressive.plans import plan_for

    if control:
        if plan is not None or stage is not None:
            raise ValueError("--control trains the full model; leave out --plan and --stage")
        return ()
    if plan is None or stage is None:
        raise ValueError("no stage is given; add --plan FILE and --stage N, or --control for the full model")
    stages = plan_for(plan, resolve_model(model, load_format="random").config.num_layers)
    if stage >= stages.num_stages:
        raise ValueError(
            f"stages 1 to {stages.num_stages - 1} of the plan lack layers, stage {stage} does not; --control trains an "
            "adapter of the full model"
        )
    return stages.layers_out(stage)


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether to stop. After its first call, Ctrl-C waits for the step's end, and a
    second Ctrl-C does not."""
    before: Any = None
    is_stopped = False

    def stop(*_: Any) -> None:
        nonlocal is_stopped
        is_stopped = True
        signal.signal(signal.SIGINT, before)

    def should_stop() -> bool:
        nonlocal before
        if before is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # in a background job
            before = signal.signal(signal.SIGINT, stop)
        return is_stopped

    try:
        yield should_stop
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(num_steps: int, num_texts: int) -> Iterator[tuple[Callable[[HealProgress], None], Callable[[int], None]]]:
    """Yield functions that show the progress of training and of generating texts: bars on a terminal, else lines."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def show(progress: HealProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                left = f"{progress.seconds_left / 60:.0f} min left"
                typer.echo(f"step {progress.step} of {num_steps}, {_remark(progress)}, {left}", err=True)

        yield show, lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[remark]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        writing = bar.add_task("writing texts", total=num_texts, remark="", visible=num_texts > 0)
        healing = bar.add_task("healing", total=num_steps, remark="")
        yield (
            lambda progress: bar.update(healing, completed=progress.step, remark=_remark(progress)),
            lambda count: bar.advance(writing, count),
        )


def _remark(progress: HealProgress) -> str:
    return f"loss {progress.loss:.4f}, {progress.tokens_per_s:,.0f} tok/s"
