"""POST /v1/chat/completions: answer a conversation, with tools and reasoning."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from quire.prompt import Prompt
from quire.sampling_params import StructuredOutputsParams
from quire.server.bodies.conversation import NamedToolChoice
from quire.server.bodies.retrieval import Passages
from quire.server.errors import invalid
from quire.server.generation.generation import wait_until_known
from quire.server.openai.chunks import ChatWriter
from quire.server.openai.endpoint import GenerationEndpoint
from quire.server.openai.prompts import encode_messages, own_template, tokenizer_of
from quire.server.openai.schema import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from quire.server.registry import ServedModel
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.families import AUTO, NONE, HermesParser, reasoning_markers, tool_parser
from quire.server.tools.forced import ForcedParser, forced_calls_schema
from quire.server.tools.parser import ToolParser

_TAIL_TOKENS = 16  # of the prompt: enough for a marker and blanks around it


class ChatEndpoint(GenerationEndpoint[ChatCompletionRequest]):
    path, name, summary = "/v1/chat/completions", "create_chat_completion", "Answer a conversation"
    body, whole, chunk = ChatCompletionRequest, ChatCompletion, ChatCompletionChunk
    id_prefix, prompt_field, writer = "chatcmpl", "messages", ChatWriter

    def _own_sampling(self, body: ChatCompletionRequest) -> dict[str, Any]:
        limits = {body.max_completion_tokens, body.max_tokens} - {None}
        if len(limits) > 1:
            raise invalid(
                f"max_tokens={body.max_tokens} and max_completion_tokens={body.max_completion_tokens} are two names of "
                "one limit; give one of them",
                "max_tokens",
            )
        for name in ("top_logprobs", "logprob_token_ids"):
            if getattr(body, name) is not None and not body.logprobs:
                raise invalid(f"{name} goes with logprobs=true", name)
        check_tools(body)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        own: dict[str, Any] = {"max_tokens": next(iter(limits), None), "logprobs": logprobs}
        if _is_forced(body):
            own["structured_outputs"] = StructuredOutputsParams(json=_forced_schema(body))  # type: ignore[arg-type]
        return own

    async def count_tokens(self, request: Request, body: ChatCompletionRequest) -> int:
        """Return the length of a conversation's prompt, without running it."""
        model = self.models.registry.get(body.model)
        await wait_until_known(model, request.receive)
        check_tools(body)
        (prompt,) = await self._encode(body, model)
        return len(prompt.token_ids)

    def _question(self, body: ChatCompletionRequest) -> str | None:
        return next((message.text for message in reversed(body.messages) if message.role == "user"), "")

    def _num_characters(self, body: ChatCompletionRequest) -> int:
        return sum(len(message.text) for message in body.messages)

    async def _encode(
        self, body: ChatCompletionRequest, model: ServedModel, passages: Passages | None = None
    ) -> list[Prompt]:
        prompt = await asyncio.to_thread(
            encode_messages,
            model,
            body.messages,
            body,
            trusts_template=self.settings.trust_request_chat_template,
            is_truncated=body.truncate_prompt_tokens is not None,
            passages=passages,
            shows_tools=_has_tools(body),
        )
        return [prompt]

    def _form(self, body: ChatCompletionRequest, model: ServedModel, prompts: Sequence[Prompt]) -> AnswerForm | None:
        """Return how to parse the answer; None if it is all content.

        Raises:
            ApiError: the way in which the model writes calls is unknown.
        """
        if body.given_structure() is not None:
            return None
        tokenizer, has_tools = tokenizer_of(model), _has_tools(body)
        own = own_template(model, body, trusts_template=self.settings.trust_request_chat_template)
        template = tokenizer.choose_chat_template(own, has_tools=has_tools)
        reasoning = reasoning_markers(self.settings.reasoning_parser, template)
        tools: type[ToolParser] | None = None
        if _is_forced(body):
            reasoning, tools = None, ForcedParser  # the grammar leaves no room for reasoning
        elif has_tools:
            is_explained = not tokenizer.shows_tools(own)
            tools = _parser(self.settings.tool_call_parser, template, is_explained=is_explained)
        if reasoning is None and tools is None:
            return None
        markers = [*(tools.markers if tools is not None else ())]
        is_thinking = False
        if reasoning is not None:
            markers += [reasoning.opening, reasoning.closing]
            tail: str = tokenizer.decode(prompts[0].token_ids[-_TAIL_TOKENS:], skip_special_tokens=False)
            is_thinking = tail.rstrip().endswith(reasoning.opening)
        return AnswerForm(
            reasoning,
            is_thinking=is_thinking,
            shows_reasoning=body.include_reasoning is not False,
            tools=tools,
            tool_names=frozenset(tool.function.name for tool in body.tools or ()),
            is_parallel=body.parallel_tool_calls is not False,
            specials=tuple(sorted(tokenizer.special_ids.intersection(map(tokenizer.backend.token_to_id, markers)))),
        )


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
    if _is_forced(body) and (structure := body.given_structure()) is not None:
        raise invalid(f"{structure[0]} does not go with a tool_choice that forces a call; leave one out", structure[0])
    if choice == "required" and not names:
        raise invalid("tool_choice='required' forces a call, and there are no tools; give some", "tool_choice")


def _is_forced(body: ChatCompletionRequest) -> bool:
    """Whether the answer must be a call."""
    return isinstance(body.tool_choice, NamedToolChoice) or body.tool_choice == "required"


def _has_tools(body: ChatCompletionRequest) -> bool:
    """Whether the model sees the tools."""
    return bool(body.tools) and body.tool_choice != "none"


def _forced_schema(body: ChatCompletionRequest) -> dict[str, Any]:
    """Return the JSON schema that makes the answer a call."""
    tools, choice, is_parallel = body.tools or [], body.tool_choice, body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolChoice):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        is_parallel = False
    functions = [tool.function.model_dump(include={"name", "parameters"}, exclude_none=True) for tool in tools]
    return forced_calls_schema(functions, is_parallel=is_parallel)


def _parser(name: str, template: str, *, is_explained: bool) -> type[ToolParser]:
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
