"""`quire generate`: complete a prompt with a model in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli.client_options import CompletionSampling, asked_for, opened_model
from quire.cli.options import options
from quire.cli.pipes import read_prompt, write_answer
from quire.config import EngineConfig

EXAMPLE = 'Example: quire generate --model random:tiny --max-tokens 32 "The capital of France is"'


@options()
def generate(
    ctx: typer.Context,
    engine: EngineConfig,
    sampling: CompletionSampling,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to continue; - reads standard input.")],
    chat: Annotated[bool, typer.Option("--chat", help="Use the prompt as a user's message.")] = False,
) -> None:
    """Continue a prompt, streaming to the terminal."""
    text, asked = read_prompt(prompt), asked_for(sampling, ctx.params)
    if chat and ctx.params["max_tokens"] is None:
        del asked["max_tokens"]  # the default limits completions, which may have no end of their own
    with opened_model(ctx.params, engine) as model:
        said = [{"role": "user", "content": text}]
        write_answer(model.chat(said, **asked) if chat else model.complete(text, **asked))
