"""Make an engine over a model in memory: KV pool, runner, scheduler, promotions, and a cost model that is measured at
the first start and kept on disk."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quire.assembly.draft_model import num_drafts
from quire.assembly.model import LoadedModel
from quire.assembly.rank import MultiRankArrivals
from quire.assembly.runner import BuiltRunner, make_runner
from quire.calibration.calibrate import quick_profile
from quire.calibration.profiles import ProfileKeeper, ProfilePlace, profile_place
from quire.config import EngineConfig, SchedulerConfig
from quire.core.block_keys import Namespace
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.recovery_policy import RecoveryPolicy, make_policy
from quire.engine.engine import Engine, ModelFacts
from quire.engine.kv_auditor import KVAuditor
from quire.engine.pinned_prefix import pin_prefix
from quire.engine.promotion import Promoter
from quire.kernels.loaded import has_exact_kernels
from quire.loading.source import ModelSource, read_json_object
from quire.ops.arrays import name_of
from quire.runner.model_runner import ModelRunner
from quire.runner.ranks.group import RankGroup
from quire.runner.ranks.interface import RankHandle
from quire.runner.ranks.multi_rank_runner import MultiRankRunner
from quire.sampling_params import SamplingParams
from quire.system.user_cache import is_default_kv_dir
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")


@dataclass(frozen=True)
class EngineCosts:
    """An engine's cost model and its place on disk."""

    model: CostModel
    place: ProfilePlace | None = None  #: None: neither measured nor kept
    is_measured: bool = False  #: loaded from `place`, or to be learned while serving

    @classmethod
    def load(cls, config: EngineConfig, loaded: LoadedModel) -> EngineCosts:
        place = profile_place(config, loaded.model, loaded.device)
        kept = place.load()
        # The default directory does not delay a start: steps and loads are measured as they come.
        is_default = is_default_kv_dir(config.kv_dir) and not config.has_swap_tier(loaded.device)
        return cls(kept or CostModel(), place, kept is not None or is_default)

    def keep(self, engine: Engine, loaded: LoadedModel, worker: TransferWorker | None) -> None:
        """Measure the costs of a whole model if there was no profile, and keep what the engine learns."""
        if self.place is None:
            return
        if _is_whole(engine, loaded):
            is_arriving = loaded.loader is not None and not loaded.loader.stage_ready  # measuring would wait for it
            self._keep(engine, self.place, worker, measures=not (self.is_measured or is_arriving))
        elif engine.promoter is not None:
            place = self.place

            def keep_once_whole(number: int) -> None:
                if _is_whole(engine, loaded):
                    self._keep(engine, place, worker, measures=False)

            engine.promoter.on_promotion.append(keep_once_whole)

    def _keep(self, engine: Engine, place: ProfilePlace, worker: TransferWorker | None, *, measures: bool) -> None:
        keeper = ProfileKeeper(place, self.model, worker)
        if measures:
            started = time.monotonic()
            quick_profile(engine, self.model)
            logger.info("costs: measured in %.1f s; quire calibrate shows them", time.monotonic() - started)
            keeper.keep()
        weakref.finalize(engine, keeper.keep)  # engines are dropped, not closed


def _is_whole(engine: Engine, loaded: LoadedModel) -> bool:
    """Return whether the engine computes with all layers."""
    return loaded.manifest is None or engine.stage == len(loaded.manifest.stages)


_SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


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
    """Make an engine with its own KV pool (`memory_share` of the free memory by default) over a loaded model.
    `cost_model` and `recovery` replace the profile on disk. `built` is the model's runner, `others` its other ranks.
    ValueError as `make_runner`."""
    built = built or make_runner(config, loaded, memory_share=memory_share)
    first = built.runner
    runner = MultiRankRunner(first, tuple(others)) if others else first
    needs_costs = first.disk is not None or (first.transfer_worker is not None and config.recovery_policy == "cost")
    if cost_model is None and recovery is None and needs_costs:
        costs = EngineCosts.load(config, loaded)
    else:
        costs = EngineCosts(cost_model or CostModel())
    engine = Engine(
        _scheduler_config(config, loaded, built),
        runner,
        ModelFacts(
            loaded.model.config.vocab_size,
            loaded.tokenizer,
            tuple(built.eos_token_ids),
            built.namespace,
            _sampling_defaults(loaded.source) if config.generation_config == "auto" else {},
            _pooling(loaded.source),
        ),
        promoter=_make_promoter(loaded, runner, built.namespace),
        seed=config.seed,
        recovery=recovery or make_policy(config.recovery_policy),
        cost_model=costs.model,
        grammars=built.grammars,
    )
    if isinstance(loaded.group, RankGroup):
        engine.on_close.append(loaded.group.leave)  # the loader may wait for the others
    if loaded.loader is not None:
        engine.on_close.append(loaded.loader.close)
    if isinstance(runner, MultiRankRunner):
        engine.on_close.append(runner.close)
    for name, directory in config.adapters.items():
        engine.adapters.load(name, directory)
    costs.keep(engine, loaded, first.transfer_worker)
    is_exact = has_exact_kernels(loaded.device, name_of(loaded.model.dtype))
    if is_exact and config.enable_prefix_caching and config.kv_audit_rate:
        engine.auditor = KVAuditor(engine, config.kv_audit_rate)
    if built.prefix:
        if loaded.loader is not None:
            engine.on_stats.append(loaded.loader.report_progress)
        num_kept = pin_prefix(engine, built.prefix)
        if loaded.loader is not None:
            engine.on_stats.remove(loaded.loader.report_progress)
        logger.info("pinned prefix: KV of %d of %d tokens stays in the pool", num_kept, len(built.prefix))
    return engine


def _scheduler_config(config: EngineConfig, loaded: LoadedModel, built: BuiltRunner) -> SchedulerConfig:
    plan = built.plan
    return SchedulerConfig(
        num_blocks=plan.num_blocks,
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.tokens_per_step(loaded.model.config.num_parameters, loaded.device),
        max_tokens_beside_streams=config.tokens_beside_streams,
        target_itl_s=None if config.target_itl is None else config.target_itl / 1e3,
        max_model_len=plan.max_model_len,
        enable_prefix_caching=config.enable_prefix_caching,
        watermark_blocks=int(config.watermark * plan.num_blocks),
        num_swap_slots=built.num_swap_slots,
        block_bytes=plan.record_bytes,
        has_disk_tier=built.runner.disk is not None,
        keep_prompts=config.kv_dir_keep_prompts,
        promotion_policy=config.promotion_policy,
        num_speculative_tokens=num_drafts(config, loaded.device, loaded.model),
        draft_model=None if loaded.draft is None else loaded.draft.facts(loaded.model),
        window=plan.window,
    )


def _make_promoter(loaded: LoadedModel, runner: ModelRunner | MultiRankRunner, namespace: Namespace) -> Promoter | None:
    manifest, arrivals = loaded.manifest, loaded.arrivals
    if manifest is None or arrivals is None:
        return None
    if isinstance(runner, MultiRankRunner):
        arrivals = MultiRankArrivals(arrivals, runner)
    num_layers = manifest.num_layers
    stages = manifest.stages[: arrivals.last_stage]
    names = [
        Namespace.name_layers(stage.layers, num_layers, stage.adapter_digest, manifest.bits_of(stage.number))
        for stage in stages
    ]
    namespaces = [replace(namespace, layers=name) for name in names]
    shares = [len(stage.layers) / num_layers for stage in stages]
    ready = arrivals.stage_ready
    first = arrivals.stage(ready) if ready or loaded.loader is None else loaded.loader.arriving_stage(1)
    return Promoter(arrivals, runner, namespaces, shares, first)


def _pooling(source: ModelSource) -> str:
    """Return the pooling that the files of sentence-transformers name; without them, the last token's."""
    file = (source.path or Path()) / "1_Pooling" / "config.json"
    return "mean" if file.is_file() and read_json_object(file).get("pooling_mode_mean_tokens") else "last"


def _sampling_defaults(source: ModelSource) -> dict[str, float]:
    """Return the valid recommendations of generation_config.json."""
    found = {name: source.generation_config[name] for name in _SAMPLING_DEFAULTS if name in source.generation_config}
    if source.generation_config.get("do_sample") is False:  # explicitly false: greedy
        found["temperature"] = 0.0
    try:
        SamplingParams(**found)
    except ValueError as error:
        logger.warning("%s: generation_config.json is ignored: %s", source.name, error)
        return {}
    return found
