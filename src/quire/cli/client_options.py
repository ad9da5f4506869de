"""Options that `quire chat`, `complete` and `generate` share: whom they ask, and how the answer is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
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

# All of these are read from the context, by the names that the commands give them.
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop", "ignore_eos")
_FOR_BOTH = ("model", "seed")  # fields of EngineConfig that say something to a server too


@contextmanager
def opened_model(given: Mapping[str, Any], engine: EngineConfig) -> Iterator[Any]:
    """Whoever answers, until the block's end: a `RemoteModel` with a URL, a `LocalModel` without.

    A failure in the block that is the server's or the engine's, not the user's (RuntimeError), is told in one line and
    ends the command with status 1.

    Args:
        given: the command line's own values, None where it is silent.

    Raises:
        ValueError: an option makes no sense for this one, or cannot be served.
    """
    try:
        with closing(_open(given, engine)) as model:
            yield model
    except (typer.Exit, typer.Abort):  # RuntimeErrors both, and no failures
        raise
    except RuntimeError as error:
        typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def asked_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the command line's values those of the protocol's sampling fields that were given.

    In process the seed is the engine's own; a server gets it with each request.
    """
    names = _SAMPLING if given.get("url") is None else (*_SAMPLING, "seed")
    values = {name: given.get(name) for name in names}
    values["stop"] = list(values["stop"] or ()) or None
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _open(given: Mapping[str, Any], engine: EngineConfig) -> Any:
    url, template = given.get("url"), given.get("chat_template")
    if url is None:
        from quire.client.local_model import LocalModel

        if template is not None:
            from quire.text.chat_template import read_chat_template

            template = read_chat_template(template)
        return LocalModel(engine, chat_template=template)
    for name in [*(field.name for field in fields(EngineConfig)), "chat_template"]:
        if name not in _FOR_BOTH and given.get(name) is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} is for a model in this process; with --url it is the server's to choose")
    from quire.client.endpoint import Endpoint
    from quire.client.remote_model import RemoteModel

    return RemoteModel(Endpoint.of(url, given.get("api_key")), given.get("model"))
