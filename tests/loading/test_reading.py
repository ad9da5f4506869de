"""Bytes arrive in the order of use, unchanged, and at most at the storage's speed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from quire.loading import ModelLoadError
from quire.loading.checkpoint import TensorEntry, read_headers
from quire.loading.reading.reader import PIECE_BYTES, ByteReader, Pace, Run, position_in_use, runs_in_order_of_use
from weights import some_tensors, write_shards


def test_embeddings_come_first_then_layers_then_what_follows_them_whatever_the_files_order() -> None:
    expected = [
        "transformer.wte.weight", "model.layers.0.mlp.up_proj.weight", "h.2.attn.c_attn.weight",
        "model.decoder.layers.10.fc1.weight", "model.decoder.final_layer_norm.weight",
    ]  # fmt: skip
    names = [expected[i] for i in (3, 4, 1, 0, 2)]
    assert sorted(names, key=position_in_use) == expected
    entries = [TensorEntry(Path("f"), name, (8,), "U8", 8 * i, 8 * i + 8) for i, name in enumerate(names)]
    runs = runs_in_order_of_use(entries)
    assert [entry.name for run in runs for entry in run.tensors] == expected
    assert [(run.start, run.end) for run in runs] == [(24, 32), (16, 24), (32, 40), (0, 16)], (
        "no more reads than need be"
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_byte_comes_once_and_in_order(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    size = 40_000
    path = tmp_path_factory.mktemp("bytes") / "file"
    content = os.urandom(size)
    path.write_bytes(content)
    edges = st.integers(0, size)
    spans = [sorted(span) for span in data.draw(st.lists(st.tuples(edges, edges), min_size=1, max_size=4))]
    runs = [Run(path, start, end, (TensorEntry(path, "t", (), "U8", start, end),)) for start, end in spans]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.loading.reading.reader.PIECE_BYTES", 4096)
        reader = ByteReader(
            runs,
            buffer_bytes=data.draw(st.sampled_from([0, 20_000])),
            num_reads=data.draw(st.integers(1, 3)),
            uses_direct_io=data.draw(st.sampled_from([None, False, True])),
        )
        reader.start()
        found = {id(run): b"" for run in runs}
        while (piece := reader.next_piece()) is not None:
            for _, offset, part in piece.parts():
                assert offset == len(found[id(piece.run)])
                found[id(piece.run)] += part
            reader.release(piece)
        reader.close()
    assert [found[id(run)] for run in runs] == [content[start:end] for start, end in spans]


def test_later_runs_wait_for_the_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * PIECE_BYTES))
    runs = [Run(path, start * PIECE_BYTES, (start + 1) * PIECE_BYTES, ()) for start in range(3)]
    reader = ByteReader(runs, num_first=1)
    reader.start()
    for _ in range(len(runs)):
        piece = reader.next_piece()
        assert piece is not None
        assert reader._next_read == 1 or piece.run is not runs[0], "a later run is read before `read_on`"
        reader.release(piece)
        reader.read_on()
    assert reader.next_piece() is None
    reader.close()


def test_a_failed_allocation_of_a_buffer_is_raised_to_the_waiting_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("quire.loading.reading.reader.mmap.mmap", refuse)
    reader = ByteReader([Run(path, 0, 8, ())], uses_direct_io=False)
    reader.start()
    with pytest.raises(ModelLoadError, match=rf"no memory for buffers to read {path} \(Cannot allocate memory\)"):
        reader.next_piece()
    reader.close()


class Clock:
    """A clock that advances by waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def test_reads_are_serialized_and_idle_storage_delays_no_read() -> None:
    clock = Clock()
    pace = Pace(100.0, clock, clock.wait)
    first, second = pace.begin(100), pace.begin(50)  # concurrent reads on a device with a single head
    clock.now = 0.25
    pace.end(first)
    assert clock.now == 1.0
    pace.end(second)
    assert clock.now == 1.5
    clock.now = 9.0  # idle time is lost, as on a real device
    due = pace.begin(100)
    clock.now = 11.0
    pace.end(due)
    assert clock.waits == [0.75, 0.5], "a read that took longer anyway waits for nothing"


def _unsound(header: bytes, length: int | None = None, rest: bytes = b"") -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + rest


_F32 = '"dtype":"F32","shape":'


@pytest.mark.parametrize(
    "content",
    [
        _unsound(b"[]"),
        _unsound(b"{}", rest=b"more"),
        _unsound(b"{}", length=2**63),
        _unsound(b'{"a":3}'),
        _unsound(b"\xff\xfe{}"),
        _unsound(f'{{"a":{{{_F32}[1],"data_offsets":[0,8]}}}}'.encode(), rest=bytes(8)),
        _unsound(f'{{"a":{{{_F32}[1],"data_offsets":[4,8]}}}}'.encode(), rest=bytes(8)),
        _unsound(f'{{"a":{{{_F32}[-1],"data_offsets":[0,4]}}}}'.encode(), rest=bytes(4)),
        _unsound(f'{{"a":{{{_F32}[1],"data_offsets":[4,0]}}}}'.encode(), rest=bytes(4)),
        _unsound(
            f'{{"a":{{{_F32}[1],"data_offsets":[0,4]}},"b":{{{_F32}[1],"data_offsets":[0,4]}}}}'.encode(), rest=bytes(4)
        ),
    ],
)
def test_a_header_that_is_not_sound_is_refused_as_the_formats_own_library_does(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(SafetensorError):
        safe_open(file, framework="pt")
    with pytest.raises(ModelLoadError, match=r"model.safetensors \(\d+ bytes\) is truncated or no safetensors file"):
        read_headers(tmp_path)


def test_headers_say_what_the_formats_own_library_says(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_shards(tmp_path, [tensors])
    entries = read_headers(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    assert {name: entry.shape for name, entry in entries.items()} == {n: tuple(t.shape) for n, t in tensors.items()}
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert list(entries) == list(file.offset_keys())
    for name, entry in entries.items():
        expected = tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes()
        assert data[entry.start : entry.end] == expected
