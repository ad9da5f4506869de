"""One rank of a model, whoever calls it: a process of this machine, an actor elsewhere, or the engine itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from quire.assembly.model import LoadedModel, check_devices, choose_device, load
from quire.assembly.runner import BuiltRunner, make_runner
from quire.config import EngineConfig
from quire.engine.promotion import Arrivals, Turns
from quire.loading.layer_loader import LayerLoader
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.source import resolve_model
from quire.models.parallel import ModelSplit, ParallelGroup
from quire.outputs import SchedulerOutput, StepOutput, StoreChanges
from quire.runner.ranks.group import RankGroup, Rendezvous
from quire.runner.ranks.joint_runner import JointRunner
from quire.system.cold_start import ColdStart
from quire.system.threads import keep_to_ranks_node, rank_threads


@dataclass(frozen=True)
class RankOptions:
    """What a rank has to know beside the engine's config.

    Attributes:
        memory_share: see `start_engine`.
        ranks_here: how many ranks this machine has, which share its cores, its memory and its disks.
        is_progressive: see `load`.
    """

    memory_share: float = 1.0
    ranks_here: int = 1
    is_progressive: bool = False


class ModelRank:
    """See `runner.ranks.interface.RankWorker`. Making one loads this rank's slice of the model, and returns when all
    ranks have theirs.

    Args:
        config: of the engine, the same for every rank.
        rank: from 0; the first one draws the tokens, and is the engine's own.
        size: how many ranks there are.
        rendezvous: where they meet.
        options: for this rank.
        check: called while it waits for others; may raise.
        reading: of the model, where it has begun already.
        start: is told of the phases that end here.

    Attributes:
        config: of this rank.

    Raises:
        ValueError: the model cannot be served, or not by so many ranks.
        ConnectionError: not all ranks came.
    """

    def __init__(
        self,
        config: EngineConfig,
        rank: int,
        size: int,
        rendezvous: Rendezvous,
        options: RankOptions = RankOptions(),
        *,
        check: Callable[[], None] | None = None,
        reading: CheckpointReading | None = None,
        start: ColdStart | None = None,
    ) -> None:
        self.config = config_of_rank(config, rank, size, options.ranks_here)
        device = choose_device(config.device)
        is_ours = rank > 0 or options.is_progressive  # the process; a program's own is not bound
        if device == "cpu" and config.num_threads is None and is_ours:
            keep_to_ranks_node(rank % options.ranks_here, options.ranks_here)
        self._group = RankGroup(rank, size, rendezvous, device, check)
        self.loaded: LoadedModel = load(
            self.config,
            reading=reading,
            start=start,
            is_progressive=options.is_progressive,
            group=self._group,
        )
        share = options.memory_share / (options.ranks_here if device == "cpu" else 1)
        self.built: BuiltRunner = make_runner(self.config, self.loaded, memory_share=share)
        self._runner = self.built.runner
        self._turns = None if self.loaded.arrivals is None else self.loaded.arrivals.turns

    def execute(self, out: SchedulerOutput) -> StepOutput:
        if self._turns is not None:
            self._turns.begin_step()
        return self._runner.execute(out)

    def poll_store(self) -> StoreChanges | None:
        return self._runner.poll_store()

    def forget(self, keys: set[bytes]) -> int:
        return 0 if self._runner.disk is None else self._runner.disk.store.delete(keys)

    def add_stage(self, number: int) -> None:
        loader = self._loader
        self._runner.add_stage(loader.stage(number) if loader.stage_ready >= number else loader.arriving_stage(number))

    def drop_stage(self, number: int) -> None:
        self._runner.drop_stage(number)

    def set_served_stage(self, number: int) -> None:
        self._loader.set_served_stage(number)

    def end_step(self, goes_on: bool) -> None:
        if self._turns is not None:
            self._turns.end_step(goes_on=goes_on)

    def pause(self) -> None:
        if self._turns is not None:
            self._turns.pause()

    @property
    def _loader(self) -> LayerLoader:
        assert self.loaded.loader is not None, "this model has no stages"
        return self.loaded.loader


def config_of_rank(config: EngineConfig, rank: int, size: int, ranks_here: int) -> EngineConfig:
    """What a config says of an engine, as one rank has to take it: sizes are of all ranks together, threads and
    bandwidths of the machine."""

    def part(of: int | None, among: int) -> int | None:
        return None if of is None else max(1, of // among)

    config = replace(
        config,
        tensor_parallel_size=size,
        num_threads=part(config.num_threads, ranks_here) or rank_threads(rank % ranks_here, ranks_here),
        kv_cache_memory=part(config.kv_cache_memory, size),
        swap_space=config.swap_space and part(config.swap_space, size),
        swap_bandwidth=part(config.swap_bandwidth, ranks_here),
        storage_bandwidth=part(config.storage_bandwidth, ranks_here),
    )
    if rank == 0:
        return config
    return replace(config, skip_tokenizer_init=True, pin_prefix=None, use_tqdm=False)


def check_ranks(config: EngineConfig) -> None:
    """Refuse a model that cannot be shared out among so many ranks, before a process is started for each.

    Raises:
        ValueError: it cannot, or there are too few GPUs; or there is no such model.
    """
    size = config.tensor_parallel_size
    ModelSplit(resolve_model(config.model, load_format=config.load_format).config, ParallelGroup(0, size))
    check_devices(config.device, size)


class JointArrivals:
    """See `Arrivals`: the stages that all ranks have. Loaders meet before a stage counts as ready, so the first rank's
    speaks for all.

    Args:
        first: of the first rank.
        runner: reaches the others.
    """

    def __init__(self, first: Arrivals, runner: JointRunner) -> None:
        self._first = first
        self._runner = runner
        self.num_stages, self.last_stage = first.num_stages, first.last_stage
        self.turns = _JointTurns(first.turns, runner)

    @property
    def on_stage(self) -> Callable[[int], None] | None:
        return self._first.on_stage

    @on_stage.setter
    def on_stage(self, listener: Callable[[int], None] | None) -> None:
        self._first.on_stage = listener

    @property
    def stage_ready(self) -> int:
        return self._first.stage_ready

    def stage(self, number: int) -> Any:
        return self._first.stage(number)

    def set_served_stage(self, number: int) -> None:
        self._first.set_served_stage(number)
        self._runner.tell("set_served_stage", number)


class _JointTurns:
    """See `Turns`: every rank loads in the same pauses."""

    def __init__(self, first: Turns, runner: JointRunner) -> None:
        self._first = first
        self._runner = runner

    def begin_step(self) -> None:
        self._first.begin_step()

    def end_step(self, *, goes_on: bool) -> None:
        self._runner.tell("end_step", goes_on)
        self._first.end_step(goes_on=goes_on)

    def pause(self) -> None:
        self._runner.tell("pause")
        self._first.pause()
