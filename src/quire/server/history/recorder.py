"""`RequestRecorder`: hands the finished prompts of one HTTP request to the history of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from quire.outputs import RequestOutput
from quire.server.bodies.requests import RequestReply
from quire.server.generation.generation import GenerationJob
from quire.server.history.divergence import Reading, SentPrompt
from quire.server.history.outline import ChatOutline
from quire.server.history.store import RequestHistory


@dataclass(frozen=True)
class RequestRecorder:
    history: RequestHistory
    key_id: str
    outline: Callable[[], ChatOutline | None]  #: None for a completion

    async def __call__(self, job: GenerationJob, number: int, output: RequestOutput) -> RequestReply:
        """Record the finished prompt `number`, in a thread."""
        record = partial(self._record, job, number, output)
        return await asyncio.wrap_future(self.history.executor.submit(record, self.key_id))

    def _record(self, job: GenerationJob, number: int, output: RequestOutput) -> RequestReply:
        engine, prompt, times = job.model.async_engine, job.prompts[number], output.metrics
        limits = engine.limits
        sent = SentPrompt(
            job.model.name,
            SentPrompt.pack(output),
            len(output.prompt_token_ids),
            prompt.domains[-1][1],
            max(prompt.documents, default=0),
            self.outline(),
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
        return self.history.record(self.key_id, request_id, job.created, sent, output, reading, tokenizer)
