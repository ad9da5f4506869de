"""Propose draft tokens with a second model: a smaller one, or the served one with fewer bits. Its passes decide speed
only: the served model verifies every token."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from quire.attention.interface import AttentionBackend
from quire.models.base import CausalLM
from quire.ops.arrays import Array, as_numpy, as_tensor, is_numpy, to_host, widen
from quire.outputs import FROM_MODEL, Drafting, SchedulerOutput
from quire.runner.batch import Batch, BlockWork, InputBatch
from quire.runner.drawing import TokenDrawer
from quire.runner.kv_cache import KVCache
from quire.runner.row_state import RowState
from quire.runner.top_tokens import best_tokens

_CHUNK = 256  # tokens of a pass that catches up


class Drafter:
    """Runs a draft model. With a `cache` of its own, whose blocks have the ids of the served model's, it first computes
    what it does not know of a sequence. Without one it computes on the served model's KV, and overwrites only what
    verification writes again."""

    lag = 0  #: how many tokens the position of an input is before that of its token
    reads_hidden_states = False  #: whether `end_step` needs the hidden states of all of a step's tokens

    def __init__(
        self, model: CausalLM, attention: AttentionBackend, vocab_size: int, cache: KVCache | None = None
    ) -> None:
        self.model = model
        self._attention = attention
        self._vocab_size = min(vocab_size, model.config.vocab_size)
        self._drawer = TokenDrawer(self._vocab_size)
        self._own = None if cache is None else _OwnCache(cache)
        #: choose(logits, states, number) -> the tokens of each row, `number` tokens after its last known one.
        self.choose: Callable[[Array, list[RowState | None], int], np.ndarray] = self._choose

    def apply(self, work: BlockWork, out: SchedulerOutput) -> None:
        """Forget what blocks held that now hold something else."""
        if self._own is not None:
            self._own.apply(work, [each.dst for each in out.transfers if each.kind == "load"])

    def propose(
        self, batch: InputBatch, drafts: dict[int, list[int]], state_of: Callable[[int], RowState | None]
    ) -> Drafting | None:
        """Replace `FROM_MODEL` in a step's drafts, also in `batch`. `state_of` returns a row's sampling state."""
        asked = [tokens for tokens in drafts.values() if tokens[0] == FROM_MODEL]
        if not asked:
            return None
        work = Drafting()
        rows = np.array([batch.row_of[seq_id] for seq_id, tokens in drafts.items() if tokens[0] == FROM_MODEL])
        counts, ends = np.array([len(tokens) for tokens in asked]), batch.num_tokens[rows] - self.lag
        found = [(state_of(row), batch.info[row]) for row in rows.tolist()]
        states = [state if state is not None and state.info is info else None for state, info in found]
        starts = self._catch_up(batch, rows, ends - 1, work)
        for number in range(int(counts.max())):
            at = np.flatnonzero(counts > number)
            ends_here = ends[at] + number
            began = time.perf_counter()
            logits = self._compute(batch, rows[at], starts[at], ends_here, number)
            tokens = self._of_first_rank(self.choose(logits, [states[i] for i in at.tolist()], number))
            work.add(len(at), int((ends_here - starts[at]).sum()), time.perf_counter() - began)
            batch.token_ids[rows[at], ends_here + self.lag] = tokens
            starts[at] = ends_here
            for i, token in zip(at.tolist(), tokens.tolist(), strict=True):
                asked[i][number] = token
        return work

    def _of_first_rank(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens that the first rank has chosen: only it has the sampling states."""
        group = self.model.split.group
        if group.size == 1:
            return tokens
        numbers = self._to_device((tokens if group.rank == 0 else 0 * tokens).astype(np.float32))
        return to_host(group.all_reduce(numbers)).astype(np.int64)

    def end_step(self, batch: Batch, hidden: Array) -> None:
        """Forget what this model has not computed of a step's tokens. `hidden` are the served model's hidden states."""
        if self._own is not None:
            self._own.end_step(batch.attention.slot_mapping)

    def _catch_up(self, batch: InputBatch, rows: np.ndarray, ends: np.ndarray, work: Drafting) -> np.ndarray:
        """Return the first position of each row, at most its end, that the next pass must compute."""
        if self._own is None:
            return ends.copy()
        starts = np.empty_like(ends)
        for i, (row, end) in enumerate(zip(rows, ends.tolist(), strict=True)):
            start = self._own.first_unknown(batch.slots(row, np.arange(end)))
            while end - start > _CHUNK:
                began = time.perf_counter()
                self._compute(batch, rows[i : i + 1], np.array([start]), np.array([start + _CHUNK]))
                work.add(1, _CHUNK, time.perf_counter() - began)
                start += _CHUNK
            starts[i] = start
        return starts

    def _compute(
        self, inputs: InputBatch, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, number: int = -1
    ) -> Array:
        """Compute positions of rows. Returns the logits of each one's last, from which the draft of this `number` is
        chosen; -1 for none."""
        batch = inputs.flatten(rows, starts, ends - starts)
        self._attention.plan(batch.attention)
        last = batch.attention.query_start_loc[1:] - 1
        hidden = self._run(inputs, batch, self._to_device(last) if len(last) < len(batch.token_ids) else None, number)
        self._keep(inputs, batch, hidden, number)
        logits = self.model.compute_logits(hidden)[:, : self._vocab_size]
        return as_numpy(logits) if self.model.device == "cpu" else logits

    def _run(self, inputs: InputBatch, batch: Batch, rows: Array | None, number: int) -> Array:
        """Run the model. Returns the hidden states of `rows`, or of all."""
        ids, positions = self._to_device(batch.token_ids), self._to_device(batch.positions)
        return self.model(ids, positions, self._attention.attend, rows=rows)

    def _keep(self, inputs: InputBatch, batch: Batch, hidden: Array, number: int) -> None:
        """Note what a pass has computed. `hidden` has a row for each of its sequences."""
        if self._own is not None:
            self._own.add(batch.attention.slot_mapping)

    def _to_device(self, array: np.ndarray) -> Array:
        return array if is_numpy(self.model.dtype) else as_tensor(array).to(self.model.device, non_blocking=True)

    def _choose(self, logits: Array, states: list[RowState | None], number: int) -> np.ndarray:
        """Return the tokens that would be sampled if these logits were the served model's, with the same random
        numbers, but without bans and penalties."""
        best, tokens = best_tokens(logits)
        for i, state in enumerate(states):
            if state is None or state.params.is_greedy or not np.isfinite(best[i]):
                continue
            ahead = copy(state)
            ahead.num_output_tokens += number
            row = widen(to_host(logits[i]))
            try:
                tokens[i] = self._drawer.draw(row, best[i], ahead, 1)[0]
            except FloatingPointError:
                continue
        return tokens


@dataclass
class _OwnCache:
    """A draft model's KV, and which of the slots hold that of the tokens that are in them."""

    cache: KVCache
    _known: np.ndarray = field(init=False)  #: bool [num_slots]
    _added: list[np.ndarray] = field(default_factory=list)  #: in the step in flight

    def __post_init__(self) -> None:
        self._known = np.zeros(self.cache.layout.block_size * self.cache.num_ids, dtype=bool)

    def apply(self, work: BlockWork, loaded: list[int]) -> None:
        self.cache.clear(work.fresh)
        self._known.reshape(-1, self.cache.layout.block_size)[work.fresh + work.copy_dst + loaded] = False
        self._known[work.rejected] = False
        self._added = []

    def add(self, slots: np.ndarray) -> None:
        self._added.append(slots)

    def end_step(self, slots: np.ndarray) -> None:
        self._known[slots] = False
        for each in self._added:
            self._known[each] = True

    def first_unknown(self, slots: np.ndarray) -> int:
        known = self._known[slots]
        return len(known) if known.all() else int(known.argmin())
