"""`quire chat`: a conversation in the terminal."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Annotated, Any

import typer

from quire.cli.chat.screens import Screen, choose_screen
from quire.cli.client_options import Address, Sampling, asked_for, opened_model
from quire.cli.options import options
from quire.config import EngineConfig

EXAMPLE = "Example: quire chat --url http://127.0.0.1:8000"
COMMANDS = {
    "/reset": "start a new conversation",
    "/help": "this list",
    "/exit": "leave (so do Ctrl-D, and Ctrl-C twice)",
}
HINTS = {
    "Ctrl-C": "stop the answer; its text so far stays in the conversation",
    "Alt-Enter": "start a new line in the message (so does \\ at the end of a line)",
    "Tab": "complete a command",
    "Ctrl-R": "search earlier messages",
}


@options(default_model="quire-chat", has_argument=True)
def chat(
    ctx: typer.Context,
    engine: EngineConfig,
    address: Address,
    sampling: Sampling,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    chat_template: Annotated[
        str | None, typer.Option(metavar="FILE", help="Jinja template (or its text) for a local model without one.")
    ] = None,
) -> None:
    """Chat with a server or a local model (default: quire-chat). Each line of piped input is a message."""
    from quire.client.conversation import Conversation

    with opened_model(ctx.params, engine, address) as model:
        conversation = Conversation(model, system=system, **asked_for(sampling, ctx.params))
        if not hold(conversation, choose_screen(list(COMMANDS))):
            raise typer.Exit(1)


def hold(conversation: Any, screen: Screen) -> bool:
    """Read messages and show answers until the user leaves. Return False if a piped message had no answer.

    Ctrl-C stops an answer; at the prompt a second Ctrl-C leaves.
    """
    num_failed = 0
    is_leaving = False
    if screen.is_terminal:  # no log lines between a question and its answer
        logging.getLogger("quire").setLevel(logging.WARNING)
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
        screen.note("This is a new conversation.")
    elif command == "/help":
        screen.list({**COMMANDS, **HINTS})
    else:
        screen.fail(f"There is no command {command.split()[0]}; /help lists all commands.")
