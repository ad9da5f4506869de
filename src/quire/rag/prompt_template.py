"""From a question and the passages that were found for it to a prompt: what stands around them, and who shares the KV.

    Context: passage | rest of the form, with the question in it

The passages stand right behind what is the same for every question, so that their KV is found again by any question.
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
_BETWEEN = "\n\n"  # belongs to the later passage: the first one is then the same whether others follow or not


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The form of a prompt with passages.

    Attributes:
        head: in front of the passages.
        middle: between them and the question.
        tail: behind the question.
    """

    head: str = ""
    middle: str = "\n\n"
    tail: str = ""

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """A form as people write it: `Context: {documents} Question: {question}`.

        Raises:
            ValueError: one of the two is not there once, or they are the other way round.
        """
        if text.count(_DOCUMENTS) != 1 or text.count(_QUESTION) != 1 or text.index(_DOCUMENTS) > text.index(_QUESTION):
            raise ValueError(
                f"the template {text!r:.100} should have {_DOCUMENTS} once, and {_QUESTION} once behind it; in front "
                "of the documents is what all questions share"
            )
        head, _, rest = text.partition(_DOCUMENTS)
        middle, _, tail = rest.partition(_QUESTION)
        return cls(head, middle, tail)


#: A plain prompt.
PLAIN = PromptTemplate("Context: ", "\nQuestion: ", "\nAnswer:")
#: A conversation that the user begins: the chat template says whose turn it is then.
USER_FIRST = PromptTemplate("Context: ", "\nQuestion: ")
#: A conversation that begins with instructions, in front of which the passages stand.
SYSTEM_FIRST = PromptTemplate("Context: ")


def join_question(
    tokenizer: Tokenizer, passages: Sequence[str], question: str, template: PromptTemplate | None = None
) -> Prompt:
    """A plain prompt. ValueError where there are no passages."""
    return _prompt_of(_join_question(tokenizer, passages, question, template or PLAIN))


def join_conversation(
    tokenizer: Tokenizer,
    passages: Sequence[str],
    messages: Sequence[Mapping[str, Any]],
    template: PromptTemplate | None = None,
    **options: Any,
) -> Prompt:
    """A conversation with the passages at the start of its first message.

    Args:
        options: of `join_messages`: chat template and how it is applied.

    Raises:
        ValueError: there are no passages or no messages, or the chat template does not show the first one as it is.
    """
    return _prompt_of(_join_conversation(tokenizer, passages, messages, template, **options))


def join_passage(
    tokenizer: Tokenizer,
    passage: str,
    *,
    role: str | None,
    template: PromptTemplate | None = None,
    chat_template: str | None = None,
) -> tuple[Prompt, int] | None:
    """What all prompts with this passage, and no other before it, begin with: to prepare its KV, or to delete it.

    Args:
        role: of conversations whose first message is of this role; None is of plain prompts.

    Returns:
        The prompt up to the passage's end, and the passage's first token; None where the chat template has no such
        conversation, or writes something of each request's own in front of it.
    """
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
    """The prompt, its documents shared by whoever may search the collection, what follows by those of `rest`.

    Args:
        collection_id: new whenever a collection is made again, so that nobody finds the KV of one that was deleted.
        rest: the domains of a prompt without documents.
        salt: narrows both.
    """
    if not prompt.documents:
        return replace(prompt, domains=rest)
    collection = collection_domain(collection_id).salted(salt)
    spans: DomainSpans = ((0, collection),)
    (_, behind), *_ = rest
    if behind.level > collection.level:  # where there are no tenants, everybody may share what follows, too
        spans = (*spans, (prompt.documents[-1], behind))
    return replace(prompt, domains=spans)


def _join_question(
    tokenizer: Tokenizer, passages: Sequence[str], question: str, template: PromptTemplate
) -> JoinedPrompt:
    rest = template.middle + question + template.tail
    return join_text(tokenizer, _apart(passages), rest, head=template.head)


def _join_conversation(
    tokenizer: Tokenizer,
    passages: Sequence[str],
    messages: Sequence[Mapping[str, Any]],
    template: PromptTemplate | None,
    **options: Any,
) -> JoinedPrompt:
    role = messages[0]["role"] if messages else "user"
    template = template or (USER_FIRST if role == "user" else SYSTEM_FIRST)
    messages = [_around(messages[0], template), *messages[1:]] if messages else messages
    return join_messages(tokenizer, _apart(passages), messages, head=template.head, **options)


def _apart(passages: Sequence[str]) -> list[str]:
    return [*passages[:1], *(_BETWEEN + passage for passage in passages[1:])]


def _around(message: Mapping[str, Any], template: PromptTemplate) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = [{"type": "text", "text": text} for text in (template.middle, template.tail)]
        content = [*parts[:1], *content, *(parts[1:] if template.tail else ())]
    else:
        content = template.middle + (content or "") + template.tail
    return {**message, "content": content}


def _prompt_of(joined: JoinedPrompt) -> Prompt:
    return Prompt(joined.text, joined.token_ids, documents=joined.documents)
