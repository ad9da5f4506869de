"""`quire run`: chat with a model in one command."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from quire.cli.chat.commands import COMMANDS, hold
from quire.cli.chat.screens import choose_screen
from quire.cli.client_options import DEFAULT_URL, Address, Sampling, asked_for, opened_model, own_options
from quire.cli.options import options
from quire.cli.pipes import write_answer
from quire.config import EngineConfig

EXAMPLE = 'Example: quire run quire-chat "How are you?"'


@options(default_model="quire-chat", has_argument=True)
def run(
    ctx: typer.Context,
    engine: EngineConfig,
    sampling: Sampling,
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="One message; without it, a chat.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
) -> None:
    """Chat with a model, or ask it one question.

    A server on this machine that has the model answers; otherwise the model is loaded here (and downloaded before).
    """
    from quire.client.conversation import Conversation

    address = Address() if own_options(ctx.params, ("model", "seed")) else _running_server(engine.model)
    given = {**ctx.params, "url": address.url, "model": engine.model}
    with opened_model(given, engine, address) as model:
        conversation = Conversation(model, system=system, **asked_for(sampling, given))
        if prompt is not None:
            write_answer(conversation.say(prompt))
        elif not hold(conversation, choose_screen(list(COMMANDS))):
            raise typer.Exit(1)


def _running_server(model: str) -> Address:
    """Return the address of a local server that has a model, or an empty address."""
    from quire.client.errors import RemoteError
    from quire.client.remote_model import RemoteModel
    from quire.client.server_address import ServerAddress

    address = Address(os.environ.get("QUIRE_URL", DEFAULT_URL), os.environ.get("QUIRE_API_KEY"))
    try:
        with RemoteModel(ServerAddress.of(str(address.url), address.api_key), model) as server:
            return address if model in [each.name for each in server.models()] else Address()
    except RemoteError:
        return Address()
