"""Encode prompts with documents so that token boundaries fall on document boundaries.

    head | document | document | rest

Each document is encoded separately, so its token ids, and with them its KV, depend only on its own text (and, for the
first one, on whether the head ends with a blank). Documents contain no special tokens. The head comes from the
operator or the chat template, and the rest is encoded as it would be without documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.text.tokenizer import Tokenizer

# Private-use characters, absent from conversations. The letters, signs and blanks between them reveal a template that
# rewrites text; the blank before the mark reveals one that trims.
_MARK = "\ue0c1Quire's  <document> & \n1\ue0c1"
_BLANK = "\u2003"
_LEADS = ("\n", ".", "x")  #: prefixes that put a text into the middle of another one


@dataclass(frozen=True, slots=True)
class JoinedPrompt:
    """A prompt that begins with documents."""

    text: str
    token_ids: list[int]
    #: End of each document in `token_ids`, ascending. Empty if the template writes request-specific text before the
    #: documents, such as tools, behind which KV must not be shared.
    documents: tuple[int, ...]
    start: int = 0  #: index of the first document's first token


def join_text(tokenizer: Tokenizer, documents: Sequence[str], rest: str = "", *, head: str = "") -> JoinedPrompt:
    """Put documents, joined without a separator, between a common head and the rest of a plain prompt.

    Raises ValueError if there are no documents, or one is empty or not valid Unicode.
    """
    text = "".join((head, *documents, rest))
    head, documents = _move_blank(head, documents)
    ids = _leading_specials(tokenizer) + (tokenizer.encode(head, add_special_tokens=False) if head else [])
    start = len(ids)
    ids, ends = _add_documents(tokenizer, ids, documents, is_start=not head)
    ids += _encode_inside(lambda text: tokenizer.encode(text, add_special_tokens=False), rest)
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
    """Put documents at the start of a conversation's first message, of any role.

    A template that trims messages also trims the first document. `head` is the text before the documents within the
    message; most templates write special tokens, else `add_special_tokens` does. Raises ValueError as `join_text` and
    `Tokenizer.apply_chat_template`, or if the template does not show the first message exactly once and unchanged.
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
    except ValueError:  # the template rejects this conversation
        has_fixed_opening = False
    if not head:
        if not opening.endswith(_BLANK):  # the template trims
            documents = [documents[0].lstrip(), *documents[1:]] if documents else documents
        opening = opening.removesuffix(_BLANK)
    opening, documents = _move_blank(opening, documents)
    text, ids = tokenizer.encode_chat(opening) if opening else ("", [])
    ids = [*(_leading_specials(tokenizer) if add_special_tokens else ()), *ids]
    start = len(ids)
    ids, ends = _add_documents(tokenizer, ids, documents, is_start=not opening)
    ids += _encode_inside(lambda text: tokenizer.encode_chat(text)[1], rest)
    text = "".join((text, *documents, tokenizer.encode_chat(rest)[0]))
    return JoinedPrompt(text, ids, ends if has_fixed_opening else (), start)


def opening_messages(role: str = "user", content: str = "") -> list[dict[str, str]]:
    """Build the shortest conversation whose first message has this role."""
    first = {"role": role, "content": content}
    return [first, {"role": "user", "content": "?"}] if role == "system" else [first]


def _begin_with(text: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = list(content) or [""]
        first = parts[0]
        if isinstance(first, Mapping) and isinstance(first.get("text"), str):
            parts[0] = {**first, "text": text + first["text"]}
        elif isinstance(first, str):
            parts[0] = text + first
        return {**message, "content": parts}  # rendering rejects other parts
    return {**message, "content": text + content if isinstance(content, str) else text}


def _split(text: str, message: Mapping[str, Any]) -> tuple[str, str]:
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
        f"documents go at the start of the first message (role {message.get('role')!r}), but the chat template "
        f"{problem}; use another template, or a plain prompt instead of messages"
    )


def _move_blank(head: str, documents: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Move the head's last blank to the first document.

    Most vocabularies have one token for a blank and a word; a blank alone is a token that models have hardly seen
    (measured in benchmarks/RESULTS.md).
    """
    if head.endswith(" ") and documents and documents[0] and not documents[0][0].isspace():
        return head[:-1], [" " + documents[0], *documents[1:]]
    return head, documents


def _add_documents(
    tokenizer: Tokenizer, ids: list[int], documents: Sequence[str], *, is_start: bool
) -> tuple[list[int], tuple[int, ...]]:
    """Append the documents to the ids and return each one's end. `is_start`: no text precedes them."""
    if not documents:
        raise ValueError("there are no documents to join; give at least one, or an ordinary prompt")
    ids, ends = list(ids), []
    for number, document in enumerate(documents):
        if is_start and number == 0:
            found = tokenizer.encode_plain(document)
        else:
            found = _encode_inside(tokenizer.encode_plain, document)
        if not found:
            raise ValueError(f"documents[{number}] is empty; leave it out")
        ids += found
        ends.append(len(ids))
    return ids, tuple(ends)


def _leading_specials(tokenizer: Tokenizer) -> list[int]:
    bare, whole = (tokenizer.encode("x", add_special_tokens=wanted) for wanted in (False, True))
    starts = range(len(whole) - len(bare) + 1)
    return next((whole[:at] for at in starts if whole[at : at + len(bare)] == bare), [])


def _encode_inside(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Encode a text as a continuation, although some tokenizers prepend a space to every text."""
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
