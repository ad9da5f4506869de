"""A scheduler with a document on disk, and a passive runner."""

from __future__ import annotations

from collections.abc import Sequence

from quire.config import SchedulerConfig
from quire.core.block_keys import PUBLIC_ONLY, extend_keys
from quire.core.decisions.costs import StepShape
from quire.core.request import NO_OWNER, EndRules, KVScope, Order, Owner, Request
from quire.core.scheduler import Scheduler
from quire.outputs import SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.sampling_params import SamplingParams

BLOCK = 4
BLOCK_BYTES = 100
NUM_BLOCKS = 20  #: of the document
DOCUMENT = list(range(NUM_BLOCKS * BLOCK))


class PlainCosts:
    """One second per token, `load_s` per block from disk."""

    is_link_usable = True

    def __init__(self, load_s: float) -> None:
        self.load_s = load_s

    def step(self, shape: StepShape) -> float:
        return float(shape.num_tokens)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return float(num_tokens)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return 0.0

    def load(self, num_bytes: int, tier: str = "host") -> float:
        assert tier == "disk"
        return self.load_s * num_bytes / BLOCK_BYTES


class Bench:
    """A scheduler driven step by step. `load_s` is per block, `limits` are the scheduler's."""

    def __init__(self, load_s: float, *, num_blocks: int = 64, **limits: int) -> None:
        config = SchedulerConfig(
            num_blocks=num_blocks,
            block_size=BLOCK,
            max_model_len=(NUM_BLOCKS + 4) * BLOCK,
            block_bytes=BLOCK_BYTES,
            has_disk_tier=True,
            **limits,
        )
        self.costs = PlainCosts(load_s)
        self.scheduler = Scheduler(config, costs=self.costs)
        self.keys = self.put_on_disk(DOCUMENT)
        self._num_requests = 0

    def put_on_disk(self, document: Sequence[int]) -> list[bytes]:
        """Store a document and return its block keys."""
        keys: list[bytes] = []
        extend_keys(keys, b"", PUBLIC_ONLY, document, BLOCK, len(document) // BLOCK)
        self.scheduler.apply_store_changes(StoreChanges(added=keys))
        return keys

    def ask(
        self,
        document: Sequence[int] = DOCUMENT,
        *,
        max_tokens: int = 2,
        priority: int = 0,
        owner: Owner = NO_OWNER,
        **options: int,
    ) -> Request:
        """Add a request about a document, with a question of two tokens."""
        number = self._num_requests = self._num_requests + 1
        request = Request(
            f"request-{number}",
            [*document, 1000 + number, 7],
            SamplingParams(max_tokens=max_tokens, **options),  # type: ignore[arg-type]
            order=Order(priority, number, owner),
            ends=EndRules(max_tokens),
            kv=KVScope(documents=(len(document),) if document else ()),
        )
        self.scheduler.add(request)
        return request

    def step(self, *, arrived: int = 0, failed: int = 0) -> SchedulerOutput:
        """Run a step, and report this many of the running loads."""
        out = self.scheduler.schedule()
        self.begun = [t.op_id for t in out.transfers if t.kind == "load"]
        result = StepOutput(out.step_id)
        for seq_id in out.seq_ids:
            seq = self.scheduler.queue.sequences[seq_id]
            if seq.num_computed_tokens == len(seq.token_ids):
                result.seq_ids.append(seq_id)
                result.sampled.append([5])
        pending = [each.transfer.op_id for each in self.scheduler.swap.transfers if each.transfer.kind == "load"]
        cancelled = [op for op in pending if self.scheduler.swap.transfers[op].is_cancelled]
        going = [op for op in pending if op not in cancelled]
        if cancelled:
            result.transfers.append(TransferReport("load", cancelled, 0, 0.0, is_cancelled=True, tier="disk"))
        if failed:
            result.transfers.append(TransferReport("load", going[:failed], 0, 0.0, failed=going[:failed], tier="disk"))
        if arrived:
            result.transfers.append(TransferReport("load", going[:arrived], arrived * BLOCK_BYTES, 1.0, tier="disk"))
        saves = [each.transfer.op_id for each in self.scheduler.swap.transfers if each.transfer.kind == "save"]
        if saves:
            result.transfers.append(TransferReport("save", saves, len(saves) * BLOCK_BYTES, 1.0, tier="disk"))
        self.scheduler.update(result)
        self.scheduler.check_integrity()
        return out
