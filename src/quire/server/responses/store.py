"""Stored responses, in memory, up to a number and a size.

When it is full, the key with the largest share loses its least recently used response: no key can evict all others'.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.server.bodies.conversation import Message

_MAX_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True)
class StoredResponse:
    """A response and its conversation.

    Attributes:
        owner: id of the key, which alone can read it.
        reply: the response as sent.
        messages: the conversation with this answer, without instructions.
    """

    owner: str
    reply: dict[str, Any]
    messages: Sequence[Message]

    @property
    def num_characters(self) -> int:
        """Approximate size."""
        return sum(len(repr(message)) for message in self.messages) + len(repr(self.reply))


class ResponseStore:
    """Keeps responses.

    Args:
        capacity: maximum number of responses; 0 keeps none.
        max_characters: maximum size of all responses.
    """

    def __init__(self, capacity: int, max_characters: int = _MAX_CHARACTERS) -> None:
        self._capacity = capacity
        self._max_characters = max_characters
        self._owned: dict[str, OrderedDict[str, tuple[StoredResponse, int]]] = {}  #: owner -> id -> response, size

    def __len__(self) -> int:
        return sum(map(len, self._owned.values()))

    def add(self, response_id: str, response: StoredResponse) -> None:
        """Store a response; evict others of the owner with the largest share, at a tie of this one."""
        self._owned.setdefault(response.owner, OrderedDict())[response_id] = response, response.num_characters
        while len(self) > self._capacity:
            self._evict(max(self._owned, key=lambda owner: (len(self._owned[owner]), owner == response.owner)))
        while sum(map(self._size, self._owned)) > self._max_characters:
            self._evict(max(self._owned, key=lambda owner: (self._size(owner), owner == response.owner)))

    def find(self, response_id: str, owner: str) -> StoredResponse | None:
        """Return the owner's response of this id, if it is stored."""
        owned = self._owned.get(owner)
        if owned is None or response_id not in owned:
            return None
        owned.move_to_end(response_id)
        return owned[response_id][0]

    def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response. Returns False if it is not stored."""
        if self.find(response_id, owner) is None:
            return False
        self._drop(response_id, owner)
        return True

    def _size(self, owner: str) -> int:
        return sum(size for _, size in self._owned[owner].values())

    def _evict(self, owner: str) -> None:
        self._drop(next(iter(self._owned[owner])), owner)

    def _drop(self, response_id: str, owner: str) -> None:
        del self._owned[owner][response_id]
        if not self._owned[owner]:
            del self._owned[owner]
