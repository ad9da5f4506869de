"""Tools of a chat: checks, forced calls, and the parser of the model's own calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.sampling_params import StructuredOutputsParams
from quire.server.bodies.conversation import NamedToolChoice, Tool
from quire.server.errors import invalid
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.tools.families import AUTO, NONE, HermesParser, calls_grammar, forced_calls_schema, tool_parser
from quire.server.tools.parser import ToolParser


def check_tools(body: ChatCompletionRequest) -> None:
    """Raise ApiError for tools that cannot be called, or a choice without its tool."""
    names: dict[str, int] = {}
    for number, tool in enumerate(body.tools or ()):
        name, where = tool.function.name, f"tools[{number}].function"
        if name in names:
            raise invalid(
                f"{where}.name={name!r} is the name of tools[{names[name]}] too; give each tool its own",
                f"{where}.name",
            )
        names[name] = number
        kind = (tool.function.parameters or {}).get("type", "object")
        if kind != "object":
            raise invalid(
                f"{where}.parameters.type={kind!r:.60} is not valid: arguments have names, so their schema is that of "
                'an object: {"type": "object", "properties": {...}}',
                f"{where}.parameters",
            )
    choice = body.tool_choice
    if isinstance(choice, NamedToolChoice) and choice.function.name not in names:
        known = ", ".join(map(repr, list(names)[:10])) or "none"
        raise invalid(f"tool_choice names {choice.function.name!r:.60}, and the tools are {known}", "tool_choice")
    if is_forced(body) and (structure := body.given_structure()) is not None and structure[0] != "response_format":
        raise invalid(f"{structure[0]} does not go with a tool_choice that forces a call; leave one out", structure[0])
    if choice == "required" and not names:
        raise invalid("tool_choice='required' forces a call, and there are no tools; give some", "tool_choice")


def is_forced(body: ChatCompletionRequest) -> bool:
    """Whether the answer must be a call."""
    return isinstance(body.tool_choice, NamedToolChoice) or body.tool_choice == "required"


def has_tools(body: ChatCompletionRequest) -> bool:
    """Whether the model sees the tools."""
    return bool(body.tools) and body.tool_choice != "none"


def forced_schema(body: ChatCompletionRequest) -> dict[str, Any]:
    """Return the JSON schema that makes the answer a call."""
    tools, choice, is_parallel = body.tools or [], body.tool_choice, body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolChoice):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        is_parallel = False
    return forced_calls_schema(_functions(tools), is_parallel=is_parallel)


def allow_calls(
    wanted: StructuredOutputsParams | None, body: ChatCompletionRequest, parser: type[ToolParser] | None
) -> StructuredOutputsParams | None:
    """Let the model call a tool in place of an answer in the response format: the format holds for text."""
    if wanted is None or parser is None or is_forced(body) or not has_format(body):
        return wanted
    return replace(wanted, alternative=calls_grammar(parser, _functions(body.tools or [])))


def has_format(body: ChatCompletionRequest) -> bool:
    """Whether the body has a response format, and not another structure."""
    structure = body.given_structure()
    return structure is not None and structure[0] == "response_format"


def _functions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.function.model_dump(include={"name", "parameters"}, exclude_none=True) for tool in tools]


def choose_parser(name: str, template: str, *, is_explained: bool) -> type[ToolParser]:
    """Return the parser of calls. Raises ApiError for a template of an unknown family.

    Args:
        is_explained: the prompt explains tools, since the template does not.
    """
    if name == NONE:
        raise invalid("this server runs with --tool-call-parser none: it takes no tools; leave them out", "tools")
    if name == AUTO and is_explained:  # the prompt explains Hermes' form
        return HermesParser
    found = tool_parser(name, template)
    if found is None:
        raise invalid(
            "the chat template is of no family whose calls this server can read; force them with "
            'tool_choice="required", or have the server run with --tool-call-parser',
            "tools",
        )
    return found
