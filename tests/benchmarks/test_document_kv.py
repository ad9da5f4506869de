"""The document KV benchmark: the limited disk, the order of engines, and raw reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.document_kv import DocumentBench, DocumentKvSettings
from engine.documents import DocumentLLM


def test_a_disk_is_held_to_the_crossing_of_the_moment_and_the_ways_go_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = DocumentLLM("llama", tmp_path)
    bench = DocumentBench(llm.engine, DocumentKvSettings(document_tokens=36, question_tokens=3, runs=3), tmp_path)
    tokens = bench.store()
    asked: list[tuple[str, float | None]] = []
    ask_disk = bench.ask_disk

    def noted(tokens: list[int], way: str) -> object:
        asked.append((way, bench.link.bandwidth))
        return ask_disk(tokens, way)

    monkeypatch.setattr(bench, "ask_disk", noted)
    held = bench.measure_at(tokens, 2.0)
    assert held.bandwidth == pytest.approx(2 * held.crossing)
    assert asked[:3] == [("compute", None)] * 3, "the crossing is measured with the disk as it is"
    assert {bandwidth for _, bandwidth in asked[3:]} == {held.bandwidth}
    turns = [way for way, _ in asked[-9:]]
    assert [turns[i : i + 3] for i in (0, 3, 6)] == [
        ["load", "compute", "chosen"],
        ["compute", "chosen", "load"],
        ["chosen", "load", "compute"],
    ]
    assert [len(seconds) for seconds in held.ttft_s.values()] == [3, 3, 3]
    assert held.loaded == [1.0] * 3, "so its costs say"
    assert len(held.ratios) == 3
    assert bench.link.bandwidth is None
    llm.close()


def test_a_raw_read_goes_on_in_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = DocumentLLM("llama", tmp_path / "kv")
    bench = DocumentBench(llm.engine, DocumentKvSettings(document_tokens=36, question_tokens=3), tmp_path)
    folder = tmp_path / "namespace"
    folder.mkdir()
    for number, size in enumerate((bench.num_bytes, bench.num_bytes - 100)):
        (folder / f"{number}.seg").write_bytes(bytes(size))
        os.utime(folder / f"{number}.seg", (number, number))
    num_bytes: list[int] = []
    preadv = os.preadv

    def counted(file: int, buffers: list[memoryview], at: int) -> int:
        num_bytes.append(preadv(file, buffers, at))
        return num_bytes[-1]

    monkeypatch.setattr(os, "preadv", counted)
    bench.read_raw()
    assert sum(num_bytes) == bench.num_bytes
    llm.close()
