"""Compute KV that requests have found again, while the engine is idle, and compare it bit by bit.

An audit covers a few blocks of one found prefix: a hidden request adopts the blocks before them, and computes them in a
domain of its own, so that it cannot find them. The engine cancels it when a request comes.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from quire.core.block_keys import TENANT, Domain, DomainSpans, extend_keys
from quire.core.request import Request, RequestAdapter
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.outputs import BlockDifference
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")

_AUDIT = Domain(TENANT + 1, b"audit")  #: narrower than all others
_REST_S = 2.0  #: after a request, before an audit may begin
_STEP_S = 0.25  #: predicted seconds of an audit: a request that comes waits as long
_MAX_BLOCKS = 32  #: of an audit
_NUM_HITS = 64
_TRUSTED = 1  #: mismatches after which the disk tier is still used


@dataclass(frozen=True)
class _Hit:
    """A prefix that a request has found."""

    token_ids: Sequence[int]  #: and one more
    domains: DomainSpans
    root: bytes
    adapter: RequestAdapter | None
    tier: str  #: the slowest of those that had a part


@dataclass(frozen=True)
class _Audit:
    hit: _Hit
    state: RequestState
    first: int  #: block of the prefix
    keys: list[bytes]
    blocks: list[int]  #: of these keys; the auditor holds them
    is_whole: list[bool]  #: whether each is held whole: a thin one has less to compare


class KVAuditor:
    """See `Auditor`: audits one engine's found prefixes, about `per_hour` times while it is idle."""

    def __init__(self, engine: Engine, per_hour: float, *, seed: int | None = None) -> None:
        self._engine = engine
        self._period_s = 3600.0 / per_hour
        self._random = random.Random(seed)
        self._hits: deque[_Hit] = deque(maxlen=_NUM_HITS)
        self._audit: _Audit | None = None
        self._nonces = count()
        self._due = self._next_due()
        self.num_mismatches = 0

    def _next_due(self) -> float:
        return self._engine.clock() + self._period_s * self._random.uniform(0.5, 1.5)

    def note(self, request: Request, now: float) -> None:
        self._due = max(self._due, now + _REST_S)
        found, size = request.num_cached_tokens, self._engine.scheduler.config.block_size
        if found < size or not request.cached_tokens or request.error is not None:
            return
        tier = max(request.cached_tokens, key=("device", "host", "disk").index)
        token_ids = request.prompt_token_ids[: found // size * size + 1]
        self._hits.append(_Hit(token_ids, request.domains, request.root, request.adapter, tier))

    def wait_s(self) -> float | None:
        return max(0.0, self._due - self._engine.clock()) if self._hits else None

    def begin(self) -> None:
        assert self._audit is None
        while self._hits:
            at = self._random.randrange(len(self._hits))
            hit = self._hits[at]
            del self._hits[at]
            if self._begin(hit):
                self._due = self._next_due()
                return

    def _begin(self, hit: _Hit) -> bool:
        engine, size = self._engine, self._engine.scheduler.config.block_size
        num_blocks = len(hit.token_ids) // size
        pool = engine.scheduler.kv.pool
        keys: list[bytes] = []
        extend_keys(keys, hit.root, hit.domains, hit.token_ids, size, num_blocks)
        found = [block for key in keys if (block := pool.find(key)) is not None]
        is_current = hit.root == engine.scheduler.stages.root_of(hit.adapter)
        if not is_current or hit.adapter not in (None, *engine.adapters) or len(found) < num_blocks:
            return False
        block_s = engine.cost_model.recompute(size)
        most = min(_MAX_BLOCKS, max(1, int(_STEP_S / block_s) if block_s > 0.0 else _MAX_BLOCKS), num_blocks)
        if pool.num_available < num_blocks + most + 1:
            return False
        first = self._random.randrange(num_blocks - most + 1)
        if pool.has_thin(found) and self._random.random() < 0.5:
            first = num_blocks - most  # the last block is whole
        window = slice(first, first + most)
        is_whole = [not pool.has_thin((block,)) for block in found[window]]
        for block, whole in zip(found[window], is_whole, strict=True):
            pool.hold_all([block], int(not whole))
        domain = _AUDIT._replace(salt=str(next(self._nonces)).encode())
        before = tuple(span for span in hit.domains if span[0] < first * size)
        name = "" if hit.adapter is None else hit.adapter.name
        prompt = Prompt(None, hit.token_ids[: window.stop * size + 1], (*before, (first * size, domain)), adapter=name)
        params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True, detokenize=False)
        state = engine.add(engine.input_processor.accept(prompt, params))
        state.request.keeps_answer = False
        if engine.scheduler.disk is not None:
            engine.scheduler.disk.remove_request(state.request)  # none of its blocks is kept
        self._audit = _Audit(hit, state, first, keys[window], found[window], is_whole)
        return True

    def check(self) -> None:
        audit = self._audit
        if audit is None:
            return
        last = audit.first + len(audit.blocks)
        for seq in audit.state.request.unfinished:
            if seq.num_computed_tokens < last * self._engine.scheduler.config.block_size:
                return
            own, pool = seq.block_table[audit.first : last], self._engine.scheduler.kv.pool
            is_whole = [whole and not pool.has_thin((block,)) for block, whole in zip(own, audit.is_whole, strict=True)]
            pairs = list(zip(audit.blocks, own, is_whole, strict=True))
            differences = self._engine.runner.compare_blocks(pairs)
            self._end(audit)
            self._conclude(audit, differences)
            return
        self._end(audit)  # its step failed

    def cancel(self) -> None:
        if self._audit is not None:
            self._hits.append(self._audit.hit)
            self._end(self._audit)

    def _end(self, audit: _Audit) -> None:
        self._audit = None
        pool, request = self._engine.scheduler.kv.pool, audit.state.request
        for seq in request.unfinished:
            for block in seq.block_table[audit.first :]:
                pool.invalidate(block)  # no request can find it
        self._engine.abort(request.request_id)
        for block, whole in zip(audit.blocks, audit.is_whole, strict=True):
            pool.release_table([block], int(not whole))

    def _conclude(self, audit: _Audit, differences: list[BlockDifference | None]) -> None:
        differs = next((at for at, each in enumerate(differences) if each is not None), None)
        self._engine.step_stats.audits[audit.hit.tier, "equal" if differs is None else "different"] += 1
        if differs is None:
            return
        self.num_mismatches += 1
        size, block = self._engine.scheduler.config.block_size, audit.first + differs
        logger.error(
            "kv audit: tokens %d to %d of a prefix found in the tier %s differ from their computation: %s. All cached "
            "blocks in memory are dropped, and on disk the block %s with all that follow it. This points to faulty "
            "memory, a faulty disk or a defect of the kernels: `quire bench exact` tells which.",
            block * size, (block + 1) * size - 1, audit.hit.tier, differences[differs], audit.keys[differs].hex(),
        )  # fmt: skip
        self._hits.clear()
        self._engine.quarantine(audit.keys[differs], closes_disk=self.num_mismatches > _TRUSTED)
