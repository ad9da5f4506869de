"""Render Jinja chat templates, which are untrusted: they run in a sandbox and see plain data only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.compiler
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MAX_CHARACTERS = 250_000  # ordinary ones have some 10,000
# Private-use characters, absent from conversations; the space at the end reveals whether the template trims messages.
_CONTINUE_MARK = "\ue0c0quire-continue\ue0c0 "
_ANSWER_MARK = "\ue0c0quire-answer\ue0c0"


def render(
    messages: Sequence[Mapping[str, Any]],
    template: str,
    *,
    special_tokens: Mapping[str, str] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Render a conversation, as apply_chat_template in `transformers` does.

    Text parts of a content are joined by line breaks, unless the template iterates over parts itself. `variables`, such
    as tools and documents, override `special_tokens`. Raises ValueError if a message is malformed, or the template is
    broken, rejects the messages (the error quotes it), or omits their tool calls or results.
    """
    if continue_final_message and add_generation_prompt:
        raise ValueError("continue_final_message extends the last message, so set add_generation_prompt=False")
    compiled, takes_parts = _compile(template)
    chat = [_prepare_message(message, index, takes_parts) for index, message in enumerate(messages)]
    if not chat:
        raise ValueError("messages is empty; give at least one message")
    final_text = _mark_end(chat[-1]) if continue_final_message else ""
    context = {"tools": None, "documents": None, **(special_tokens or {}), **(variables or {})}
    context["add_generation_prompt"] = add_generation_prompt
    text = _fill(compiled, context, chat)
    _check_tools_are_shown(text, compiled, context, chat)
    return _cut_at_mark(text, final_text) if continue_final_message else text


def _fill(template: jinja2.Template, context: Mapping[str, Any], chat: Sequence[Mapping[str, Any]]) -> str:
    try:
        return template.render(_plain({**context, "messages": chat}))
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template refused the conversation: {error.message or error}") from error
    except Exception as error:  # an untrusted template may raise anything
        raise ValueError(f"the chat template failed on the conversation: {type(error).__name__}: {error}") from error


def _check_tools_are_shown(
    text: str, template: jinja2.Template, context: Mapping[str, Any], chat: Sequence[Mapping[str, Any]]
) -> None:
    """Reject a template that omits tool calls or tool results: the model would continue an incomplete conversation."""
    without_calls = [{**message, "tool_calls": None} if message.get("tool_calls") else message for message in chat]
    without_results = [message for message in chat if message["role"] != "tool"]
    for what, rest in (("tool calls", without_calls), ("messages of the role tool", without_results)):
        if rest == chat:
            continue
        try:
            is_shown = _fill(template, context, rest) != text
        except ValueError:  # the template requires them
            is_shown = True
        if not is_shown:
            raise ValueError(
                f"the chat template shows no {what}; leave them out, or use a model or template that supports tools"
            )


@lru_cache(maxsize=16)
def answer_lead(template: str, special_tokens: tuple[tuple[str, str], ...]) -> str:
    """Return the blanks that the template writes between the opening of the assistant's turn and its text."""
    question, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER_MARK}
    tokens = dict(special_tokens)
    try:
        opened = render([question], template, special_tokens=tokens)
        whole = render([question, answer], template, special_tokens=tokens, add_generation_prompt=False)
    except ValueError:  # the template rejects this conversation
        return ""
    between, mark, _ = whole.removeprefix(opened).partition(_ANSWER_MARK)
    return between if whole.startswith(opened) and mark and not between.strip() else ""


def _prepare_message(message: Any, index: int, takes_parts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError(f"messages[{index}] must be an object with a role and a content, got {message!r}")
    prepared = dict(message)
    content = message.get("content")
    if isinstance(content, list | tuple):
        texts = [_part_text(part, f"messages[{index}].content[{position}]") for position, part in enumerate(content)]
        prepared["content"] = [{"type": "text", "text": text} for text in texts] if takes_parts else "\n".join(texts)
    elif content is not None and not isinstance(content, str):
        raise ValueError(f"messages[{index}].content must be a string or a list of text parts, got {content!r}")
    return prepared


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ValueError(f"{where} is of type {kind!r}; Quire serves text only: {{'type': 'text', 'text': ...}}")


def _mark_end(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list) and content:
        text = content[-1]["text"]
        content[-1] = {**content[-1], "text": text + _CONTINUE_MARK}
    elif isinstance(content, str):
        text = content
        message["content"] = text + _CONTINUE_MARK
    else:
        raise ValueError("continue_final_message is set, but the last message has no text to continue")
    return str(text)


def _cut_at_mark(text: str, final_text: str) -> str:
    mark = _CONTINUE_MARK.rstrip()
    end = text.rfind(mark)
    if end < 0 or final_text.strip() not in text:
        raise ValueError(
            "continue_final_message is set, but the chat template does not show the whole last message; leave it out"
        )
    is_trimmed = not text.startswith(_CONTINUE_MARK, end)
    return text[:end].rstrip() if is_trimmed else text[:end]


def _plain(value: Any) -> Any:
    """Convert to plain JSON types, so that a template cannot reach methods of richer ones."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise ValueError(f"a chat template takes JSON values only, got {type(value).__name__}")


class _NoFolding(jinja2.compiler.CodeGenerator):
    """Evaluates constants when a template is rendered, not when it is compiled: 9 ** 9 ** 9 would never end."""

    def _output_child_to_const(self, node: jinja2.nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, jinja2.nodes.TemplateData):
            raise jinja2.nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _GenerationBlock(jinja2.ext.Extension):
    """Render the content of `{% generation %}`, which marks assistant text for training."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Replace Jinja's filter, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def read_chat_template(given: str | Path) -> str:
    """Return the checked template of --chat-template: a file's, or text that contains {{, {% or a line break."""
    text = str(given)
    where = f"chat_template={text!r:.100}"
    try:
        is_text = any(mark in text for mark in ("{{", "{%", "\n")) and not os.path.exists(text)
        template = text if is_text else Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{where} cannot be read: {error}") from None
    if not template.strip():
        raise ValueError(f"{where} is empty")
    try:
        check_template(template)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return template


def check_template(template: str) -> None:
    """Raise ValueError for a template that does not compile."""
    _compile(template)


@lru_cache(maxsize=16)
def _compile(template: str) -> tuple[jinja2.Template, bool]:
    if len(template) > _MAX_CHARACTERS:  # so many take a second to compile
        raise ValueError(f"the chat template has {len(template)} characters, more than {_MAX_CHARACTERS}")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.code_generator_class = _NoFolding
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    try:
        takes_parts = _loops_over_content(environment.parse(template))
        return environment.from_string(template), takes_parts
    except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError) as error:
        raise ValueError(f"the chat template is broken: {error}") from error


def _loops_over_content(tree: jinja2.nodes.Template) -> bool:
    """Whether a loop runs over a message's content, or over a variable or argument that holds it."""

    def is_content(node: jinja2.nodes.Node | None) -> bool:
        if isinstance(node, jinja2.nodes.Filter):
            return is_content(node.node)
        if isinstance(node, jinja2.nodes.Getattr):
            return node.attr == "content"
        if isinstance(node, jinja2.nodes.Getitem):
            return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
        return isinstance(node, jinja2.nodes.Name) and node.name in names

    names = {"content"} if list(tree.find_all(jinja2.nodes.Macro)) else set()
    names |= {
        assign.target.name
        for assign in tree.find_all(jinja2.nodes.Assign)
        if isinstance(assign.target, jinja2.nodes.Name) and is_content(assign.node)
    }
    return any(is_content(loop.iter) for loop in tree.find_all(jinja2.nodes.For))
