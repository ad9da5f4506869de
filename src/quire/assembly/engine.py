"""From an `EngineConfig` to a running engine: the model and its runner, on one rank or several, and what decides.

The one place that knows all the parts by name. An engine that cannot serve is refused here, before its first request.
"""

from __future__ import annotations

import logging
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from quire.assembly.model import LoadedModel, load
from quire.assembly.rank import JointArrivals, ModelRank, RankOptions, check_ranks
from quire.assembly.runner import BuiltRunner, make_runner
from quire.calibration.calibrate import quick_profile
from quire.calibration.profiles import ProfileKeeper, ProfilePlace, profile_place
from quire.config import EngineConfig, SchedulerConfig
from quire.core.block_keys import Namespace
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.recovery_interface import RecoveryPolicy
from quire.core.decisions.recovery_policies import make_policy
from quire.engine.engine import Engine
from quire.engine.promotion import Arrivals, Promoter, StageRunner
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.source import ModelSource
from quire.loading.stage_manifest import Stage
from quire.outputs import Stats
from quire.runner.ranks.group import FileRendezvous, RankGroup, Rendezvous
from quire.runner.ranks.interface import RankHandle, RankLost
from quire.runner.ranks.joint_runner import JointRunner
from quire.runner.ranks.process import RankProcess, start_rank_processes
from quire.sampling_params import SamplingParams
from quire.system.cold_start import ColdStart
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

_SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_CAUSE_S = 1.0  # for a rank that has ended to have said why


def start_engine(
    config: EngineConfig,
    *,
    memory_share: float = 1.0,
    reading: CheckpointReading | None = None,
    is_progressive: bool = False,
    processes: Sequence[RankProcess] = (),
) -> Engine:
    """Load everything and hand over an engine that is ready for requests.

    Args:
        memory_share: of the memory for KV pools that the config leaves open; several engines on one device share it.
        reading: of the config's model, where it has begun already.
        is_progressive: see `load`.
        processes: of the other ranks, where they were started already.

    Raises:
        ValueError: the model, a file or a combination of options cannot be served.
        RuntimeError: another rank's process ended.
    """
    start = ColdStart()
    start.end("imports")
    if config.tensor_parallel_size > 1:
        return _start_on_processes(config, processes, memory_share, reading, start, is_progressive=is_progressive)
    loaded = load(config, reading=reading, start=start, is_progressive=is_progressive)
    engine = make_engine(config, loaded, memory_share=memory_share)
    start.end("pool")
    _log_start(engine, start)
    return engine


def _start_on_processes(
    config: EngineConfig,
    processes: Sequence[RankProcess],
    memory_share: float,
    reading: CheckpointReading | None,
    start: ColdStart,
    *,
    is_progressive: bool,
) -> Engine:
    """An engine whose ranks are processes of this machine, this one the first."""
    size = config.tensor_parallel_size
    try:
        check_ranks(config)
        processes = processes or start_rank_processes(size)
        directory = tempfile.TemporaryDirectory(prefix="quire-ranks-")  # which only this user may enter
        rendezvous = FileRendezvous(str(Path(directory.name) / "meeting"))
        options = RankOptions(memory_share=memory_share, ranks_here=size, is_progressive=is_progressive)
        for rank, process in enumerate(processes, start=1):
            process.build(partial(ModelRank, config, rank, size, rendezvous, options))
        engine = start_on_ranks(config, processes, rendezvous, options, reading=reading, start=start)
    except BaseException:
        for process in processes:
            process.end()
        raise
    if config.load_overlap or engine.promoter is not None:  # loaders are still to meet
        engine.on_close.append(directory.cleanup)
    else:
        directory.cleanup()
    return engine


def start_on_ranks(
    config: EngineConfig,
    others: Sequence[RankHandle],
    rendezvous: Rendezvous,
    options: RankOptions,
    *,
    reading: CheckpointReading | None = None,
    start: ColdStart | None = None,
) -> Engine:
    """An engine over ranks wherever they are; the first one is made here.

    Args:
        others: the other ranks, each of which makes a `ModelRank` by now.
        rendezvous: of all of them.
        options: of the first one.
        reading: see `start_engine`.
        start: is told of the phases that end here.

    Raises:
        ValueError: as `start_engine`, here or on another rank.
        RuntimeError: another rank has ended.
    """
    size, start = 1 + len(others), start or ColdStart()

    def check() -> None:
        for rank in others:
            if (why := rank.why_lost()) is not None:
                raise RankLost(why)

    try:
        worker = ModelRank(config, 0, size, rendezvous, options, check=check, reading=reading, start=start)
        for rank in others:
            rank.wait_built(None)
        engine = make_engine(worker.config, worker.loaded, built=worker.built, others=others)
    except Exception as error:
        raise _cause(error, others) from error
    start.end("pool")
    _log_start(engine, start)
    return engine


def _cause(error: Exception, others: Sequence[RankHandle]) -> Exception:
    """Why the ranks could not be built: the first one only hears of others that they have ended."""
    if isinstance(error, ValueError):
        return error
    for number, rank in enumerate(others, start=1):
        try:
            rank.wait_built(_CAUSE_S)
        except (RankLost, TimeoutError):
            continue
        except Exception as reported:
            kind = ValueError if isinstance(reported, ValueError) else RuntimeError
            return kind(f"rank {number} of {1 + len(others)}: {reported}")
    return RuntimeError(str(error))


def _log_start(engine: Engine, start: ColdStart) -> None:
    """Say after the first step that computes something where the time of the start went."""

    def note(stats: Stats) -> None:
        if stats.num_scheduled_tokens and note in engine.on_stats:
            engine.on_stats.remove(note)
            start.add("first step", stats.schedule_s + stats.execute_s)
            logger.info("%s", start)

    engine.on_stats.append(note)


def make_engine(
    config: EngineConfig,
    loaded: LoadedModel,
    *,
    memory_share: float = 1.0,
    cost_model: CostModel | None = None,
    recovery: RecoveryPolicy | None = None,
    built: BuiltRunner | None = None,
    others: Sequence[RankHandle] = (),
) -> Engine:
    """An engine with a pool of its own over a model that is loaded.

    Args:
        config: of the engine.
        loaded: may be shared.
        memory_share: of the memory for a KV pool that the config leaves open.
        cost_model: learns from every step; None is the profile of such engines, or a fresh one.
        recovery: in the place of `config.recovery_policy`. Where it or a cost model is given, no profile is looked
            for, measured or kept.
        built: of this model, where it was made before.
        others: the other ranks of the model, which are built.

    Raises:
        ValueError: the pool cannot be made as asked.
    """
    source, model = loaded.source, loaded.model
    shape = model.config
    built = built or make_runner(config, loaded, memory_share=memory_share)
    plan, first, others = built.plan, built.runner, tuple(others)
    runner = JointRunner(first, others) if others else first
    arrivals = loaded.arrivals
    if arrivals is not None and isinstance(runner, JointRunner):
        arrivals = JointArrivals(arrivals, runner)
    promoter = _make_promoter(loaded, arrivals, runner, built.namespace)
    asks_costs = first.disk is not None or (first.transfer_worker is not None and config.recovery_policy == "cost")
    has_profile = cost_model is None and recovery is None and asks_costs
    place = profile_place(config, model, loaded.device) if has_profile else None
    kept = place.load() if place is not None else None
    cost_model = cost_model or kept or CostModel()
    engine = Engine(
        SchedulerConfig(
            num_blocks=plan.num_blocks,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.tokens_per_step(shape.num_parameters, loaded.device),
            max_tokens_beside_streams=config.tokens_beside_streams,
            target_itl_s=None if config.target_itl is None else config.target_itl / 1e3,
            max_model_len=plan.max_model_len,
            enable_prefix_caching=config.enable_prefix_caching,
            watermark_blocks=int(config.watermark * plan.num_blocks),
            num_swap_slots=built.num_swap_slots,
            block_bytes=plan.block_bytes,
            has_disk_tier=first.disk is not None,
        ),
        runner,
        vocab_size=shape.vocab_size,
        tokenizer=loaded.tokenizer,
        eos_token_ids=built.eos_token_ids,
        namespace=built.namespace,
        promoter=promoter,
        promotion_policy=config.promotion_policy,
        seed=config.seed,
        sampling_defaults=_sampling_defaults(source),
        recovery=recovery or make_policy(config.recovery_policy, cost_model),
        cost_model=cost_model,
        keeps_prompts=config.kv_dir_keep_prompts,
        grammars=built.grammars,
    )
    if isinstance(loaded.group, RankGroup):
        engine.on_close.append(loaded.group.leave)  # the loader may wait for the others
    if loaded.loader is not None:
        engine.on_close.append(loaded.loader.close)
    if isinstance(runner, JointRunner):
        engine.on_close.append(runner.close)
    if place is not None and _is_whole(engine, loaded):
        is_arriving = loaded.loader is not None and not loaded.loader.stage_ready  # measuring would wait for all
        _keep_profile(engine, cost_model, place, first.transfer_worker, is_measured=kept is not None or is_arriving)
    elif place is not None and promoter is not None:
        _keep_profile_once_whole(engine, loaded, promoter, cost_model, place, first.transfer_worker)
    if built.prefix:
        num_kept = engine.pin_prefix(built.prefix)
        logger.info("pinned prefix: %d of %d tokens are computed and kept", num_kept, len(built.prefix))
    return engine


def _keep_profile(
    engine: Engine, cost_model: CostModel, place: ProfilePlace, worker: TransferWorker | None, *, is_measured: bool
) -> None:
    """Keep costs for the next such engines: a short profile at the first start, and what this engine learns."""
    if not is_measured:
        started = time.monotonic()
        quick_profile(engine, cost_model)
        seconds = time.monotonic() - started
        logger.info("costs: measured in %.1f s; quire calibrate shows them", seconds)
    keeper = ProfileKeeper(place, cost_model, worker)
    if not is_measured:
        keeper.keep()
    engine.on_stats.append(keeper.note)
    # Nobody closes an engine: it is let go of, and with it ends whatever holds it, a server's thread or a script.
    weakref.finalize(engine, keeper.keep)


def _is_whole(engine: Engine, loaded: LoadedModel) -> bool:
    """Whether it computes with all layers: costs are kept of whole models alone."""
    return loaded.manifest is None or engine.stage == len(loaded.manifest.stages)


def _keep_profile_once_whole(
    engine: Engine,
    loaded: LoadedModel,
    promoter: Promoter,
    cost_model: CostModel,
    place: ProfilePlace,
    worker: TransferWorker | None,
) -> None:
    """As `_keep_profile`, from the promotion to the original on; measuring earlier would hold the first stage up."""

    def keep(number: int) -> None:
        if _is_whole(engine, loaded):
            _keep_profile(engine, cost_model, place, worker, is_measured=True)

    promoter.on_promotion.append(keep)


def _make_promoter(
    loaded: LoadedModel, arrivals: Arrivals | None, runner: StageRunner, namespace: Namespace
) -> Promoter | None:
    """What takes the engine from stage to stage, for a model that has some."""
    manifest = loaded.manifest
    if manifest is None or arrivals is None:
        return None
    num_layers = manifest.num_layers
    stages = manifest.stages[: arrivals.last_stage]
    namespaces = [
        replace(namespace, layers=Namespace.name_layers(stage.layers, num_layers, _name_additions(stage)))
        for stage in stages
    ]
    shares = [len(stage.layers) / num_layers for stage in stages]
    ready = arrivals.stage_ready
    first = arrivals.stage(ready) if ready or loaded.loader is None else loaded.loader.arriving_stage(1)
    return Promoter(arrivals, runner, namespaces, shares, first)


def _name_additions(stage: Stage) -> str:
    """What a stage computes with beside the model's own layers."""
    return stage.adapter_digest + (f"+map:{stage.linear_map_digest}" if stage.linear_map_digest else "")


def _sampling_defaults(source: ModelSource) -> dict[str, float]:
    """What generation_config.json recommends, as far as it is valid."""
    found = {name: source.generation_config[name] for name in _SAMPLING_DEFAULTS if name in source.generation_config}
    if source.generation_config.get("do_sample") is False:  # said, not left out: the model wants to be greedy
        found["temperature"] = 0.0
    try:
        SamplingParams(**found)
    except ValueError as error:
        logger.warning("%s: generation_config.json is not followed: %s", source.name, error)
        return {}
    return found
