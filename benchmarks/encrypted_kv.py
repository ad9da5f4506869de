"""Store and load blocks of KV on disk, encrypted and plain, in turns: the seconds of both by the block store alone."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.settings import Settings, setting
from quire.system.page_cache import drop_pages
from quire.tiers.store.block_store import BlockStore, StoredBlock
from quire.tiers.store.layout.cipher import Cipher

_MODES = ("plain", "encrypted")
_PIECE = 16  #: blocks at once
_COLUMNS = (
    Column("what", "from or to"),
    Column("mode", "records"),
    Column("gb_per_s", "GB/s", digits=2),
    Column("ratio", "time, of plain", digits=3),
)


@dataclass(frozen=True)
class EncryptedKvSettings(Settings):
    """Options of the benchmark."""

    directory: str | None = setting(None, "Directory of the disk; the system's temporary one by default.")
    num_blocks: int = setting(500, "Blocks to store and load: 500 of qwen2.5-0.5b are 8,000 tokens.", at_least=1)
    block_bytes: int = setting(196608, "Bytes of a block.", at_least=16)
    runs: int = runs()


def _store(directory: Path, mode: str, data: np.ndarray) -> dict[str, float]:
    """Store and load blocks in a new directory. Returns the seconds of each."""
    keys = [number.to_bytes(32, "little") for number in range(1, len(data) + 1)]
    blocks = [StoredBlock(key, bytes(32)) for key in keys]
    cipher = Cipher(bytes(32)) if mode == "encrypted" else None
    store_of: dict[str, Any] = {"model": mode, "root": bytes(32), "block_bytes": data.shape[1], "max_bytes": 1 << 40}
    into, seconds = np.empty_like(data), {}
    with closing(BlockStore(directory, cipher=cipher, **store_of)) as store:
        for what in ("stored", "loaded from the page cache", "loaded from the disk"):
            if what == "loaded from the disk":
                drop_pages(sorted(directory.glob("*/*.seg")))
            into[:] = 0
            began = time.perf_counter()
            for at in range(0, len(data), _PIECE):
                piece = slice(at, at + _PIECE)
                failed = (
                    store.write(blocks[piece], data[piece])
                    if what == "stored"
                    else store.read(keys[piece], into[piece])
                )
                assert not failed
            seconds[what] = time.perf_counter() - began
            assert what == "stored" or np.array_equal(into, data)
    return seconds


def measure(settings: EncryptedKvSettings) -> list[dict[str, Any]]:
    data = np.random.default_rng(1).integers(0, 256, (settings.num_blocks, settings.block_bytes), np.uint8)
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in _MODES}
    for turn in range(settings.runs + 1):
        for mode in _MODES if turn % 2 else _MODES[::-1]:
            with TemporaryDirectory(prefix="quire-kv-", dir=settings.directory) as directory:
                seconds = _store(Path(directory) / "kv", mode, data)
            if turn:  # the first warms up
                found[mode].append(seconds)
    return [
        {
            "what": what,
            "mode": mode,
            "gb_per_s": summarise([data.nbytes / each[what] / 1e9 for each in found[mode]]),
            "ratio": statistics.median(
                one[what] / plain[what] for one, plain in zip(found[mode], found["plain"], strict=True)
            ),
        }
        for what in found["plain"][0]
        for mode in _MODES
    ]


@options()
def main(settings: EncryptedKvSettings, json: Json = None) -> None:
    """Blocks of KV on disk, encrypted beside plain: speed of storing and loading."""
    title = f"{settings.num_blocks} blocks of {settings.block_bytes} bytes"
    report = Report("encrypted-kv", title, _COLUMNS, measure(settings))
    report.settings = settings.as_json()
    report.publish(json)


if __name__ == "__main__":
    start(main)
