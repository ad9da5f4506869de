"""The whole RAG experiment on tiny models: retrieval, equal tokens, and no leftovers."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rag import experiment, play, warm
from benchmarks.rag.play import engine_seconds
from benchmarks.rag.settings import RagSettings
from quire.async_engine.host import ThreadHost
from quire.config import EngineConfig
from quire.core.decisions.load_or_compute import LoadOrCompute
from quire.rag import embedder_process, parser_process
from quire.system.child_process import ChildProcess

SMALL, LARGE = "random:tiny", "random:TINY"  # one preset, two engines and two KV directories
DOCUMENTS = {
    "whales.txt": "Whales breathe air and sleep near the surface. Some sing for hours, and others hear them far away.",
    "bridges.txt": "The stone bridge was built by monks. Its seven arches have carried carts and rain for ages.",
    "clocks.txt": "A pendulum clock loses a second when the room grows warm, since its rod grows longer.",
}
QUESTIONS = [
    ("What do whales breathe?", "simple"),
    ("Why do whales sing for hours?", "complex"),
    ("Who built the stone bridge?", "simple"),
    ("Explain how a pendulum clock loses time when it is warm.", "complex"),
    ("How do the arches of the bridge carry so many carts?", "complex"),
    ("Why does the rod of the clock grow longer?", "complex"),
]


class ChildInHere:
    """A `Child` whose worker runs in this process, since starting one with torch takes seconds."""

    def __init__(self, make: Callable[[], Any], *args: Any, **options: Any) -> None:
        self._make = make
        self._answer: Any = None

    def ask(self, question: bytes) -> bytes:
        self._answer = self._answer or self._make()
        return self._answer(question)

    def close(self) -> None:
        self._answer = None


@pytest.fixture
def _engines_in_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(play, "ProcessHost", ThreadHost)
    for module in (warm, embedder_process, parser_process):
        monkeypatch.setattr(module, "WorkerProcess", ChildInHere)
    monkeypatch.setattr("quire.assembly.engine.quick_profile", lambda *args, **options: None)
    # Blocks on disk are loaded, however long that takes beside other tests.
    monkeypatch.setattr(LoadOrCompute, "split", lambda self, first, start, tiers, num_tokens: start)
    monkeypatch.setattr(LoadOrCompute, "is_load_late", lambda self, start, end, tiers: False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def write_inputs(directory: Path) -> tuple[Path, Path]:
    place, questions = directory / "documents", directory / "questions.jsonl"
    place.mkdir()
    for name, text in DOCUMENTS.items():
        (place / name).write_text(text)
    lines = [json.dumps({"question": text, "label": label, "task": "query"}) for text, label in QUESTIONS]
    questions.write_text("\n".join(lines))
    return place, questions


def settings_for(place: Path, questions: Path, **more: Any) -> RagSettings:
    return RagSettings(
        documents=(place,),
        questions=questions,
        embedder="hashing",
        models=f"small={SMALL},large={LARGE}",
        output_len=3,
        interval_ms=1,
        **more,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("_engines_in_here")
def test_every_way_gives_the_same_tokens_and_warm_finds_all_documents_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "rag.json"
    settings = settings_for(*write_inputs(tmp_path), policy="query")
    assert experiment.run(EngineConfig(SMALL, num_kv_blocks=200, num_threads=1), settings, path)
    result = json.loads(path.read_text())
    by_way = {figure["kv"]: figure for figure in result["figures"]}
    assert list(by_way) == ["no documents", "off", "cold", "warm"]
    assert all(by_way[way]["num_different"] == 0 for way in ("off", "cold", "warm"))
    hits = {way: figure["hits"]["disk"] for way, figure in by_way.items()}
    assert hits["no documents"] == hits["off"] == 0
    assert hits["warm"] > 0.3
    assert by_way["no documents"]["document_tokens"] == 0
    (policy,) = result["policies"]
    assert policy["right_split"] == pytest.approx({"small": 1 / 3, "large": 2 / 3})
    assert sum(policy["num_documents"].values()) == 5  # each model reads whales and bridges, the large one clocks
    assert by_way["warm"]["loaded_bytes"] >= result["warm_bytes"] > 0  # the clocks are asked about twice
    assert not list((tmp_path / "temporary").iterdir())


def test_processor_time_of_engines_is_seen() -> None:
    child = ChildProcess("engine")
    try:
        deadline = time.monotonic() + 60
        while not engine_seconds():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        child.close()
