"""Options and helpers that the commands of `quire stages` share: texts, plans, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.options import MODEL_HELP, check_model

Model = Annotated[str, typer.Option(envvar="QUIRE_MODEL", callback=check_model, help=MODEL_HELP)]
Text = Annotated[
    list[Path] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="Plain text, SQuAD questions (.json) or open questions (.jsonl); may be repeated.",
    ),
]
Generate = Annotated[int, typer.Option(metavar="N", min=0, help="Also use N texts that the model generates.")]
Start = Annotated[str, typer.Option(metavar="TEXT", help="With --generate: the beginning of each text.")]
Samples = Annotated[int, typer.Option(min=1, help="Maximum texts per file, evenly spread over it.")]
Tokens = Annotated[int, typer.Option(min=2, help="Maximum tokens of a text.")]
Dtype = Annotated[str, typer.Option(help="Arithmetic: float32, bfloat16, float16 or auto.")]


def check_texts(text: list[Path] | None, generate: int, start: str, option: str = "--text") -> None:
    """Raise ValueError for missing or contradictory texts, before a model is loaded."""
    if start and not generate:
        raise ValueError("--start needs --generate")
    if not text and not generate:
        raise ValueError(
            f"no text is given; name files with {option}, or let the model generate N texts with --generate N"
        )
    for path in text or ():
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")


def gather_texts(
    model: str,
    text: list[Path] | None,
    generate: int,
    *,
    dtype: str,
    start: str = "",
    samples: int,
    tokens: int,
    seed: int = 0,
) -> tuple[list[list[int]], list[str]]:
    """Return the token ids of all texts, and the names of their sources."""
    from quire.assembly.model import load_tokenizer
    from quire.loading import resolve_model
    from quire.progressive.calibration_text import choose_texts, read_texts, write_texts

    source = resolve_model(model)
    tokenizer, longest = load_tokenizer(source), min(tokens, source.config.context_length)
    texts: list[list[int]] = []
    sources: list[str] = []
    for path in text or ():
        try:
            found = read_texts(path, tokenizer, longest)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        texts += choose_texts(found, samples)
        sources.append(path.name)
    if generate:
        with progress_bar("writing texts", generate) as advance:
            texts += write_texts(model, generate, longest, dtype=dtype, start=start, seed=seed, advance=advance)
        sources.append(f"{generate} written by the model")
    return texts, sources


def by_stage(option: str, given: list[str] | None) -> dict[int, Path]:
    """Parse STAGE=PATH texts, and refuse paths that do not exist."""
    found: dict[int, Path] = {}
    for text in given or ():
        stage, equals, path = text.partition("=")
        if not equals or not stage.isdecimal() or not path:
            raise ValueError(f"{option} {text!r} is not STAGE=PATH, such as 1=healed")
        if int(stage) in found:
            raise ValueError(f"{option} is given twice for stage {stage}")
        if not Path(path).exists():
            raise ValueError(f"{option} {text!r}: there is no {path}")
        found[int(stage)] = Path(path)
    return found


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[float], None]]:
    """Transient bar on stderr: `with progress_bar("reading", total) as advance: advance(1)`."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
