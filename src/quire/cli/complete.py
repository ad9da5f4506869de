"""`quire complete`: what follows a prompt, as a filter between two pipes or on a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli import client_options
from quire.cli.client_options import asked_for, opened_model
from quire.cli.options import options
from quire.cli.pipes import read_prompt, write_answer
from quire.config import EngineConfig

EXAMPLE = 'Example: quire complete --url http://127.0.0.1:8000 --max-tokens 32 "Once upon a time"'


@options(default_model="quire-mini")
def complete(
    ctx: typer.Context,
    engine: EngineConfig,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="The text to continue; without it, or with -, from stdin.")
    ] = None,
    url: client_options.Url = None,
    api_key: client_options.ApiKey = None,
    max_tokens: client_options.MaxTokens = 128,
    temperature: client_options.Temperature = None,
    top_p: client_options.TopP = None,
    top_k: client_options.TopK = None,
    min_p: client_options.MinP = None,
    repetition_penalty: client_options.RepetitionPenalty = None,
    stop: client_options.Stop = None,
    ignore_eos: client_options.IgnoreEos = False,
    stream: Annotated[bool, typer.Option(help="Write as it comes, or all at the end.")] = True,
) -> None:
    """One completion, by a server or a model in this process (default: quire-mini). Only its text goes to stdout."""
    text, sampling = read_prompt(prompt), asked_for(ctx.params)
    with opened_model(ctx.params, engine) as model:
        write_answer(model.complete(text, stream=stream, **sampling))
