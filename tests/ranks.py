"""Tensor-parallel ranks as cheap threads, or as processes whose memory and reads are measured."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from quire.loading import load_model, resolve_model
from quire.models.base import CausalLM
from quire.models.parallel import ALONE, ParallelGroup
from quire.ops.arrays import as_numpy, as_tensor, like
from quire.progressive.hidden_states import WholeText
from tensors import logits_of_tokens

_Result = TypeVar("_Result")


class ThreadGroup(ParallelGroup):
    """A rank among threads that share a barrier and a board of tensors."""

    def __init__(self, rank: int, barrier: threading.Barrier, board: dict[int, Tensor]) -> None:
        super().__init__(rank, barrier.parties)
        self._barrier, self._board = barrier, board

    def all_reduce(self, x: Tensor) -> Tensor:
        as_tensor(x).copy_(torch.stack([*map(as_tensor, self._exchange(x))]).sum(0))
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return like(as_numpy(torch.cat([*map(as_tensor, self._exchange(x))], dim=-1)), x)

    def _exchange(self, x: Any) -> list[Any]:
        assert as_tensor(x).is_contiguous()
        self._board[self.rank] = like(as_numpy(x).copy(), x)
        self._barrier.wait()
        parts = [self._board[rank] for rank in range(self.size)]
        self._barrier.wait()
        assert len({part.shape for part in parts}) == 1
        return parts


def on_ranks(size: int, run: Callable[[ParallelGroup], _Result]) -> list[_Result]:
    """Return each rank's result, or raise the error of a failed one after the others have ended."""
    barrier, board = threading.Barrier(size), {}
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        try:
            results[rank] = run(ThreadGroup(rank, barrier, board))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [results[rank] for rank in range(size)]


def load(directory: str | Path, group: ParallelGroup = ALONE, **options: Any) -> CausalLM:
    return load_model(resolve_model(str(directory)), use_tqdm=False, group=group, **options)


@torch.inference_mode()
def logits_of(model: CausalLM, num_tokens: int = 60) -> Tensor:
    """Return the logits after each token of a random sequence."""
    ids = torch.randint(0, model.config.vocab_size, (num_tokens,), generator=torch.Generator().manual_seed(1))
    return logits_of_tokens(model, ids, torch.arange(num_tokens), WholeText(model.attention_layers()).attend)


@dataclass(frozen=True)
class Loaded:
    """Costs and outputs of a process that loaded its part of a model."""

    rank: int
    bytes_read: int  #: by all system calls
    memory: int  #: additional resident KiB
    tokens: list[int]  #: likeliest token after each one of a sequence


def load_in_processes(directory: Path, size: int, room: Path) -> list[Loaded]:
    """Load a model on `size` gloo ranks, which meet in the directory `room`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["quire.assembly", "quire.async_engine.process", "quire.server.app"])
    queue: SimpleQueue[Loaded] = context.SimpleQueue()
    arguments = (size, f"file://{room}/{size}-ranks", str(directory), queue)
    processes = [context.Process(target=_load_as_rank, args=(rank, *arguments), daemon=True) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return sorted((queue.get() for _ in processes), key=lambda each: each.rank)


class GlooGroup(ParallelGroup):
    """The default group of torch.distributed."""

    def __init__(self) -> None:
        super().__init__(torch.distributed.get_rank(), torch.distributed.get_world_size())

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        torch.distributed.all_reduce(as_tensor(x))
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        given = as_tensor(x).contiguous()
        parts = [torch.empty_like(given) for _ in range(self.size)]
        torch.distributed.all_gather(parts, given)
        return like(as_numpy(torch.cat(parts, dim=-1)), x)


def _load_as_rank(rank: int, size: int, meeting: str, directory: str, queue: SimpleQueue[Loaded]) -> None:
    import torch.distributed

    from quire.system.threads import set_num_threads

    set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    group = GlooGroup()
    logits_of(load("random:tiny", group), num_tokens=4)  # finishes imports and connects the ranks
    bytes_before, memory_before = _of_this_process("io", "rchar"), _of_this_process("status", "VmRSS")
    model = load(directory, group)
    bytes_read = _of_this_process("io", "rchar") - bytes_before
    memory = _of_this_process("status", "VmRSS") - memory_before
    queue.put(Loaded(rank, bytes_read, memory, logits_of(model).argmax(-1).tolist()))
    torch.distributed.destroy_process_group()


def _of_this_process(file: str, name: str) -> int:
    lines = Path(f"/proc/self/{file}").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))
