"""End or retry the requests of a step that failed."""

from __future__ import annotations

import logging

from quire.core.request import Request
from quire.core.scheduler import Scheduler
from quire.outputs import SchedulerOutput
from quire.system.memory import is_gpu_full, release_gpu_memory

logger = logging.getLogger("quire")


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def fail_step(scheduler: Scheduler, out: SchedulerOutput, error: Exception) -> list[Request]:
    """Fail the requests of the step in flight, and return them. If a GPU had too little memory, they run again, alone,
    and only one that was alone before fails."""
    if not is_gpu_full(error):
        logger.error("step %d failed; its requests end with an error", out.step_id, exc_info=error)
        return scheduler.fail_step(describe(error))
    logger.error("step %d: the GPU has no memory left; its requests run again one by one: %s", out.step_id, error)
    release_gpu_memory(error)
    return scheduler.retry_step(
        f"the GPU ran out of memory in a step of {out.total_tokens} tokens; lower max_num_batched_tokens or "
        "gpu_memory_utilization"
    )
