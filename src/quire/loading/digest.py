"""The digest of a model's weights: equal for equal tensors, however files hold them.

Of a checkpoint, every tensor counts, by name, dtype, shape and bytes as they lie in the file. Shards, file names, the
order in a file and the metadata do not count. Nor does it matter whether the model needs a tensor: rotary `inv_freq`
buffers, or a second copy of a tied head, give another digest than a checkpoint without them has. That is safe, since
equal models may then count as different but never the other way round, and it keeps a digest independent of the config
and of the version of the loader.
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
from quire.loading.errors import ModelLoadError
from quire.models.model_config import ModelConfig

PIECE_BYTES = 2**20  #: read and hashed at once, while other threads run
_MAX_THREADS = 4  #: a disk is slower than four cores that hash
_VERSION = b"quire-weights-1"


def hash_checkpoint(
    directory: Path, *, num_threads: int | None = None, advance: Callable[[int], None] = lambda num_bytes: None
) -> str:
    """The digest of a checkpoint's tensors, `sha256:...`. Every byte of them is read; few are in memory at a time.

    Args:
        num_threads: by default one a core, up to four.
        advance: told of bytes as they pass, from any thread.

    Raises:
        ModelLoadError: there are no weights, or a file is cut off or cannot be read.
    """
    spans = read_headers(directory)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    stop = threading.Event()
    with ThreadPoolExecutor(num_threads or min(cores, _MAX_THREADS), thread_name_prefix="digest") as pool:
        try:
            # The largest first: an embedding that came last would leave one thread at work alone.
            largest_first = sorted(spans, key=lambda name: -spans[name].num_bytes)
            hashing = {name: pool.submit(_hash_tensor, name, spans[name], advance, stop) for name in largest_first}
            digests = {name: task.result() for name, task in hashing.items()}
        except BaseException:  # Ctrl-C, too: what has begun ends at its next piece
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return combine_digests(spans, digests)


def combine_digests(spans: Mapping[str, TensorEntry], digests: Mapping[str, bytes]) -> str:
    """The digest of a checkpoint whose tensors' bytes have these SHA-256 digests."""
    total = hashlib.sha256(_prefixed(_VERSION))
    for name in sorted(spans):
        span = spans[name]
        for part in (name.encode(), span.dtype.encode(), json.dumps(span.shape).encode(), digests[name]):
            total.update(_prefixed(part))
    return f"sha256:{total.hexdigest()}"


class RunningDigest:
    """Takes the digest of a checkpoint while its bytes pass, tensor by tensor."""

    def __init__(self) -> None:
        self._tensors: dict[str, bytes] = {}
        self._hash = hashlib.sha256()

    def add(self, name: str, data: memoryview, is_last: bool) -> None:
        """Bytes of a tensor, in order, and whether it ends with them."""
        self._hash.update(data)
        if is_last:
            self._tensors[name] = self._hash.digest()
            self._hash = hashlib.sha256()

    def of(self, spans: Mapping[str, TensorEntry]) -> str:
        """The digest, once all of these tensors have passed."""
        return combine_digests(spans, self._tensors)


def random_digest(config: ModelConfig, *, dtype: str, seed: int) -> str:
    """The digest of random weights (a preset's, or load_format="random"), `random:...`, without making them.

    They follow from the model's shape, the seed and the dtype, and from how torch draws normal numbers, which it does
    not promise to keep from one version or kind of processor to the next.

    Args:
        dtype: that the weights are made in.
    """
    import torch  # here, since reading begins before it is there

    from quire.loading.random_weights import RECIPE

    drawn = [torch.__version__, platform.machine(), torch.backends.cpu.get_cpu_capability()]
    facts = [RECIPE, asdict(config), dtype, seed, drawn]
    return f"random:{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


def _prefixed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _hash_tensor(name: str, span: TensorEntry, advance: Callable[[int], None], stop: threading.Event) -> bytes:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(PIECE_BYTES, span.num_bytes)))
    left = span.num_bytes
    try:
        with span.file.open("rb", buffering=0) as file:
            file.seek(span.start)
            while left and not stop.is_set():
                count = file.readinto(buffer[:left])
                if not count:
                    raise OSError("the file is cut off")
                digest.update(buffer[:count])
                left -= count
                advance(count)
    except OSError as error:
        raise ModelLoadError(f"{name} cannot be read from {span.file} ({error}); download it again") from None
    return digest.digest()
