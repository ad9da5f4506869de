"""Cost of explaining how a prompt was read: processor time of a request's record, beside decoding its answer.

An agent's conversation grows by a turn a request, over a history of as many requests as a server keeps of a key. Every
other one is edited in the middle. A record is made once a request, in a thread of the server's process.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.script import start
from quire import LLM, SamplingParams
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.outputs import CompletionOutput, RequestMetrics, RequestOutput
from quire.prompt import Prompt
from quire.server.history.divergence import Reading, SentPrompt
from quire.server.history.outline import ChatOutline
from quire.server.history.store import RequestHistory
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.settings import ServerSettings
from quire.settings import Settings, integers, setting

_TURN_TOKENS = 50
_SYSTEM = "You are careful. " * 500  #: as long as an agent's


@dataclass(frozen=True)
class WhySettings(Settings):
    """Options of the benchmark of records."""

    model: str = setting("quire-mini", "Model that decodes the answers.")
    prompt_len: tuple[int, ...] = setting("1000,8000", "Tokens of the first prompt.", read=integers, at_least=100)
    output_len: int = setting(128, "Tokens of an answer.", at_least=2)
    runs: int = setting(50, "Measured requests, with a full history.", at_least=2)


def record_times(prompt_len: int, settings: WhySettings, tokenizer: Any) -> Iterator[float]:
    """Yield the processor time of each record."""
    chance, history = random.Random(0), RequestHistory(ServerSettings().max_stored_requests)
    ids = [chance.randrange(256) for _ in range(prompt_len)]
    messages = [{"role": "system", "content": _SYSTEM}]
    messages += [
        {"role": "user", "content": f"{number} " * _TURN_TOKENS} for number in range(prompt_len // _TURN_TOKENS)
    ]
    for turn in range(history.max_per_key + settings.runs):
        ids = ids + [chance.randrange(256) for _ in range(_TURN_TOKENS)]
        messages.append({"role": "user", "content": f"{turn} " * _TURN_TOKENS})
        if turn % 2:
            ids[prompt_len // 2] = turn
            messages[len(messages) // 2]["content"] = str(turn)
        body = ChatCompletionRequest.model_validate({"messages": messages})
        sources = [("device", prompt_len // 2), ("computed", len(ids) - prompt_len // 2)]
        answer = CompletionOutput(0, "", [1] * settings.output_len)
        output = RequestOutput("", None, ids, [answer], sources=sources, metrics=RequestMetrics(0.0))
        began = time.thread_time()
        outline = ChatOutline.of(body, None, shows_tools=True, is_cut=False)
        sent = SentPrompt("m", SentPrompt.pack(output), len(ids), outline=outline)
        history.record("key", str(turn), 0, sent, output, Reading(sources), tokenizer)
        if turn >= history.max_per_key:
            yield time.thread_time() - began


@options()
def main(settings: WhySettings, json: Json = None) -> None:
    """Processor time of a request's record, beside the time to decode its answer."""
    columns = (
        Column("prompt", "prompt", digits=0),
        Column("record_s", "record, ms", scale=1e3, digits=2),
        Column("step_s", "step, ms", scale=1e3, digits=2),
        Column("share", f"share of {settings.output_len} steps, %", scale=100, digits=2),
    )
    report = Report("why", f"Records of requests to {settings.model}", columns)
    report.settings = settings.as_json()
    llm = LLM(settings.model, speculation="off")
    for number, prompt_len in enumerate(settings.prompt_len):
        prompt = Prompt(token_ids=[number] + [5] * (prompt_len - 1))
        params = SamplingParams(temperature=0, max_tokens=settings.output_len, ignore_eos=True)
        times: Any = llm.generate([prompt], params, use_tqdm=False)[0].metrics
        step_s = (times.last_token_time - times.first_token_time) / (settings.output_len - 1)
        records = list(record_times(prompt_len, settings, llm.tokenizer))
        share = summarise(record_s / (settings.output_len * step_s) for record_s in records)
        figures = {"prompt": prompt_len, "record_s": summarise(records), "step_s": step_s, "share": share}
        report.figures.append(figures)
    report.publish(json)


if __name__ == "__main__":
    start(main)
