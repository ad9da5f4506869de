"""One client process of the soak: sends its requests concurrently and prints a JSON line about each.

Takes one JSON object: `url`, `seed`, `num_requests`, `num_at_once`, and `is_patient`, which repeats requests that got
503 after a second.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import httpx

from benchmarks.soak.requests import Planned, Received, plan, problem, texts_of

PATIENCE_S = 240


async def ask_all(url: str, seed: int, num_requests: int, num_at_once: int, is_patient: bool) -> None:
    numbers = iter(range(num_requests))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=num_at_once)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=limits) as client:

        async def ask_some() -> None:
            for number in numbers:
                ended = await _ask(client, plan(seed, number))
                while is_patient and ended.get("status") == 503:
                    await asyncio.sleep(1)
                    ended = await _ask(client, plan(seed, number))
                print(json.dumps(ended), flush=True)

        await asyncio.gather(*(ask_some() for _ in range(num_at_once)))


async def _ask(client: httpx.AsyncClient, planned: Planned) -> dict[str, Any]:
    began = time.monotonic()
    asked = f"{planned.path} {planned.body or planned.content!s:.400}"
    ended: dict[str, Any] = {
        "is_malformed": planned.is_malformed,
        "is_streamed": planned.is_streamed,
        "asked": asked,
        "is_of_agent": planned.is_of_agent,
    }
    try:
        received = await asyncio.wait_for(_send(client, planned), planned.leave_after_s or PATIENCE_S)
    except TimeoutError:
        if planned.leave_after_s is not None:
            return {**ended, "outcome": "cancelled"}
        if (planned.body or {}).get("priority", 0) > 0:  # others may always come first
            return {**ended, "outcome": "overtaken"}
        return {**ended, "outcome": "unanswered", "problem": f"no answer within {PATIENCE_S} s"}
    except httpx.HTTPError as error:
        return {**ended, "outcome": "unanswered", "problem": repr(error)}
    ended |= {"outcome": "answered", "status": received.status, "seconds": time.monotonic() - began}
    if what := problem(planned, received):
        return {**ended, "problem": what}
    if planned.question is not None:
        ended |= {"question": planned.question, "text": texts_of(received)[0]}
    return ended


async def _send(client: httpx.AsyncClient, planned: Planned) -> Received:
    body: dict[str, Any] = {"json": planned.body} if planned.body is not None else {"content": planned.content}
    async with client.stream("POST", planned.path, headers=planned.headers, **body) as answer:
        received = Received(answer.status_code)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    received.events.append(line.removeprefix("data: "))
        else:
            received.text = (await answer.aread()).decode()
    return received


if __name__ == "__main__":
    asyncio.run(ask_all(**json.loads(sys.argv[1])))
