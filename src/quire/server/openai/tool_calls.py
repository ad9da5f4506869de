"""What a chat's body asks of tools and of reasoning: checked, forced where it must be, and how the answer is read."""

from __future__ import annotations

from typing import Any

from quire.prompt import Prompt
from quire.server.bodies.conversation import NamedToolChoice
from quire.server.errors import invalid
from quire.server.openai.prompts import own_template, tokenizer_of
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.families import AUTO, NONE, HermesParser, reasoning_markers, tool_parser
from quire.server.tools.forced import ForcedParser, forced_calls_schema
from quire.server.tools.parser import ToolParser
from quire.server.tools.reasoning import ReasoningMarkers

_TAIL_TOKENS = 16  # of the prompt: enough for a marker and the blanks around it


def check_tools(body: ChatCompletionRequest) -> None:
    """Raise ApiError for tools that cannot be called, or a choice of what is not there."""
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
        there = ", ".join(map(repr, list(names)[:10])) or "none"
        raise invalid(f"tool_choice names {choice.function.name!r:.60}, and the tools are {there}", "tool_choice")
    if is_forced(body) and (structure := body.given_structure()) is not None:
        raise invalid(f"{structure[0]} does not go with a tool_choice that forces a call; leave one out", structure[0])
    if choice == "required" and not names:
        raise invalid("tool_choice='required' forces a call, and there are no tools; give some", "tool_choice")


def is_forced(body: ChatCompletionRequest) -> bool:
    """Whether the answer must be a call."""
    return isinstance(body.tool_choice, NamedToolChoice) or body.tool_choice == "required"


def wants_tools(body: ChatCompletionRequest) -> bool:
    """Whether the model is to see the tools."""
    return bool(body.tools) and body.tool_choice != "none"


def forced_tool_grammar(body: ChatCompletionRequest) -> dict[str, Any] | None:
    """Return the JSON schema that makes the answer a call; None if calls are left to the model."""
    tools, choice, is_parallel = body.tools or [], body.tool_choice, body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolChoice):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        is_parallel = False
    elif choice != "required":
        return None
    functions = [tool.function.model_dump(include={"name", "parameters"}, exclude_none=True) for tool in tools]
    return forced_calls_schema(functions, is_parallel=is_parallel)


def answer_form(
    body: ChatCompletionRequest, model: ServedModel, settings: ServerSettings, prompt: Prompt
) -> AnswerForm | None:
    """How the answer to this prompt is to be read; None where it is all content.

    Raises:
        ApiError: nobody knows how the model writes calls.
    """
    if body.given_structure() is not None:
        return None  # all of it is in that language
    tokenizer = tokenizer_of(model)
    has_tools = wants_tools(body)
    own = own_template(model, body, trusts_template=settings.trust_request_chat_template)
    template = tokenizer.choose_chat_template(own, has_tools=has_tools)
    markers = reasoning_markers(settings.reasoning_parser, template)
    tools: type[ToolParser] | None = None
    if is_forced(body):
        markers, tools = None, ForcedParser  # the grammar leaves no room for thoughts
    elif has_tools:
        tools = _parser(settings.tool_call_parser, template, is_explained=not tokenizer.shows_tools(own))
    if markers is None and tools is None:
        return None
    names = (*(tools.markers if tools is not None else ()), *_both(markers))
    ids = (tokenizer.backend.token_to_id(name) for name in names)
    return AnswerForm(
        markers,
        is_thinking=markers is not None and _ends_with(prompt, markers.opening, tokenizer),
        shows_reasoning=body.include_reasoning is not False,
        tools=tools,
        tool_names=frozenset(tool.function.name for tool in body.tools or ()),
        is_parallel=body.parallel_tool_calls is not False,
        specials=tuple(sorted(tokenizer.special_ids.intersection(ids))),
    )


def _parser(name: str, template: str, *, is_explained: bool) -> type[ToolParser]:
    if name == NONE:
        raise invalid("this server runs with --tool-call-parser none: it takes no tools; leave them out", "tools")
    if name == AUTO and is_explained:  # in Hermes' form
        return HermesParser
    found = tool_parser(name, template)
    if found is None:
        raise invalid(
            "the chat template is of no family whose calls this server can read; force them with "
            'tool_choice="required", or have the server run with --tool-call-parser',
            "tools",
        )
    return found


def _both(markers: ReasoningMarkers | None) -> tuple[str, ...]:
    return () if markers is None else (markers.opening, markers.closing)


def _ends_with(prompt: Prompt, marker: str, tokenizer: Any) -> bool:
    """Whether the prompt's last word is this marker."""
    tail: str = tokenizer.decode(prompt.token_ids[-_TAIL_TOKENS:], skip_special_tokens=False)
    return tail.rstrip().endswith(marker)
