"""Options that `quire chat`, `complete` and `generate` share: whom they ask, and how the answer is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import typer

from quire.config import EngineConfig
from quire.settings import Settings, setting


@dataclass(frozen=True)
class Address(Settings):
    """Who is asked."""

    url: str | None = setting(
        None, "Ask a server; --model is then its name for a model (default: its first one).", metavar="URL"
    )
    api_key: str | None = setting(None, "The key the server wants.", envvar="QUIRE_API_KEY", repr=False)


@dataclass(frozen=True)
class Sampling(Settings):
    """How an answer is sampled: the protocol's fields of these names. None leaves one to the model."""

    max_tokens: int | None = setting(None, "Most tokens of an answer; by default as many as the context has room for.")
    temperature: float | None = setting(None, "0 is greedy; by default the model's own.")
    top_p: float | None = setting(None, "Keep the likeliest tokens up to this probability.")
    top_k: int | None = setting(None, "Keep the k likeliest tokens.")
    min_p: float | None = setting(None, "Keep tokens at least so likely, relative to the best.")
    repetition_penalty: float | None = setting(None, "Above 1 makes seen tokens less likely.")
    stop: tuple[str, ...] = setting((), "End before this text; may be given several times.")


@dataclass(frozen=True)
class CompletionSampling(Sampling):
    """One answer, and no conversation that goes on."""

    max_tokens: int | None = setting(128, "Most tokens of a completion; a chat's answer runs to its end.")
    ignore_eos: bool = setting(False, "Go on after the model's end token.", is_flag=True)


_FOR_BOTH = ("model", "seed")  # fields of EngineConfig that say something to a server too


@contextmanager
def opened_model(given: Mapping[str, Any], engine: EngineConfig, address: Address = Address()) -> Iterator[Any]:
    """Whoever answers, until the block's end: a `RemoteModel` with a URL, a `LocalModel` without.

    Args:
        given: the command line's own values, None where it is silent.
    """
    with failures_in_one_line(), closing(_open(given, engine, address)) as model:
        yield model


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """What fails in the block, and not by the user (RuntimeError), is told in one line; the command ends with 1."""
    try:
        yield
    except (typer.Exit, typer.Abort):  # RuntimeErrors both, and no failures
        raise
    except RuntimeError as error:
        typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def asked_for(sampling: Sampling, given: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling fields that differ from the protocol's defaults.

    In process the seed is the engine's own; a server gets it with each request: `given` is as of `opened_model`.
    """
    values = {each.name: getattr(sampling, each.name) for each in fields(sampling)}
    if given.get("url") is not None:
        values["seed"] = given.get("seed")
    values["stop"] = list(sampling.stop) or None
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _open(given: Mapping[str, Any], engine: EngineConfig, address: Address) -> Any:
    template = given.get("chat_template")
    if address.url is None:
        from quire.client.local_model import LocalModel

        if template is not None:
            from quire.text.chat_template import read_chat_template

            template = read_chat_template(template)
        return LocalModel(engine, chat_template=template)
    for name in [*(field.name for field in fields(EngineConfig)), "chat_template"]:
        if name not in _FOR_BOTH and given.get(name) is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} is for a model in this process; with --url it is the server's to choose")
    from quire.client.remote_model import RemoteModel
    from quire.client.server_address import ServerAddress

    return RemoteModel(ServerAddress.of(address.url, address.api_key), given.get("model"))
