"""Block tables: found by prefix, shared by fork, copied on write.

    logical blocks of a sequence      0    1    2    3
    block_table                     [ 7,   2,  15,   4 ]      the last one may be half full
    block_keys                      [ k0,  k1,  k2 ]          full blocks only

A resumed sequence may have blocks that are loading (`Sequence.loading`). The tokens before them are computed meanwhile:

    block_table                     [ 7,   9,  11,   3,   8 ]
                                      have  to compute  loading

Owns the pool, every block table, `num_computed_tokens` and block keys. Where room is missing it returns None, and the
scheduler decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Seq
from hashlib import sha256
from itertools import count

from quire.config import BlockWindow
from quire.core.block_keys import PUBLIC, PUBLIC_ONLY, TENANT, domain_of_block, extend_keys, next_key
from quire.core.block_pool import BlockPool, WindowedBlockPool
from quire.core.request import Request, Sequence
from quire.outputs import BlockTransfer, state_ends

_NEAR = 16  #: blocks; a state so close behind another one is not kept: computing it again takes little


class KVCacheManager:
    """The KV blocks of one engine. Without `enable_prefix_caching` only sequences of one request share blocks."""

    def __init__(
        self, num_blocks: int, block_size: int, enable_prefix_caching: bool = True, window: BlockWindow | None = None
    ) -> None:
        self._window = window
        self._has_states = window is not None and window.has_states
        #: Records of a state in other tiers; 0 for models without states.
        self.num_state_records = window.num_records - 1 if window is not None and window.has_states else 0
        self._windowed = None if window is None else WindowedBlockPool(num_blocks, window)
        self.pool = self._windowed or BlockPool(num_blocks)
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.num_logical_blocks = 0  #: entries of all block tables; shared blocks count several times
        self.num_kv_tokens = 0  #: computed tokens of all sequences that hold blocks
        self._registered: list[int] = []  #: blocks that got keys since `begin_step`
        self.op_ids = count(1)  #: of transfers
        self._pinned: dict[int, bool] = {}  #: block -> it is held whole

    def begin_step(self) -> None:
        """Trust the blocks of the last step."""
        self._registered.clear()

    def fail_step(self) -> set[int]:
        """Remove the keys given since `begin_step`, and return their blocks, which were not filled."""
        blocks = set(self._registered)
        for block in blocks:
            self.pool.invalidate(block)
        self._registered.clear()
        return blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many whole blocks take the memory of a sequence of so many tokens."""
        num_blocks = -(-num_tokens // self.block_size)
        return num_blocks if self._window is None else self._window.room(num_blocks)

    def count_missing(self, seq: Sequence, num_held: int) -> int:
        """Count the blocks to allocate for all tokens of a sequence, beside its first `num_held`."""
        num_tokens = len(seq.token_ids)
        if self._has_states and num_held:  # one of which is whole
            return self.blocks_for(num_tokens - (num_held - 1) * self.block_size) - 1
        return self.blocks_for(num_tokens) - self.blocks_for(num_held * self.block_size)

    def count_idle(self, found: list[int]) -> int:
        """Count the available blocks that adopting a cached prefix takes."""
        end = self._count_outgrown(len(found) * self.block_size)
        return self.pool.count_idle(found[end:], found[:end])

    def _count_outgrown(self, num_computed: int) -> int:
        """Count the first blocks of a sequence whose windows no later token reads."""
        return 0 if self._window is None else max(0, num_computed + 1 - self._window.tokens) // self.block_size

    def find_prefix(self, seq: Sequence, limit: int | None = None) -> list[int]:
        """Return the cached blocks of `seq`'s longest prefix of at most `limit` tokens. The last token is always
        computed, since it gives the logits; with `Sequence.must_compute` all are."""
        if seq.must_compute:
            return []
        tokens = seq.token_ids
        last = len(tokens) - 1 if limit is None else min(limit, len(tokens) - 1)
        num_full = last // self.block_size
        own = None if self.enable_prefix_caching else {b for s in seq.request.unfinished for b in s.block_table}
        found: list[int] = []
        for key in self.keys_of(seq, num_full):
            block = self.pool.find(key)
            if block is None or (own is not None and block not in own):
                break
            found.append(block)
        return found if self._windowed is None else self._cut_to_window(found, self._windowed.thin)

    def _cut_to_window(self, found: list[int], thin: set[int]) -> list[int]:
        """Return the longest part of a prefix with which a sequence can go on: blocks in the last window are whole."""
        end = len(found)
        outgrown = self._count_outgrown(end * self.block_size)
        for at in range(len(found) - 1, -1, -1):
            if at < outgrown:
                break
            if found[at] in thin:
                end, outgrown = at, self._count_outgrown(at * self.block_size)
        return found[:end]

    def count_new_blocks(self, seq: Sequence, num_tokens: int) -> int:
        """Return how many blocks `seq` needs to compute its tokens up to `num_tokens`, copies on write included."""
        missing, copies = -(-num_tokens // self.block_size) - len(seq.block_table), self._writes_shared_block(seq)
        if self._has_states and self._window is not None and missing > 0:
            num_whole = len(self._new_states_at(seq, num_tokens))
            return num_whole + copies - (num_whole - missing) * self._window.thin // self._window.WHOLE
        return missing + copies

    def _new_states_at(self, seq: Sequence, after: int) -> set[int]:
        """Return the positions beyond `seq`'s table where computing up to `after` leaves states."""
        ends = state_ends(seq.num_computed_tokens, after, self.block_size)
        return {at for end in ends if (at := (end - 1) // self.block_size) >= len(seq.block_table)}

    def tokens_to_state(self, seq: Sequence) -> int:
        """Count `seq`'s next tokens up to the one after which a state is to be kept: at the end of a document."""
        at, end = seq.num_computed_tokens, len(seq.token_ids)
        if self._has_states and seq.request.documents and at < seq.request.documents[-1]:
            ends = (end // self.block_size * self.block_size for end in seq.request.documents)
            end = next((each for each in ends if each > at), end)
        return end - at

    def adopt_prefix(self, seq: Sequence, blocks: list[int]) -> None:
        """Begin `seq`'s empty table with the blocks of a cached prefix."""
        assert not seq.block_table, "the sequence has blocks already"
        self._hold_prefix(seq, blocks, len(blocks) * self.block_size)
        self.extend_table(seq, blocks)
        seq.num_registered = len(blocks)
        seq.num_computed_tokens = len(blocks) * self.block_size
        self.num_kv_tokens += seq.num_computed_tokens

    def adopt_following(self, seq: Sequence) -> int:
        """Extend `seq`'s table by cached blocks, if all of its own are computed. Returns their number."""
        num_held = len(seq.block_table)
        if seq.num_computed_tokens != num_held * self.block_size:
            return 0
        blocks = self.find_prefix(seq)[num_held:]
        if blocks:
            end = self._count_outgrown((num_held + len(blocks)) * self.block_size)
            self.pool.hold_all(blocks, max(0, end - num_held))
            self.count_loaded(seq, (num_held + len(blocks)) * self.block_size)
            if self._windowed is not None:
                self._outgrow(seq)
            self.extend_table(seq, blocks)
            if self._has_states:
                seq.states_at += range(end, len(seq.block_table))
        return len(blocks)

    def append_slots(self, seq: Sequence, num_new_tokens: int) -> tuple[list[int], BlockTransfer | None] | None:
        """Append slots for `seq`'s next tokens and count the tokens as computed. Full blocks get their keys at once:
        within a layer all writes come before all reads. Returns the blocks appended, and the copy to make first if the
        last one was shared; None, with nothing changed, without room."""
        pool, size, table = self.pool, self.block_size, seq.block_table
        if self._windowed is not None:
            self._outgrow(seq)
        at = seq.num_computed_tokens // size
        after = seq.num_computed_tokens + num_new_tokens
        missing = -(-after // size) - len(table)
        copies = at < len(table) and pool.ref_counts[table[at]] > 1
        new_blocks: list[int] = []
        transfer = None
        if missing > 0 or copies:
            whole = self._new_states_at(seq, after) if self._has_states else None
            num_thin = 0 if whole is None else missing - len(whole)
            if not pool.has_room(missing - num_thin + copies, num_thin):
                return None
            transfer = self._copy_on_write(seq) if copies else None
            new_blocks = pool.allocate_all(missing if whole is None else len(whole))
            if whole is not None:
                new_blocks = self._add_thin(seq, new_blocks, whole, missing)
            self.extend_table(seq, new_blocks)
        self.count_computed(seq, num_new_tokens)
        if seq.request.is_single:  # a block that is not full has no key, so no other request shares it
            seq.open_end = len(table) * size - 1
        return new_blocks, transfer

    def count_computed(self, seq: Sequence, num_tokens: int) -> None:
        """Count `seq`'s next tokens, which have slots, as computed. Full blocks get their keys."""
        seq.num_computed_tokens += num_tokens
        self.num_kv_tokens += num_tokens
        if (num_full := seq.num_computed_tokens // self.block_size) > seq.num_registered:
            self._extend_keys(seq, num_full)
            new = slice(seq.num_registered, num_full)
            self._registered += self.pool.register_all(seq.block_table[new], seq.block_keys[new])
            seq.num_registered = num_full

    def _add_thin(self, seq: Sequence, whole_blocks: list[int], whole: set[int], missing: int) -> list[int]:
        """Return `missing` new blocks in order: `whole_blocks` where the step leaves states, and thin ones."""
        assert self._windowed is not None
        seq.states_at += sorted(whole)
        thin, usual = iter(self._windowed.allocate_thin(missing - len(whole))), iter(whole_blocks)
        first = len(seq.block_table)
        return [next(usual if at in whole else thin) for at in range(first, first + missing)]

    def append_decodes(self, requests: Seq[Request]) -> tuple[list[int], int, dict[int, list[int]]]:
        """Append one slot to each single-sequence request, until one needs a decision or the pool has no room. Returns
        sequence ids; their computed tokens before this step, summed; and by id the blocks appended."""
        seq_ids: list[int] = []
        new_blocks: dict[int, list[int]] = {}
        num_context = num_counted = 0
        for request in requests:
            seq = request.unfinished[0]
            start = seq.num_computed_tokens
            if len(seq.token_ids) != start + 1:
                break
            if start < seq.open_end:
                seq.num_computed_tokens = start + 1
            elif not (request.is_single and seq.is_in_runner) or (appended := self.append_slots(seq, 1)) is None:
                break
            else:
                num_counted += 1
                if appended[0]:
                    new_blocks[seq.seq_id] = appended[0]
            seq_ids.append(seq.seq_id)
            num_context += start
        self.num_kv_tokens += len(seq_ids) - num_counted
        return seq_ids, num_context, new_blocks

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Share `parent`'s blocks with `child`, whose tokens begin with `parent`'s computed ones."""
        assert not child.block_table
        self._hold_prefix(child, parent.block_table, parent.num_computed_tokens)
        self.extend_table(child, parent.block_table)
        child.block_keys = list(parent.block_keys)
        child.num_registered = parent.num_registered
        child.num_computed_tokens = parent.num_computed_tokens
        self.num_kv_tokens += child.num_computed_tokens

    def free(self, seq: Sequence) -> int:
        """Release `seq`'s blocks; idempotent. Tokens and keys stay. Returns the number of blocks made available."""
        before = self.pool.num_available
        assert seq.loading is None, "a sequence releases no blocks while it is loading"
        num_outgrown = len(seq.block_table) if self._has_states else seq.num_outgrown
        self.pool.release_table(seq.block_table, num_outgrown, seq.states_at)
        seq.states_at, seq.num_outgrown = [], 0
        self.num_logical_blocks -= len(seq.block_table)
        self.num_kv_tokens -= seq.num_computed_tokens
        seq.block_table = []
        seq.num_registered = seq.num_computed_tokens = seq.open_end = seq.num_draft_tokens = 0
        return self.pool.num_available - before

    def invalidate(self, seq: Sequence) -> list[bytes]:
        """Remove and return the keys of `seq`'s blocks, which hold NaN or infinity. Pinned ones are valid."""
        blocks = [block for block in seq.block_table if block not in self._pinned]
        keys = [self.pool.key_of(block) for block in blocks]
        for block in blocks:
            self.pool.invalidate(block)
        return [key for key in keys if key is not None]

    def share_public_prefix(self, request: Request, can_load: Callable[[bytes], bool]) -> bool:
        """Let a tenant's request, before it begins, share public blocks (pinned prefixes, warmed documents) at its
        front. Returns whether there are any; the request's block keys have changed then."""
        (start, domain), *later = request.domains
        if not self.enable_prefix_caching or domain.level != TENANT or later:
            return False
        tokens, keys = request.prompt_token_ids, list[bytes]()
        num_found = 0
        while (num_found + 1) * self.block_size < len(tokens):
            extend_keys(keys, request.root, PUBLIC_ONLY, tokens, self.block_size, num_found + 1)
            if self.pool.find(keys[-1]) is None and not can_load(keys[-1]):
                break
            num_found += 1
        if num_found:
            request.domains = ((start, PUBLIC), (num_found * self.block_size, domain))
            self.clear_keys(request)
        return num_found > 0

    def set_keys(self, seq: Sequence, keys: list[bytes]) -> None:
        """Set the keys of `seq`'s first blocks, where the caller has computed them already."""
        assert not seq.block_table
        seq.block_keys = keys

    def clear_keys(self, request: Request) -> None:
        """Drop the block keys of a request whose root or domains have changed."""
        for seq in request.unfinished:
            seq.block_keys.clear()

    def rename(self, request: Request) -> None:
        """Give a request's future blocks keys that no other request finds."""
        request.root = sha256(b"renamed" + request.root + request.request_id.encode()).digest()
        request.is_renamed = True
        self.clear_keys(request)

    def full_blocks(self, seq: Sequence) -> list[int]:
        return seq.block_table[: seq.num_computed_tokens // self.block_size]

    def filled_blocks(self, seq: Sequence) -> dict[int, bytes]:
        """Return the full blocks that hold KV or are loading it, with their keys."""
        keys = self.keys_of(seq, self.count_filled(seq))
        return dict(zip(seq.block_table, keys, strict=False))

    def count_filled(self, seq: Sequence) -> int:
        return self.end_of(seq) // self.block_size

    def keys_of(self, seq: Sequence, num_blocks: int) -> list[bytes]:
        """Return the keys of the first full blocks of `seq`'s tokens, whether it holds the blocks or not."""
        self._extend_keys(seq, num_blocks)
        return seq.block_keys[:num_blocks]

    def key_at(self, seq: Sequence, end: int) -> bytes:
        """Return the key of the block with `seq`'s last token before `end`, full or not."""
        num_full, request = end // self.block_size, seq.request
        keys = self.keys_of(seq, num_full)
        if end % self.block_size == 0:
            return keys[-1]
        parent, tokens = keys[-1] if keys else request.root, seq.token_ids[num_full * self.block_size : end]
        return next_key(parent, domain_of_block(request.domains, end), tokens)

    def _hold_prefix(self, seq: Sequence, blocks: Seq[int], num_computed: int) -> None:
        """Hold the blocks that `seq`'s empty table will begin with."""
        end = min(self._count_outgrown(num_computed), len(blocks))
        self.pool.hold_all(blocks, end)
        if self._has_states:
            seq.states_at = list(range(end, len(blocks)))
        else:
            seq.num_outgrown = end

    def _outgrow(self, seq: Sequence) -> None:
        """Turn holds on blocks whose windows or states no token from `num_computed_tokens` on reads."""
        assert self._windowed is not None
        end = self._count_outgrown(seq.num_computed_tokens)
        if self._has_states:
            for at in (each for each in seq.states_at if each < end):
                is_near = not self._windowed.thin.issuperset(seq.block_table[max(0, at - _NEAR) : at])
                self._windowed.outgrow([seq.block_table[at]], becomes_thin=is_near)
            seq.states_at = [at for at in seq.states_at if at >= end]
        elif end > seq.num_outgrown:
            self._windowed.outgrow(seq.block_table[seq.num_outgrown : end])
            seq.num_outgrown = end

    def extend_table(self, seq: Sequence, blocks: list[int]) -> None:
        seq.block_table.extend(blocks)
        self.num_logical_blocks += len(blocks)

    def allocate_for_load(self, *, has_state: bool) -> int:
        """Return a block for a load, held once: thin unless its model has no states, or it `has_state`."""
        is_thin = self._has_states and not has_state
        return self._windowed.allocate_thin(1)[0] if is_thin and self._windowed else self.pool.allocate()

    def hold(self, block: int, *, has_state: bool) -> None:
        """Hold a block that is loading, or cached."""
        self.pool.hold_all([block], int(self._has_states and not has_state))

    def release_hold(self, block: int, *, has_state: bool) -> None:
        self.pool.release_table([block], int(self._has_states and not has_state))

    def end_of(self, seq: Sequence) -> int:
        """Return the tokens that `seq` has computed, or will have once its blocks have loaded."""
        return seq.num_computed_tokens if seq.loading is None else seq.loading.end

    def cut_table(self, seq: Sequence, at: int) -> list[int]:
        """Cut the table at position `at`, and release its blocks from there on. Returns them."""
        cut = seq.block_table[at:]
        states_at = [position - at for position in seq.states_at if position >= at]
        self.pool.release_table(cut, len(cut) if self._has_states else 0, states_at)
        seq.states_at = seq.states_at[: len(seq.states_at) - len(states_at)]
        del seq.block_table[at:]
        seq.open_end = 0
        self.num_logical_blocks -= len(cut)
        return cut

    def count_loaded(self, seq: Sequence, end: int) -> None:
        """Count the tokens before `end` as computed: their blocks are loaded and have keys."""
        self.num_kv_tokens += end - seq.num_computed_tokens
        seq.num_computed_tokens = end
        seq.num_registered = end // self.block_size

    def pin(self, seq: Sequence, max_model_len: int) -> int:
        """Hold the full blocks of `seq` for good, and return their number. Raises ValueError if the rest of the pool
        could not hold the longest sequence, of `max_model_len` tokens."""
        blocks = self.full_blocks(seq)
        end = self._count_outgrown(len(blocks) * self.block_size) if self._has_states else 0
        if self.pool.has_thin(blocks[end:]):
            raise ValueError(f"the pool is too small to keep {len(blocks)} pinned blocks whole; enlarge it")
        new = [block for block in blocks if block not in self._pinned]
        num_pinned = len(self._pinned) + len(new)
        if self._window is not None and self._has_states:
            num_pinned = self._window.room(num_pinned)
        num_left = self.pool.num_blocks - num_pinned
        if num_left < self.blocks_for(max_model_len):
            raise ValueError(
                f"the pool would have {num_left} blocks left beside the pinned ones, too few for "
                f"max_model_len={max_model_len}; lower it or enlarge the pool"
            )
        outgrown = set(blocks[:end])
        for block in new:
            self.pool.hold_all([block], int(block in outgrown))
            self._pinned[block] = block not in outgrown
        return len(blocks)

    def unpin(self) -> None:
        """Release all pinned blocks. They stay cached until they are evicted."""
        self.pool.release_all(block for block, is_whole in self._pinned.items() if is_whole)
        if self._windowed is not None:
            self._windowed.release_outgrown(block for block, is_whole in self._pinned.items() if not is_whole)
        self._pinned.clear()

    @property
    def pinned(self) -> Collection[int]:
        return self._pinned

    def _extend_keys(self, seq: Sequence, num_blocks: int) -> None:
        if len(seq.block_keys) < num_blocks:
            request = seq.request
            extend_keys(seq.block_keys, request.root, request.domains, seq.token_ids, self.block_size, num_blocks)

    def _writes_shared_block(self, seq: Sequence) -> bool:
        at = seq.num_computed_tokens // self.block_size
        return at < len(seq.block_table) and self.pool.ref_counts[seq.block_table[at]] > 1

    def _copy_on_write(self, seq: Sequence) -> BlockTransfer:
        at = seq.num_computed_tokens // self.block_size
        shared = seq.block_table[at]
        own = self.pool.allocate()
        self.pool.release(shared)
        seq.block_table[at] = own
        return BlockTransfer(next(self.op_ids), "copy", shared, own)


def check_tables(kv: KVCacheManager, sequences: list[Sequence], loading: Iterable[int] = ()) -> None:
    """Raise AssertionError unless every hold and key is accounted for. Loads in flight hold `loading`."""
    kv.pool.check_integrity()
    holds = [0] * len(kv.pool.ref_counts)
    for block in (*kv._pinned, *loading):
        holds[block] += 1
    for seq in sequences:
        if seq.loading is not None:
            assert seq.num_computed_tokens <= seq.loading.start <= seq.loading.end
            num_loaded = -(-seq.loading.end // kv.block_size)
            assert num_loaded == len(seq.block_table), f"{seq!r} loads outside its table"
        for block in seq.block_table:
            holds[block] += 1
        num_blocks = len(seq.block_table)
        assert seq.num_computed_tokens <= num_blocks * kv.block_size, f"{seq!r} has tokens without slots"
        most = -(-(len(seq.token_ids) + seq.num_draft_tokens) // kv.block_size)
        assert num_blocks <= most, f"{seq!r} holds more blocks than it needs"
        read = range(seq.num_outgrown, num_blocks) if not kv._has_states else seq.states_at
        assert not kv.pool.has_thin(seq.block_table[at] for at in read)
        at = seq.num_computed_tokens // kv.block_size
        assert all(kv.pool.ref_counts[b] > 0 for b in seq.block_table[: at + 1])
    assert holds == kv.pool.ref_counts, "reference counts and block tables disagree"
    assert kv.num_logical_blocks == sum(len(seq.block_table) for seq in sequences)
    assert kv.num_kv_tokens == sum(seq.num_computed_tokens for seq in sequences)
