"""Digests of a model's weights: equal for equal tensors, however files store them.

Every tensor counts, by name, dtype, shape and bytes; shards, file names, order and metadata do not. Superfluous tensors
(rotary `inv_freq`, a second copy of a tied head) change the digest too. So equal models may have different digests, but
never the reverse, and a digest depends on neither the config nor the loader's version.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from quire.loading.checkpoint import TensorEntry, read_headers
from quire.loading.remote import read_pieces
from quire.models.model_config import ModelConfig

_PIECE_BYTES = 2**20  #: read and hashed at once; larger ones leave the cores' caches
_MAX_THREADS = 4  #: four cores hash faster than a disk reads
_VERSION = b"quire-weights-1"


def hash_checkpoint(
    directory: Path, *, num_threads: int | None = None, advance: Callable[[int], None] = lambda num_bytes: None
) -> str:
    """Read a checkpoint in up to `num_threads` threads and return its digest, `sha256:...`."""
    spans = read_headers(directory)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    stop = threading.Event()
    with ThreadPoolExecutor(num_threads or min(cores, _MAX_THREADS), thread_name_prefix="digest") as pool:
        try:
            # Largest first: a large last tensor would keep one thread busy alone.
            largest_first = sorted(spans, key=lambda name: -spans[name].num_bytes)
            hashing = {name: pool.submit(_hash_tensor, spans[name], advance, stop) for name in largest_first}
            digests = {name: task.result() for name, task in hashing.items()}
        except BaseException:  # Ctrl-C included: running tasks stop at their next piece
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return combine_digests(spans, digests)


def combine_digests(spans: Mapping[str, TensorEntry], digests: Mapping[str, bytes]) -> str:
    total = hashlib.sha256(_prefixed(_VERSION))
    for name in sorted(spans):
        span = spans[name]
        for part in (name.encode(), span.dtype.encode(), json.dumps(span.shape).encode(), digests[name]):
            total.update(_prefixed(part))
    return f"sha256:{total.hexdigest()}"


class RunningDigest:
    """Computes a checkpoint's digest while its tensors are loaded."""

    def __init__(self) -> None:
        self._tensors: dict[str, bytes] = {}
        self._hash = hashlib.sha256()

    def add(self, name: str, data: memoryview, is_last: bool) -> None:
        """Add the next bytes of a tensor; `is_last` ends it."""
        self._hash.update(data)
        if is_last:
            self._tensors[name] = self._hash.digest()
            self._hash = hashlib.sha256()

    def of(self, spans: Mapping[str, TensorEntry]) -> str:
        """Return the digest once all tensors were added."""
        return combine_digests(spans, self._tensors)


def random_digest(config: ModelConfig, *, dtype: str, seed: int) -> str:
    """Return `random:...`, which includes numpy's version and the machine, on which random numbers depend."""
    import numpy as np  # reading starts before it is imported

    from quire.loading.modules.fill import RECIPE

    facts = [RECIPE, asdict(config), dtype, seed, np.__version__, platform.machine()]
    return f"random:{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


def _prefixed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _hash_tensor(span: TensorEntry, advance: Callable[[int], None], stop: threading.Event) -> bytes:
    digest = hashlib.sha256()
    for piece in read_pieces(span.file, span.start, span.num_bytes, piece_bytes=_PIECE_BYTES):
        if stop.is_set():
            break
        digest.update(piece)
        advance(len(piece))
    return digest.digest()
