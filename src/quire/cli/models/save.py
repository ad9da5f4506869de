"""`quire save`: write a preset or a checkpoint as files, optionally in another dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.cli.stages.texts import Model
from quire.config import EngineConfig, format_size

EXAMPLE = "Example: quire save --model random:qwen2.5-0.5b qwen-shaped"


def save(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    model: Model,
    dtype: Annotated[str | None, typer.Option(help="The engine's dtype: auto, float32, bfloat16, float16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a preset's random weights.")] = None,
) -> None:
    """Write a model as a checkpoint in the Hugging Face format, for example a preset."""
    config = EngineConfig.from_env(model=model, dtype=dtype, seed=seed)

    from quire.loading import resolve_model
    from quire.loading.save import save_model
    from quire.text.tokenizer import Tokenizer

    source = resolve_model(config.model, hub=config.hub)
    tokenizer = Tokenizer.byte_level(source.config.vocab_size) if source.path is None else None
    if source.path is not None and source.path.is_file():
        tokenizer = Tokenizer.from_dir(source.path)
    save_model(source, directory, dtype=config.dtype, seed=config.seed, use_tqdm=config.use_tqdm)
    if tokenizer is not None:
        tokenizer.save(directory)
    files = list(directory.glob("*.safetensors"))
    size = format_size(sum(file.stat().st_size for file in files))
    typer.echo(f"{config.model} is in {directory}: {size} of weights in {len(files)} file{'s' * (len(files) > 1)}")
