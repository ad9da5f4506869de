"""From an `EngineConfig` to a model in memory, whole or this rank's slice of it, and its tokenizer."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from quire.config import EngineConfig
from quire.engine.promotion import Arrivals
from quire.loading.digest import random_digest
from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import WeightFiles, keep_digest, known_digest, stat_weights
from quire.loading.layer_loader import LayerLoader
from quire.loading.load import wait_with_progress
from quire.loading.reading.checkpoint_reading import CheckpointReading, read_checkpoint
from quire.loading.source import ModelSource, resolve_model
from quire.loading.stage_manifest import StageManifest
from quire.models.base import CausalLM
from quire.models.model_config import check_tokenizer_fits
from quire.models.parallel import ALONE, ParallelGroup
from quire.runner.ranks.group import RankGroup
from quire.system.cold_start import ColdStart
from quire.system.malloc import keep_freed_memory
from quire.system.threads import default_num_threads, keep_to_one_node
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.tokenizer import Tokenizer

logger = logging.getLogger("quire")


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
    group: ParallelGroup = ALONE  #: of the ranks that hold the model together


def load(
    config: EngineConfig,
    *,
    reading: CheckpointReading | None = None,
    start: ColdStart | None = None,
    is_progressive: bool = False,
    group: ParallelGroup = ALONE,
) -> LoadedModel:
    """The model and the tokenizer that a config names; with `load_overlap`, as soon as the embeddings are in place.

    Args:
        reading: of the same model, where it has begun already. It is ended here if loading fails.
        start: is told of the phases that end here, config and weights.
        is_progressive: of a model packed in stages, hand over the first one, and let the rest arrive.
        group: of ranks that load the same model at this moment, each its slice.

    Raises:
        ValueError: the model or a file cannot be served.
    """
    try:
        if config.tensor_parallel_size != group.size:
            raise ValueError(
                f"tensor_parallel_size={config.tensor_parallel_size} is for `quire serve`, `quire generate` and LLM(); "
                "what runs here has one rank: leave it out"
            )
        return _load(config, reading, start or ColdStart(), is_progressive, group)
    except BaseException:
        if reading is not None:
            reading.close()
        raise


def _load(
    config: EngineConfig,
    reading: CheckpointReading | None,
    start: ColdStart,
    is_progressive: bool,
    group: ParallelGroup,
) -> LoadedModel:
    started = time.monotonic()
    device = choose_device(config.device)
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
        takes_digest=config.kv_dir is not None and weights is None and group.size == 1,  # a slice has none
        retries=is_progressive,
        group=group,
    )
    model = loader.model
    if isinstance(group, RankGroup):
        loader.check = _meet_at_each_stage(group, loader)
        loader.agree = partial(_agree, group, loader)
    start.end("config")
    # KV that is kept needs the weights' digest, and there is none before all of them have passed.
    overlaps = config.load_overlap and (config.kv_dir is None or weights is not None or is_random)
    overlaps &= is_progressive or loader.num_stages == 1
    try:
        if overlaps:
            if reading is not None and reading.manifest is None:  # a pack's bytes are checked by themselves
                loader.check = _both(partial(_check_unchanged, reading), loader.check)
            loader.start()
            loader.wait_input()
            model.switch_to(loader.arriving_stage(1))
        else:
            wait_with_progress(loader, 1 if is_progressive else loader.last_stage, config.use_tqdm)
    except BaseException:
        if isinstance(group, RankGroup):
            group.leave()  # the loader may wait for the others
        loader.close()
        raise
    logger.info(
        "%s: %s, %.1f M parameters, %s%s on %s, %s in %.1f s%s",
        source.name,
        model.config.architecture,
        model.config.num_parameters / 1e6,
        name_of(model.dtype),
        "" if model.quantization == "none" else f" with {model.quantization} weights",
        device,
        "layers arrive" if overlaps else "loaded",
        time.monotonic() - started,
        "" if group.size == 1 else f", rank {group.rank} of {group.size}",
    )
    start.end("weights")
    if reading is None:
        weights = random_digest(model.config, dtype=name_of(model.dtype), seed=config.seed)
    elif not overlaps:
        weights = _digest_of_loaded(reading, loader)
    files = () if reading is None else reading.files
    manifest = None if reading is None else reading.manifest
    arrivals = None if manifest is None else loader
    return LoadedModel(source, model, tokenizer, device, weights, files, loader, manifest, arrivals, group)


def _meet_at_each_stage(group: RankGroup, loader: LayerLoader) -> Callable[[], None]:
    """A check that passes once all ranks have brought the same stage: what one of them has is of no use alone."""
    numbers = itertools.count(1)

    def meet() -> None:
        loader.turns.leave()  # no step is to wait for the others' files
        group.exchange(f"loaded {next(numbers)}", None)

    return meet


def _agree(group: RankGroup, loader: LayerLoader, error: Exception | None) -> Exception | None:
    """See `LayerLoader.agree`."""
    loader.turns.leave()
    for rank, wrong in enumerate(group.exchange("stage", None if error is None else str(error))):
        if wrong is not None:
            return error or ModelLoadError(f"rank {rank} of {group.size}: {wrong}")
    return None


def _both(first: Callable[[], None], second: Callable[[], None] | None) -> Callable[[], None]:
    def check() -> None:
        first()
        if second is not None:
            second()

    return check


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


def choose_device(name: str) -> str:
    """What auto is here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda, but torch sees no CUDA device; use device=cpu or a torch build with CUDA")
    return name


def check_devices(name: str, num_ranks: int) -> None:
    """Refuse more ranks on this machine than it has GPUs.

    Raises:
        ValueError: it has fewer, and they are to be used.
    """
    if choose_device(name) == "cuda" and (found := torch.cuda.device_count()) < num_ranks:
        raise ValueError(
            f"tensor_parallel_size={num_ranks} takes as many CUDA devices, and torch sees {found}; lower it, or use "
            "device=cpu"
        )


def name_of(dtype: torch.dtype) -> str:
    """Such as bfloat16."""
    return str(dtype).removeprefix("torch.")
