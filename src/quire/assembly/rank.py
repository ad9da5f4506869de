"""One rank of a model: its slice of the weights and its runner, in this process, another one or a Ray actor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from quire.assembly.model import LoadedModel, StartupTimer, load
from quire.assembly.runner import BuiltRunner, make_runner
from quire.config import EngineConfig
from quire.devices import check_devices, choose_device
from quire.engine.promotion import Arrivals, StepThrottle
from quire.loading.layer_loader import LayerLoader
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.source import resolve_model
from quire.models.parallel import ModelSplit, ParallelGroup
from quire.outputs import SchedulerOutput, StepOutput
from quire.runner.ranks.group import RankGroup, Rendezvous
from quire.runner.ranks.multi_rank_runner import MultiRankRunner
from quire.system.threads import keep_to_ranks_node, rank_threads


@dataclass(frozen=True)
class RankOptions:
    """Options of a rank, see `start_engine` and `load`. The `ranks_here` of a machine share its cores and memory."""

    memory_share: float = 1.0
    ranks_here: int = 1
    is_progressive: bool = False


class ModelRank:
    """One rank of a model, whose other methods are its runner's (`ModelRunner`). All ranks get the same steps in the
    same order, and a step ends on no rank before all have reached it. Arguments and results survive pickling.

    The constructor loads this rank's slice (from `reading`, if started) and waits for all ranks, with `check` called
    meanwhile. Rank 0 draws the tokens and belongs to the engine. ValueError if the model is not supported, or not by
    this many ranks; ConnectionError if a rank did not come."""

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
        start: StartupTimer | None = None,
    ) -> None:
        self.config = config_of_rank(config, rank, size, options.ranks_here)
        device = choose_device(config.device)
        is_ours = rank > 0 or options.is_progressive  # a script's own process is not bound
        if device == "cpu" and config.num_threads is None and is_ours:
            keep_to_ranks_node(rank % options.ranks_here, options.ranks_here)
        self._group = RankGroup(rank, size, rendezvous, device, check)
        self.loaded: LoadedModel = load(
            self.config, reading=reading, start=start, is_progressive=options.is_progressive, group=self._group
        )
        share = options.memory_share / (options.ranks_here if device == "cpu" else 1)
        self.built: BuiltRunner = make_runner(self.config, self.loaded, memory_share=share)
        self._runner = self.built.runner
        self._throttle = None if self.loaded.arrivals is None else self.loaded.arrivals.throttle

    def execute(self, out: SchedulerOutput) -> StepOutput:
        if self._throttle is not None:
            self._throttle.begin_step()
        return self._runner.execute(out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.built.runner, name)

    def forget(self, keys: set[bytes]) -> int:
        """Delete blocks from disk; see `BlockStore.delete`."""
        return 0 if self._runner.disk is None else self._runner.disk.store.delete(keys)

    def add_stage(self, number: int) -> None:
        loader = self._loader
        self._runner.add_stage(loader.stage(number) if loader.stage_ready >= number else loader.arriving_stage(number))

    def set_served_stage(self, number: int) -> None:
        self._loader.set_served_stage(number)

    def end_step(self, goes_on: bool) -> None:
        if self._throttle is not None:
            self._throttle.end_step(goes_on=goes_on)

    def pause(self) -> None:
        if self._throttle is not None:
            self._throttle.pause()

    @property
    def _loader(self) -> LayerLoader:
        assert self.loaded.loader is not None, "this model has no stages"
        return self.loaded.loader


def config_of_rank(config: EngineConfig, rank: int, size: int, ranks_here: int) -> EngineConfig:
    """Divide a config among ranks: sizes among all of them, threads and bandwidths among those of this machine."""

    def part(total: int | None, among: int) -> int | None:
        return None if total is None else max(1, total // among)

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
    """Raise ValueError if the model cannot be split among the ranks or the machine has too few GPUs."""
    size = config.tensor_parallel_size
    source = resolve_model(config.model, load_format=config.load_format, hub=config.hub)
    ModelSplit(source.config, ParallelGroup(0, size))
    check_devices(config.device, size)


class MultiRankArrivals:
    """See `Arrivals`: the stages of all ranks. Loaders meet at each stage, so the first rank's state is everyone's."""

    def __init__(self, first: Arrivals, runner: MultiRankRunner) -> None:
        self._first = first
        self._runner = runner
        self.num_stages, self.last_stage = first.num_stages, first.last_stage
        self.throttle = _AllRanksThrottle(first.throttle, runner)

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
        self._runner.notify("set_served_stage", number)


class _AllRanksThrottle:
    """See `StepThrottle`: all ranks load in the same pauses between steps."""

    def __init__(self, first: StepThrottle, runner: MultiRankRunner) -> None:
        self._first = first
        self._runner = runner

    def begin_step(self) -> None:
        self._first.begin_step()

    def end_step(self, *, goes_on: bool) -> None:
        self._runner.notify("end_step", goes_on)
        self._first.end_step(goes_on=goes_on)

    def pause(self) -> None:
        self._runner.notify("pause")
        self._first.pause()
