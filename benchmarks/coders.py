"""Coders of weights' exponents: size, and speed of one core in its thread's time, also of isal, brotli and lz4 if they
are installed.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
import zstandard

from benchmarks.script import start
from quire.bench.report import Column, Report
from quire.cli.options import Json
from quire.kernels.planes import FORMATS, ExponentCoder, split_words
from quire.loading import resolve_model
from quire.loading.checkpoint import read_headers

_CHUNK = 2**20  #: weights
_COLUMNS = (
    Column("coder", "coder"),
    Column("bits", "bits a weight", digits=2),
    Column("encode", "encode G/s", digits=2),
    Column("decode", "decode G/s", digits=2),
)
Coder = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]


def _huffman(data: bytes) -> bytes:
    coder = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(data) + coder.flush()


def coders() -> Iterator[tuple[str, Coder]]:
    decode = zstandard.ZstdDecompressor().decompress
    yield "zstd, Quire's parameters", (ExponentCoder().encode, decode)
    for level in (-1, 1, 3, 9):
        yield f"zstd {level}", (zstandard.ZstdCompressor(level=level).compress, decode)
    yield "zlib, Huffman only", (_huffman, zlib.decompress)
    if find_spec("isal"):
        isal: Any = import_module("isal.isal_zlib")
        yield "the same, decoded by isal", (_huffman, isal.decompress)
        yield "isal 1", (lambda data: isal.compress(data, 1), isal.decompress)
    if find_spec("brotli"):
        brotli: Any = import_module("brotli")
        yield "brotli 1", (lambda data: brotli.compress(data, quality=1), brotli.decompress)
    if find_spec("lz4"):
        lz4: Any = import_module("lz4.block")
        yield "lz4", (lz4.compress, lz4.decompress)


def _timed(work: Callable[[bytes], bytes], data: list[bytes]) -> tuple[list[bytes], float]:
    began = time.thread_time()
    results = [work(each) for each in data]
    return results, time.thread_time() - began


def main(
    model: Annotated[str, typer.Option(help="A model in bfloat16.")] = "quire-mini",
    runs: Annotated[int, typer.Option(min=1, help="Repetitions, in turns.")] = 9,
    json: Json = None,
) -> None:
    """Compare coders of the exponents of a model's matrices."""
    path = resolve_model(model).path
    assert path is not None
    found = [entry for entry in read_headers(path).values() if len(entry.shape) == 2 and entry.dtype == "BF16"]
    words = np.concatenate([np.fromfile(e.file, "<u2", e.num_bytes // 2, offset=e.start) for e in found])[: 8 * _CHUNK]
    words = words[: len(words) // _CHUNK * _CHUNK].reshape(-1, 1024)
    exponents, _, _ = split_words(words, FORMATS["BF16"], 8)
    chunks = [exponents[i : i + _CHUNK] for i in range(0, len(exponents), _CHUNK)]
    times: dict[str, list[tuple[float, float]]] = {}
    coded: dict[str, list[bytes]] = {}
    for _ in range(runs):
        for name, (encode, decode) in coders():
            coded[name], encoding = _timed(encode, chunks)
            decoded, decoding = _timed(decode, coded[name])
            assert decoded == chunks
            times.setdefault(name, []).append((encoding, decoding))
    counts = np.bincount(np.frombuffer(exponents, np.uint8))
    share = counts[counts > 0] / len(exponents)
    figures: list[dict[str, Any]] = []
    for name, pairs in times.items():
        size = 8 * sum(map(len, coded[name])) / len(exponents)
        rate = [len(exponents) / median(each) / 1e9 for each in zip(*pairs, strict=True)]
        figures.append({"coder": name, "bits": size, "encode": rate[0], "decode": rate[1]})
    notes = [f"Entropy: {-(share * np.log2(share)).sum():.3f} bits. Speeds are medians of thread time."]
    Report("coders", f"Exponents of {model}", _COLUMNS, figures=figures, notes=notes).publish(json)


if __name__ == "__main__":
    start(main)
