"""A runner without a model that checks the content of every KV slot against the scheduler's decisions.

A slot holds a digest of its token, of all tokens before it, and of their domains. A block that is shared wrongly,
copied too late, cleared too early or found under a wrong key therefore differs from its reader's expectation. Output
tokens are a function of the same digest. The runner does not know the reasons of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from quire.config import SchedulerConfig, num_batch_rows
from quire.core.block_keys import PUBLIC
from quire.outputs import (
    BlockTransfer,
    SchedulerOutput,
    StepOutput,
    StoreChanges,
    TokenLogprobs,
    TransferReport,
    state_ends,
)
from quire.runner.batch import Batch, InputBatch

VOCAB_SIZE = 8
EMPTY = 0  # a cleared slot
GARBAGE = 1  # an uncleared slot, or one of a failed step
_MASK = (1 << 64) - 1

DomainOf = Callable[[int], Hashable]  # block index -> its domain


class StepFailed(Exception):
    """Injected failure before or during a step."""


@lru_cache(1 << 16)  # the runner and its oracle compute the same digests
def mix(*values: int) -> int:
    """A digest of a few integers; never EMPTY or GARBAGE."""
    digest = 0x9E3779B97F4A7C15
    for value in values:
        digest = ((digest ^ value) * 0xD6E8FEB86659FD93) & _MASK
        digest ^= digest >> 32
    return digest | 2


@lru_cache
def digest_domain(domain: Hashable) -> int:
    return int.from_bytes(repr(domain).encode()[-8:], "little") ^ len(repr(domain))


class Contents:
    """Expected slot contents of a sequence at a stage of the model, extended with its tokens."""

    def __init__(self, block_size: int, domain_of: DomainOf, stage: int = 1) -> None:
        self.block_size = block_size
        self.domain_of = domain_of
        self.stage = stage
        self.tokens: list[int] = []
        self.values: list[int] = []

    def follow(self, tokens: Iterable[int]) -> list[int]:
        """Return the contents of all slots for the sequence's `tokens`."""
        for token in list(tokens)[len(self.values) :]:
            self.values.append(self._next(self.values, token))
        return self.values

    def with_drafts(self, drafts: Iterable[int]) -> list[int]:
        """Return the contents of all slots if `drafts` follow."""
        values = list(self.values)
        for token in drafts:
            values.append(self._next(values, token))
        return values

    def _next(self, values: list[int], token: int) -> int:
        domain = digest_domain(self.domain_of(len(values) // self.block_size)) + (self.stage - 1) * 0x51ED27
        return mix(values[-1] if values else 0, domain, token)


def next_token(content: int, index: int, banned: Iterable[int] = ()) -> int:
    """Return the token of sample `index` after a sequence whose last slot holds `content`."""
    allowed = sorted(set(range(VOCAB_SIZE)) - set(banned))
    return allowed[mix(content, index) % len(allowed)]


def likeliest(content: int, count: int) -> list[tuple[int, float]]:
    """Return the likeliest next tokens with distinct log-probabilities."""
    logprobs = [(token, -3 * (mix(content, token) >> 11) * 2.0**-53) for token in range(VOCAB_SIZE)]
    return sorted(logprobs, key=lambda entry: -entry[1])[:count]


class EmulatedStore:
    """A disk tier of digests, shared with simulated processes that randomly evict, delete, add and claim blocks."""

    def __init__(self, seed: int) -> None:
        self.blocks: dict[bytes, np.ndarray] = {}
        self.parents: dict[bytes, bytes] = {}
        self.claimed: set[bytes] = set()
        self.deleted: set[bytes] = set()  #: ever
        self.num_loads = self.num_waited = 0
        self._seed = seed
        self._gone: dict[bytes, np.ndarray] = {}  #: evicted; another process may recompute them
        self._pending_claims: dict[bytes, int] = {}  #: key -> steps until another process releases it
        self._changes = StoreChanges()

    def begin_with(self, chain: dict[bytes, np.ndarray]) -> None:
        """Store a chain of blocks from the start."""
        for parent, key in pairwise(chain):
            self.parents[key] = parent
        self.blocks |= chain
        self._changes.added += chain

    def poll(self) -> StoreChanges | None:
        self._simulate_others()
        changes, self._changes = self._changes, StoreChanges()
        return changes if changes != StoreChanges() else None

    def save(self, key: bytes, parent: bytes, content: np.ndarray) -> None:
        assert key not in self.blocks, "a block is saved twice"
        self.blocks[key] = content
        self.parents[key] = parent
        self.claimed.discard(key)

    def tell(self, out: SchedulerOutput) -> None:
        for key in out.dropped_claims:
            self.claimed.discard(key)
            self._pending_claims.pop(key, None)
        for key, patience_s in out.claims:
            assert patience_s > 0
            assert key not in self.claimed
            assert key not in self._pending_claims
            self._seed = mix(self._seed)
            self._pending_claims[key] = max(0, self._seed % 9 - 4)
            self.num_waited += self._pending_claims[key] > 0
        for key in out.invalidated:
            self._delete(key)

    def _simulate_others(self) -> None:
        """Run one step of the other processes."""
        self._seed = mix(self._seed)
        what, keys = (self._seed >> 16) % 10, sorted(self.blocks)
        some = keys[: 1 + (self._seed >> 24) % 4]
        if what == 0 and keys:  # evicted
            for key in some:
                self._gone[key] = self.blocks.pop(key)
            self._changes.removed += some
        elif what == 1 and keys:
            self._delete(keys[(self._seed >> 24) % len(keys)])
        elif what in (2, 3):
            self._restore(sorted(self._gone)[:4])
        for key in list(self._pending_claims):
            self._pending_claims[key] -= 1
            if self._pending_claims[key] >= 0:
                continue
            del self._pending_claims[key]
            ending = mix(self._seed, len(self._pending_claims)) % 4
            if key in self._gone and ending == 0:
                self._restore([key])
            elif ending == 1:
                self._changes.expired.append(key)
            else:
                self.claimed.add(key)
                self._changes.granted.append(key)

    def _restore(self, keys: list[bytes]) -> None:
        for key in keys:
            content = self._gone.pop(key)
            if key not in self.blocks:
                self.blocks[key] = content
                self._changes.added.append(key)
                self._pending_claims.pop(key, None)

    def _delete(self, key: bytes) -> None:
        """Delete a block and all blocks chained after it."""
        doomed = {key}
        while more := {child for child, parent in self.parents.items() if parent in doomed} - doomed:
            doomed |= more
        for each in doomed:
            self.blocks.pop(each, None)
            self._gone.pop(each, None)
        self.deleted |= doomed
        self._changes.added = [added for added in self._changes.added if added not in doomed]
        self._changes.deleted += sorted(doomed)


class EmulatedLink:
    """Swap and disk tiers of digests behind a slow link: a few transfers per step, in order.

    Args:
        blocks: device blocks, by part, read by saves at once and written by loads on arrival.
        has_states: records are parts of blocks, and not all parts of one.
        num_slots: size of the swap tier.
        seed: seed of the transfers per step and of failures.
        fails: one in `fails` transfers fails; 0 for none.
    """

    def __init__(
        self, blocks: np.ndarray, num_slots: int, seed: int = 1, fails: int = 0, *, has_states: bool = False
    ) -> None:
        self.blocks = blocks if has_states else blocks[:, None]
        self.slots = np.full((num_slots, *self.blocks.shape[2:]), GARBAGE, dtype=np.uint64)
        self.num_loads = 0
        self.num_cancelled = 0
        self.store = EmulatedStore(seed)
        self._seed = seed
        self._fails = fails
        self._queue: list[tuple[BlockTransfer, np.ndarray | None]] = []
        self._cancelled: set[int] = set()  #: queued transfers only

    def submit(self, transfers: list[BlockTransfer], kind: str) -> None:
        for transfer in transfers:
            if transfer.kind == "save" == kind:
                self._queue.append((transfer, self.blocks[transfer.src].copy()))
            elif transfer.kind == "load" == kind:
                self.blocks[transfer.dst, : len(transfer.records) or 1] = GARBAGE
                self._queue.append((transfer, None))

    def cancel(self, op_ids: Sequence[int]) -> None:
        self._cancelled.update({transfer.op_id for transfer, _ in self._queue}.intersection(op_ids))

    def poll(self, *, wait: bool) -> list[TransferReport]:
        self._seed = mix(self._seed)
        count = max(int(wait), self._seed % 5)
        done, self._queue = self._queue[:count], self._queue[count:]
        return [self._carry_out(transfer, saved) for transfer, saved in done]

    def _carry_out(self, transfer: BlockTransfer, saved: np.ndarray | None) -> TransferReport:
        if transfer.op_id in self._cancelled:
            self._cancelled.remove(transfer.op_id)
            self.num_cancelled += 1
            return TransferReport(transfer.kind, [transfer.op_id], 0, 0.0, is_cancelled=True)
        has_failed = self._fails > 0 and mix(self._seed, transfer.op_id) % self._fails == 0
        if transfer.tier == "disk":
            has_failed |= not self._use_store(transfer, saved, has_failed=has_failed)
        elif has_failed:
            pass
        elif saved is not None:
            for part, slot, _ in _records(transfer):
                self.slots[slot] = saved[part]
        else:
            for part, slot, _ in _records(transfer):
                self.blocks[transfer.dst, part] = self.slots[slot]
            self.num_loads += 1
        if has_failed and saved is not None and transfer.tier == "host":
            self.slots[[slot for _, slot, _ in _records(transfer)]] = GARBAGE
        failed = [transfer.op_id] * has_failed
        return TransferReport(transfer.kind, [transfer.op_id], 1, 0.001, failed, tier=transfer.tier)

    def _use_store(self, transfer: BlockTransfer, saved: np.ndarray | None, *, has_failed: bool) -> bool:
        """Write a block to the store, or read it if it is still there."""
        store = self.store
        records = _records(transfer)
        if has_failed:
            return False
        if saved is not None:
            for part, _, key in records:
                if key not in store.blocks:
                    store.save(key, transfer.parent, saved[part])
        elif all(key in store.blocks for _, _, key in records):
            for part, _, key in records:
                self.blocks[transfer.dst, part] = store.blocks[key]
            store.num_loads += 1
        else:
            return False
        return True


def _records(transfer: BlockTransfer) -> list[tuple[int, int, bytes]]:
    """Return the part of the block, slot and key of each record."""
    assert transfer.key is not None
    return transfer.records or [(0, transfer.dst if transfer.kind == "save" else transfer.src, transfer.key)]


class EmulatedRunner:
    """Executes steps on a cache of digests, with the real `InputBatch` and in the order of the real runner.

    The order is: save, clear, copy, start loads; within the step all writes come before all reads.

    Args:
        domains_of: seq_id -> the domain of each of its blocks; None for public ones.
        link_seed, link_fails: see `EmulatedLink`.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        domains_of: Callable[[int], DomainOf] | None = None,
        link_seed: int = 1,
        link_fails: int = 0,
    ) -> None:
        self.config = config
        self.batch = InputBatch(num_batch_rows(config.max_num_seqs), config.max_model_len, config.block_size)
        num_ids = config.num_blocks if config.window is None else config.window.num_ids(config.num_blocks)
        self._has_states = config.window is not None and config.window.has_states
        # The second part of a block is that of layers with a window; or states are, maybe in several records.
        num_parts = config.window.num_records if config.window is not None and self._has_states else 2
        if self._has_states:  # the states after drafts lie behind the pool
            self.batch.first_draft_block = num_ids
            num_ids += config.num_speculative_tokens
        self.blocks = np.full((num_ids, num_parts, config.block_size), GARBAGE, dtype=np.uint64)
        self.transfer_worker = EmulatedLink(
            self.blocks, config.num_swap_slots, link_seed, link_fails, has_states=self._has_states
        )
        self.num_copies = 0
        self._domains_of = domains_of or (lambda seq_id: lambda block_index: PUBLIC)
        self._contents: dict[int, Contents] = {}

    def execute(self, out: SchedulerOutput, *, fails: str = "", poisoned: Sequence[int] = ()) -> StepOutput:
        """Run a step.

        Args:
            fails: "early" raises StepFailed before anything is done, "late" when half of the slots are written.
            poisoned: indices in the step of sequences whose logits are NaN.

        Raises:
            AssertionError: a slot has unexpected content.
        """
        work = self.batch.apply(out)
        for slot in work.rejected:
            self.blocks[slot // self.config.block_size, :, slot % self.config.block_size] = EMPTY
        self.transfer_worker.submit(out.transfers, "save")
        self.transfer_worker.store.tell(out)
        if fails == "early":
            self.transfer_worker.submit(out.transfers, "load")
            self.transfer_worker.cancel(out.cancelled)
            raise StepFailed
        copies = self.blocks[work.copy_src]
        for block, is_whole in out.returned:
            self.blocks[block, 0 if is_whole else 1 :] = GARBAGE
        self.blocks[work.fresh, : 1 if self._has_states else 2] = EMPTY
        self.blocks[work.copy_dst] = copies
        self.num_copies += len(work.copy_src)
        self.transfer_worker.submit(out.transfers, "load")
        self.transfer_worker.cancel(out.cancelled)
        batch = self.batch.build(out)
        for new in out.new_sequences:
            self._contents[new.seq_id] = Contents(self.config.block_size, self._domains_of(new.seq_id), out.stage)
        for seq_id in out.seq_ids:
            assert self._contents[seq_id].stage == out.stage, "a step mixes stages, or a sequence changes its own"
        expected = [self._expected(seq_id, row) for seq_id, row in zip(out.seq_ids, batch.rows.tolist(), strict=True)]
        for i, seq_id in enumerate(out.seq_ids):
            if seq_id in out.drafts:
                expected[i] = self._contents[seq_id].with_drafts(out.drafts[seq_id])
        if self._has_states:
            self._pass_states_on(batch, expected, is_torn=fails == "late")
        self._write(batch, expected, is_torn=fails == "late")
        if fails == "late":
            raise StepFailed
        self._read(batch, expected)
        result = self._sample(out, batch, expected, set(poisoned))
        result.transfers = self.transfer_worker.poll(wait=not out.seq_ids)
        return result

    def _expected(self, seq_id: int, row: int) -> list[int]:
        return self._contents[seq_id].follow(self.batch.token_ids[row, : self.batch.num_tokens[row]].tolist())

    def _pass_states_on(self, batch: Batch, expected: list[list[int]], *, is_torn: bool) -> None:
        """Read the states before the step's tokens, and leave those after them. A state is a digest in part 1."""
        size, tables = self.config.block_size, batch.attention.block_tables
        spans = list(zip(batch.attention.query_start_loc.tolist(), batch.attention.seq_lens.tolist(), strict=False))
        num_drafts, draft_block = batch.attention.num_drafts, batch.attention.first_draft_block
        for i, (table, contents, (row, end)) in enumerate(zip(tables, expected, spans, strict=False)):
            start, first_draft = int(batch.positions[row]), end - (0 if num_drafts is None else int(num_drafts[i]))
            if start:
                state = self.blocks[table[(start - 1) // size], 1:, 0]
                is_own = (state == contents[start - 1]).all() or is_torn
                assert is_own, "a sequence goes on from a state that is not its own"
            for stop in state_ends(start, first_draft, size):
                self.blocks[table[(stop - 1) // size], 1:] = GARBAGE if is_torn else contents[stop - 1]
            for draft in contents[first_draft:end]:
                self.blocks[draft_block, 1:] = GARBAGE if is_torn else draft
                draft_block += 1

    def _write(self, batch: Batch, expected: list[list[int]], *, is_torn: bool) -> None:
        mapping = batch.attention.slot_mapping
        blocks, offsets = np.divmod(mapping, self.config.block_size)
        assert len(set(mapping.tolist())) == len(mapping), "two tokens are written to one slot"
        parts = slice(1 if self._has_states else 2)
        assert (self.blocks[blocks, parts, offsets] == EMPTY).all(), "a slot is written that holds something already"
        if is_torn:
            self.blocks[blocks[::2], parts, offsets[::2]] = GARBAGE
            return
        first_tokens = batch.attention.query_start_loc.tolist()
        for i, contents in enumerate(expected):
            first, end = first_tokens[i], first_tokens[i + 1]
            start = int(batch.positions[first])
            written = np.array(contents[start : start + end - first], dtype=np.uint64)
            self.blocks[blocks[first:end], parts, offsets[first:end]] = written[:, None]

    def _read(self, batch: Batch, expected: list[list[int]]) -> None:
        tables, lengths = batch.attention.block_tables, batch.attention.seq_lens.tolist()
        for i, contents in enumerate(expected):
            num_blocks = -(-lengths[i] // self.config.block_size)
            read, windows = self.blocks[tables[i, :num_blocks], :2].swapaxes(0, 1).reshape(2, -1)
            assert read[: lengths[i]].tolist() == contents[: lengths[i]], "a sequence reads KV that is not its own"
            assert (read[lengths[i] :] == EMPTY).all(), "a sequence's last block holds what a former owner left"
            if self._has_states:
                continue
            first = int(batch.positions[batch.attention.query_start_loc[i]])
            seen = max(0, first + 1 - self.config.window.tokens) if self.config.window else 0
            assert windows[seen:].tolist() == read[seen:].tolist(), (
                "a sequence reads KV of a window that was given back"
            )

    def _sample(self, out: SchedulerOutput, batch: Batch, expected: list[list[int]], poisoned: set[int]) -> StepOutput:
        result = StepOutput(out.step_id)
        for i, row in enumerate(batch.rows.tolist()):
            info = self.batch.info[row]
            assert info is not None
            first, end = batch.attention.query_start_loc[i : i + 2].tolist()
            if info.sampling_params.prompt_logprobs is not None and info.index == 0:
                positions = range(int(batch.positions[first]) + 1, int(batch.positions[end - 1]) + 2)
                entries = [(p, TokenLogprobs([], [], 0, 0.0, 1)) for p in positions if p < info.num_prompt_tokens]
                result.prompt_logprobs[out.seq_ids[i]] = entries
        for i in batch.sampled.tolist():
            seq_id, row = out.seq_ids[i], int(batch.rows[i])
            if i in poisoned:
                result.failed[seq_id] = "not numbers"
                continue
            info = self.batch.info[row]
            assert info is not None
            drafts = out.drafts.get(seq_id, [])
            contents = expected[i][len(expected[i]) - 1 - len(drafts) :]
            result.seq_ids.append(seq_id)
            if info.num_candidates:
                ids, logprobs = zip(*likeliest(contents[0], info.num_candidates), strict=True)
                result.sampled.append([])
                result.logprobs[seq_id] = [TokenLogprobs(list(ids), list(logprobs), ids[0], logprobs[0], 1)]
                continue
            num_output_tokens = int(self.batch.num_tokens[row]) - info.num_prompt_tokens
            samples = info.num_samples if num_output_tokens == 0 else 1
            assert not drafts or samples == 1
            tokens: list[int] = []
            for at, content in enumerate(contents):
                banned = info.stop_token_ids if num_output_tokens + at < info.sampling_params.min_tokens else ()
                tokens += [next_token(content, info.index + sample, banned) for sample in range(samples)]
                if at == len(drafts) or tokens[-1] != drafts[at] or tokens[-1] in info.stop_token_ids:
                    break
            result.sampled.append(tokens)
            self.batch.append_tokens(row, tokens if drafts else tokens[:1])
        for src, dst in self.batch.pop_state_moves():
            self.blocks[dst, 1:] = self.blocks[src, 1:]
        return result
