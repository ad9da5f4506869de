"""Index of the swap tier: the slot and state of each block key.

    absent    no slot has this key
    saving    being written to a slot; a load of it follows on the same link
    present   in its slot while it is held, and afterwards until the slot is needed

Every operation is O(1).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class Entry:
    """A slot in use. Only `TierIndex` changes it."""

    __slots__ = ("is_valid", "key", "num_transfers", "slot")

    def __init__(self, key: bytes, slot: int) -> None:
        self.key = key
        self.slot = slot
        self.num_transfers = 0  #: pending from or to the slot, which cannot be reused meanwhile
        self.is_valid = True  #: can be found by its key


class TierIndex:
    """Slots of one block each, numbered from 0. Without slots there is no tier."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._entries: dict[bytes, Entry] = {}
        self._holds: dict[bytes, int] = {}  #: by key, since a lost block may be saved again in another slot
        self._free = list(range(num_slots - 1, -1, -1))
        self._idle: OrderedDict[bytes, None] = OrderedDict()  #: present and not held, least recent first
        self._invalid: set[int] = set()  #: slots that were invalidated while a transfer was pending

    @property
    def num_available(self) -> int:
        """Slots that `begin_save` can still use."""
        return len(self._free) + len(self._idle)

    @property
    def num_stored(self) -> int:
        return self.num_slots - len(self._free)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def has_any(self, keys: Iterable[bytes]) -> bool:
        return not self._entries.keys().isdisjoint(keys)

    def is_idle(self, key: bytes) -> bool:
        return key in self._idle

    def num_holds(self, key: bytes) -> int:
        return self._holds.get(key, 0)

    def begin_save(self, key: bytes) -> Entry:
        """Take a slot for the block of an absent key. The caller has checked `num_available`."""
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
        """Return the slot to read. It is not reused before `end`."""
        entry = self._entries[key]
        entry.num_transfers += 1
        self._settle(entry)
        return entry

    def end(self, entry: Entry, *, failed: bool) -> None:
        """End a transfer from or to a slot; a failed one invalidates the slot."""
        entry.num_transfers -= 1
        if failed:
            self._remove(entry)
        self._settle(entry)

    def hold(self, key: bytes) -> bool:
        """Keep a key's block until `release`. Returns False if it is absent: then there is nothing to release."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._holds[key] = self._holds.get(key, 0) + 1
        self._settle(entry)
        return True

    def release(self, key: bytes) -> None:
        """Release one hold, whether the block is present or was lost meanwhile."""
        self._holds[key] -= 1
        if not self._holds[key]:
            del self._holds[key]
        entry = self._entries.get(key)
        if entry is not None:
            self._settle(entry)

    def invalidate(self, key: bytes) -> None:
        """Remove a key whose content is invalid; harmless if it is absent."""
        entry = self._entries.get(key)
        if entry is not None:
            self._remove(entry)
            self._settle(entry)

    def clear(self) -> None:
        for key in list(self._entries):
            self.invalidate(key)

    def _remove(self, entry: Entry) -> None:
        if entry.is_valid:
            entry.is_valid = False
            del self._entries[entry.key]
            self._idle.pop(entry.key, None)
            self._invalid.add(entry.slot)

    def _settle(self, entry: Entry) -> None:
        """Move the entry's slot to the list of its state."""
        if not entry.is_valid:
            if entry.num_transfers == 0 and entry.slot in self._invalid:
                self._invalid.remove(entry.slot)
                self._free.append(entry.slot)
        elif entry.key in self._holds or entry.num_transfers:
            self._idle.pop(entry.key, None)
        else:
            self._idle[entry.key] = None
            self._idle.move_to_end(entry.key)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every slot is free, valid once, or invalid until its transfer ends."""
        valid = [entry.slot for entry in self._entries.values()]
        assert sorted([*self._free, *valid, *self._invalid]) == list(range(self.num_slots)), "slots leak"
        for key, entry in self._entries.items():
            assert entry.key == key
            assert entry.is_valid
            is_idle = key not in self._holds and not entry.num_transfers
            assert (key in self._idle) == is_idle, "a slot is reused while it is needed, or held for no request"
        assert set(self._idle) <= set(self._entries)
        assert all(count > 0 for count in self._holds.values())
