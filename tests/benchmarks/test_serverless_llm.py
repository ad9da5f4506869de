"""ServerlessLLM's loader as a baseline: the same tensors from its file and from its chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from benchmarks.coldstart import serverless_llm
from quire.loading.checkpoint import SINGLE_FILE, read_headers, weight_files
from weights import write_model


def test_the_converted_checkpoint_holds_the_same_tensors_with_aligned_data(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    serverless_llm.convert(tmp_path / "model", tmp_path / "out")
    before = {name: value for path in weight_files(tmp_path / "model") for name, value in load_file(path).items()}
    after = load_file(tmp_path / "out" / SINGLE_FILE)
    assert {name: value.tobytes() for name, value in after.items()} == {
        name: value.tobytes() for name, value in before.items()
    }
    assert min(entry.start for entry in read_headers(tmp_path / "out").values()) % 4096 == 0


def test_chunks_hold_every_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "model")
    serverless_llm.convert(tmp_path / "model", tmp_path / "out")
    monkeypatch.setattr(serverless_llm, "CHUNK_BYTES", 8192)
    monkeypatch.setattr(serverless_llm, "NUM_CHUNKS", 3)
    entries = read_headers(tmp_path / "out")
    reader = serverless_llm.ChunkReader(serverless_llm._in_file_order(entries.values()))
    reader.start()
    found = {name: bytearray(entry.num_bytes) for name, entry in entries.items()}
    while (piece := reader.next_piece()) is not None:
        for entry, offset, data in piece.parts():
            found[entry.name][offset : offset + len(data)] = data
        reader.release(piece)
    reader.close()
    wanted = load_file(tmp_path / "out" / SINGLE_FILE)
    assert {name: bytes(data) for name, data in found.items()} == {n: value.tobytes() for n, value in wanted.items()}
