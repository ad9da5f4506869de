"""Bandwidth of the loader's reads beside fio's on the same file, past the page cache. Nothing is copied, hashed or
packed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json
from quire.loading.reading.reader import NUM_READS, PIECE_BYTES, ByteReader, Run
from quire.system.page_cache import drop_pages, filesystem_of

_COLUMNS = (
    Column("reader", "reader"),
    Column("bytes_s", "MB/s", scale=1e-6, digits=0),
    Column("cpu_s", "CPU s a GB", digits=2),
    Column("of_fio", "of fio's", digits=3),
)


def measure(path: Path, runs: int = 5) -> dict[str, Any]:
    """Read a file with the loader's reader and with fio, in turns, after dropping its pages.

    Returns:
        `bytes_s` by reader, a value per run; `cpu_s`, our processor seconds per GB; `of_fio`, ours over fio's per run;
            `resident`, the largest resident share before a read; `is_direct`, whether ours bypassed the page cache.
    """
    bytes_s: dict[str, list[float]] = {"quire": [], "quire, buffered": []}
    cpu_s: dict[str, list[float]] = {name: [] for name in bytes_s}
    if shutil.which("fio"):
        bytes_s["fio"] = []
    resident, is_direct = 0.0, False
    for run in range(runs):
        for name in list(bytes_s) if run % 2 else reversed(bytes_s):
            resident = max(resident, drop_pages([path]))
            if name == "fio":
                bytes_s[name].append(_fio(path))
                continue
            speed, seconds, went_past = _ours(path, uses_direct_io=name == "quire")
            bytes_s[name].append(speed)
            cpu_s[name].append(seconds)
            is_direct = is_direct or went_past
    of_fio = [ours / its for ours, its in zip(bytes_s["quire"], bytes_s.get("fio", ()), strict=False)]
    return {"bytes_s": bytes_s, "cpu_s": cpu_s, "of_fio": of_fio, "resident": resident, "is_direct": is_direct}


def _ours(path: Path, *, uses_direct_io: bool) -> tuple[float, float, bool]:
    size = path.stat().st_size
    cpu_began, began = time.process_time(), time.perf_counter()
    reader = ByteReader([Run(path, 0, size, ())], uses_direct_io=uses_direct_io)
    reader.start()
    while (piece := reader.next_piece()) is not None:
        reader.release(piece)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    is_direct = reader.uses_direct_io
    reader.close()
    return size / took, cpu / (size / 1e9), is_direct


def _fio(path: Path) -> float:
    command = [
        "fio", "--name=read", f"--filename={path}", "--rw=read", "--direct=1", "--readonly", "--ioengine=libaio",
        f"--bs={PIECE_BYTES}", f"--iodepth={NUM_READS}", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"fio cannot read {path}: {done.stderr.strip() or done.stdout.strip()}")
    return float(json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]["bw_bytes"])


def main(
    file: Annotated[Path, typer.Option(help="A large file on the storage in question.")],
    runs: Annotated[int, typer.Option(min=1, help="Runs of each reader, in turns.")] = 5,
    json: Json = None,
) -> None:
    """Read bandwidth of this storage: the loader's reads, and fio's where it is installed."""
    if not file.is_file():
        raise ValueError(f"{file} is no file; name one that is at least some hundred MB, such as a model.safetensors")
    found = measure(file, runs)
    figures: list[dict[str, Any]] = [
        {
            "reader": name,
            "bytes_s": summarise(speeds),
            "cpu_s": summarise(found["cpu_s"].get(name, ())),
            "of_fio": summarise(found["of_fio"]) if name == "quire" else None,
        }
        for name, speeds in found["bytes_s"].items()
    ]
    notes = [
        f"{file.stat().st_size / 1e9:.2f} GB on {filesystem_of(file) or 'an unknown file system'}; at most "
        f"{found['resident']:.1%} of it in memory when a read began; "
        + ("past the page cache (O_DIRECT)." if found["is_direct"] else "this file system has no direct reads.")
    ]
    if found["of_fio"]:
        notes.append(f"Ours reach {median(found['of_fio']):.0%} of fio's (libaio, direct, {NUM_READS} in flight).")
    else:
        notes.append("fio is not installed, so that there is nothing to compare with.")
    Report("read", f"Reading {file.name}", _COLUMNS, figures=figures, notes=notes, more=found).publish(json)


if __name__ == "__main__":
    start(main)
