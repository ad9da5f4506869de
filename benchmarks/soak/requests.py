"""Requests of the soak, derived from a seed, and checks of their answers."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak.agents import CHAT, COMPLETIONS, plan_agent, plan_hostile, problem_of_agent

MODEL = "quire-mini"
SHARE_CANCELLED, SHARE_MALFORMED, SHARE_OF_AGENTS, SHARE_HOSTILE = 0.2, 0.1, 0.1, 0.005
_JSON = {"Content-Type": "application/json"}

_PEOPLE = "Ines Haddad", "Tom Haddad", "Ann Verrow", "Ruth Verrow", "Omar Castell", "Lena Brandt"
_PLACES = "Marlow", "Ashby", "Port Ellis", "Kestrel Bay", "Oldham", "Fenwick"
_TRADES = "keeps the ferry", "bakes bread", "mends clocks", "sells maps", "paints boats", "teaches music"
#: Prefixes that many requests share; each is a few blocks long.
PASSAGES = [
    " ".join(f"{_PEOPLE[(i + j) % 6]} {_TRADES[(2 * i + j) % 6]} in {_PLACES[(i + 3 * j) % 6]}." for j in range(6))
    for i in range(6)
]
_STOPS = (".", " the", "\n", "e")


@dataclass(frozen=True)
class Planned:
    """One request.

    Attributes:
        body: the JSON body; None sends `content` unchanged.
        leave_after_s: time after which the client disconnects.
        is_malformed: the request must get a 4xx.
        is_of_agent: it has a schema or tools.
        question: name of a repeated greedy question, whose answer never changes.
    """

    path: str
    body: dict[str, Any] | None = None
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: dict(_JSON))
    leave_after_s: float | None = None
    is_malformed: bool = False
    is_of_agent: bool = False
    question: str | None = None

    @property
    def is_streamed(self) -> bool:
        return bool(self.body and self.body.get("stream"))


def plan(seed: int, number: int) -> Planned:
    """Request `number` of a client."""
    rng = random.Random(f"{seed}-{number}")
    lot = rng.random()
    if lot < SHARE_MALFORMED:
        return _malformed(rng)
    if lot > 1 - SHARE_OF_AGENTS:
        messages = _messages(rng.randrange(len(PASSAGES)), 0)
        if lot > 1 - SHARE_HOSTILE:
            return Planned(*plan_hostile(rng, MODEL, messages), is_malformed=True)
        return Planned(*plan_agent(rng, MODEL, messages), is_of_agent=True)
    body, path = _body(rng)
    if lot < SHARE_MALFORMED + SHARE_CANCELLED:
        body |= {"max_tokens": 200, "ignore_eos": True}
        return Planned(path, body, leave_after_s=rng.choice((0.001, 0.02, 0.1, 0.5, 1.0)) * rng.random() * 2)
    if rng.random() < 0.2:
        number = rng.randrange(len(PASSAGES))
        asked = {"temperature": 0, "max_tokens": 12, "stream": rng.random() < 0.5, "model": MODEL}
        return Planned(CHAT, {"messages": _messages(number, 0), **asked}, question=f"passage {number}")
    return Planned(path, body)


def _messages(passage: int, person: int) -> list[dict[str, Any]]:
    question = f"Context: {PASSAGES[passage]}\nQuestion: Where does {_PEOPLE[person]} work?"
    return [{"role": "user", "content": question}]


def _body(rng: random.Random) -> tuple[dict[str, Any], str]:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": rng.randint(1, 40), "ignore_eos": rng.random() < 0.5}
    body |= {"temperature": 0} if rng.random() < 0.5 else {"temperature": 1, "top_p": 0.9, "seed": rng.randrange(1000)}
    if rng.random() < 0.25:
        body["n"] = rng.randint(2, 4)
    if rng.random() < 0.2:
        body["stop"] = rng.sample(_STOPS, rng.randint(1, 2))
    if rng.random() < 0.1:
        body["priority"] = rng.randint(-2, 2)
    if rng.random() < 0.1:
        body |= {"repetition_penalty": 1.2, "min_p": 0.05, "top_k": 50}
    if rng.random() < 0.5:
        body["stream"] = True
        if rng.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
    passage, person, has_logprobs = rng.randrange(len(PASSAGES)), rng.randrange(len(_PEOPLE)), rng.random() < 0.2
    if rng.random() < 0.5:
        body["messages"] = _messages(passage, person)
        body |= {"logprobs": True, "top_logprobs": 3} if has_logprobs else {}
        return body, CHAT
    text = f"Context: {PASSAGES[passage]}\nQuestion: What does {_PEOPLE[person]} do?\nAnswer:"
    ids = [300 + passage] * 20 + [rng.randrange(300, 4000) for _ in range(rng.randint(1, 60))]
    body["prompt"] = rng.choice([text, text, ids, [text, "Hello"], [ids, ids[:30]]])
    body |= {"logprobs": 2} if has_logprobs else {}
    if rng.random() < 0.2 and not (has_logprobs and "stream" in body):
        body["echo"] = True
    return body, COMPLETIONS


def _malformed(rng: random.Random) -> Planned:
    path = rng.choice((CHAT, COMPLETIONS))
    good = {"model": MODEL, "prompt": "Hello"} if path == COMPLETIONS else {"model": MODEL, "messages": _messages(0, 0)}
    prompt = "prompt" if path == COMPLETIONS else "messages"
    whole = json.dumps(good).encode()
    bad: list[dict[str, Any] | bytes] = [
        b"", b"null", b"[]", b"{", whole[:-1], whole + b"}", b"[" * 5000, b"\xff\xfe" + whole, whole[:-2] + b"\xc3\"}",
        whole.replace(b"Hello", b"\\ud800") if prompt == "prompt" else b'{"messages": "\\ud800"}',
        {**good, "max_tokens": -1}, {**good, "max_tokens": "many"}, json.dumps({**good, "max_tokens": 1e400}).encode(),
        {**good, "temperature": -1}, {**good, "top_p": 0}, {**good, "n": 0}, {**good, "n": 5000}, {**good, "n": 900},
        {**good, "stop": [""]}, {**good, "stop": ["x"] * 100}, {**good, "stop_token_ids": [-1]},
        {**good, "logit_bias": {"999999": 1}}, {**good, "logit_bias": {"x": 1}}, {**good, "allowed_token_ids": []},
        {**good, "seed": 2**70}, {**good, "stream": "yes"}, {**good, "stream_options": {"include_usage": True}},
        {**good, "no_such_field": 1}, {**good, "model": "no-such-model"}, {**good, "tools": [{"type": "function"}]},
        {**good, "best_of": 7}, {**good, prompt: []}, {**good, prompt: None}, {**good, prompt: 5}, {**good, prompt: ""},
        {**good, prompt: [[]]}, {**good, prompt: [[-1]]}, {**good, prompt: [10**9]}, {**good, prompt: "word " * 20_000},
        {**good, prompt: [300] * 60_000}, {**good, "prompt_logprobs": 1, "stream": True},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ]  # fmt: skip
    ways = [
        Planned("/v1/no-such-path", good, is_malformed=True),
        Planned(path, content=whole, headers={"Content-Type": "text/plain"}, is_malformed=True),
        Planned(path, content=whole, headers={}, is_malformed=True),
        Planned(path, content=b"x" * 9_000_000, is_malformed=True),
        Planned("/tokenize", {"prompt": "x", "messages": []}, is_malformed=True),
        Planned("/detokenize", {"tokens": ["Hello"]}, is_malformed=True),
    ]
    for each in bad:
        is_raw = isinstance(each, bytes)
        ways.append(
            Planned(path, content=each, is_malformed=True) if is_raw else Planned(path, each, is_malformed=True)  # type: ignore[arg-type]
        )
    return rng.choice(ways)


@dataclass
class Received:
    """A response: one JSON object, or the data of a stream's events."""

    status: int
    text: str = ""
    events: list[str] = field(default_factory=list)


def texts_of(received: Received) -> list[str]:
    """The text of each choice."""
    texts: dict[int, str] = {}
    for part in _parts(received):
        for choice in part["choices"]:
            shown = choice.get("message") or choice.get("delta") or choice
            text = shown.get("content" if "message" in choice or "delta" in choice else "text") or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + text
    return [texts[index] for index in sorted(texts)]


def problem(planned: Planned, received: Received) -> str | None:
    """The problem of an answer, if there is one."""
    if received.status >= 500:
        return f"{received.status}: {received.text[:300]}"
    if planned.is_malformed:
        if not 400 <= received.status < 500:
            return f"{received.status} for what is malformed"
        error = json.loads(received.text)["error"]
        return None if error["message"] and error["type"] else f"an error without words: {error}"
    if received.status != 200:
        return f"{received.status}: {received.text[:300]}"
    if planned.is_of_agent:
        return problem_of_agent(planned.path, planned.body or {}, _parts(received))
    if planned.is_streamed and received.events[-1:] != ["[DONE]"]:
        return f"a stream that ends with {received.events[-1:]}"
    return _problem_of_answer(planned.body or {}, received)


def _problem_of_answer(body: dict[str, Any], received: Received) -> str | None:
    parts = _parts(received)
    if failed := [part["error"] for part in parts if "error" in part]:
        return f"an error in a stream: {failed[0]}"
    choices = [choice for part in parts for choice in part["choices"]]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    prompt = body.get("prompt")
    num_prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    expected = num_prompts * body.get("n", 1)
    if len(reasons) != expected or not set(reasons) <= {"stop", "length"}:
        return f"{expected} answers were asked for, which ended with {reasons}"
    if not body.get("echo") and any(stop in text for stop in body.get("stop", ()) for text in texts_of(received)):
        return "a stop string in the answer"
    if body.get("logprobs") is not None and not body.get("echo") and not any(choice["logprobs"] for choice in choices):
        return "no logprobs"
    usage = next((part["usage"] for part in reversed(parts) if part.get("usage")), None)
    if usage is None:
        return "no usage" if not body.get("stream") or "stream_options" in body else None
    if not expected <= usage["completion_tokens"] <= expected * body["max_tokens"]:
        return f"{usage['completion_tokens']} tokens for {expected} answers of up to {body['max_tokens']}"
    return None


def _parts(received: Received) -> list[dict[str, Any]]:
    if received.events:
        return [json.loads(event) for event in received.events if event != "[DONE]"]
    return [json.loads(received.text)]
