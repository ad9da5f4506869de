"""The order of reading a checkpoint: embeddings, layers ascending, then the final norm and the head."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quire.loading.checkpoint import ScatteredEntry, TensorEntry

# By name, since the models' classes import torch. A name that matches neither only costs memory or time.
_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_\w+|wte|wpe|project_in)\.")


@dataclass(frozen=True)
class Run:
    """Contiguous bytes of one file and the tensors in them, or one `ScatteredEntry`."""

    file: Path
    start: int
    end: int
    tensors: tuple[TensorEntry, ...]  #: by offset


def position_in_use(name: str) -> float:
    """Return a tensor's sort key: -1 for embeddings, a layer's index, infinity for the rest."""
    if match := _LAYER.search(name):
        return int(match[1])
    return -1 if _EMBEDDING.search(name) else math.inf


def runs_in_order_of_use(entries: Iterable[TensorEntry]) -> list[Run]:
    """Join the tensors into as few runs as the order allows."""
    runs: list[Run] = []
    tensors: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda entry: (position_in_use(entry.name), entry.file, entry.start)):
        if tensors and not _is_next(entry, tensors[-1]):
            runs.append(_run_of(tensors))
            tensors = []
        tensors.append(entry)
    return [*runs, _run_of(tensors)] if tensors else runs


def run_of_file(file: Path, num_bytes: int, entries: Iterable[TensorEntry]) -> Run:
    """Return the run of a whole file with its header, as the checksum covers it."""
    tensors = [entry for entry in entries if entry.file == file]
    return Run(file, 0, num_bytes, tuple(sorted(tensors, key=lambda entry: (entry.start, entry.end))))


def _is_next(entry: TensorEntry, last: TensorEntry) -> bool:
    if isinstance(entry, ScatteredEntry) or isinstance(last, ScatteredEntry):
        return False
    return (entry.file, entry.start) == (last.file, last.end)


def _run_of(tensors: list[TensorEntry]) -> Run:
    return Run(tensors[0].file, tensors[0].start, tensors[-1].end, tuple(tensors))
