"""Adapt conversations to the form that a chat template accepts, which sample conversations reveal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from quire.text.chat_template import render

Message = Mapping[str, Any]
_SHORT_ID = 9  # characters: Mistral's templates accept no other length
_NO_PARAMETERS = {"type": "object", "properties": {}}
_VARIANTS = ("has_null", "has_text_arguments", "has_named_results", "has_short_ids")


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """The content that a chat template shows, and the form of messages with tool calls and results."""

    shows_tools: bool = False  #: tool definitions
    shows_calls: bool = True  #: earlier calls and their results
    takes_system: bool = False  #: a system message
    takes_parts_only: bool = False  #: content must be a list of parts
    has_null: bool = False  #: a message of calls alone has the content None; others take ""
    has_text_arguments: bool = False  #: arguments are JSON text, not an object
    has_named_results: bool = False  #: a result has the name of its function
    has_short_ids: bool = False  #: ids are nine letters or digits
    has_single_calls: bool = False  #: one call a message
    has_lone_calls: bool = False  #: no text beside calls

    def adapt(self, messages: Sequence[Message]) -> list[Message]:
        """Return the same conversation in this form."""
        adapted: list[Message] = []
        names: dict[Any, str] = {}  # of functions, by the id of their call
        for message in _with_single_calls(messages) if self.has_single_calls else messages:
            calls = message.get("tool_calls")
            if calls:
                names |= {call.get("id"): call["function"]["name"] for call in calls if "function" in call}
                content = message.get("content")
                if content and self.has_lone_calls:
                    adapted.append(_without(message, "tool_calls"))
                    message, content = _without(message, "reasoning_content", "reasoning"), None
                content = content or (None if self.has_null else "")
                message = {**message, "content": content, "tool_calls": [self._adapt_call(call) for call in calls]}
            elif message.get("role") == "tool":
                message = self._adapt_result(message, names)
            adapted.append(_in_parts(message) if self.takes_parts_only else message)
        return adapted

    def _adapt_call(self, call: Message) -> Message:
        if self.has_short_ids and call.get("id") is not None:
            call = {**call, "id": _short_id(call["id"])}
        if self.has_text_arguments and isinstance(arguments := call.get("function", {}).get("arguments"), Mapping):
            text = json.dumps(arguments, ensure_ascii=False)
            call = {**call, "function": {**call["function"], "arguments": text}}
        return call

    def _adapt_result(self, result: Message, names: Mapping[Any, str]) -> Message:
        call_id = result.get("tool_call_id")
        if self.has_named_results and "name" not in result and call_id in names:
            result = {**result, "name": names[call_id]}
        return {**result, "tool_call_id": _short_id(call_id)} if self.has_short_ids and call_id is not None else result


@lru_cache(maxsize=16)
def template_form(template: str, special_tokens: tuple[tuple[str, str], ...]) -> TemplateForm:
    """Probe a template by rendering sample conversations."""

    def rendered(messages: Sequence[Message], form: TemplateForm, tools: Any = None) -> str:
        shown = form.adapt(messages)
        try:
            return render(shown, template, special_tokens=dict(special_tokens), variables={"tools": tools})
        except ValueError:
            return ""

    question: Message = {"role": "user", "content": "quire_question"}
    form = TemplateForm()
    if "quire_question" not in rendered([question], form):
        parts = TemplateForm(takes_parts_only=True)
        form = parts if "quire_question" in rendered([question], parts) else form
    about = {"name": "quire_probe", "description": "?", "parameters": _NO_PARAMETERS}
    form = replace(
        form,
        shows_tools="quire_probe" in rendered([question], form, [{"type": "function", "function": about}]),
        takes_system="quire_probe" in rendered([{"role": "system", "content": "quire_probe"}, question], form),
    )
    first, second = _sample_call("quire_probe"), _sample_call("quire_other")
    called: Message = {"role": "assistant", "content": None, "tool_calls": [first]}
    chat = [question, called, _sample_result(first)]
    found: list[TemplateForm] = []
    is_exact = False
    few_first = sorted(product((False, True), repeat=len(_VARIANTS)), key=sum)
    for flags in few_first if "tool" in template else ():
        variant = replace(form, **dict(zip(_VARIANTS, flags, strict=True)))
        text = rendered(chat, variant)
        if "quire_probe" in text and "result of quire_probe" in text:
            # Python's spelling of an object or of nothing is a sign of a value of another type.
            is_exact = "value of quire_probe" in text and not re.search(r"\{'quire_key|\bNone\b", text)
            found.insert(0 if is_exact else len(found), variant)
            if is_exact:
                break
    if not found:
        return replace(form, shows_calls=False)
    form = found[0]
    both = [question, {**called, "tool_calls": [first, second]}, _sample_result(first), _sample_result(second)]
    has_all = ("value" if is_exact else "result") + " of quire_other" in rendered(both, form)
    beside = rendered([question, {**called, "content": "quire_text"}, chat[2]], form)
    return replace(form, has_single_calls=not has_all, has_lone_calls=not beside)


def simpler(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield the conversation for stricter templates: alternating turns, one system message, none at all."""
    for chat in (messages, _answer_results(messages)):
        yield _merge(chat)
        system = [message for message in chat if message.get("role") == "system"]
        if system:
            (instructions, *rest) = _merge([*system, *(message for message in chat if message not in system)])
            yield [instructions, *rest]
            yield _merge([{**instructions, "role": "user"}, *rest])


def complete_tools(tools: Any) -> Any:
    """Return tool definitions with the description and parameters that some templates read unasked."""
    if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) and "function" in tool for tool in tools):
        return tools
    return [
        {**tool, "function": {"description": "", "parameters": _NO_PARAMETERS, **tool["function"]}} for tool in tools
    ]


def _sample_call(name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": {"quire_key": f"value of {name}"}}
    return {"id": f"call_{name[::-1]}_000", "type": "function", "function": function}


def _sample_result(call: Message) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": f"result of {call['function']['name']}"}


def _short_id(call_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", call_id)[-_SHORT_ID:].rjust(_SHORT_ID, "0")


def _without(message: Message, *names: str) -> Message:
    return {name: value for name, value in message.items() if name not in names}


def _in_parts(message: Message) -> Message:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _with_single_calls(messages: Sequence[Message]) -> list[Message]:
    """Split messages with several calls: each call is followed by its result."""
    split: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            split.append(message)
            continue
        results: list[Message] = []
        while position < len(messages) and messages[position].get("role") == "tool":
            results.append(messages[position])
            position += 1
        for number, call in enumerate(calls):
            called = {**message, "tool_calls": [call]}
            split.append(
                called if number == 0 else {**_without(called, "reasoning_content", "reasoning"), "content": None}
            )
            split += (own := [each for each in results if each.get("tool_call_id") == call.get("id")] or results[:1])
            results = [each for each in results if each not in own]
        split += results
    return split


def _answer_results(messages: Sequence[Message]) -> list[Message]:
    """Put an empty answer between a result and a user's message."""
    answered: list[Message] = []
    for message in messages:
        if answered and answered[-1].get("role") == "tool" and message.get("role") == "user":
            answered.append({"role": "assistant", "content": ""})
        answered.append(message)
    return answered


def _merge(messages: Sequence[Message]) -> list[Message]:
    """Join neighbouring messages of one role that are plain text."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else {}
        is_plain = all(isinstance(each.get("content"), str) and not each.get("tool_calls") for each in (last, message))
        if is_plain and last.get("role") == message.get("role") != "tool":
            merged[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    return merged
