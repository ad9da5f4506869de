"""`quire generate`: what a model in this process makes of a prompt, as it is or as a user's message."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli import client_options
from quire.cli.client_options import asked_for, opened_model
from quire.cli.options import options
from quire.cli.pipes import read_prompt, write_answer
from quire.config import EngineConfig

EXAMPLE = 'Example: quire generate --model random:tiny --max-tokens 32 "The capital of France is"'


@options()
def generate(
    ctx: typer.Context,
    engine: EngineConfig,
    prompt: Annotated[
        str,
        typer.Argument(
            metavar="PROMPT",
            help="The text to continue; - reads it from standard input, less the line break that ends it.",
        ),
    ],
    max_tokens: client_options.MaxTokens = 128,
    temperature: client_options.Temperature = None,
    top_p: client_options.TopP = None,
    top_k: client_options.TopK = None,
    min_p: client_options.MinP = None,
    repetition_penalty: client_options.RepetitionPenalty = None,
    stop: client_options.Stop = None,
    ignore_eos: client_options.IgnoreEos = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a user's message: use the chat template.")
    ] = False,
) -> None:
    """Continue a prompt, streaming to the terminal."""
    text, sampling = read_prompt(prompt), asked_for(ctx.params)
    with opened_model(ctx.params, engine) as model:
        said = [{"role": "user", "content": text}]
        write_answer(model.chat(said, **sampling) if chat else model.complete(text, **sampling))
