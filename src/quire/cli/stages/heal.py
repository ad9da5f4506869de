"""`quire stages heal`: an adapter is trained for a stage, to make up for the layers that it lacks."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import options
from quire.cli.stages.texts import Generate, Model, Start
from quire.progressive.healing.settings import HealSettings

if TYPE_CHECKING:
    from quire.progressive.healing.trainer import HealProgress

EXAMPLE = "Example: quire stages heal --model quire-mini --plan plan.json --stage 1 --data train.json --out adapter-1"
_HOW_TO_RESUME = "to go on, give the same command with --resume"
_SECONDS_BETWEEN_LINES = 30  # where stderr is no terminal


@options()
def heal(
    settings: HealSettings,
    model: Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The adapter's directory, in PEFT's format.")],
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The stages, as `quire stages plan` wrote them.")
    ] = None,
    stage: Annotated[int | None, typer.Option(min=1, help="Whose adapter it is; counted from 1.")] = None,
    control: Annotated[
        bool, typer.Option("--control", help="In place of a stage: the full model, to see what an adapter alone does.")
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Questions in SQuAD's form (.json), or plain text; may be repeated."),
    ] = None,
    generate: Generate = 0,
    start: Start = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run: same options, files.")
    ] = False,
) -> None:
    """Train a LoRA adapter on the layers that a stage has, with the others left out.

    Of questions only the answers are learned, of texts every token. Questions to measure with must be others. Ctrl-C
    keeps a checkpoint; with --resume the run ends in the same bytes as if it had not been interrupted.
    """
    layers_out = _layers_out(model, plan, stage, control)
    _check_data(data, generate, start)

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
    except KeyboardInterrupt:  # before the first step, or a second one
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
            raise ValueError("--control trains the full model, of no plan and no stage; leave --plan and --stage out")
        return ()
    if plan is None or stage is None:
        raise ValueError("which layers are out? Give --plan FILE and --stage N, or --control for the full model")
    stages = plan_for(plan, resolve_model(model, load_format="random").config.num_layers)
    if stage >= stages.num_stages:
        raise ValueError(
            f"of the plan's {stages.num_stages} stages, 1 to {stages.num_stages - 1} can be healed, and stage {stage} "
            "has all layers, if there is one; --control trains an adapter on the full model"
        )
    return stages.layers_out(stage)


def _check_data(data: list[Path] | None, generate: int, start: str) -> None:
    """Notice mistakes before a model is loaded."""
    if not data and not generate:
        raise ValueError("what to learn from? Give --data FILE, or --generate N to have the model write N texts itself")
    if start and not generate:
        raise ValueError("--start is what written texts begin with; give --generate, too")
    for path in data or ():
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether a run is to stop. From the first time that this is asked, Ctrl-C lets a step end; a second one does not
    wait for it."""
    before: Any = None
    is_stopped = False

    def stop(*_: Any) -> None:
        nonlocal is_stopped
        is_stopped = True
        signal.signal(signal.SIGINT, before)

    def should_stop() -> bool:
        nonlocal before
        if before is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as of a shell's background job
            before = signal.signal(signal.SIGINT, stop)
        return is_stopped

    try:
        yield should_stop
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(num_steps: int, num_texts: int) -> Iterator[tuple[Callable[[HealProgress], None], Callable[[int], None]]]:
    """What takes the progress of training, and of writing texts before it: bars on a terminal's stderr, and else a
    line now and then."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(progress: HealProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                left = f"{progress.seconds_left / 60:.0f} min left"
                typer.echo(f"step {progress.step} of {num_steps}, {_remark(progress)}, {left}", err=True)

        yield tell, lambda count: None
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
