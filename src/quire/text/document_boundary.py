"""Documents and what follows them, as token ids: each document is encoded apart, so that it has the same ones always.

    head | document | document | rest

The head is the operator's or the template's, and stands first. A document's ids depend on its own text alone, and for
the first one on whether the head ends with a blank. Its KV is found by them. Nothing in a document is a special token.
What follows is encoded as it would be without documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.text.tokenizer import Tokenizer

# Private-use characters, which no conversation has. The letters, signs and blanks between them show whether a template
# rewrites what it is given; the blank in front, whether it trims.
_MARK = "\ue0c1Quire's  <document> & \n1\ue0c1"
_BLANK = "\u2003"
_LEADS = ("\n", ".", "x")  #: stand in front of a text that is encoded as the middle of another


@dataclass(frozen=True, slots=True)
class JoinedPrompt:
    """A prompt that begins with documents.

    Attributes:
        text: that the token ids stand for.
        token_ids: of the whole prompt.
        documents: the tokens after each document's last, ascending. None where the template writes something of the
            request's own in front of the documents, tools for example: nobody else may share KV behind that.
        start: the first document's first token.
    """

    text: str
    token_ids: list[int]
    documents: tuple[int, ...]
    start: int = 0


def join_text(tokenizer: Tokenizer, documents: Sequence[str], rest: str = "", *, head: str = "") -> JoinedPrompt:
    """Documents in front of a plain prompt.

    Args:
        documents: one after the other, with nothing between them.
        rest: what follows, such as a question.
        head: what stands in front of all documents, the same for every prompt.

    Raises:
        ValueError: there are no documents, or one is empty or not valid Unicode.
    """
    text = "".join((head, *documents, rest))
    head, documents = _give_blank(head, documents)
    ids = _opening(tokenizer) + (tokenizer.encode(head, add_special_tokens=False) if head else [])
    start = len(ids)
    ids, ends = _add_documents(tokenizer, ids, documents, is_start=not head)
    ids += _encode_behind(lambda text: tokenizer.encode(text, add_special_tokens=False), rest)
    return JoinedPrompt(text, ids, ends, start)


def join_messages(
    tokenizer: Tokenizer,
    documents: Sequence[str],
    messages: Sequence[Mapping[str, Any]],
    *,
    head: str = "",
    chat_template: str | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    add_special_tokens: bool = False,
    variables: Mapping[str, Any] | None = None,
) -> JoinedPrompt:
    """Documents at the start of a conversation's first message, whoever's it is.

    A template that trims messages trims the first document too, at its start.

    Args:
        head: what stands in front of the documents within the message.
        add_special_tokens: put around the text what the model expects; most templates write that themselves.

    The other arguments are those of `join_text` and `Tokenizer.apply_chat_template`.

    Raises:
        ValueError: as both; or the template does not show the first message once and as it is.
    """
    if not messages:
        raise ValueError("messages is empty; give at least one message")
    in_front = head or _BLANK

    def render(messages: Sequence[Mapping[str, Any]], **options: Any) -> tuple[str, str]:
        text = tokenizer.apply_chat_template(messages, chat_template=chat_template, **options)
        return _split(text, messages[0])

    opening, rest = render(
        [_begin_with(in_front + _MARK, messages[0]), *messages[1:]],
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        variables=variables,
    )
    try:
        bare = opening_messages(str(messages[0]["role"]), in_front + _MARK)
        has_fixed_opening = render(bare)[0] == opening
    except ValueError:  # it wants something else of a conversation
        has_fixed_opening = False
    if not head:
        if not opening.endswith(_BLANK):  # it trims
            documents = [documents[0].lstrip(), *documents[1:]] if documents else documents
        opening = opening.removesuffix(_BLANK)
    opening, documents = _give_blank(opening, documents)
    text, ids = tokenizer.encode_chat(opening) if opening else ("", [])
    ids = [*(_opening(tokenizer) if add_special_tokens else ()), *ids]
    start = len(ids)
    ids, ends = _add_documents(tokenizer, ids, documents, is_start=not opening)
    ids += _encode_behind(lambda text: tokenizer.encode_chat(text)[1], rest)
    text = "".join((text, *documents, tokenizer.encode_chat(rest)[0]))
    return JoinedPrompt(text, ids, ends if has_fixed_opening else (), start)


def opening_messages(role: str = "user", content: str = "") -> list[dict[str, str]]:
    """The least of a conversation whose first message is of this role."""
    first = {"role": role, "content": content}
    return [first, {"role": "user", "content": "?"}] if role == "system" else [first]


def _begin_with(text: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with a text in front of its content."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = list(content) or [""]
        first = parts[0]
        if isinstance(first, Mapping) and isinstance(first.get("text"), str):
            parts[0] = {**first, "text": text + first["text"]}
        elif isinstance(first, str):
            parts[0] = text + first
        return {**message, "content": parts}  # rendering refuses other parts
    return {**message, "content": text + content if isinstance(content, str) else text}


def _split(text: str, message: Mapping[str, Any]) -> tuple[str, str]:
    """A rendered conversation, before and after the mark."""
    parts = text.split(_MARK)
    if len(parts) == 2:
        return parts[0], parts[1]
    if len(parts) > 2:
        problem = f"shows the first message {len(parts) - 1} times"
    elif "\ue0c1" in text:
        problem = "changes the text of the first message"
    else:
        problem = "does not show the first message"
    raise ValueError(
        f"documents stand at the start of the first message (role {message.get('role')!r}), and the chat template "
        f"{problem}; take another template, or a plain prompt instead of messages"
    )


def _give_blank(head: str, documents: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The head's last blank goes to the first document, whose first word has one token with it in most vocabularies:
    alone it would be a token that the model has hardly seen (measured in docs/document-kv.md)."""
    if head.endswith(" ") and documents and documents[0] and not documents[0][0].isspace():
        return head[:-1], [" " + documents[0], *documents[1:]]
    return head, documents


def _add_documents(
    tokenizer: Tokenizer, ids: list[int], documents: Sequence[str], *, is_start: bool
) -> tuple[list[int], tuple[int, ...]]:
    """The ids with the documents' behind them, and where each document ends.

    Args:
        is_start: no text stands in front of them.
    """
    if not documents:
        raise ValueError("there are no documents to join; give at least one, or an ordinary prompt")
    ids, ends = list(ids), []
    for number, document in enumerate(documents):
        if is_start and number == 0:
            found = tokenizer.encode_plain(document)
        else:
            found = _encode_behind(tokenizer.encode_plain, document)
        if not found:
            raise ValueError(f"documents[{number}] is empty; leave it out")
        ids += found
        ends.append(len(ids))
    return ids, tuple(ends)


def _opening(tokenizer: Tokenizer) -> list[int]:
    """What the model expects in front of a text, often a bos token."""
    bare, whole = (tokenizer.encode("x", add_special_tokens=wanted) for wanted in (False, True))
    starts = range(len(whole) - len(bare) + 1)
    return next((whole[:at] for at in starts if whole[at : at + len(bare)] == bare), [])


def _encode_behind(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Token ids of a text that stands behind another. Some tokenizers put a space in front of whatever they encode."""
    if not text:
        return []
    for lead in _LEADS:
        before = encode(lead)
        if encode(lead + "x") == before + encode("x"):
            break  # no space
        both = encode(lead + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)
