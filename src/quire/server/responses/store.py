"""Responses that conversations may go on from, in memory: so many, so large.

Where there is no room, the key that holds most gives up its least recently used ones: nobody pushes out everyone.
"""

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
        self._kept: dict[str, tuple[StoredResponse, int]] = {}
        self._shares: dict[str, _Share] = {}  # of all that is kept, by owner
        self._num_characters = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, response_id: str, response: StoredResponse) -> None:
        """Keep it, in the place of the largest owner's least recently used one; of two that are equal, its own."""
        size = response.num_characters
        self._kept[response_id] = response, size
        share = self._shares.setdefault(response.owner, _Share())
        share.ids[response_id] = None
        share.num_characters += size
        self._num_characters += size
        while len(self._kept) > self._most:
            self._drop_of(max(self._shares.values(), key=lambda each: (len(each.ids), each is share)))
        while self._num_characters > self._most_characters:
            self._drop_of(max(self._shares.values(), key=lambda each: (each.num_characters, each is share)))

    def find(self, response_id: str, owner: str) -> StoredResponse | None:
        """The response of this id, if it is this owner's and still there."""
        found = self._kept.get(response_id)
        if found is None or found[0].owner != owner:
            return None
        self._shares[owner].ids.move_to_end(response_id)
        return found[0]

    def delete(self, response_id: str, owner: str) -> bool:
        """Whether there was one to delete."""
        if self.find(response_id, owner) is None:
            return False
        self._drop(response_id)
        return True

    def _drop_of(self, share: _Share) -> None:
        self._drop(next(iter(share.ids)))

    def _drop(self, response_id: str) -> None:
        response, size = self._kept.pop(response_id)
        share = self._shares[response.owner]
        del share.ids[response_id]
        share.num_characters -= size
        self._num_characters -= size
        if not share.ids:
            del self._shares[response.owner]


class _Share:
    """What one owner has in the store."""

    def __init__(self) -> None:
        self.ids: OrderedDict[str, None] = OrderedDict()  #: least recently used first
        self.num_characters = 0
