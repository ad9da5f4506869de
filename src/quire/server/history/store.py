"""`RequestHistory`: the recent requests of each API key, bounded in number and memory."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.outputs import COMPUTED, RequestOutput
from quire.server.bodies.requests import NEW, DivergenceReply, FoundTokens, RequestReply, RibbonPart
from quire.server.history.divergence import Divergence, Reading, SentPrompt, find_divergence
from quire.system.fair_executor import FairExecutor

MAX_BYTES_PER_KEY = 8 << 20  #: of prompts' token ids
MAX_BYTES = 64 << 20  #: of all keys
_RECORD_BYTES = 4096  #: of a request without its tokens
_SHOWN_TOKENS = 24  #: of a difference, on each side
_SHOWN_CHARACTERS = 160

#: Receives the model, and the computed prompt tokens by cause.
CountCauses = Callable[[str, Mapping[str, int]], None]


@dataclass(slots=True)
class _KeyHistory:
    """The requests of one key, the oldest first."""

    requests: OrderedDict[str, tuple[RequestReply, SentPrompt]] = field(default_factory=OrderedDict)
    num_bytes: int = 0


class RequestHistory:
    """Thread-safe. A request is only compared with, and shown to, its own key. Without room the oldest requests of the
    key go, and those of the key with most bytes.

    Args:
        max_per_key: number of requests to keep of a key.
    """

    def __init__(self, max_per_key: int, on_causes: CountCauses | None = None) -> None:
        self.max_per_key = max_per_key
        self.num_bytes = 0
        self.executor = FairExecutor("requests")  #: of `record`, with the key as the owner
        self._on_causes = on_causes
        self._keys: dict[str, _KeyHistory] = {}
        self._lock = threading.Lock()

    def find(self, key_id: str, request_id: str) -> RequestReply | None:
        """Return a request of a key; None if the key has none of that id."""
        with self._lock:
            kept = self._of(key_id).requests.get(request_id)
            return None if kept is None else kept[0]

    def recent(self, key_id: str, limit: int) -> list[RequestReply]:
        """Return the last requests of a key, the newest first."""
        with self._lock:
            kept = list(self._of(key_id).requests.values())
        return [reply for reply, _ in kept[-limit:]][::-1]

    def record(
        self,
        key_id: str,
        request_id: str,
        created: int,
        prompt: SentPrompt,
        output: RequestOutput,
        reading: Reading,
        tokenizer: Any = None,
    ) -> RequestReply:
        """Compare a finished request with the earlier ones of its key, and keep it. Takes some milliseconds at most."""
        with self._lock:
            earlier = [sent for _, sent in reversed(self._of(key_id).requests.values())]
        found = find_divergence(prompt, reading, earlier)
        by_source = Counter[str]()
        for source, number in output.sources:
            by_source[source] += number
        times, causes = output.metrics, Counter({NEW: by_source[COMPUTED]})
        first = times.first_token_time if times is not None else None
        if found is not None:
            num_again = found.num_tokens or by_source[COMPUTED]
            causes += Counter({found.cause: num_again, NEW: -num_again})
        if self._on_causes is not None:
            self._on_causes(prompt.model, causes)
        reply = RequestReply(
            id=request_id,
            model=prompt.model,
            created=created,
            prompt_tokens=prompt.num_prompt_tokens,
            output_tokens=sum(len(completion.token_ids) for completion in output.outputs),
            ttft_s=first - times.arrival_time if times is not None and first is not None else None,
            found=FoundTokens(**{name: by_source[name] for name in FoundTokens.model_fields}),
            ribbon=[RibbonPart(source=source, tokens=number) for source, number in output.sources],  # type: ignore[arg-type]
            missed_s=times.missed_s if times is not None else None,
            divergence=_show(found, prompt, tokenizer),
        )
        self._keep(key_id, reply, prompt)
        return reply

    def _of(self, key_id: str) -> _KeyHistory:
        return self._keys.get(key_id) or _KeyHistory()

    def _keep(self, key_id: str, reply: RequestReply, prompt: SentPrompt) -> None:
        with self._lock:
            own = self._keys.setdefault(key_id, _KeyHistory())
            self._drop(own, reply.id)
            own.requests[reply.id] = reply, prompt
            self._count(own, _size(reply, prompt))
            while own.requests and (len(own.requests) > self.max_per_key or own.num_bytes > MAX_BYTES_PER_KEY):
                self._drop(own, next(iter(own.requests)))
            while self.num_bytes > MAX_BYTES:
                largest = max(self._keys.values(), key=lambda each: each.num_bytes)
                self._drop(largest, next(iter(largest.requests)))

    def _drop(self, own: _KeyHistory, request_id: str) -> None:
        if (kept := own.requests.pop(request_id, None)) is not None:
            self._count(own, -_size(*kept))

    def _count(self, own: _KeyHistory, num_bytes: int) -> None:
        own.num_bytes += num_bytes
        self.num_bytes += num_bytes


def _size(reply: RequestReply, prompt: SentPrompt) -> int:
    return _RECORD_BYTES + len(reply.id) + prompt.num_bytes + 512 * len(reply.ribbon)


def _show(found: Divergence | None, prompt: SentPrompt, tokenizer: Any) -> DivergenceReply | None:
    if found is None:
        return None
    texts = []
    for each in (found.earlier, prompt):
        ids = [] if each is None else each.token_ids(found.token, found.token + _SHOWN_TOKENS)
        text = tokenizer.decode(ids, skip_special_tokens=False) if ids and tokenizer is not None else ""
        texts.append(text[:_SHOWN_CHARACTERS])
    return DivergenceReply(
        token=found.token, before=texts[0], after=texts[1], cause=found.cause, explanation=found.explanation
    )
