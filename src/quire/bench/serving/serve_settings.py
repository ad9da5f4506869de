"""Options of `quire bench serve`. The command line reads this file before it answers `--help`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import parse_goodput, refuse_together
from quire.settings import Settings, integer_range, numbers, setting


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f'{text!r} is not a JSON object such as {{"top_k": 5}}')
    return value


@dataclass(frozen=True)
class ServeSettings(Settings):
    """`quire bench serve`."""

    urls: tuple[str, ...] = setting(
        ("http://127.0.0.1:8000",), "A server; several are compared.", name="url", metavar="[NAME=]URL"
    )
    model: str | None = setting(None, "The server's name for a model (default: its first model).")
    api_key: str | None = setting(None, "API key of the servers.", envvar="QUIRE_API_KEY", repr=False)
    chat: bool = setting(False, "Use /v1/chat/completions instead of /v1/completions.", is_flag=True)
    request_rate: float | None = setting(None, "Requests per second on average; inf sends all at once.", above=0)
    sweep: tuple[float, ...] | None = setting(
        None, "Several request rates, one after another.", read=numbers, metavar="RATE[,RATE...]", above=0
    )
    burstiness: float = setting(
        1.0, "Shape of the gamma-distributed gaps: 1 is Poisson, less is burstier.", above=0, below=math.inf
    )
    duration_s: float | None = setting(
        None, "Seconds of arrivals; 60 if nothing else bounds them.", name="duration", above=0
    )
    num_requests: int | None = setting(None, "Number of requests, or first requests of a file.", at_least=1)
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's format).")
    time_scale: float = setting(1.0, "Factor for the trace's times: 0.5 is twice as fast.", above=0, below=math.inf)
    length_scale: float = setting(1.0, "Factor for the trace's lengths.", above=0, below=math.inf)
    max_input_len: int | None = setting(None, "Longest prompt of the trace; longer ones are cut.", at_least=1)
    max_output_len: int | None = setting(None, "Longest answer of the trace; longer ones are cut.", at_least=1)
    workload: Path | None = setting(None, "A workload file.")
    input_len: tuple[int, int] = setting("64-512", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: tuple[int, int] = setting("32-128", "Answer lengths, drawn evenly.", read=integer_range)
    shared_prefix: int = setting(0, "Common first tokens of all prompts.", at_least=0)
    goodput: Mapping[str, float] | None = setting(
        None, "Count requests within limits in ms: ttft:500,tpot:100,e2el:5000.", read=parse_goodput, metavar="LIMITS"
    )
    text: bool = setting(False, "Send words; by default token ids, if the vocabulary size is known.", is_flag=True)
    vocab_size: int | None = setting(None, "Vocabulary size, if the server does not report it.", at_least=1)
    ignore_eos: bool = setting(True, "Generate answers to their full length.")
    extra_body: Mapping[str, Any] | None = setting(
        None, "Further fields of every request.", read=_json_object, metavar="JSON"
    )
    timeout_s: float = setting(600.0, "Seconds from its due time until a request fails.", name="timeout", above=0)
    seed: int = setting(0, "Seed of arrivals, lengths and prompts.")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_together(self, "trace", "workload", "burstiness", "input_len", "output_len")
        refuse_together(self, "workload", "input_len", "output_len", "shared_prefix")
        refuse_together(self, "sweep", "request_rate")
        trace_only = self.changed("time_scale", "length_scale", "max_input_len", "max_output_len")
        if self.trace is None and trace_only:
            raise ValueError(f"--{trace_only[0].replace('_', '-')} is for a trace; give --trace FILE, or leave it out")
