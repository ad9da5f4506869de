"""Endpoints beside those that generate: probes, models, tokens, templates, embeddings and collections.

Every answer must be a success, and the same request gets the same answer; only clocks, loads and metrics may change.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from types import TracebackType
from typing import Any

import httpx

from benchmarks.soak.requests import MODEL, PASSAGES

_PATIENCE_S = 120
_PAUSE_S = 0.1
#: Paths whose answers change with time.
_VARIABLE = "/metrics", "/load", "/v1/models", f"/v1/models/{MODEL}", "/health", "/readyz"
_EMBEDDING = "/v1/embeddings"
_PATHS = (
    *("/livez", "/readyz", "/health", "/version", "/load", "/metrics", "/openapi.json", "/", "/docs"),
    *("/v1/models", f"/v1/models/{MODEL}", f"/props?model={MODEL}", f"/tokenizer_info?model={MODEL}"),
)
_QUESTION = [{"role": "user", "content": PASSAGES[0]}]


class Endpoints:
    """A thread that asks all other endpoints in random order.

    Args:
        has_embedder: ask for embeddings, too.

    Attributes:
        counts: numbers of requests by path.
        problems: failures, and answers that changed.
    """

    def __init__(self, url: str, seed: int, *, has_embedder: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._url = url
        self._rng = random.Random(seed)
        self._answers: dict[str, Any] = {}
        self._bodies = [*_bodies(), *(_embeddings() if has_embedder else ())]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Endpoints:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as client:
            while not self._is_over.wait(_PAUSE_S):
                path, body = self._rng.choice([*((path, None) for path in _PATHS), *self._bodies])
                self.counts[path] += 1
                try:
                    answer = client.get(path) if body is None else client.post(path, json=body)
                except httpx.HTTPError as error:
                    self.problems.append(f"{path} was not answered: {error!r}")
                    continue
                if not answer.is_success:
                    self.problems.append(f"{path} got {answer.status_code}: {answer.text:.300} <- {body!s:.200}")
                elif path not in _VARIABLE:
                    self._compare(f"{path} {body}", answer)

    def _compare(self, asked: str, answer: httpx.Response) -> None:
        shown: Any = answer.text
        if asked.startswith(_EMBEDDING):
            shown = [each["embedding"] for each in answer.json()["data"]]
        if self._answers.setdefault(asked, shown) != shown:
            self.problems.append(f"{asked:.200} has several answers: {self._answers[asked]!s:.200}, {shown!s:.200}")


def _bodies() -> list[tuple[str, dict[str, Any]]]:
    return [
        *(("/tokenize", {"model": MODEL, "prompt": text, "return_token_strs": True}) for text in PASSAGES),
        ("/tokenize", {"model": MODEL, "messages": _QUESTION}),
        ("/detokenize", {"model": MODEL, "tokens": [*range(300, 400)]}),
        ("/apply-template", {"model": MODEL, "messages": _QUESTION}),
        ("/v1/messages/count_tokens", {"model": MODEL, "messages": _QUESTION}),
    ]


def _embeddings() -> list[tuple[str, dict[str, Any]]]:
    return [
        (_EMBEDDING, {"input": PASSAGES[:2]}),
        (_EMBEDDING, {"input": PASSAGES[2], "encoding_format": "base64"}),
        (_EMBEDDING, {"input": "word " * 2000, "truncate_prompt_tokens": 20}),
    ]
