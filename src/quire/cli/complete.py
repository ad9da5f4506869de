"""`quire complete`: what follows a prompt, as a filter between two pipes or on a terminal."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated, Any

import typer

from quire.cli import client_options
from quire.cli.client_options import COMPLETING, asked_for, failures_told, open_model
from quire.cli.options import engine_options
from quire.config import EngineConfig

EXAMPLE = 'Example: quire complete --url http://127.0.0.1:8000 --max-tokens 32 "Once upon a time"'


@engine_options(default_model="quire-mini")
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
    text = _read_prompt(prompt)
    with failures_told(), closing(open_model(ctx.params, engine, url, api_key)) as model:
        write_answer(model.complete(text, stream=stream, **asked_for(ctx.params, COMPLETING)))


def write_answer(chunks: Any) -> None:
    """Text to standard output as it comes, ended by a line break; what it cost to stderr where both are a terminal."""
    from quire.cli.printable import printable
    from quire.client.cost import Cost

    cost = Cost()
    out, last = sys.stdout, ""
    try:
        with closing(chunks):
            for chunk in cost.watch(chunks):
                text = printable(chunk.text) if out.isatty() else chunk.text
                out.write(text)
                out.flush()
                last = text or last
    except (KeyboardInterrupt, RuntimeError):
        if last:
            out.write("\n")  # so that what is said next begins its own line
        raise
    if not last.endswith("\n"):
        out.write("\n")
    out.flush()
    if out.isatty() and sys.stderr.isatty():
        typer.secho(f"[{cost}]", err=True, dim=True)


def _read_prompt(given: str | None) -> str:
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise ValueError(
            'which prompt? Give it as an argument, such as quire complete "Once upon a time", or pipe it in'
        )
    try:
        # The line break that ends a piped text belongs to the pipe: a model would go on in a new line after it.
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8 text: {error}") from None
