"""Workload files: requests as token ids, readable for any engine.

    {"name": "W2", "note": "32 at once", "greedy": true, "ignore_eos": true,
     "requests": [{"prompt_token_ids": [5779, 6589], "max_tokens": 64, "arrival_s": 0.5}]}

`note` and `arrival_s` are optional.
"""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from quire.bench.files import writing

#: Above the special tokens and bytes of usual tokenizers, and inside usual vocabularies.
TOKEN_IDS = range(300, 15_900)
SHIFT = 977  #: a prime: shifts repeat only after as many repetitions as token ids

_TRACE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def poisson_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Arrival times in seconds: the first at 0, the others by a Poisson process with this rate per second."""
    rng = random.Random(seed)
    due_s = [0.0]
    while len(due_s) < count:
        due_s.append(due_s[-1] + rng.expovariate(rate))
    return due_s


@dataclass(frozen=True)
class WorkloadRequest:
    """One request. With the workload's `ignore_eos`, its answer has exactly `max_tokens` tokens."""

    prompt_token_ids: list[int]
    max_tokens: int
    arrival_s: float = 0.0  #: seconds after the start


@dataclass(frozen=True)
class Workload:
    """Requests and their sampling."""

    name: str
    requests: list[WorkloadRequest]
    greedy: bool = True
    ignore_eos: bool = True
    note: str = ""

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(request.prompt_token_ids) for request in self.requests)

    @property
    def num_output_tokens(self) -> int:
        return sum(request.max_tokens for request in self.requests)

    def shifted(self, repetition: int, ids: range = TOKEN_IDS) -> Workload:
        """Shift all token ids by `repetition * SHIFT` within `ids`: caches of earlier repetitions have no hits."""
        offset = repetition * SHIFT - ids.start
        requests = []
        for request in self.requests:
            tokens = [ids[(token + offset) % len(ids)] for token in request.prompt_token_ids]
            requests.append(replace(request, prompt_token_ids=tokens))
        return replace(self, requests=requests)


@dataclass(frozen=True)
class Lengths:
    """Request lengths: parallel lists of prompt tokens, output tokens and arrival times."""

    prompt: list[int]
    output: list[int]
    arrival_s: list[float] = field(default_factory=list)  #: empty: all at once

    def __len__(self) -> int:
        return len(self.prompt)

    def first(self, count: int | None) -> Lengths:
        """The first `count` requests; None takes all."""
        return Lengths(self.prompt[:count], self.output[:count], self.arrival_s[:count])


def read_workload(path: str | Path) -> Workload:
    """Read and check a workload file. A ValueError names the request and the expected value."""
    text = read_text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("requests"), list):
        raise ValueError(f'{path} is not a workload: expected {{"name": ..., "requests": [...]}}')
    _refuse_unknown(data, {"name", "note", "greedy", "ignore_eos", "requests"}, str(path))
    for key in ("greedy", "ignore_eos"):
        if not isinstance(data.get(key, True), bool):
            raise ValueError(f"{path}: {key} is {data[key]!r}, expected true or false")
    for key in ("name", "note"):
        if not isinstance(data.get(key, ""), str):
            raise ValueError(f"{path}: {key} is {data[key]!r}, expected text")
    if not data["requests"]:
        raise ValueError(f"{path} has no requests")
    return Workload(
        name=data.get("name") or Path(path).stem,
        requests=[_read_request(entry, f"{path}, request {i}") for i, entry in enumerate(data["requests"])],
        greedy=data.get("greedy", True),
        ignore_eos=data.get("ignore_eos", True),
        note=data.get("note", ""),
    )


def write_workload(workload: Workload, path: str | Path) -> None:
    requests: list[dict[str, Any]] = []
    has_arrivals = any(request.arrival_s for request in workload.requests)
    for request in workload.requests:
        entry: dict[str, Any] = {"prompt_token_ids": request.prompt_token_ids, "max_tokens": request.max_tokens}
        requests.append({**entry, "arrival_s": request.arrival_s} if has_arrivals else entry)
    data: dict[str, Any] = {"name": workload.name, "note": workload.note}
    data |= {"greedy": workload.greedy, "ignore_eos": workload.ignore_eos, "requests": requests}
    with writing(Path(path)) as file:
        file.write(json.dumps(data) + "\n")


def fixed_lengths(count: int, prompt: int, output: int) -> Lengths:
    return uniform_lengths(count, (prompt, prompt), (output, output))


def uniform_lengths(count: int, prompt: tuple[int, int], output: tuple[int, int], *, seed: int = 0) -> Lengths:
    """`count` requests with lengths drawn evenly from inclusive ranges."""
    if count < 1:
        raise ValueError(f"{count} requests make no workload; ask for at least 1")
    for name, (low, high) in (("prompt", prompt), ("output", output)):
        if not 1 <= low <= high:
            raise ValueError(f"{name} lengths from {low} to {high}: expected 1 <= low <= high")
    rng = random.Random(seed)
    return Lengths([rng.randint(*prompt) for _ in range(count)], [rng.randint(*output) for _ in range(count)])


def read_trace(path: str | Path) -> Lengths:
    """Read lengths and sorted arrivals from a CSV in the Azure LLM inference trace's format, or raise ValueError."""
    rows: list[tuple[datetime, int, int]] = []
    reader = csv.DictReader(read_text(path).splitlines())
    missing = [name for name in _TRACE_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; a trace begins with {','.join(_TRACE_COLUMNS)}")
    for row in reader:
        try:
            arrival = datetime.fromisoformat(row["TIMESTAMP"])
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            if rows and (arrival.tzinfo is None) != (rows[0][0].tzinfo is None):
                raise ValueError("some times have a zone and some have none")
            if prompt < 1 or output < 1:
                raise ValueError("a request has at least one prompt token and one generated token")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
        rows.append((arrival, prompt, output))
    if not rows:
        raise ValueError(f"{path} has no requests")
    rows.sort(key=lambda row: row[0])
    return Lengths(
        prompt=[prompt for _, prompt, _ in rows],
        output=[output for _, _, output in rows],
        arrival_s=[(arrival - rows[0][0]).total_seconds() for arrival, _, _ in rows],
    )


def token_range(vocab_size: int | None) -> range:
    """The token ids of workloads: `TOKEN_IDS`, or those of a small vocabulary. None is a usual vocabulary."""
    if vocab_size is None:
        return TOKEN_IDS
    return range(vocab_size)[TOKEN_IDS.start : TOKEN_IDS.stop] or range(vocab_size)


def make_workload(
    name: str, lengths: Lengths, *, shared_prefix: int = 0, seed: int = 0, ids: range = TOKEN_IDS
) -> Workload:
    """Draw random token ids in the given lengths, with a common prefix."""
    shortest = min(lengths.prompt)
    if not 0 <= shared_prefix <= shortest:
        raise ValueError(f"a shared prefix of {shared_prefix} tokens does not fit in a prompt of {shortest}")
    rng = random.Random(seed)

    def draw(count: int) -> list[int]:
        return [rng.choice(ids) for _ in range(count)]

    prefix = draw(shared_prefix)
    arrivals: Sequence[float] = lengths.arrival_s or [0.0] * len(lengths)
    requests = [
        WorkloadRequest(prefix + draw(prompt - shared_prefix), output, arrival)
        for prompt, output, arrival in zip(lengths.prompt, lengths.output, arrivals, strict=True)
    ]
    return Workload(name, requests)


def read_text(path: str | Path) -> str:
    """Read a file; raise ValueError if that fails."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"cannot read {path}: {reason}") from None


def _refuse_unknown(entry: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where} has the unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _read_request(entry: Any, where: str) -> WorkloadRequest:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is {type(entry).__name__}, expected an object")
    _refuse_unknown(entry, {"prompt_token_ids", "max_tokens", "arrival_s"}, where)
    prompt: Any = entry.get("prompt_token_ids")
    max_tokens: Any = entry.get("max_tokens")
    arrival: Any = entry.get("arrival_s", 0.0)
    if not isinstance(prompt, list) or not prompt or not all(_is_int(token) and token >= 0 for token in prompt):
        raise ValueError(f"{where}: prompt_token_ids must be a list of at least one token id (integers from 0 on)")
    if not _is_int(max_tokens) or max_tokens < 1:
        raise ValueError(f"{where}: max_tokens is {max_tokens!r}, expected an integer from 1 on")
    if isinstance(arrival, bool) or not isinstance(arrival, int | float) or not math.isfinite(arrival) or arrival < 0:
        raise ValueError(f"{where}: arrival_s is {arrival!r}, expected seconds from 0 on")
    return WorkloadRequest(prompt, max_tokens, float(arrival))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
