"""Which blocks the swap tier holds: from key to slot, and in which state.

    absent    no slot has this key
    saving    on its way to a slot; whoever asks for it meanwhile is served after it, on the same link
    present   in its slot, for as long as someone holds it, and after that until its slot is needed

Every operation is O(1).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class Entry:
    """A slot in use. Only `TierIndex` changes it."""

    __slots__ = ("is_named", "key", "num_transfers", "slot")

    def __init__(self, key: bytes, slot: int) -> None:
        self.key = key
        self.slot = slot
        self.num_transfers = 0  #: under way from or to the slot, which cannot be given to another meanwhile
        self.is_named = True  #: found by its key


class TierIndex:
    """`num_slots` slots of one block each, numbered from 0; none is a tier that does not exist."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._entries: dict[bytes, Entry] = {}
        self._holds: dict[bytes, int] = {}  #: by key, not by slot: what was lost may be saved again by somebody else
        self._free = list(range(num_slots - 1, -1, -1))
        self._idle: OrderedDict[bytes, None] = OrderedDict()  #: present and held by nobody, least recent first
        self._nameless: set[int] = set()  #: slots whose key was dropped while a transfer was under way

    @property
    def num_available(self) -> int:
        """Slots that `begin_save` can still give."""
        return len(self._free) + len(self._idle)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def has_any(self, keys: Iterable[bytes]) -> bool:
        """Whether one of these is present."""
        return not self._entries.keys().isdisjoint(keys)

    def is_idle(self, key: bytes) -> bool:
        """Whether a key is present and nobody holds it: its slot counts among `num_available`."""
        return key in self._idle

    def num_holds(self, key: bytes) -> int:
        """How many keep a key's block, whether it is there or was lost."""
        return self._holds.get(key, 0)

    def begin_save(self, key: bytes) -> Entry:
        """A slot for the block of an absent key. The caller has checked `num_available`."""
        assert key not in self._entries, "a key is saved once"
        if self._free:
            slot = self._free.pop()
        else:
            oldest, _ = self._idle.popitem(last=False)
            slot = self._entries.pop(oldest).slot
        entry = self._entries[key] = Entry(key, slot)
        entry.num_transfers = 1
        return entry

    def begin_load(self, key: bytes) -> Entry:
        """The slot to read. It stays as it is until `end`."""
        entry = self._entries[key]
        entry.num_transfers += 1
        self._settle(entry)
        return entry

    def end(self, entry: Entry, *, failed: bool) -> None:
        """A transfer from or to a slot has ended. What failed is not found again."""
        entry.num_transfers -= 1
        if failed:
            self._forget(entry)
        self._settle(entry)

    def hold(self, key: bytes) -> bool:
        """Keep a key's block until `release`. False where it is absent: then there is nothing to release."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._holds[key] = self._holds.get(key, 0) + 1
        self._settle(entry)
        return True

    def release(self, key: bytes) -> None:
        """Give up one hold, whether the block is still there or was lost meanwhile."""
        self._holds[key] -= 1
        if not self._holds[key]:
            del self._holds[key]
        entry = self._entries.get(key)
        if entry is not None:
            self._settle(entry)

    def drop(self, key: bytes) -> None:
        """Forget a key, because its content cannot be trusted; harmless where it is absent."""
        entry = self._entries.get(key)
        if entry is not None:
            self._forget(entry)
            self._settle(entry)

    def _forget(self, entry: Entry) -> None:
        if entry.is_named:
            entry.is_named = False
            del self._entries[entry.key]
            self._idle.pop(entry.key, None)
            self._nameless.add(entry.slot)

    def _settle(self, entry: Entry) -> None:
        """Put the entry where its state says that it belongs."""
        if not entry.is_named:
            if entry.num_transfers == 0 and entry.slot in self._nameless:
                self._nameless.remove(entry.slot)
                self._free.append(entry.slot)
        elif entry.key in self._holds or entry.num_transfers:
            self._idle.pop(entry.key, None)
        else:
            self._idle[entry.key] = None
            self._idle.move_to_end(entry.key)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every slot is free, named once, or waits nameless for its transfer's end."""
        named = [entry.slot for entry in self._entries.values()]
        assert sorted([*self._free, *named, *self._nameless]) == list(range(self.num_slots)), "slots leak"
        for key, entry in self._entries.items():
            assert entry.key == key
            assert entry.is_named
            is_idle = key not in self._holds and not entry.num_transfers
            assert (key in self._idle) == is_idle, "a slot is given away while it is needed, or kept for nobody"
        assert set(self._idle) <= set(self._entries)
        assert all(count > 0 for count in self._holds.values())
