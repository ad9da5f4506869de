"""The benchmark of coded KV: its slow disk, and both engines in turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import coded_kv
from benchmarks.coded_kv import CodedKvBench, CodedKvSettings, SlowDisk, figures
from benchmarks.document_kv import DocumentBench, DocumentKvSettings
from engine.documents import DocumentLLM


def test_a_slow_disk_reads_ahead_while_its_reader_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now = tmp_path / "file", [0.0]
    path.write_bytes(bytes(range(200)))
    monkeypatch.setattr(coded_kv.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(coded_kv.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    disk, buffer = SlowDisk(), memoryview(bytearray(100))
    with path.open("rb") as file, disk.in_place():
        assert os.preadv(file.fileno(), [buffer], 0) == 100
        assert now == [0.0], "no limit yet"
        disk.bytes_per_s = 100.0
        os.preadv(file.fileno(), [buffer], 0)
        assert now == [1.0]
        os.posix_fadvise(file.fileno(), 100, 100, os.POSIX_FADV_WILLNEED)
        now[0] += 0.6  # the reader decodes
        os.preadv(file.fileno(), [buffer], 100)
        assert now[0] == pytest.approx(2.0)
        assert bytes(buffer) == bytes(range(100, 200))
        os.preadv(file.fileno(), [buffer], 100)
        assert now[0] == pytest.approx(3.0), "read once more"
    assert os.preadv is disk._preadv


def test_both_engines_load_the_same_document_and_say_the_same(tmp_path: Path) -> None:
    settings = CodedKvSettings(document_tokens=36, question_tokens=3, output_len=4, runs=2)
    of_document = DocumentKvSettings(document_tokens=36, question_tokens=3)
    disk, benches, llms = SlowDisk(), {}, []
    for mode, coding in (("plain", "off"), ("coded", "on")):
        llms.append(DocumentLLM("llama", tmp_path / mode, dtype="bfloat16", kv_dir_coding=coding))
        benches[mode] = DocumentBench(llms[-1].engine, of_document, tmp_path / mode)
    bench = CodedKvBench(benches, disk, settings)
    with disk.in_place():
        rows = figures(bench.measure(0.2))
    assert bench.num_different == 0
    assert [(row["disk"], row["mode"]) for row in rows] == [("0.2 MB/s", "plain"), ("0.2 MB/s", "coded")]
    assert rows[1]["ratio"] > 0
    for llm in llms:
        llm.close()
