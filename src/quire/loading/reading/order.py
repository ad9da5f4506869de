"""In which order a checkpoint's bytes are wanted: embeddings, layers ascending, then the final norm and the head."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quire.loading.checkpoint import ScatteredEntry, TensorEntry

# By name, since models' classes come with torch. A name that fits neither costs memory, or a wait, and no more.
_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_\w+|wte|wpe|project_in)\.")


@dataclass(frozen=True)
class Run:
    """Bytes of one file that are read one after the other, and the tensors in them. A scattered one has its own run,
    and start and end are its own."""

    file: Path
    start: int
    end: int
    tensors: tuple[TensorEntry, ...]  #: by offset


def place_in_use(name: str) -> float:
    """A number by which tensors are sorted: -1 for embeddings, a layer's index, infinity for what comes after."""
    if match := _LAYER.search(name):
        return int(match[1])
    return -1 if _EMBEDDING.search(name) else math.inf


def runs_in_order_of_use(entries: Iterable[TensorEntry]) -> list[Run]:
    """The bytes of tensors, as few runs as the order allows."""
    runs: list[Run] = []
    tensors: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda entry: (place_in_use(entry.name), entry.file, entry.start)):
        if tensors and not _is_next(entry, tensors[-1]):
            runs.append(_run_of(tensors))
            tensors = []
        tensors.append(entry)
    return [*runs, _run_of(tensors)] if tensors else runs


def run_of_file(file: Path, num_bytes: int, entries: Iterable[TensorEntry]) -> Run:
    """A whole file, its header included, as its checksum wants it."""
    tensors = [entry for entry in entries if entry.file == file]
    return Run(file, 0, num_bytes, tuple(sorted(tensors, key=lambda entry: (entry.start, entry.end))))


def _is_next(entry: TensorEntry, last: TensorEntry) -> bool:
    """Whether a tensor lies behind the last one."""
    if isinstance(entry, ScatteredEntry) or isinstance(last, ScatteredEntry):
        return False
    return (entry.file, entry.start) == (last.file, last.end)


def _run_of(tensors: list[TensorEntry]) -> Run:
    return Run(tensors[0].file, tensors[0].start, tensors[-1].end, tuple(tensors))
