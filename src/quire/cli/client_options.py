"""Options that `quire chat`, `complete` and `generate` share: server address and sampling."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from quire.config import EngineConfig
from quire.settings import Settings, setting

DEFAULT_URL = "http://127.0.0.1:8000"  #: of `quire serve`
ApiKey = Annotated[str | None, typer.Option(metavar="TEXT", envvar="QUIRE_API_KEY", help="API key of the server.")]


@dataclass(frozen=True)
class Address(Settings):
    """Address of a server; without a URL, a model in this process."""

    url: str | None = setting(
        None,
        "Ask a server; --model is then a served name (default: the first one).",
        metavar="URL",
        envvar=["QUIRE_URL", "OPENAI_BASE_URL"],
    )
    api_key: str | None = setting(None, "API key of the server.", envvar="QUIRE_API_KEY", repr=False)


@dataclass(frozen=True)
class Sampling(Settings):
    """Sampling fields of the protocol; None uses the model's default."""

    max_tokens: int | None = setting(None, "Maximum tokens of an answer; by default as many as fit into the context.")
    temperature: float | None = setting(None, "0 is greedy; by default the model's recommendation.")
    top_p: float | None = setting(None, "Keep the most likely tokens up to this total probability.")
    top_k: int | None = setting(None, "Keep the k most likely tokens.")
    min_p: float | None = setting(None, "Keep tokens with at least this probability relative to the best.")
    repetition_penalty: float | None = setting(None, "Values above 1 make repeated tokens less likely.")
    stop: tuple[str, ...] = setting((), "End before this text; may be repeated.")


@dataclass(frozen=True)
class CompletionSampling(Sampling):
    """Sampling of a single completion."""

    max_tokens: int | None = setting(128, "Maximum tokens of a completion; a chat's answer has no limit by default.")
    ignore_eos: bool = setting(False, "Continue after the model's end token.", is_flag=True)


_FOR_BOTH = ("model", "seed")  # engine fields that also apply to a server


@contextmanager
def opened_model(given: Mapping[str, Any], engine: EngineConfig, address: Address = Address()) -> Iterator[Any]:
    """Open a `RemoteModel` (with a URL) or a `LocalModel`, and close it. `given` has the options; None if absent."""
    with failures_in_one_line(), closing(_open(given, engine, address)) as model:
        yield model


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Print a RuntimeError in one line and exit with status 1."""
    try:
        yield
    except (typer.Exit, typer.Abort):  # subclasses of RuntimeError
        raise
    except RuntimeError as error:
        typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None


def asked_for(sampling: Sampling, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling fields that differ from the protocol's defaults, with the seed for a server."""
    values = {each.name: getattr(sampling, each.name) for each in fields(sampling)}
    if given.get("url") is not None:
        values["seed"] = given.get("seed")
    values["stop"] = list(sampling.stop) or None
    return {name: value for name, value in values.items() if value is not None and value is not False}


def own_options(given: Mapping[str, Any], allowed: Sequence[str]) -> list[str]:
    """Return the given options of a model in this process, except those `allowed`."""
    names = [*(field.name for field in fields(EngineConfig)), "chat_template"]
    return [name for name in names if name not in allowed and given.get(name) not in (None, (), [])]


def check_remote(given: Mapping[str, Any], allowed: Sequence[str] = _FOR_BOTH) -> None:
    """Raise ValueError for options of a model in this process."""
    if found := own_options(given, allowed):
        option = "--" + found[0].replace("_", "-")
        raise ValueError(f"{option} applies to a model in this process; with --url or QUIRE_URL the server chooses")


def _open(given: Mapping[str, Any], engine: EngineConfig, address: Address) -> Any:
    template = given.get("chat_template")
    if address.url is None:
        from quire.client.local_model import LocalModel

        if template is not None:
            from quire.text.chat_template import read_chat_template

            template = read_chat_template(template)
        return LocalModel(engine, chat_template=template)
    check_remote(given)
    from quire.client.remote_model import RemoteModel
    from quire.client.server_address import ServerAddress

    key = address.api_key
    if key is None and address.url == os.environ.get("OPENAI_BASE_URL"):  # no other server may see OpenAI's key
        key = os.environ.get("OPENAI_API_KEY")
    return RemoteModel(ServerAddress.of(address.url, key), given.get("model"))
