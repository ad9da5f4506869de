"""How large a grammar a body asks for, whatever API it belongs to.

Asked where large bodies are parsed: what is too large for a grammar is not rewritten in the server's own process.
"""

from __future__ import annotations

import json
from typing import Any

from quire.sampling_params import MAX_GRAMMAR_CHARACTERS
from quire.server.anthropic.schema import CountTokensRequest
from quire.server.bodies.conversation import NamedToolChoice
from quire.server.errors import invalid
from quire.server.openai.schema import ChatCompletionRequest, GenerationRequest
from quire.server.responses.schema import NamedFunction, ResponsesRequest


def check_grammar_size(body: Any) -> None:
    """Raise `ApiError` for a body whose schemas, or whatever else its answer is held to, are larger than any grammar
    may be. Fields that exclude each other pass: they are refused elsewhere."""
    for param, parts in _parts(body).items():
        size = sum(map(_num_characters, parts))
        if size > MAX_GRAMMAR_CHARACTERS:
            raise invalid(
                f"{param} cannot be served: what the answer is held to has {size} characters, and "
                f"{MAX_GRAMMAR_CHARACTERS} is the most",
                param,
            )


def _num_characters(part: Any) -> int:
    """As the grammar's own check counts them (`structured.grammar.check_form`)."""
    if isinstance(part, list):  # choices
        return sum(map(len, part))
    return len(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))


def _parts(body: Any) -> dict[str, list[Any]]:
    """What a grammar is to be made of: schemas and texts, by field."""
    parts: dict[str, list[Any]] = {}
    forced: list[tuple[str, Any]] = []  # functions that a call may be forced of, with what they take
    named: str | None = None  # the only one of them
    match body:
        case GenerationRequest():
            if (wanted := body.structured_outputs) is not None:
                parts["structured_outputs"] = [*wanted.model_dump(exclude_none=True).values()]
            for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar"):
                parts[name] = [getattr(body, name)]
            if body.response_format is not None and body.response_format.json_schema is not None:
                parts["response_format"] = [body.response_format.json_schema.schema_]
            if isinstance(body, ChatCompletionRequest):
                chosen = body.tool_choice
                if chosen not in (None, "auto", "none"):
                    forced = [(tool.function.name, tool.function.parameters) for tool in body.tools or ()]
                named = chosen.function.name if isinstance(chosen, NamedToolChoice) else None
        case ResponsesRequest():
            if body.text is not None and body.text.format is not None:
                parts["text"] = [body.text.format.schema_]
            if body.tool_choice not in (None, "auto", "none"):
                forced = [(tool.name, tool.parameters) for tool in body.tools or ()]
            named = body.tool_choice.name if isinstance(body.tool_choice, NamedFunction) else None
        case CountTokensRequest():
            if body.output_config is not None and body.output_config.format is not None:
                parts["output_config"] = [body.output_config.format.schema_]
            if body.tool_choice is not None and body.tool_choice.type in ("any", "tool"):
                forced = [(tool.name, tool.input_schema) for tool in body.tools or ()]
                named = body.tool_choice.name
    return {**parts, "tools": [schema for name, schema in forced if named in (None, name)]}
