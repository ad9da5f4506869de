"""`quire chat`: a conversation in the terminal. What is said is kept elsewhere, and so is how it looks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.chat.screens import Screen, choose_screen
from quire.cli.client_options import Address, Sampling, asked_for, opened_model
from quire.cli.options import options
from quire.config import EngineConfig

EXAMPLE = "Example: quire chat --url http://127.0.0.1:8000"
COMMANDS = {
    "/reset": "forget the conversation and begin anew",
    "/stats": "what it cost so far: tokens, speed, time to the first token",
    "/help": "this list",
    "/exit": "leave (so do Ctrl-D, and Ctrl-C twice)",
}
HINTS = {
    "Ctrl-C": "stop the answer; what has come of it stays in the conversation",
    "\\": "at the end of a line: the message goes on in the next one",
}


@options(default_model="quire-chat")
def chat(
    ctx: typer.Context,
    engine: EngineConfig,
    address: Address,
    sampling: Sampling,
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Jinja template, for a model in this process without one.")
    ] = None,
) -> None:
    """Chat with a model: behind a URL, or in this process (default: quire-chat). Piped input is a message a line."""
    from quire.client.conversation import Conversation

    with opened_model(ctx.params, engine, address) as model:
        is_answered = hold(Conversation(model, system=system, **asked_for(sampling, ctx.params)), choose_screen())
    if not is_answered:
        raise typer.Exit(1)


def hold(conversation: Any, screen: Screen) -> bool:
    """Read, answer, and so on until the user leaves.

    Ctrl-C ends the answer; at the prompt it leaves if it comes a second time.

    Returns:
        Whether every message got its answer; on a terminal the user has seen which did not, so that it is true.
    """
    num_failed = 0
    is_leaving = False
    screen.welcome(conversation.model.name)
    while True:
        try:
            line = screen.read()
        except KeyboardInterrupt:
            if not screen.is_terminal:
                raise
            if is_leaving:
                break
            is_leaving = True
            screen.note("Ctrl-C again leaves.")
            continue
        is_leaving = False
        if line is None:
            break
        if line.startswith("/"):
            if line in ("/exit", "/quit"):
                break
            _obey(line, conversation, screen)
        elif line:
            try:
                _answer(line, conversation, screen)
            except KeyboardInterrupt:
                if not screen.is_terminal:
                    raise
                is_leaving = True
                screen.note("Stopped. Ctrl-C again leaves.")
            except (RuntimeError, ValueError) as error:
                num_failed += 1
                screen.fail(" ".join(str(error).split()))
    return screen.is_terminal or not num_failed


def _answer(line: str, conversation: Any, screen: Screen) -> None:
    num_before = len(conversation.costs)
    with closing(conversation.say(line)) as chunks:
        screen.show(chunks)
    if len(conversation.costs) == num_before:
        screen.note("The answer is empty.")
    elif screen.is_terminal:
        screen.note(f"[{conversation.costs[-1]}]\n")


def _obey(command: str, conversation: Any, screen: Screen) -> None:
    if command == "/reset":
        conversation.reset()
        screen.note("Forgotten; this is a new conversation.")
    elif command == "/stats":
        screen.list(conversation.stats())
    elif command == "/help":
        screen.list({**COMMANDS, **HINTS})
    else:
        screen.fail(f"There is no command {command.split()[0]}; /help lists those there are.")
