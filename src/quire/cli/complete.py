"""`quire complete`: complete a prompt, as a filter between pipes or on a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli.client_options import Address, CompletionSampling, asked_for, opened_model
from quire.cli.options import options
from quire.cli.pipes import read_prompt, write_answer
from quire.config import EngineConfig

EXAMPLE = 'Example: quire complete --url http://127.0.0.1:8000 --max-tokens 32 "Once upon a time"'


@options(default_model="quire-mini")
def complete(
    ctx: typer.Context,
    engine: EngineConfig,
    address: Address,
    sampling: CompletionSampling,
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="The text; - or nothing reads stdin.")] = None,
    stream: Annotated[bool, typer.Option(help="Write tokens as they arrive.")] = True,
) -> None:
    """Complete a prompt with a server or a local model (default: quire-mini). Only the text goes to stdout."""
    text = read_prompt(prompt)
    with opened_model(ctx.params, engine, address) as model:
        write_answer(model.complete(text, stream=stream, **asked_for(sampling, ctx.params)))
