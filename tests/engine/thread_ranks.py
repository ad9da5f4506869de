"""Ranks as threads: real workers and gloo collectives, without processes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch.distributed as distributed

from engine.harness import checkpoint
from quire import LLM, EngineConfig
from quire.assembly import make_engine
from quire.assembly.rank import ModelRank, RankOptions
from quire.core.decisions.cost_model import CostModel


class ThreadRendezvous:
    """See `Rendezvous`."""

    def __init__(self) -> None:
        self._store = distributed.HashStore()

    def store(self, rank: int, size: int) -> distributed.Store:
        return self._store

    def torch_store(self, store: distributed.Store, size: int) -> distributed.Store:
        return store

    def address(self) -> str:
        return "127.0.0.1"


class ThreadRank:
    """See `RankHandle`; tests may inspect `worker`."""

    def __init__(
        self, config: EngineConfig, rank: int, size: int, rendezvous: ThreadRendezvous, options: RankOptions
    ) -> None:
        self.worker: ModelRank | None = None
        self._asked: SimpleQueue[tuple[Future[Any], str, tuple[Any, ...]] | None] = SimpleQueue()
        self._built: Future[None] = Future()
        arguments = (config, rank, size, rendezvous, options)
        self._thread = threading.Thread(target=self._serve, args=arguments, daemon=True)
        self._thread.start()

    def _serve(self, *arguments: Any) -> None:
        try:
            worker = self.worker = ModelRank(*arguments)
        except Exception as error:
            self._built.set_exception(error)
            return
        self._built.set_result(None)
        while (asked := self._asked.get()) is not None:
            future, method, args = asked
            try:
                future.set_result(getattr(worker, method)(*args))
            except Exception as error:
                future.set_exception(error)

    def wait_built(self, timeout_s: float | None) -> None:
        self._built.result(timeout_s)

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        future: Future[Any] = Future()
        self._asked.put((future, method, pickle.loads(pickle.dumps(args))))
        return future.result

    def why_lost(self) -> str | None:
        return None

    def watch(self, tell: Callable[[str], None]) -> None:
        pass

    def end(self) -> None:
        self._asked.put(None)


class MultiRankLLM(LLM):
    """An engine over `num_ranks` ranks, by default with a pool of 64 blocks.

    `model` is a variant's name or a directory; `costs` as for `make_engine`, `is_progressive` as for `load`; `ranks`
    are all but the first.
    """

    def __init__(
        self,
        model: str | Path,
        num_ranks: int = 2,
        *,
        costs: CostModel | None = None,
        is_progressive: bool = False,
        **options: Any,
    ) -> None:
        directory = checkpoint(model) if isinstance(model, str) else model
        options = {"num_kv_blocks": 64, "skip_tokenizer_init": True, "use_tqdm": False, "device": "cpu"} | options
        options.setdefault("speculation", "off")
        config = EngineConfig(str(directory), tensor_parallel_size=num_ranks, **options)
        rendezvous, of_each = ThreadRendezvous(), RankOptions(ranks_here=num_ranks, is_progressive=is_progressive)
        self.ranks = [ThreadRank(config, rank, num_ranks, rendezvous, of_each) for rank in range(1, num_ranks)]
        first = ModelRank(config, 0, num_ranks, rendezvous, of_each)
        for rank in self.ranks:
            rank.wait_built(None)
        self.config = first.config
        self.engine = make_engine(self.config, first.loaded, cost_model=costs, built=first.built, others=self.ranks)

    @property
    def workers(self) -> list[ModelRank]:
        """The workers of all ranks but the first."""
        return [rank.worker for rank in self.ranks if rank.worker is not None]
