"""What measuring a server may be asked: the options of `quire bench serve` and `quire bench http`.

Imports nothing but how settings are defined, as `bench/settings.py`.
"""

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
    model: str | None = setting(None, "The server's name for a model; by default its first one.")
    api_key: str | None = setting(None, "The key that the servers want.", envvar="QUIRE_API_KEY", repr=False)
    chat: bool = setting(False, "Ask /v1/chat/completions; by default /v1/completions.", is_flag=True)
    request_rate: float | None = setting(None, "Requests a second on average; inf lets all come at once.", above=0)
    sweep: tuple[float, ...] | None = setting(
        None, "Several request rates, one after another.", read=numbers, metavar="RATE[,RATE...]", above=0
    )
    burstiness: float = setting(
        1.0, "Shape of the gamma-distributed gaps: 1 is Poisson, less is burstier.", above=0, below=math.inf
    )
    duration_s: float | None = setting(
        None, "Seconds for which requests come; 60 if nothing else bounds them.", name="duration", above=0
    )
    num_requests: int | None = setting(None, "Number of requests, or of the first ones of a file.", at_least=1)
    trace: Path | None = setting(None, "Times and lengths from a trace CSV (Azure's form).")
    time_scale: float = setting(
        1.0, "The trace's times are multiplied by this: 0.5 is twice as fast.", above=0, below=math.inf
    )
    length_scale: float = setting(1.0, "The trace's lengths are multiplied by this.", above=0, below=math.inf)
    max_input_len: int | None = setting(None, "The trace's prompts are cut to this.", at_least=1)
    max_output_len: int | None = setting(None, "The trace's answers are cut to this.", at_least=1)
    workload: Path | None = setting(None, "A workload file.")
    input_len: tuple[int, int] = setting("64-512", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: tuple[int, int] = setting("32-128", "Answer lengths, drawn evenly.", read=integer_range)
    shared_prefix: int = setting(0, "First tokens that are the same in all prompts.", at_least=0)
    goodput: Mapping[str, float] | None = setting(
        None, "Count requests within limits in ms: ttft:500,tpot:100,e2el:5000.", read=parse_goodput, metavar="LIMITS"
    )
    text: bool = setting(False, "Prompts are words; by default token ids, where the vocabulary is known.", is_flag=True)
    vocab_size: int | None = setting(None, "Of the model, where the server does not say it; for token ids.", at_least=1)
    ignore_eos: bool = setting(True, "Answers go on to their full length.")
    extra_body: Mapping[str, Any] | None = setting(
        None, "More fields of every request.", read=_json_object, metavar="JSON"
    )
    timeout_s: float = setting(
        600.0, "Seconds after which a request is given up, from when it was due.", name="timeout", above=0
    )
    seed: int = setting(0, "Of arrivals, lengths and prompts.")
    save_requests: Path | None = setting(None, "Write every request's times, a JSON object a line.")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_together(self, "trace", "workload", "burstiness", "input_len", "output_len")
        refuse_together(self, "workload", "input_len", "output_len", "shared_prefix")
        refuse_together(self, "sweep", "request_rate")
        of_trace = self.changed("time_scale", "length_scale", "max_input_len", "max_output_len")
        if self.trace is None and of_trace:
            raise ValueError(f"--{of_trace[0].replace('_', '-')} is for a trace; give --trace FILE, or leave it out")

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The request rates; None is a recording's own."""
        return self.sweep or (self.request_rate,)
