"""`ChatOutline`: digests of a conversation's parts, by which two prompts are compared without their texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from quire.server.bodies.conversation import Message
from quire.server.openai.schema import ChatCompletionRequest

_MAX_MESSAGES = 4096  #: of a conversation; later ones are not compared
DIGEST_BYTES = 8
_SYSTEM_ROLES = ("system", "developer")
_DIGIT = re.compile(r"\d")
_DAYS = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun am pm"
_MONTHS = "january february march april may june july august september october november december"
#: Words of dates, besides those with a digit.
_DATES = {*_DAYS.split(), *_MONTHS.split(), *(month[:3] for month in _MONTHS.split())}


@dataclass(frozen=True, slots=True)
class ChatOutline:
    """The digests of a conversation's parts, each of `DIGEST_BYTES`."""

    template: bytes = b""  #: the chat template with its variables
    system: bytes = b""  #: the leading system messages; b"" without one
    stable_system: bytes = b""  #: the same without dates and ids
    tools: bytes = b""  #: one digest after the other, in order
    messages: bytes = b""  #: likewise, without the leading system messages
    is_cut: bool = False  #: `truncate_prompt_tokens` has cut the prompt

    @property
    def num_bytes(self) -> int:
        return len(self.tools) + len(self.messages)

    @classmethod
    def of(cls, body: ChatCompletionRequest, template: str | None, *, shows_tools: bool, is_cut: bool) -> ChatOutline:
        """Return the outline of a conversation that the chat template renders."""
        num_system = next((i for i, each in enumerate(body.messages) if each.role not in _SYSTEM_ROLES), 0)
        system = "\n".join(message.text for message in body.messages[:num_system])
        variables = {"effort": body.reasoning_effort, **(body.chat_template_kwargs or {})}
        tools = [tool.given for tool in body.tools or ()] if shows_tools else []
        return cls(
            _digest(template or "", _json(variables)),
            _digest(system) if system else b"",
            _digest(_stable(system)) if system else b"",
            b"".join(_digest(_json(tool)) for tool in tools),
            b"".join(map(_digest_of_message, body.messages[num_system:][:_MAX_MESSAGES])),
            is_cut,
        )

    def has_messages_of(self, other: ChatOutline) -> bool:
        return not set(pieces(self.messages)).isdisjoint(pieces(other.messages))

    def resembles(self, other: ChatOutline) -> bool:
        """Whether both belong to one conversation, or to one kind with a date or id in its system prompt."""
        return self.has_messages_of(other) or (
            self.system != other.system and self.stable_system == other.stable_system
        )


def pieces(digests: bytes) -> list[bytes]:
    """Return digests that stand one after the other."""
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def _stable(text: str) -> str:
    """Return a text without dates, times, versions and ids."""
    words = (word for word in text.split() if not _DIGIT.search(word))
    return " ".join(word for word in words if word.strip(".,:;()").lower() not in _DATES)


def _digest_of_message(message: Message) -> bytes:
    thought = message.reasoning_content or message.reasoning
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return _digest(message.role, message.name or "", message.text, str(thought or ""), _json(calls) if calls else "")


def _digest(*texts: str) -> bytes:
    return xxhash.xxh3_64_digest("\0".join(texts).encode("utf-8", "surrogatepass"))


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def first_difference(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return the index of the first difference; the shorter length if there is none."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
