"""Build a prompt from retrieved passages and a question, and assign the domains that share its KV.

    Context: passage | rest of the template, with the question in it

The passages follow a head that is the same for every question, so any question can reuse their KV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.core.block_keys import DomainSpans, collection_domain
from quire.prompt import Prompt
from quire.text.document_boundary import JoinedPrompt, join_messages, join_text, opening_messages
from quire.text.tokenizer import Tokenizer

_DOCUMENTS, _QUESTION = "{documents}", "{question}"
_SEPARATOR = "\n\n"  # part of the later passage, so the first one's tokens do not depend on whether others follow


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The text before the passages, between them and the question, and after the question."""

    head: str = ""
    middle: str = "\n\n"
    tail: str = ""

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """Parse a template such as `Context: {documents} Question: {question}`. Raises ValueError."""
        if text.count(_DOCUMENTS) != 1 or text.count(_QUESTION) != 1 or text.index(_DOCUMENTS) > text.index(_QUESTION):
            raise ValueError(
                f"the template {text!r:.100} should have {_DOCUMENTS} once, and {_QUESTION} once behind it; all "
                "questions share the text before the documents"
            )
        head, _, rest = text.partition(_DOCUMENTS)
        middle, _, tail = rest.partition(_QUESTION)
        return cls(head, middle, tail)


PLAIN = PromptTemplate("Context: ", "\nQuestion: ", "\nAnswer:")  #: for plain prompts
USER_FIRST = PromptTemplate("Context: ", "\nQuestion: ")  #: for conversations that the user begins
SYSTEM_FIRST = PromptTemplate("Context: ")  #: for conversations that begin with instructions, put behind the passages


def join_question(
    tokenizer: Tokenizer, passages: Sequence[str], question: str, template: PromptTemplate | None = None
) -> Prompt:
    """Build a plain prompt. Raises ValueError without passages."""
    return _prompt_of(_join_question(tokenizer, passages, question, template or PLAIN))


def join_conversation(
    tokenizer: Tokenizer,
    passages: Sequence[str],
    messages: Sequence[Mapping[str, Any]],
    template: PromptTemplate | None = None,
    **options: Any,
) -> Prompt:
    """Build a conversation with the passages at the start of its first message. Options are those of `join_messages`.
    Raises ValueError if passages or messages are missing, or the chat template changes or drops the first message."""
    return _prompt_of(_join_conversation(tokenizer, passages, messages, template, **options))


def join_passage(
    tokenizer: Tokenizer,
    passage: str,
    *,
    role: str | None,
    template: PromptTemplate | None = None,
    chat_template: str | None = None,
) -> tuple[Prompt, int] | None:
    """Build the common start of all prompts with this passage first; `role` is None for plain prompts. Returns the
    prompt up to the passage's end, and the index of the passage's first token, or None if the chat template rejects
    such a conversation or writes request-specific text before the passage."""
    if role is None:
        joined = _join_question(tokenizer, [passage], "", template or PLAIN)
    else:
        try:
            joined = _join_conversation(
                tokenizer, [passage], opening_messages(role), template, chat_template=chat_template
            )
        except ValueError:
            return None
    if not joined.documents:
        return None
    end = joined.documents[-1]
    return Prompt(token_ids=joined.token_ids[:end], documents=joined.documents), joined.start


def share(prompt: Prompt, collection_id: str, rest: DomainSpans, salt: str | None = None) -> Prompt:
    """Assign domains: the collection's random id to documents, so a recreated collection cannot reach its predecessor's
    KV, and those of `rest` to the text behind them. `salt` restricts both."""
    if not prompt.documents:
        return replace(prompt, domains=rest)
    collection = collection_domain(collection_id).salted(salt)
    spans: DomainSpans = ((0, collection),)
    (_, behind), *_ = rest
    if behind.level > collection.level:  # without tenants the rest is as shared as the documents
        spans = (*spans, (prompt.documents[-1], behind))
    return replace(prompt, domains=spans)


def _join_question(
    tokenizer: Tokenizer, passages: Sequence[str], question: str, template: PromptTemplate
) -> JoinedPrompt:
    rest = template.middle + question + template.tail
    return join_text(tokenizer, _with_separators(passages), rest, head=template.head)


def _join_conversation(
    tokenizer: Tokenizer,
    passages: Sequence[str],
    messages: Sequence[Mapping[str, Any]],
    template: PromptTemplate | None,
    **options: Any,
) -> JoinedPrompt:
    role = messages[0]["role"] if messages else "user"
    template = template or (USER_FIRST if role == "user" else SYSTEM_FIRST)
    messages = [_wrap(messages[0], template), *messages[1:]] if messages else messages
    return join_messages(tokenizer, _with_separators(passages), messages, head=template.head, **options)


def _with_separators(passages: Sequence[str]) -> list[str]:
    return [*passages[:1], *(_SEPARATOR + passage for passage in passages[1:])]


def _wrap(message: Mapping[str, Any], template: PromptTemplate) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = [{"type": "text", "text": text} for text in (template.middle, template.tail)]
        content = [*parts[:1], *content, *(parts[1:] if template.tail else ())]
    else:
        content = template.middle + (content or "") + template.tail
    return {**message, "content": content}


def _prompt_of(joined: JoinedPrompt) -> Prompt:
    return Prompt(joined.text, joined.token_ids, documents=joined.documents)
