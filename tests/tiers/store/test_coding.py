"""Coded records: every bit comes back, or the block is a miss; plain and coded ones share a directory."""

from __future__ import annotations

import os
import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from quire.kernels.build import LEVELS
from quire.kernels.loaded import runnable_levels
from quire.kernels.planes import FORMATS, join_words, split_words
from quire.tiers.store import offline, writer
from quire.tiers.store.block_store import BlockStore, StoredBlock
from quire.tiers.store.layout import coding, segment
from quire.tiers.store.layout.coding import CODED_KINDS, decode, encode, kind_of
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.record import (
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    FileHeader,
    Row,
    decode_header,
    encode_header,
    read_block,
    with_checksum,
)
from quire.tiers.store.layout.segment import Segment
from tiers.store.stores import ROOT, chain, key, keys, open_store, segments
from tiers.store.test_damage import flip
from tiers.store.test_processes import started

BLOCK_BYTES = 2048
KINDS = pytest.mark.parametrize("kind", [2, 3])
PLAIN_RECORD = HEADER_BYTES + BLOCK_BYTES


def floats(number: int, dtype: str = "bfloat16") -> np.ndarray:
    """Return a block's bytes: normal numbers, or for every third number, bytes that do not shrink."""
    rng = np.random.default_rng(number)
    if number % 3 == 0:
        return rng.integers(0, 256, BLOCK_BYTES, np.uint8)
    words = rng.standard_normal(BLOCK_BYTES, np.float32).view(np.uint32)
    return (words >> 16).astype(np.uint16).view(np.uint8)[:BLOCK_BYTES] if dtype == "bfloat16" else words.view(np.uint8)


def open_coded(directory: Path, **changed: Any) -> BlockStore:
    return open_store(directory, **({"block_bytes": BLOCK_BYTES, "dtype": "bfloat16"} | changed))


def write(store: BlockStore, *numbers: int, after: bytes = ROOT) -> list[int]:
    return store.write(chain(*numbers, after=after), np.stack([floats(number) for number in numbers]))


def readable(store: BlockStore, *numbers: int) -> list[int]:
    """Return the numbers of readable blocks, and check their bytes."""
    into = np.full((len(numbers), BLOCK_BYTES), 99, np.uint8)
    failed = set(store.read(keys(*numbers), into))
    for i, number in enumerate(numbers):
        assert i in failed or np.array_equal(into[i], floats(number)), "a wrong byte"
    return [number for i, number in enumerate(numbers) if i not in failed]


def stored(directory: Path, *numbers: int) -> Segment:
    """Return a sealed segment of these blocks."""
    store = open_coded(directory)
    assert write(store, *numbers) == []
    store.close()
    (path,) = segments(directory)
    found = Segment(0, path, ROOT, BLOCK_BYTES)
    assert found.load_index()
    return found


@pytest.fixture(params=["none", *LEVELS])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "none" and request.param not in runnable_levels():
        pytest.skip("this processor does not run it")
    monkeypatch.setenv("QUIRE_KERNELS", request.param)
    return str(request.param)


def every_pattern(kind: int) -> np.ndarray:
    """All bfloat16; for float32, each with some lower halves: with zeros, denormals, infinities and NaNs."""
    upper = np.arange(1 << 16, dtype=np.uint32)
    if kind == 2:
        return upper.astype(np.uint16)
    return np.concatenate([upper << 16 | lower for lower in (0, 1, 0x8000, 0xFFFF, 0x1234)])


@KINDS
def test_every_bit_pattern_comes_back_at_every_level(kind: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "_MOST", 20.0)  # all exponents alike often do not shrink
    for size in (1, 7, 1 << 16):
        patterns = every_pattern(kind)[-size:]
        form = FORMATS["BF16" if kind == 2 else "F32"]
        exponents, heads, low = (np.frombuffer(each, np.uint8) for each in split_words(patterns[None], form, 8))
        assert np.array_equal(exponents, patterns >> 8 * patterns.itemsize - 9 & 0xFF)
        again = np.zeros_like(patterns)
        join_words(again[None], form, 8, exponents, heads, low)
        assert np.array_equal(again, patterns)
        coded = encode(kind, patterns.tobytes())
        assert coded is not None
        again[:] = 0
        assert decode(kind, coded, again.view(np.uint8).data)
        assert np.array_equal(again, patterns)


def test_normal_numbers_shrink_and_noise_stays_plain() -> None:
    for dtype, share in (("bfloat16", 0.75), ("float32", 0.87)):
        kind = kind_of(dtype, BLOCK_BYTES)
        assert kind in CODED_KINDS
        block = floats(1, dtype).tobytes()
        coded = encode(kind, block)
        assert coded is not None
        assert len(coded) < share * len(block)
        assert encode(kind, floats(3).tobytes()) is None
    assert kind_of("float16", 64) is None
    assert kind_of("int8", 64) is None
    assert kind_of("bfloat16", 63) is None


def test_both_kinds_share_a_segment_and_survive_a_restart_without_an_index(tmp_path: Path) -> None:
    numbers = range(1, 10)
    found = stored(tmp_path, *numbers)
    assert [found.is_coded(row) for row in range(9)] == [number % 3 > 0 for number in numbers]
    assert found.path.stat().st_size < FILE_HEADER_BYTES + 3 * PLAIN_RECORD + 6 * (HEADER_BYTES + 0.75 * BLOCK_BYTES)
    scanned = Segment(0, found.path, ROOT, BLOCK_BYTES)
    found.index_path.unlink()
    scanned.scan(OpenFile(found.path))
    assert (scanned.rows, scanned.size) == (found.rows, found.size)
    assert [scanned.offset(row) for row in range(9)] == [found.offset(row) for row in range(9)]
    for dtype in ("bfloat16", ""):  # one that codes nothing reads them too
        store = open_coded(tmp_path, dtype=dtype)
        assert readable(store, *numbers) == list(numbers)
        changes = store.poll()
        assert changes is not None
        assert changes.stored_share == pytest.approx((found.size - 128) / (9 * PLAIN_RECORD))
        store.close()
    (stats,) = offline.list_namespaces(tmp_path / "kv")
    assert (stats.num_blocks, stats.num_coded) == (9, 6)
    verified = offline.verify(tmp_path / "kv")
    assert (verified.num_blocks, verified.num_coded, verified.damaged, verified.torn) == (9, 6, [], [])


@pytest.mark.parametrize("is_disk_slow", [True, False])
def test_blocks_are_coded_once_the_disk_is_known_to_be_slower_than_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_disk_slow: bool
) -> None:
    now, read_s, pread = [0.0], 1.0 if is_disk_slow else 1e-3, os.pread

    def slow_decode(*arguments: Any) -> bool:
        now[0] += 1e-3
        return decode(*arguments)

    def slow_pread(fd: int, num_bytes: int, at: int) -> bytes:
        now[0] += read_s if num_bytes >= 4000 else 0.0  # of a segment
        return pread(fd, num_bytes, at)

    monkeypatch.setattr(writer, "_TRIAL_BYTES", 4000)
    monkeypatch.setattr(writer.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(writer, "decode", slow_decode)
    monkeypatch.setattr(writer.os, "pread", slow_pread)
    store = open_coded(tmp_path)
    assert write(store, 1, 2) == [], "too few bytes to measure"
    assert write(store, 4, 5, after=key(2)) == [], "measured now"
    assert write(store, 7, 8, after=key(5)) == []
    assert now[0] == pytest.approx(read_s + 2e-3), "once"
    tally = store.tally.pop()
    assert tally.seconds == pytest.approx(now[0]), "not the link's"
    assert tally.saved_bytes > 0
    blocks = [StoredBlock(key(number), key(8), must_code=True) for number in (10, 11)]
    assert store.write(blocks, np.stack([floats(10), floats(11)])) == [], "as the engine says"
    assert readable(store, 1, 2, 4, 5, 7, 8, 10, 11) == [1, 2, 4, 5, 7, 8, 10, 11]
    store.close()
    (path,) = segments(tmp_path)
    found = Segment(0, path, ROOT, BLOCK_BYTES)
    assert found.load_index()
    assert [found.is_coded(row) for row in range(8)] == [True] * 4 + [is_disk_slow] * 2 + [True] * 2


@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_bit_of_a_coded_record_is_a_miss(tmp_path: Path, with_index: bool) -> None:
    found = stored(tmp_path, 1, 2, 4)
    intact = found.path.read_bytes()
    start, stop, missed = found.offset(1), found.offset(2), 0
    places = [*range(start, start + 160, 5), *range(start + 160, stop, 37), stop - 1]
    for at in places:
        flip(found.path, at)
        if not with_index:
            found.index_path.unlink(missing_ok=True)
        store = open_coded(tmp_path, dtype="")
        assert readable(store, 1, 2, 4) in ([1, 4], [1, 2, 4]), at
        missed += store.stats.failed_checks > 0 or 2 not in readable(store, 2)
        assert readable(store, 1, 4) == [1, 4], "its neighbours are found"
        assert write(store, 2) == []
        assert readable(store, 2) == [2]
        store.close()
        for other in segments(tmp_path):
            if other != found.path:
                other.unlink()
        found.path.write_bytes(intact)
    assert missed >= len(places) - 2, "nearly every bit counts"


@pytest.mark.parametrize("with_index", [True, False])
def test_a_file_that_was_cut_loses_what_it_lost(tmp_path: Path, with_index: bool) -> None:
    found = stored(tmp_path, 1, 2, 3, 4)
    data = found.path.read_bytes()
    for end_of_file in (found.offset(1) + 60, found.offset(2) - 1, found.offset(2), found.offset(3) + 500):
        found.path.write_bytes(data[:end_of_file])
        if not with_index:
            found.index_path.unlink(missing_ok=True)
        store = open_coded(tmp_path)
        whole = (
            [number for row, number in enumerate((1, 2, 3, 4)) if found.offset(row + 1) <= end_of_file]
            if (end_of_file < found.offset(3))
            else [1, 2, 3]
        )
        assert readable(store, 1, 2, 3, 4) == whole, end_of_file
        store.close()
        for other in segments(tmp_path):
            if other != found.path:
                other.unlink()


def forged(block: np.ndarray, coded: bytes) -> tuple[bytes, memoryview]:
    """Return a coded record with valid checksums and this data."""
    row = Row(key(1), ROOT, 0.0, 0)
    return encode_header(ROOT, row, block.tobytes(), 2, coded), memoryview(coded)


def test_frames_that_expand_beyond_the_block_are_refused_before_they_are_decoded() -> None:
    block = floats(1)
    coded = encode(2, block.tobytes())
    assert coded is not None
    half = BLOCK_BYTES // 2
    into = memoryview(bytearray(BLOCK_BYTES))
    assert read_block(ROOT, key(1), *forged(block, coded), into, None)
    assert not read_block(ROOT, key(2), *forged(block, coded), into, None)
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 30))
    unsized = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(1 << 20))
    # A frame header that names the block's size, before the content of the bomb: one segment, checksum-free.
    lying = struct.pack("<IBH", 0xFD2FB528, 0x60, half - 256) + bomb[zstandard.frame_header_size(bomb) :]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for frame in (bomb, unsized, lying, b"", b"?" * 40, coded[half:-1], coded[half : half + 9]):
        assert not read_block(ROOT, key(1), *forged(block, coded[:half] + frame), into, None)
    assert not read_block(ROOT, key(1), *forged(block, coded[: half - 1]), into, None)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "in KiB"


def test_unknown_kinds_and_wrong_lengths_are_no_records() -> None:
    row = Row(key(1), ROOT, 0.0, 0)
    block = floats(1).tobytes()
    for kind, data in ((4, block[:100]), (2, block), (2, block + b"1"), (1, block[:100])):
        assert decode_header(ROOT, BLOCK_BYTES, encode_header(ROOT, row, block, kind, data)) is None
    assert decode_header(ROOT, BLOCK_BYTES, encode_header(ROOT, row, block, 3, block[:100])) == row


def make_old(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store three blocks as a Quire before coding did: version 1, and an index without ends."""
    store = open_coded(directory, dtype="")
    assert write(store, 1, 2, 3) == []
    store.close()
    (path,) = segments(directory)
    data = bytearray(path.read_bytes())
    header = FileHeader.decode(bytes(data[:128]))
    assert header is not None
    data[:128] = FileHeader(1, header.block_bytes, header.capacity, ROOT).encode()
    path.write_bytes(data)
    index = path.with_suffix(".idx")
    found = Segment(0, path, ROOT, BLOCK_BYTES)
    assert found.load_index()
    fields = segment._INDEX_HEADER.pack(b"quireidx", 1, found.size, BLOCK_BYTES, 0.0, ROOT)
    index.write_bytes(with_checksum(fields) + with_checksum(bytes(found.rows)))
    return path


@pytest.mark.parametrize("with_index", [True, False])
def test_old_directories_stay_readable_and_get_coded_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_index: bool
) -> None:
    path = make_old(tmp_path, monkeypatch)
    if not with_index:
        path.with_suffix(".idx").unlink()
    assert not Segment(0, path, ROOT, BLOCK_BYTES).load_index()
    store = open_coded(tmp_path)
    assert store.num_blocks == 3
    found = Segment(0, path, ROOT, BLOCK_BYTES)
    assert found.load_index(), "made again"
    assert [found.num_bytes(row) for row in range(3)] == [PLAIN_RECORD] * 3
    assert write(store, 4, 5, after=key(3)) == []
    assert readable(store, 1, 2, 3, 4, 5) == [1, 2, 3, 4, 5]
    assert store.delete(keys(3)) == 3
    store.compact()
    assert readable(store, 1, 2, 3, 4, 5) == [1, 2]
    store.close()
    assert offline.verify(tmp_path / "kv").damaged == []


def test_compaction_copies_coded_records_as_they_are(tmp_path: Path) -> None:
    found = stored(tmp_path, 1, 2, 4, 5)
    sizes = [found.num_bytes(row) for row in range(4)]
    store = open_coded(tmp_path, dtype="")
    store.delete(keys(5))
    store.compact()
    assert readable(store, 1, 2, 4, 5) == [1, 2, 4]
    store.close()
    (path,) = segments(tmp_path)
    assert path != found.path
    assert path.stat().st_size == FILE_HEADER_BYTES + sum(sizes[:3])


def test_more_coded_blocks_fit_the_budget_which_holds(tmp_path: Path) -> None:
    most = 64 * PLAIN_RECORD
    kept: dict[str, int] = {}
    for dtype in ("", "bfloat16"):
        store = open_coded(tmp_path / dtype, dtype=dtype, max_bytes=most)
        numbers = [number for number in range(400) if number % 3]
        for first in range(0, len(numbers), 5):
            some = numbers[first : first + 5]
            assert write(store, *some) == []
            used = sum(path.stat().st_size for path in (tmp_path / dtype).rglob("kv/*/*"))
            assert used <= most + 2000, "but for an index"
            assert readable(store, *some) == some
        kept[dtype] = len(readable(store, *numbers))
        assert kept[dtype] == store.num_blocks
        assert store.stats.evicted_segments > 0
        store.close()
    assert kept["bfloat16"] > 1.2 * kept[""]


WRITER = """
import sys
from pathlib import Path
from tiers.store.test_coding import *
store = open_coded(Path(sys.argv[1]))
assert write(store, 1, 2, 3, 4) == []
print("ready", flush=True)
number = 10
while True:
    write(store, *range(number, number + 5))
    number += 5
"""


def test_two_processes_of_which_one_is_killed(tmp_path: Path) -> None:
    mine = open_coded(tmp_path, dtype="")
    with started(WRITER, tmp_path):
        mine.refresh()
        assert readable(mine, 1, 2, 3, 4) == [1, 2, 3, 4], "of a segment that is being written"
        assert write(mine, 5, 6, after=key(4)) == []
    store = open_coded(tmp_path)
    found = {int(number) for number in range(1, 2000) if key(number) in store}
    assert found >= {1, 2, 3, 4, 5, 6}
    assert set(readable(store, *found)) == found
    assert store.stats.failed_checks == 0
    store.close()
    mine.close()


@pytest.fixture
def damaged_middle(tmp_path: Path) -> Path:
    found = stored(tmp_path, 1, 2, 4)
    flip(found.path, found.offset(1) + 3)
    return found.path


def test_verifying_tells_a_damaged_header_in_the_middle_from_a_torn_end(tmp_path: Path, damaged_middle: Path) -> None:
    verified = offline.verify(tmp_path / "kv")
    assert verified.num_blocks == 2
    assert len(verified.damaged) == 1
    assert "record 1" in verified.damaged[0]
    with damaged_middle.open("ab") as file:
        file.write(b"qblk" * 100)
    assert len(offline.verify(tmp_path / "kv").damaged) == 2
    damaged_middle.with_suffix(".idx").unlink()
    verified = offline.verify(tmp_path / "kv")
    assert len(verified.damaged) == 1
    assert verified.torn == [str(damaged_middle)]
