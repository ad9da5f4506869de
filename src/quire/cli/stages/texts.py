"""Options for the texts that a model is looked at with, and the texts themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[str, typer.Option(envvar="QUIRE_MODEL", help="A directory, a hub id, an embedded name or a preset.")]
PlanFile = Annotated[Path, typer.Option(metavar="FILE", help="The stages, as `quire stages plan` wrote them.")]
Text = Annotated[
    list[Path] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="Text to look at: plain, questions in SQuAD's form (.json) or open ones (.jsonl); may be repeated.",
    ),
]
Generate = Annotated[
    int, typer.Option(metavar="N", min=0, help="Have the model itself write so many texts, to look at them, too.")
]
Start = Annotated[str, typer.Option(metavar="TEXT", help="With --generate: what they begin with.")]
Samples = Annotated[int, typer.Option(min=1, help="Texts of each file, at most; evenly spread over it.")]
Tokens = Annotated[int, typer.Option(min=2, help="Tokens of a text, at most.")]
Dtype = Annotated[str, typer.Option(help="What the model computes in.")]


def check_texts(text: list[Path] | None, generate: int, start: str) -> None:
    """Notice mistakes before a model is loaded. Raises ValueError."""
    if start and not generate:
        raise ValueError("--start is what written texts begin with; give --generate, too")
    if not text and not generate:
        raise ValueError("which text? Give --text FILE, or --generate N to have the model write N texts itself")
    for path in text or ():
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")


def gather_texts(
    model: Any,
    tokenizer: Any,
    text: list[Path] | None,
    generate: int,
    *,
    start: str = "",
    samples: int,
    tokens: int,
    seed: int = 0,
) -> tuple[list[list[int]], list[str]]:
    """The token ids of all texts, and where they come from, in words."""
    from quire.progressive.calibration_text import choose_texts, read_texts, write_texts

    positions = getattr(model.config, "max_position_embeddings", None)
    longest = min(tokens, positions or tokens)
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
            texts += write_texts(model, tokenizer, generate, longest, start=start, seed=seed, advance=advance)
        sources.append(f"{generate} written by the model")
    return texts, sources


class progress_bar:
    """On stderr, gone when it is done: `with progress_bar("reading", total) as advance: advance(1)`."""

    def __init__(self, description: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(transient=True, console=Console(stderr=True))
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self) -> Any:
        self._progress.start()
        return lambda count: self._progress.advance(self._task, count)

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
