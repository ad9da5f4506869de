"""The history of requests is bounded, whatever clients send, and one key's never touches another's."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest

from quire.outputs import CompletionOutput, RequestMetrics, RequestOutput
from quire.server.history import store
from quire.server.history.divergence import Reading, SentPrompt
from quire.server.history.store import RequestHistory


class Letters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids: list[int], **options: Any) -> str:
        return "".join(map(chr, ids))


def record(history: RequestHistory, key: str, name: str, text: str, found: int = 0, where: str = "device") -> Any:
    ids = list(map(ord, text))
    sources = [(source, number) for source, number in ((where, found), ("computed", len(ids) - found)) if number]
    output = RequestOutput(name, None, ids, [CompletionOutput(0, "", [1])], sources=sources)
    output.metrics = RequestMetrics(1.0, first_token_time=1.5, missed_s=0.25)
    prompt = SentPrompt("m", array("i", ids).tobytes(), len(ids))
    return history.record(key, name, 7, prompt, output, Reading(sources, block_size=4), Letters())


def test_a_record_says_how_a_prompt_was_read_and_causes_add_up_to_what_was_computed() -> None:
    causes = Counter[str]()
    history = RequestHistory(10, lambda model, counts: causes.update(counts))
    record(history, "k", "a", "A prompt that is read for the first time.")
    shown = record(history, "k", "b", "A prompt that is gone on with, as one sees.", found=16).model_dump()
    assert shown == {
        "id": "b",
        "model": "m",
        "created": 7,
        "prompt_tokens": 43,
        "output_tokens": 1,
        "ttft_s": 0.5,
        "found": {"device": 16, "host": 0, "disk": 0, "process": 0, "computed": 27},
        "ribbon": [{"source": "device", "tokens": 16}, {"source": "computed", "tokens": 27}],
        "missed_s": 0.25,
        "divergence": {
            "token": 17,
            "before": "read for the first time.",
            "after": "gone on with, as one see",
            "cause": "prompt_changed",
            "explanation": "The prompt differs from an earlier one from token 17 on.",
        },
    }
    assert causes == {"first": 41, "prompt_changed": 23, "new": 4}
    assert [each.id for each in history.recent("k", 5)] == ["b", "a"]
    assert [each.id for each in history.recent("k", 1)] == ["b"]


def test_kv_from_another_process_is_shown_apart() -> None:
    shown = record(RequestHistory(10), "k", "a", "A prompt that another read.", found=16, where="process").model_dump()
    assert (shown["found"]["disk"], shown["found"]["process"]) == (0, 16)
    assert shown["ribbon"][0] == {"source": "process", "tokens": 16}


def test_a_key_sees_and_is_compared_with_its_own_requests_only() -> None:
    history = RequestHistory(10)
    record(history, "ann", "same", "Something that only Ann knows.")
    bobs = record(history, "bob", "same", "Something that only Bob knows.")
    assert (bobs.divergence.cause, bobs.divergence.before) == ("first", "")
    anns = history.find("ann", "same")
    assert anns is not None
    assert anns is not bobs
    assert history.find("eve", "same") is None
    assert history.recent("eve", 9) == []
    assert "eve" not in history._keys, "asking takes no memory"


def test_memory_is_bounded_and_the_largest_key_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES_PER_KEY", 100_000)
    monkeypatch.setattr(store, "MAX_BYTES", 150_000)
    history = RequestHistory(10)
    record(history, "small", "mine", "Hello")
    for number in range(200):
        record(history, f"key{number % 3}", str(number), f"{number:06}" * 1000)
        record(history, "key0", "x" * 60_000, "a long name, again and again")
        assert history.num_bytes <= 150_000
        assert all(own.num_bytes <= 100_000 and len(own.requests) <= 10 for own in history._keys.values())
    assert history.find("small", "mine") is not None
    for number in range(30):
        record(history, "small", str(number), "Hello")
    assert [each.id for each in history.recent("small", 99)] == [str(number) for number in range(29, 19, -1)]
    record(history, "huge", "huge", "y" * 30_000)
    assert history.recent("huge", 9) == [], "one that is larger than its key's room is not kept"
    assert history.num_bytes == sum(own.num_bytes for own in history._keys.values())
