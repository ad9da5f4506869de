"""A runner without a model, for measuring the scheduler's overhead: it builds batches and returns made-up tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from quire.outputs import BlockDifference, SchedulerOutput, StepOutput, StoreChanges, TokenLogprobs, TransferReport
from quire.runner.batch import InputBatch


class NullRunner:
    """See `Runner`. A sequence's next token is its length, so that no two positions look alike."""

    def __init__(self, batch: InputBatch) -> None:
        self.batch = batch
        self.build_s = 0.0  #: seconds spent on building batches

    disk = None

    def execute(self, out: SchedulerOutput) -> StepOutput:
        started = time.perf_counter()
        self.batch.apply(out)
        batch = self.batch.build(out)
        self.build_s += time.perf_counter() - started
        result = StepOutput(out.step_id)
        for kind in ("save", "load"):
            op_ids = [transfer.op_id for transfer in out.transfers if transfer.kind == kind]
            if op_ids:
                result.transfers.append(TransferReport(kind, op_ids, num_bytes=0, copy_s=0.0))
        for i in batch.sampled.tolist():
            row = int(batch.rows[i])
            info = self.batch.info[row]
            assert info is not None
            seq_id = out.seq_ids[i]
            token = int(self.batch.num_tokens[row])
            result.seq_ids.append(seq_id)
            if info.num_candidates:
                count = info.num_candidates
                spread = [-0.01 * (i + 1) * (info.index + 1) for i in range(count)]
                result.sampled.append([])
                result.logprobs[seq_id] = [TokenLogprobs(list(range(count)), spread, 0, spread[0], 1)]
                continue
            samples = info.num_samples if token == info.num_prompt_tokens else 1
            result.sampled.append([token + index for index in range(samples)])
            self.batch.append_token(row, token)
        return result

    def poll_store(self) -> StoreChanges | None:
        return None

    def compare_blocks(self, pairs: Sequence[tuple[int, int, bool]]) -> list[BlockDifference | None]:
        return [None] * len(pairs)

    def watch(self, on_end: Callable[[str], None]) -> None:
        pass
