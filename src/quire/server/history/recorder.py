"""Hand the finished prompts of one HTTP request to the history of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quire.outputs import RequestOutput
from quire.server.bodies.requests import RequestReply
from quire.server.generation.generation import GenerationJob
from quire.server.history.divergence import Reading, SentPrompt
from quire.server.history.outline import ChatOutline
from quire.server.history.store import RequestHistory


async def record_prompt(
    history: RequestHistory,
    key_id: str,
    outline: Callable[[], ChatOutline | None],
    job: GenerationJob,
    number: int,
    output: RequestOutput,
) -> RequestReply:
    """Record the finished prompt `number` of a job, in a thread. `outline` returns None for a completion."""

    def record() -> RequestReply:
        engine, prompt, times = job.model.async_engine, job.prompts[number], output.metrics
        limits = engine.limits
        sent = SentPrompt(
            job.model.name,
            SentPrompt.pack(output),
            len(output.prompt_token_ids),
            prompt.domains[-1][1],
            max(prompt.documents, default=0),
            outline(),
            engine.pid,
            job.started_stages.get(number, 1),
            (times and times.first_scheduled_time) or 0.0,
            (times and times.first_token_time) or 0.0,
        )
        reading = Reading(
            output.sources,
            output.num_chosen_tokens,
            limits.block_size,
            is_looked_up=limits.enable_prefix_caching and job.params.prompt_logprobs is None,
            has_states=limits.window is not None and limits.window.has_states,
        )
        request_id = job.request_id if len(job.prompts) == 1 else f"{job.request_id}-{number}"
        tokenizer = engine.engine.tokenizer
        return history.record(key_id, request_id, job.created, sent, output, reading, tokenizer)

    return await asyncio.wrap_future(history.executor.submit(record, key_id))
