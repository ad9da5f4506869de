"""From an `EngineConfig` to a running engine: model, tokenizer, KV pool, runner.

The one place that knows all the parts by name. An engine that cannot serve is refused here, before its first request.
"""

from __future__ import annotations

import logging
import time
import uuid
import weakref
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBackend, KVLayout
from quire.attention.torch_attention import TorchAttention
from quire.calibration.calibrate import quick_profile
from quire.calibration.profiles import ProfileKeeper, ProfilePlace, profile_place
from quire.config import EngineConfig, SchedulerConfig, format_size
from quire.core.block_keys import Namespace
from quire.core.costs.cost_model import CostModel
from quire.core.recovery.interface import RecoveryPolicy
from quire.core.recovery.policies import make_policy
from quire.engine.engine import Engine
from quire.engine.promotion import Arrivals, Promoter
from quire.kernels.loaded import load_kernels
from quire.loading.digest import random_digest
from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import WeightFiles, checkpoint_digest, keep_digest, known_digest, stat_weights
from quire.loading.layer_loader import LayerLoader
from quire.loading.load import wait_with_progress
from quire.loading.reading.checkpoint_reading import CheckpointReading, read_checkpoint
from quire.loading.source import ModelSource, resolve_model
from quire.loading.stage_manifest import Stage, StageManifest
from quire.memory_plan import plan_pool, plan_swap_slots
from quire.models.base import CausalLM
from quire.models.model_config import ModelConfig, check_tokenizer_fits
from quire.models.weights.quantized_weight import RECIPES
from quire.outputs import Stats
from quire.runner.batch import InputBatch
from quire.runner.kv_cache import KVCache
from quire.runner.model_runner import ModelRunner
from quire.sampling_params import SamplingParams
from quire.structured.matcher import Grammars
from quire.system.cold_start import ColdStart
from quire.system.malloc import keep_freed_memory
from quire.system.threads import default_num_threads, keep_to_one_node
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.tokenizer import Tokenizer
from quire.tiers.disk_link import DiskLink
from quire.tiers.disk_space import DiskSpace
from quire.tiers.host_space import HostSpace
from quire.tiers.store.block_store import BlockStore
from quire.tiers.swap_space import SwapSpace
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

_SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, which several engines may share, of different block sizes, say."""

    source: ModelSource
    model: CausalLM
    tokenizer: Tokenizer | None
    device: str
    weights: str | None  #: their digest, where it is known without reading them
    files: WeightFiles  #: that were loaded, as they were before; none of random weights
    loader: LayerLoader | None = None  #: what brings the layers, and those that are still to come
    manifest: StageManifest | None = None  #: of a model that arrives in stages
    arrivals: Arrivals | None = None  #: brings them


def start_engine(
    config: EngineConfig,
    *,
    memory_share: float = 1.0,
    reading: CheckpointReading | None = None,
    is_progressive: bool = False,
) -> Engine:
    """Load everything and hand over an engine that is ready for requests.

    Args:
        memory_share: of the memory for KV pools that the config leaves open; several engines on one device share it.
        reading: of the config's model, where it has begun already.
        is_progressive: see `load`.

    Raises:
        ValueError: the model, a file or a combination of options cannot be served.
    """
    start = ColdStart()
    start.end("imports")
    loaded = load(config, reading=reading, start=start, is_progressive=is_progressive)
    engine = make_engine(config, loaded, memory_share=memory_share)
    start.end("pool")
    _log_start(engine, start)
    return engine


def _log_start(engine: Engine, start: ColdStart) -> None:
    """Say after the first step that computes something where the time of the start went."""

    def note(stats: Stats) -> None:
        if stats.num_scheduled_tokens and note in engine.on_stats:
            engine.on_stats.remove(note)
            start.add("first step", stats.schedule_s + stats.execute_s)
            logger.info("%s", start)

    engine.on_stats.append(note)


def load(
    config: EngineConfig,
    *,
    reading: CheckpointReading | None = None,
    start: ColdStart | None = None,
    is_progressive: bool = False,
) -> LoadedModel:
    """The model and the tokenizer that a config names; with `load_overlap`, as soon as the embeddings are in place.

    Args:
        reading: of the same model, where it has begun already. It is ended here if loading fails.
        start: is told of the phases that end here, config and weights.
        is_progressive: of a model packed in stages, hand over the first one, and let the rest arrive.

    Raises:
        ValueError: the model or a file cannot be served.
    """
    try:
        return _load(config, reading, start or ColdStart(), is_progressive)
    except BaseException:
        if reading is not None:
            reading.close()
        raise


def _load(
    config: EngineConfig, reading: CheckpointReading | None, start: ColdStart, is_progressive: bool
) -> LoadedModel:
    started = time.monotonic()
    device = _choose_device(config.device)
    config.check_quantization(device)
    if device == "cpu":
        keep_freed_memory()
        if config.num_threads is None and is_progressive:  # a server's: a program's own thread is not bound
            keep_to_one_node()
    torch.set_num_threads(config.num_threads or min(torch.get_num_threads(), default_num_threads()))
    source = resolve_model(config.model, load_format=config.load_format)
    tokenizer = None if config.skip_tokenizer_init else load_tokenizer(source)
    if tokenizer is not None:
        check_tokenizer_fits(source.config, tokenizer.vocab_size)
        if config.escape_special_tokens:
            tokenizer.escaper = SpecialTokenEscaper(tokenizer.backend)
    is_random = source.path is None or config.load_format == "random"
    if reading is None and source.path is not None and not is_random:
        reading = read_checkpoint(source.path, bandwidth=config.storage_bandwidth, last_stage=config.last_stage)
    weights = None if reading is None else _known_digest(reading)
    loader = LayerLoader(
        source,
        dtype=config.dtype,
        device=device,
        quantization=config.quantization,
        load_format=config.load_format,
        seed=config.seed,
        reading=reading,
        takes_digest=config.kv_dir is not None and weights is None,
        retries=is_progressive,
    )
    model = loader.model
    start.end("config")
    # KV that is kept needs the weights' digest, and there is none before all of them have passed.
    overlaps = config.load_overlap and (config.kv_dir is None or weights is not None or is_random)
    overlaps &= is_progressive or loader.num_stages == 1
    try:
        if overlaps:
            if reading is not None and reading.manifest is None:  # a pack's bytes are checked by themselves
                loader.check = partial(_check_unchanged, reading)
            loader.start()
            loader.wait_input()
            model.switch_to(loader.arriving_stage(1))
        else:
            wait_with_progress(loader, 1 if is_progressive else loader.last_stage, config.use_tqdm)
    except BaseException:
        loader.close()
        raise
    logger.info(
        "%s: %s, %.1f M parameters, %s%s on %s, %s in %.1f s",
        source.name,
        model.config.architecture,
        model.config.num_parameters / 1e6,
        _name(model.dtype),
        "" if model.quantization == "none" else f" with {model.quantization} weights",
        device,
        "layers arrive" if overlaps else "loaded",
        time.monotonic() - started,
    )
    start.end("weights")
    if reading is None:
        weights = random_digest(model.config, dtype=_name(model.dtype), seed=config.seed)
    elif not overlaps:
        weights = _digest_of_loaded(reading, loader)
    files = () if reading is None else reading.files
    manifest = None if reading is None else reading.manifest
    arrivals = None if manifest is None else loader
    return LoadedModel(source, model, tokenizer, device, weights, files, loader, manifest, arrivals)


def _known_digest(reading: CheckpointReading) -> str | None:
    """The digest of weights that are being read, where it is known already."""
    if reading.manifest is not None:
        return reading.manifest.weights  # their bytes are checked as they pass
    return known_digest(reading.directory, reading.files)


def _check_unchanged(reading: CheckpointReading) -> None:
    if stat_weights(reading.directory) != reading.files:
        raise ModelLoadError(f"the weights in {reading.directory} changed while they were loaded; load them again")


def _digest_of_loaded(reading: CheckpointReading, loader: LayerLoader) -> str | None:
    """The digest of weights that were read, where it is known by now. None where somebody changed them meanwhile."""
    try:
        _check_unchanged(reading)
    except ModelLoadError:
        return None
    if loader.digest is not None:
        keep_digest(reading.directory, reading.files, loader.digest, reading.started_ns)
    return loader.digest or _known_digest(reading)


def make_engine(
    config: EngineConfig,
    loaded: LoadedModel,
    *,
    memory_share: float = 1.0,
    cost_model: CostModel | None = None,
    recovery: RecoveryPolicy | None = None,
) -> Engine:
    """An engine with a pool of its own over a model that is loaded.

    Args:
        config: of the engine.
        loaded: may be shared.
        memory_share: of the memory for a KV pool that the config leaves open.
        cost_model: learns from every step; None is the profile of such engines, or a fresh one.
        recovery: in the place of `config.recovery_policy`. Where it or a cost model is given, no profile is looked
            for, measured or kept.

    Raises:
        ValueError: the pool cannot be made as asked.
    """
    source, model, tokenizer = loaded.source, loaded.model, loaded.tokenizer
    prefix = _read_prefix(config, tokenizer)
    shape = model.config
    layout = KVLayout(shape.num_layers, shape.num_kv_heads, config.block_size, shape.head_dim)
    bytes_to_come = 0 if loaded.loader is None else loaded.loader.memory_to_come()
    plan = plan_pool(
        config,
        block_bytes=layout.block_bytes(model.dtype.itemsize),
        model_max_len=shape.context_length,
        weight_bytes=model.weight_bytes(),
        device=loaded.device,
        num_pinned_tokens=len(prefix),
        memory_share=memory_share,
        bytes_to_come=bytes_to_come,
    )
    num_swap_slots = plan_swap_slots(
        config, plan, device=loaded.device, memory_share=memory_share, bytes_to_come=bytes_to_come
    )
    namespace = _namespace(loaded, config, is_persistent=config.kv_dir is not None)
    cache = KVCache(plan.num_blocks, layout, model.dtype, torch.device(loaded.device))
    worker = None
    if num_swap_slots:
        worker = _make_transfer_worker(config, cache, plan.block_bytes, num_swap_slots, namespace)
    eos_token_ids = dict.fromkeys(source.eos_token_ids)
    if tokenizer is not None and tokenizer.eos_token_id is not None:
        eos_token_ids[tokenizer.eos_token_id] = None
    grammars = None if tokenizer is None else Grammars(tokenizer, shape.vocab_size, tuple(eos_token_ids))
    runner = ModelRunner(
        model,
        cache,
        _make_attention(cache.tensor, layout, shape.num_heads),
        InputBatch(config.max_num_seqs, plan.max_model_len, config.block_size),
        shape.vocab_size,
        worker,
        _open_disk_tier(config, cache, plan.block_bytes, namespace, source.name),
        grammars,
    )
    promoter = _make_promoter(loaded, runner, namespace)
    asks_costs = runner.disk is not None or (worker is not None and config.recovery_policy == "cost")
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
            num_swap_slots=num_swap_slots,
            block_bytes=plan.block_bytes,
            has_disk_tier=runner.disk is not None,
        ),
        runner,
        vocab_size=shape.vocab_size,
        tokenizer=tokenizer,
        eos_token_ids=tuple(eos_token_ids),
        namespace=namespace,
        promoter=promoter,
        promotion_policy=config.promotion_policy,
        seed=config.seed,
        sampling_defaults=_sampling_defaults(source),
        recovery=recovery or make_policy(config.recovery_policy, cost_model),
        cost_model=cost_model,
        keeps_prompts=config.kv_dir_keep_prompts,
        grammars=grammars,
    )
    if loaded.loader is not None:
        engine.on_close.append(loaded.loader.close)
    if place is not None and _is_whole(engine, loaded):
        is_arriving = loaded.loader is not None and not loaded.loader.stage_ready  # measuring would wait for all
        _keep_profile(engine, cost_model, place, worker, is_measured=kept is not None or is_arriving)
    elif place is not None and promoter is not None:
        _keep_profile_once_whole(engine, loaded, promoter, cost_model, place, worker)
    if prefix:
        logger.info("pinned prefix: %d of %d tokens are computed and kept", engine.pin_prefix(prefix), len(prefix))
    return engine


def _make_attention(cache: torch.Tensor, layout: KVLayout, num_heads: int) -> AttentionBackend:
    """The fastest attention that there is for the cache's device and dtype."""
    if cache.device.type != "cpu":
        return TorchAttention(cache, layout, num_heads)
    kernels = load_kernels()
    if kernels.functions is None or not CpuAttention.supports(cache.dtype):
        unsupported = (
            "" if kernels.functions is None else f", but not for {_name(cache.dtype)}: torch's attention is used"
        )
        logger.info("kernels: %s%s", kernels, unsupported)
        return TorchAttention(cache, layout, num_heads)
    logger.info("kernels: %s", kernels)
    return CpuAttention(cache, layout, num_heads, kernels.functions)


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


def _make_promoter(loaded: LoadedModel, runner: ModelRunner, namespace: Namespace) -> Promoter | None:
    """What takes the engine from stage to stage, for a model that has some."""
    manifest, arrivals = loaded.manifest, loaded.arrivals
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


def load_tokenizer(source: ModelSource) -> Tokenizer:
    """The model's tokenizer; presets have one for bytes."""
    if source.path is None:
        return Tokenizer.byte_level(source.config.vocab_size)
    tokenizer = Tokenizer.from_dir(source.path)
    if tokenizer.chat_templates:
        _warn_of_broken_templates(source.name, tokenizer)
    return tokenizer


def _warn_of_broken_templates(model: str, tokenizer: Tokenizer) -> None:
    from quire.text.chat_template import check_template  # jinja2, which a model without a template does without

    instead = "conversations will be refused, and --chat-template FILE gives another one"
    for name, template in tokenizer.chat_templates.items():
        try:
            check_template(template)
        except ValueError as error:
            logger.warning("%s: %s (its template %r); %s", model, error, name, instead)


def _choose_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda, but torch sees no CUDA device; use device=cpu or a torch build with CUDA")
    return name


def _read_prefix(config: EngineConfig, tokenizer: Tokenizer | None) -> list[int]:
    if config.pin_prefix is None:
        return []
    if tokenizer is None:
        raise ValueError("pin_prefix is text and needs a tokenizer; leave out skip_tokenizer_init")
    try:
        text = Path(config.pin_prefix).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"pin_prefix={config.pin_prefix!r} cannot be read: {error}") from None
    if not text:
        raise ValueError(f"pin_prefix={config.pin_prefix!r} is empty")
    return tokenizer.encode(text)


def _make_transfer_worker(
    config: EngineConfig, cache: KVCache, block_bytes: int, num_slots: int, namespace: Namespace
) -> TransferWorker:
    """The swap tier, and the way there."""
    space: SwapSpace
    if config.swap_dir is not None:
        space = DiskSpace(config.swap_dir, num_slots, block_bytes, namespace.root())
        place = f"a file in {config.swap_dir}"
    else:
        try:
            space = HostSpace(num_slots, block_bytes, pinned=cache.tensor.is_cuda)
        except RuntimeError as error:
            size = format_size(num_slots * block_bytes)
            raise ValueError(f"the host gives no {size} to swap to: {error}; lower swap_space") from None
        place = "host memory"
    limit = "" if config.swap_bandwidth is None else f", at most {format_size(config.swap_bandwidth)} a second"
    logger.info("swap: up to %d blocks (%s) in %s%s", num_slots, format_size(num_slots * block_bytes), place, limit)
    return TransferWorker(cache.tensor, space, bandwidth=config.swap_bandwidth)


def _open_disk_tier(
    config: EngineConfig, cache: KVCache, block_bytes: int, namespace: Namespace, model: str
) -> DiskLink | None:
    """The disk tier, if the config has one."""
    if config.kv_dir is None:
        return None
    store = BlockStore(
        config.kv_dir,
        model=model,
        root=namespace.root(),
        block_bytes=block_bytes,
        max_bytes=config.kv_dir_size,
        facts=asdict(namespace),
    )
    logger.info(
        "kv_dir: %d blocks (%s) of this model in %s, which takes up to %s",
        store.num_blocks,
        format_size(store.num_blocks * block_bytes),
        config.kv_dir,
        format_size(config.kv_dir_size),
    )
    return DiskLink(cache.tensor, store, block_bytes)


def _namespace(loaded: LoadedModel, config: EngineConfig, *, is_persistent: bool = False) -> Namespace:
    """The engine's namespace.

    Args:
        is_persistent: blocks outlive the process or are shared with others, so that the weights need a digest, be it
            by reading them again. Otherwise, where none is known, they get a name that no other process has.

    Raises:
        ModelLoadError: it is persistent, and the files are no longer what was loaded.
    """
    weights = loaded.weights
    if weights is None and is_persistent:
        assert loaded.source.path is not None
        weights = checkpoint_digest(loaded.source.path, files=loaded.files, use_tqdm=config.use_tqdm)
    return make_namespace(
        loaded.model.config,
        weights=weights or f"process:{uuid.uuid4().hex}",
        dtype=_name(loaded.model.dtype),
        quantization=loaded.model.quantization,
        block_size=config.block_size,
    )


def make_namespace(
    shape: ModelConfig, *, weights: str, dtype: str, block_size: int, quantization: str = "none"
) -> Namespace:
    """The namespace of a plain model's KV blocks.

    Args:
        weights: their digest.
        dtype: of arithmetic and KV, such as bfloat16.
        quantization: none, int8 or int4, of linear layers.
    """
    return Namespace(
        weights=weights,
        dtype=dtype,
        kv_dtype=dtype,
        geometry=f"{shape.num_layers}x{shape.num_kv_heads}x{shape.head_dim}/{block_size}",
        rope=repr(shape.rope),
        arithmetic=shape.arithmetic,
        quantization=RECIPES[quantization],
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
