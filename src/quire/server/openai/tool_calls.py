"""Tools of a chat: checks, forced calls, and the parser of the model's own calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.sampling_params import SamplingParams, StructuredOutputsParams
from quire.server.bodies.conversation import NamedToolChoice, Tool
from quire.server.errors import invalid
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.families import (
    AUTO,
    NONE,
    ForcedParser,
    HermesParser,
    forced_calls_schema,
    tool_parser,
)
from quire.server.tools.grammar import calls_grammar, text_grammar
from quire.server.tools.parser import ReasoningMarkers, ToolParser


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


def has_strict_tools(body: ChatCompletionRequest) -> bool:
    return has_tools(body) and any(tool.function.strict for tool in body.tools or ())


def forced_schema(body: ChatCompletionRequest) -> dict[str, Any]:
    """Return the JSON schema that makes the answer a call."""
    tools, choice, is_parallel = body.tools or [], body.tool_choice, body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolChoice):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        is_parallel = False
    return forced_calls_schema(_functions(tools), is_parallel=is_parallel)


def allow_calls(
    params: SamplingParams,
    body: ChatCompletionRequest,
    parser: type[ToolParser] | None,
    reasoning: ReasoningMarkers | None,
) -> SamplingParams:
    """Let the model call a tool in place of an answer in the response format: the format holds for text. Without one,
    calls of strict tools follow their schemas."""
    if parser is None or parser is ForcedParser:
        return params
    functions = _functions(body.tools or [])
    if (wanted := params.structured_outputs) is None:
        wanted = StructuredOutputsParams(alternative=text_grammar(parser, functions, reasoning))
    else:
        wanted = replace(wanted, alternative=calls_grammar(parser, functions))
    return replace(params, structured_outputs=wanted)


def reason_first(params: SamplingParams, form: AnswerForm) -> SamplingParams:
    """Let the model reason before an answer in a grammar."""
    if (wanted := params.structured_outputs) is None or form.reasoning is None:
        return params
    if not form.is_exact and not form.is_thinking:  # the grammar is of text, reasoning included
        return params
    markers = ("" if form.is_thinking else form.reasoning.opening, form.reasoning.closing)
    return replace(params, structured_outputs=replace(wanted, reasoning=markers))


def _functions(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.function.model_dump(include={"name", "parameters", "strict"}, exclude_none=True) for tool in tools]


def choose_parser(
    body: ChatCompletionRequest, name: str, template: str, *, is_explained: bool
) -> type[ToolParser] | None:
    """Return the parser of calls; None if there are none. Raises ApiError for a template of an unknown family, unless
    the answer has a format, or the prompt explains tools in its place (`is_explained`)."""
    structure = body.given_structure()
    if is_forced(body):
        return ForcedParser
    if structure is not None and structure[0] != "response_format":
        return None
    found = HermesParser if name == AUTO and is_explained else tool_parser(name, template)
    if found is None and structure is None:
        why = (
            "this server runs with --tool-call-parser none: it takes no tools; leave them out"
            if name == NONE
            else "the chat template is of no family whose calls this server can read; force them with "
            'tool_choice="required", or have the server run with --tool-call-parser'
        )
        raise invalid(why, "tools")
    return found
