"""A server under load: its model, its limits and the format of its requests. `prepare` shows mistakes early."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from quire.bench.serving.load_client import LoadClient, PreparedRequest, RequestOutcome
from quire.bench.serving.words import WordLength, as_words
from quire.bench.workload import Workload, WorkloadRequest
from quire.client.errors import RemoteError
from quire.client.remote_model import RemoteModel
from quire.client.server_address import ServerAddress

_FEW_WORDS, _MANY_WORDS = 8, 32  # prompt lengths that measure the tokens of a word


@dataclass(frozen=True)
class Target:
    """A server, its model, and the format of its requests."""

    label: str  #: unique name
    endpoint: ServerAddress
    model: str
    is_chat: bool = False  #: chat endpoint, with the prompt as the user's message
    max_model_len: int | None = None
    vocab_size: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  #: further fields of every request
    word_length: WordLength | None = None  #: prompts are words; None sends token ids
    includes_usage: bool = True  #: supports `stream_options`

    @property
    def url(self) -> str:
        return self.endpoint.chat_url if self.is_chat else self.endpoint.completions_url

    def write(self, request: WorkloadRequest, workload: Workload) -> PreparedRequest:
        ids = request.prompt_token_ids
        prompt: str | list[int] = ids
        if self.word_length is not None:
            prompt = as_words(ids, self.word_length.words_for(len(ids)))
        body: dict[str, Any] = {"model": self.model}
        body |= {"messages": [{"role": "user", "content": prompt}]} if self.is_chat else {"prompt": prompt}
        body |= {"max_tokens": request.max_tokens, "temperature": 0.0 if workload.greedy else 1.0, "stream": True}
        if workload.ignore_eos:
            body["ignore_eos"] = True
        if self.includes_usage:
            body["stream_options"] = {"include_usage": True}
        content = json.dumps({**body, **self.extra}).encode()
        return PreparedRequest(request.arrival_s, content, len(ids), request.max_tokens)

    def check_fit(self, workload: Workload) -> None:
        """Raise ValueError if a request is longer than the server's `max_model_len`."""
        longest = max(len(request.prompt_token_ids) + request.max_tokens for request in workload.requests)
        if self.max_model_len is not None and longest > self.max_model_len:
            raise ValueError(
                f"the longest request has {longest:,} tokens, prompt and answer, and {self.label} takes "
                f"{self.max_model_len:,}; shorten them with --length-scale, or --max-input-len and --max-output-len "
                "(a trace), or --input-len and --output-len"
            )


def find_target(
    text: str, api_key: str | None, model: str | None, *, is_chat: bool, extra: Mapping[str, Any]
) -> Target:
    """Find a server by URL or LABEL=URL, and its first model where none is named. ValueError if it has none."""
    named = re.fullmatch(r"([^=:/]+)=(https?://.*)", text)
    endpoint = ServerAddress.of(named[2] if named else text, api_key)
    try:
        with RemoteModel(endpoint, name="") as remote:
            served = remote.models()
    except RemoteError as error:
        raise ValueError(f"cannot measure: {error}") from None
    found = next((entry for entry in served if entry.name == model), None) if model is not None else served[0]
    if found is None:
        raise ValueError(f"{endpoint.base_url} has no model {model!r}; it has {', '.join(m.name for m in served)}")
    label = named[1] if named else found.name
    return Target(label, endpoint, found.name, is_chat, found.max_model_len, found.vocab_size, extra)


async def prepare(
    target: Target,
    workload: Workload,
    *,
    as_text: bool,
    timeout_s: float = 600.0,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Target:
    """Warm a server up with prompts outside the workload; learn its token counts. ValueError if it rejects them."""
    client = LoadClient(target.endpoint, target.url, timeout_s=timeout_s, transport=transport)
    if as_text:
        target = replace(target, word_length=WordLength())  # one token per word until measured

    few, target = await _ask(client, target, workload, _FEW_WORDS if as_text else 8)
    if as_text:
        many, target = await _ask(client, target, workload, _MANY_WORDS)
        if few is not None and many is not None:
            measured = WordLength.measured((_FEW_WORDS, few), (_MANY_WORDS, many))
            target = replace(target, word_length=measured)
    return target


async def _ask(client: LoadClient, target: Target, workload: Workload, num_tokens: int) -> tuple[int | None, Target]:
    """Returns the prompt's tokens by the server's count, and the target with adjusted format."""
    some = sorted(workload.requests[0].prompt_token_ids, reverse=True)
    request = WorkloadRequest([some[i % len(some)] for i in range(num_tokens)], 2)
    outcome = await client.ask(target.write(request, workload).body)
    if outcome.error in ("http_400", "http_422") and "stream_options" in str(outcome.error_message):
        target = replace(target, includes_usage=False)
        outcome = await client.ask(target.write(request, workload).body)
    if outcome.error is not None:
        raise ValueError(f"cannot measure {target.label}: {outcome.error_message}{_hint(target, workload, outcome)}")
    return outcome.num_prompt_tokens if outcome.num_counted_tokens is not None else None, target


def _hint(target: Target, workload: Workload, outcome: RequestOutcome) -> str:
    if not str(outcome.error).startswith("http_4"):
        return ""
    if workload.ignore_eos and "ignore_eos" in str(outcome.error_message):
        return " (--no-ignore-eos leaves that field out; answers may then end early)"
    if target.word_length is None:
        return " (prompts are token ids; --vocab-size says how many the model has, --text sends words instead)"
    return ""
