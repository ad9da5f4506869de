"""Documents that are added, changed and deleted while a server answers from them.

No answer may quote a document whose deletion was confirmed before, and a question over the same passages has one greedy
answer, whether their KV was computed, cached or loaded.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from types import TracebackType
from typing import Any

import httpx

from benchmarks.soak.requests import MODEL, PASSAGES

COLLECTION = "soak"
_NUM_ASKERS = 3
_MOST = 12  #: documents at once
_PATIENCE_S = 120
_QUESTION = "Where does Ines Haddad work?"


class Documents:
    """One thread that changes documents and several that ask.

    Attributes:
        counts: numbers of all actions.
        problems: violations.
    """

    def __init__(self, url: str, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._url = url
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._deleted: set[str] = set()  #: marks of texts whose deletion is confirmed
        self._answers: dict[tuple[str, ...], str] = {}
        self._is_over = threading.Event()
        works = [self._change, *[self._ask] * _NUM_ASKERS]
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Documents:
        self._send("POST", "", {"name": COLLECTION}).raise_for_status()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def _run(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.problems.append(f"documents: {error!r}")

    def _change(self) -> None:
        marks: dict[str, str] = {}  #: by document
        number = 0
        while not self._is_over.is_set():
            name = f"document {self._rng.randrange(_MOST)}"
            number += 1
            if name in marks and self._rng.random() < 0.5:
                self._expect(self._send("DELETE", f"/{COLLECTION}/documents/{name}"), "deleted")
                gone = marks.pop(name)
            else:
                mark = f"Mark {number}."
                text = f"{mark} {self._rng.choice(PASSAGES)} " * self._rng.randint(1, 3)
                answer = self._send("POST", f"/{COLLECTION}/documents", {"documents": [{"name": name, "text": text}]})
                self._expect(answer, "put")
                gone, marks[name] = marks.get(name, ""), mark
            with self._lock:
                self._deleted |= {gone} - {""}
            if number % 40 == 0:
                self._expect(self._send("POST", f"/{COLLECTION}/warm", {"endpoint": "completions"}), "warmed")
            self._is_over.wait(0.05)

    def _ask(self) -> None:
        rng = random.Random(self._rng.random())
        while not self._is_over.is_set():
            with self._lock:
                gone = set(self._deleted)
            body = {
                "model": MODEL,
                "prompt": _QUESTION,
                "temperature": 0,
                "max_tokens": 12,
                "retrieval": {"collection": COLLECTION, "top_k": rng.randint(1, 3), "query": rng.choice(PASSAGES)},
            }
            answer = httpx.post(f"{self._url}/v1/completions", json=body, timeout=_PATIENCE_S)
            if not self._expect(answer, "asked"):
                continue
            found = answer.json()
            texts = tuple(each["text"] for each in found["retrieval"]["sources"])
            if quoted := [mark for mark in gone if any(mark in text for text in texts)]:
                self.problems.append(f"{quoted} was deleted, and is quoted")
            tiers = found["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier") or {}
            self.counts["answers with KV from disk"] += "disk" in tiers
            text = found["choices"][0]["text"]
            with self._lock:
                known = self._answers.setdefault(texts, text)
            if known != text:
                self.problems.append(f"{texts!r:.200} has two greedy answers: {known!r}, {text!r}")

    def _send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return httpx.request(method, f"{self._url}/v1/collections{path}", json=body, timeout=_PATIENCE_S)

    def _expect(self, answer: httpx.Response, what: str) -> bool:
        is_well = answer.is_success
        self.counts[what if is_well else f"{what}: {answer.status_code}"] += 1
        if not is_well:
            self.problems.append(f"{what}: {answer.status_code} {answer.text:.300}")
        return is_well
