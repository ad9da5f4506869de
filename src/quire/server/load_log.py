"""The load log: a line every few seconds with throughput, queue, KV usage and hit rate of each busy model."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from quire.server.metrics.metrics import Metrics

logger = logging.getLogger("quire.load")


class LoadLog:
    """Makes each line from the changes of the metrics since the last one."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._time = clock()
        self._values = metrics.values()

    async def run(self, interval_s: float) -> None:
        """Write lines until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for fields in self.take():
                logger.info("load", extra={"fields": fields})

    def take(self) -> list[dict[str, object]]:
        """Return the fields of a line for each model with work now or since the last call."""
        before, last = self._values, self._time
        self._values, self._time = self._metrics.values(), self._clock()
        seconds = max(self._time - last, 1e-9)
        lines = []
        for model, now in self._values.items():
            was = before.get(model, {})
            gained = {name: max(0, value - was.get(name, 0)) for name, value in now.items() if name.endswith("_total")}
            prompt, generated = gained["quire_prompt_tokens_total"], gained["quire_generation_tokens_total"]
            running, waiting = now["quire_num_requests_running"], now["quire_num_requests_waiting"]
            if not (prompt or generated or running or waiting):
                continue
            line: dict[str, object] = {
                "model": model,
                "running": int(running),
                "waiting": int(waiting),
                "prompt_tok_s": round(prompt / seconds, 1),
                "generation_tok_s": round(generated / seconds, 1),
                "kv_usage": f"{now['quire_kv_cache_usage_perc']:.1%}",
            }
            if queries := gained["quire_prefix_cache_queries_total"]:
                line["prefix_hit_rate"] = f"{gained['quire_prefix_cache_hits_total'] / queries:.1%}"
            if preemptions := gained["quire_num_preemptions_total"]:
                line["preemptions"] = int(preemptions)
            lines.append(line)
        return lines
