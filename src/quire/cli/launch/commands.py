"""`quire launch`: find or start a server, and run a coding agent on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.client_options import DEFAULT_URL, ApiKey, failures_in_one_line
from quire.cli.launch.clients import CLIENTS, Endpoint

if TYPE_CHECKING:
    from quire.client.remote_model import ListedModel

EXAMPLE = "Example: quire launch claude --model Qwen/Qwen3-8B -- --continue"


def launch(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="claude, codex, opencode or aider.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the client.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="TEXT", help="Default: the server's first model.")] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="QUIRE_URL", help=f"Server; by default {DEFAULT_URL} if it has the model."),
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Run a coding agent on a model.

    Without a running server, --model is served until the agent ends; QUIRE_MAX_MODEL_LEN and other variables are the
    options of that server.
    """
    if client not in CLIENTS:
        raise ValueError(f"quire launch runs {', '.join(CLIENTS)}; to serve the model {client}: quire serve {client}")
    if (program := shutil.which(client)) is None:
        raise ValueError(f"{client} is not installed; install it with: {CLIENTS[client].install}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    with failures_in_one_line(), _endpoint(url, api_key, model) as server:
        invocation = CLIENTS[client].invoke(server)
        typer.echo(f"{client} uses {server.model} at {server.base_url}", err=True)
        status = _run([program, *invocation.arguments, *(arguments or ())], {**os.environ, **invocation.env})
    raise typer.Exit(status)


@contextmanager
def _endpoint(url: str | None, api_key: str | None, model: str | None) -> Iterator[Endpoint]:
    """Find a server with the model, or start one."""
    from quire.cli.launch.own_server import own_server
    from quire.client.errors import RemoteError

    listed: list[ListedModel] = []
    try:
        listed = _models(url or DEFAULT_URL, api_key)
    except RemoteError as error:
        if url or error.kind == "http_401":
            raise
    names = [each.name for each in listed]
    if names and model in (None, *names):
        yield _made(url or DEFAULT_URL, api_key, listed[names.index(model) if model else 0])
    elif url:
        raise ValueError(f"{url} has no model {model}; it serves {', '.join(names)}")
    elif model is None:
        raise ValueError(f"no server at {DEFAULT_URL}: name a model to serve (--model MODEL), or a server (--url URL)")
    else:
        with own_server(model, api_key) as own_url:
            yield _made(own_url, api_key, _models(own_url, api_key)[0])


def _models(url: str, api_key: str | None) -> list[ListedModel]:
    from quire.client.remote_model import RemoteModel
    from quire.client.server_address import ServerAddress

    with RemoteModel(ServerAddress.of(url, api_key), "any") as server:
        return server.models()


def _made(url: str, api_key: str | None, model: ListedModel) -> Endpoint:
    from quire.client.server_address import ServerAddress

    return Endpoint(ServerAddress.of(url).base_url, api_key or "none", model.name, model.max_model_len)


def _run(command: list[str], env: dict[str, str]) -> int:
    """Run the client in the foreground, and return its exit status as shells do. Ctrl-C is the client's."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would be inherited
    try:
        with subprocess.Popen(command, env=env) as process:
            try:
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status


def _exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
