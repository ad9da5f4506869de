"""Save document KV to disk before the questions, in a process per model, whose memory is then released."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from quire.config import EngineConfig
from quire.prompt import Prompt
from quire.system.page_cache import resident_share
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

_LIMITS = WorkerLimits(memory_bytes=None, cpu_s=None, wall_s=3600.0)  # a document
_PIECE = 1 << 20  #: bytes of a raw read
_NUM_PIECES = 64


def warm(config: EngineConfig, prompts: Sequence[Prompt], on_document: Callable[[], None]) -> int:
    """Save the KV of the prompts' documents in the config's `kv_dir`. Returns its bytes.

    Raises:
        ValueError: a prompt is too long for the model, or the directory is full.
        WorkerError: the process ended.
    """
    child = WorkerProcess(partial(_make_worker, config), "warming", limits=_LIMITS)
    num_bytes = 0
    try:
        for prompt in prompts:
            end = prompt.documents[-1]
            (_, domain), *_ = prompt.domains
            question = [list(prompt.token_ids[:end]), list(prompt.documents), domain.level, domain.name.hex()]
            kept, num_bytes_kept = json.loads(child.ask(json.dumps(question).encode()))
            if kept < end // config.block_size * config.block_size:
                raise ValueError(
                    f"the KV directory took {kept} of a document's {end} tokens, and no more; raise --kv-dir-size, "
                    "give --kv-dir a disk with more room, or ask fewer --queries"
                )
            num_bytes += num_bytes_kept
            on_document()
    finally:
        child.close()
    _write_out(Path(config.kv_dir or "."))
    return num_bytes


def _make_worker(config: EngineConfig) -> Worker:
    from quire.assembly import start_engine
    from quire.core.block_keys import Domain
    from quire.engine.document_warmer import DocumentWarmer

    engine = start_engine(config)
    warmer = DocumentWarmer(engine)

    def answer(question: bytes) -> bytes:
        token_ids, documents, level, name = json.loads(question)
        domains = ((0, Domain(level, bytes.fromhex(name))),)
        try:
            warmed = warmer.warm(Prompt(token_ids=token_ids, domains=domains, documents=tuple(documents)))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
        limits = engine.scheduler.config
        return json.dumps([warmed.num_kept, warmed.num_kept // limits.block_size * limits.block_bytes]).encode()

    return answer


def _write_out(directory: Path) -> None:
    for path in directory.glob("*/*.seg"):
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def read_raw(directory: Path, seed: int) -> tuple[float, float] | None:
    """Bytes per second of plain reads of random pieces of the KV files, and the resident share of the files before;
    None without files.
    """
    rng = random.Random(seed)
    sizes = {path: path.stat().st_size for path in sorted(directory.glob("*/*.seg"))}
    sizes = {path: size for path, size in sizes.items() if size}
    if not sizes:
        return None
    drawn = rng.choices(list(sizes), list(sizes.values()), k=_NUM_PIECES)
    resident = []
    for path in set(drawn):
        with path.open("rb") as file:
            resident.append(resident_share(file.fileno()) or 0.0)
    buffer = memoryview(bytearray(_PIECE))
    num_bytes, seconds = 0, 0.0
    for path in drawn:
        with path.open("rb", buffering=0) as file:
            started = time.perf_counter()
            num_bytes += os.preadv(file.fileno(), [buffer], rng.randrange(max(1, sizes[path] // _PIECE)) * _PIECE)
            seconds += time.perf_counter() - started
    return num_bytes / max(seconds, 1e-9), sum(resident) / max(1, len(resident))
