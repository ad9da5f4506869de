"""Responses that conversations may go on from, in memory: so many, so large, the least recently used gone first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.server.bodies.conversation import Message

_MOST_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True)
class StoredResponse:
    """A response and all that was said up to it.

    Attributes:
        owner: the id of the key that asked for it; nobody else finds it.
        reply: as it was shown.
        messages: the conversation, this answer included, without instructions.
    """

    owner: str
    reply: dict[str, Any]
    messages: Sequence[Message]

    @property
    def num_characters(self) -> int:
        """About; what it holds takes a few bytes more."""
        return sum(len(repr(message)) for message in self.messages) + len(repr(self.reply))


class ResponseStore:
    """Args:
    most: responses that are kept; 0 keeps none.
    most_characters: of all that is kept.
    """

    def __init__(self, most: int, most_characters: int = _MOST_CHARACTERS) -> None:
        self._most = most
        self._most_characters = most_characters
        self._kept: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self._num_characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, response_id: str, response: StoredResponse) -> None:
        """Keep it, in the place of what was used least recently."""
        size = response.num_characters
        self._kept[response_id] = response, size
        self._num_characters += size
        while self._kept and (len(self._kept) > self._most or self._num_characters > self._most_characters):
            _, (_, dropped) = self._kept.popitem(last=False)
            self._num_characters -= dropped

    def find(self, response_id: str, owner: str) -> StoredResponse | None:
        """The response of this id, if it is this owner's and still there."""
        found = self._kept.get(response_id)
        if found is None or found[0].owner != owner:
            return None
        self._kept.move_to_end(response_id)
        return found[0]

    def delete(self, response_id: str, owner: str) -> bool:
        """Whether there was one to delete."""
        if self.find(response_id, owner) is None:
            return False
        _, size = self._kept.pop(response_id)
        self._num_characters -= size
        return True
