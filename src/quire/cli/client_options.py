"""Options that `quire chat`, `complete` and `generate` share: whom they ask, and how the answer is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.config import EngineConfig

Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Ask a server; --model is then its name for a model (default: its first one)."),
]
ApiKey = Annotated[str | None, typer.Option(envvar="QUIRE_API_KEY", show_envvar=True, help="The key the server wants.")]
MaxTokens = Annotated[int | None, typer.Option(help="At most so many tokens an answer.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy; by default the model's own.")]
TopP = Annotated[float | None, typer.Option(help="Keep the likeliest tokens up to this probability.")]
TopK = Annotated[int | None, typer.Option(help="Keep the k likeliest tokens.")]
MinP = Annotated[float | None, typer.Option(help="Keep tokens at least so likely, relative to the best.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 makes seen tokens less likely.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after the model's end token.")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")]

_FOR_BOTH = ("model", "seed")  # fields of EngineConfig that say something to a server too


# Options of all of them; their values are read from the context, by these names.
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop")
COMPLETING = (*SAMPLING, "ignore_eos")


@contextmanager
def failures_told() -> Iterator[None]:
    """Tell a failure that is the server's or the engine's, not the user's, in one line, and end with status 1."""
    try:
        yield
    except RuntimeError as error:
        typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def open_model(
    given: Mapping[str, Any], engine: EngineConfig, url: str | None, api_key: str | None, template: Path | None = None
) -> Any:
    """Whoever answers: a `RemoteModel` with a URL, a `LocalModel` without.

    Args:
        given: the command line's own values, None where it is silent.

    Raises:
        ValueError: an option makes no sense for this one, or cannot be served.
        RemoteError: the server does not answer as it should.
    """
    if url is None:
        from quire.client.local_model import LocalModel

        return LocalModel(engine, chat_template=_read(template) if template is not None else None)
    for name in [*(field.name for field in fields(EngineConfig)), "chat_template"]:
        if name not in _FOR_BOTH and given.get(name) is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} is for a model in this process; with --url it is the server's to choose")
    from quire.client.endpoint import Endpoint
    from quire.client.remote_model import RemoteModel

    return RemoteModel(Endpoint.of(url, api_key), given.get("model"))


def asked_for(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Of the command line's values those of the protocol's fields `names` that were given.

    In process the seed is the engine's own; a server gets it with each request.
    """
    wanted = [*names, "seed"] if given.get("url") is not None else names
    values = {name: list(given[name]) if isinstance(given[name], tuple) else given[name] for name in wanted}
    return {name: value for name, value in values.items() if value is not None and value is not False and value != []}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
