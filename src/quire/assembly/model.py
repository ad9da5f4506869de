"""Load the model and tokenizer of an `EngineConfig`: the whole model, or this rank's slice."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from quire.assembly.draft_model import DraftModel, load_draft_model
from quire.attention.interface import KVLayout
from quire.config import EngineConfig
from quire.devices import choose_device
from quire.engine.promotion import Arrivals
from quire.kernels.loaded import load_kernels
from quire.loading.digest import random_digest
from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import WeightFiles, keep_digest, known_digest, stat_weights
from quire.loading.layer_loader import LayerLoader, wait_with_progress
from quire.loading.reading.checkpoint_reading import CheckpointReading, read_checkpoint
from quire.loading.source import ModelSource, read_directory, resolve_model
from quire.loading.stage_manifest import StageManifest
from quire.memory_plan import check_room, explained_if_full
from quire.models.base import CausalLM
from quire.models.experts import check_experts
from quire.models.model_config import check_tokenizer_fits
from quire.models.parallel import ALONE, ParallelGroup
from quire.ops.arrays import name_of
from quire.runner.ranks.group import RankGroup
from quire.system.malloc import keep_freed_memory
from quire.system.memory import process_age
from quire.system.threads import default_num_threads, keep_to_one_node, set_num_threads
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.tokenizer import Tokenizer
from quire.tiers.store.layout.cipher import open_cipher


class StartupTimer:
    """A stopwatch that starts with the process and measures consecutive phases."""

    def __init__(self) -> None:
        self._phases: dict[str, float] = {}
        self._last = time.monotonic() - process_age()

    def end(self, phase: str) -> None:
        """End a part of a phase, which began at the end of the part before."""
        now = time.monotonic()
        self._phases[phase] = self._phases.get(phase, 0.0) + now - self._last
        self._last = now

    def add(self, phase: str, seconds: float) -> None:
        self._phases[phase] = seconds

    def __str__(self) -> str:
        return "cold start: " + ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in self._phases.items())


logger = logging.getLogger("quire")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory. Several engines may share it, for example with different block sizes."""

    source: ModelSource
    model: CausalLM
    tokenizer: Tokenizer | None
    device: str
    weights: str | None  #: digest of the weights, if known
    files: WeightFiles  #: the files as they were before loading; empty for random weights
    loader: LayerLoader | None = None
    manifest: StageManifest | None = None  #: the stages of a pack
    arrivals: Arrivals | None = None  #: provides later stages
    group: ParallelGroup = ALONE
    draft: DraftModel | None = None

    @property
    def weight_bytes(self) -> int:
        return self.model.weight_bytes() + (0 if self.draft is None else self.draft.model.weight_bytes())


def load(
    config: EngineConfig,
    *,
    reading: CheckpointReading | None = None,
    start: StartupTimer | None = None,
    is_progressive: bool = False,
    group: ParallelGroup = ALONE,
) -> LoadedModel:
    """Load a model and its tokenizer, from `reading` if it has started. With `load_overlap`, return once the embeddings
    are in place; `is_progressive`, with a pack's first stage. `start` records the phases. All ranks
    of the group load at this moment. ValueError if the model or a file is not supported."""
    try:
        if config.tensor_parallel_size != group.size:
            raise ValueError(
                f"tensor_parallel_size={config.tensor_parallel_size} works with `quire serve`, `quire generate` and "
                "LLM(); this command uses one rank: leave it out"
            )
        open_cipher(config.kv_dir_key)  # before the weights, for its errors
        with explained_if_full(config, "load the weights"):
            loaded = _load(config, reading, start or StartupTimer(), is_progressive, group)
        for each in (loaded, loaded.draft):
            if each is not None:
                each.model.is_eager = config.enforce_eager
        if loaded.manifest is None and not config.load_overlap:
            check_experts(loaded.model)
        return loaded
    except BaseException:
        if reading is not None:
            reading.close()
        raise


def _load(
    config: EngineConfig,
    reading: CheckpointReading | None,
    start: StartupTimer,
    is_progressive: bool,
    group: ParallelGroup,
) -> LoadedModel:
    started = time.monotonic()
    device = choose_device(config.device)
    _set_up_process(config, device, is_progressive)
    if reading is not None:
        source = read_directory(config.model, reading.directory)
    else:
        source = resolve_model(config.model, load_format=config.load_format, hub=config.hub)
    start.end("config")
    tokenizer = _make_tokenizer(config, source)
    start.end("tokenizer")
    if device == "cpu":
        load_kernels()
    start.end("kernels")
    is_random = source.path is None or config.load_format == "random"
    if reading is None and source.path is not None and not is_random:
        reading = read_checkpoint(source.path, bandwidth=config.storage_bandwidth, last_stage=config.last_stage)
    if reading is not None and not is_progressive and config.last_stage is None:
        reading.read_at_once()
    weights = None if reading is None else _known_digest(reading)
    loader = LayerLoader(
        source,
        dtype=config.dtype,
        device=device,
        quantization=config.quantization,
        load_format=config.load_format,
        seed=config.seed,
        reading=reading,
        computes_digest=config.kv_dir is not None and weights is None and group.size == 1,  # a slice has no digest
        retries=is_progressive,
        group=group,
    )
    loader.lay_out(config.weights)
    loader.model.set_kv_dtype(config.kv_cache_dtype)
    _check_room(config, source, loader, device)
    start.end("config")
    # Persistent KV needs the weights' digest, which is known only once all bytes have passed.
    overlaps = config.load_overlap and (config.kv_dir is None or weights is not None or is_random)
    overlaps &= is_progressive or loader.num_stages == 1
    _fill(loader, reading, 1 if is_progressive else loader.last_stage, overlaps=overlaps, use_tqdm=config.use_tqdm)
    _log_loaded(source, loader.model, overlaps, time.monotonic() - started)
    start.end("weights")
    if reading is None:
        weights = random_digest(loader.model.config, dtype=name_of(loader.model.dtype), seed=config.seed)
    elif not overlaps:
        weights = _digest_of_loaded(reading, loader)
    files = () if reading is None else reading.files
    manifest = None if reading is None else reading.manifest
    arrivals = None if manifest is None else loader
    draft = load_draft_model(config, source, loader.model, tokenizer)
    return LoadedModel(
        source, loader.model, tokenizer, device, weights, files, loader, manifest, arrivals, group, draft
    )


def _check_room(config: EngineConfig, source: ModelSource, loader: LayerLoader, device: str) -> None:
    model = loader.model
    layout = KVLayout(model.attention_layers(), config.block_size)
    check_room(
        config,
        source.name,
        device,
        dtype=name_of(model.dtype),
        weight_bytes=loader.pending_memory(),
        block_bytes=layout.block_bytes(model.kv_dtype.itemsize),
    )


def _set_up_process(config: EngineConfig, device: str, is_progressive: bool) -> None:
    if device == "cpu":
        keep_freed_memory()
        if config.num_threads is None and is_progressive:  # a server; a script's own thread is not bound
            keep_to_one_node()
    set_num_threads(config.num_threads or default_num_threads())


def _make_tokenizer(config: EngineConfig, source: ModelSource) -> Tokenizer | None:
    if config.skip_tokenizer_init:
        return None
    tokenizer = load_tokenizer(source)
    check_tokenizer_fits(source.config, tokenizer.vocab_size)
    if config.escape_special_tokens:
        tokenizer.escaper = SpecialTokenEscaper(tokenizer.backend)
    return tokenizer


def _fill(
    loader: LayerLoader, reading: CheckpointReading | None, stage: int, *, overlaps: bool, use_tqdm: bool
) -> None:
    """Start the loader. Return with the embeddings in place if steps overlap with loading, else with a whole stage."""
    model, group = loader.model, loader.model.split.group
    if isinstance(group, RankGroup):
        loader.check = _meet_at_each_stage(group, loader)
        loader.agree = partial(_agree, group, loader)
    try:
        if overlaps:
            if reading is not None and reading.manifest is None:  # a pack's files have checksums instead
                loader.check = _both(partial(_check_unchanged, reading), loader.check)
            loader.start()
            loader.wait_input()
            model.switch_to(loader.arriving_stage(1))
        else:
            wait_with_progress(loader, stage, use_tqdm)
    except BaseException:
        if isinstance(group, RankGroup):
            group.leave()  # the loader may wait for the others
        loader.close()
        raise


def _log_loaded(source: ModelSource, model: CausalLM, overlaps: bool, seconds: float) -> None:
    group = model.split.group
    logger.info(
        "%s: %s, %.1f M parameters, %s%s on %s, %s in %.1f s%s",
        source.name,
        model.config.architecture,
        model.config.num_parameters / 1e6,
        name_of(model.dtype),
        f" with {kind} weights" if (kind := model.weight_kind) != "plain" else "",
        model.device,
        "layers arrive" if overlaps else "loaded",
        seconds,
        "" if group.size == 1 else f", rank {group.rank} of {group.size}",
    )


def _meet_at_each_stage(group: RankGroup, loader: LayerLoader) -> Callable[[], None]:
    """Return a check that waits until all ranks have loaded the same stage."""
    numbers = itertools.count(1)

    def meet() -> None:
        loader.throttle.release()  # the engine's step must not wait for other ranks' files
        group.exchange(f"loaded {next(numbers)}", None)

    return meet


def _agree(group: RankGroup, loader: LayerLoader, error: Exception | None) -> Exception | None:
    """See `LayerLoader.agree`."""
    loader.throttle.release()
    for rank, text in enumerate(group.exchange("stage", None if error is None else str(error))):
        if text is not None:
            return error or ModelLoadError(f"rank {rank} of {group.size}: {text}")
    return None


def _both(first: Callable[[], None], second: Callable[[], None] | None) -> Callable[[], None]:
    def check() -> None:
        first()
        if second is not None:
            second()

    return check


def _known_digest(reading: CheckpointReading) -> str | None:
    """Return the digest of weights that are being read, if known."""
    if reading.manifest is not None:
        return reading.manifest.weights  # the files' checksums are verified during loading
    return known_digest(reading.directory, reading.files)


def _check_unchanged(reading: CheckpointReading) -> None:
    if stat_weights(reading.directory) != reading.files:
        raise ModelLoadError(f"the weights in {reading.directory} changed while they were loaded; load them again")


def _digest_of_loaded(reading: CheckpointReading, loader: LayerLoader) -> str | None:
    """Return the digest of the loaded weights, if known; None if the files changed meanwhile."""
    try:
        _check_unchanged(reading)
    except ModelLoadError:
        return None
    if loader.digest is not None:
        keep_digest(reading.directory, reading.files, loader.digest, reading.started_ns)
    return loader.digest or _known_digest(reading)


def load_tokenizer(source: ModelSource) -> Tokenizer:
    """Load the model's tokenizer; presets have a byte-level one."""
    if source.path is None:
        return Tokenizer.byte_level(source.config.vocab_size)
    return Tokenizer.from_dir(source.path)
