"""Load layers in a thread, while those in place are used. Peak memory: the model, one layer and read buffers."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

from quire.loading.checkpoint import TensorEntry
from quire.loading.digest import RunningDigest
from quire.loading.errors import ModelLoadError, UnreadableError
from quire.loading.modules.fitting import choose_served_dtype, fit_model
from quire.loading.modules.group_loader import GroupLoader, LoadHooks, LoadingClosed
from quire.loading.modules.loaded_stages import LoadedStages
from quire.loading.modules.units import ModelUnits, Unit, finish_tables, truncate
from quire.loading.progress import LoadStatus, bytes_progress
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.source import ModelSource
from quire.loading.stage_manifest import check_against
from quire.models.base import CausalLM
from quire.models.model_config import ModelConfig
from quire.models.parallel import ALONE, ParallelGroup
from quire.models.registry import build_model
from quire.models.stages import ServableStage
from quire.ops.arrays import DType, name_of
from quire.ops.backend import dtype_for
from quire.ops.module import Module
from quire.outputs import LoadProgress
from quire.system.background_throttle import BackgroundThrottle
from quire.system.malloc import give_memory_back
from quire.system.memory import is_gpu_full

logger = logging.getLogger("quire")

BACKGROUND_SHARE = 0.07  #: share of time for loading while the engine steps; with decoding, steps take 1.09 of theirs
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0
_DAMAGED_RETRY_S = 300.0  # a damaged file is read again after this time, or once it has changed
_EXIT_WAIT_S = 5.0


class LayerLoader:
    """Builds the model on the meta device at once, and fills it after `start`.

    Args:
        source: a checkpoint, a pack or a preset.
        dtype: float32, bfloat16, float16, or auto: the config's dtype, else the files'.
        load_format: random fills a checkpoint's shapes with random weights of `seed`.
        reading: the opened checkpoint, with or without stages; None opens the source as one stage.
        retries: retry layers of later stages, and skip later stages with a damaged adapter, instead of failing.
        group: the tensor-parallel group. Each rank reads its own part of the files and computes no digest.

    Attributes:
        on_stage, on_bytes: called in the loader's thread when a stage is ready, and with the number of arrived bytes.
        check: called there before a stage becomes ready; may raise.
        agree: called there with a stage's error or None; returns that of any rank, as all ranks serve a stage or none.
        digest: digest of the weights once all are in place, if `computes_digest`.
        throttle: limits the time that loading takes from the engine's steps.

    Raises:
        UnsupportedModelError, ModelConfigError: the config, or its split among the ranks, is not supported.
        ModelLoadError: the files do not fit the config. No byte of weights is read before.
        ValueError: this dtype or device has no quantized layers.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        quantization: str = "none",
        load_format: str = "auto",
        seed: int = 0,
        reading: CheckpointReading | None = None,
        computes_digest: bool = False,
        retries: bool = False,
        group: ParallelGroup = ALONE,
    ) -> None:
        self.on_stage: Callable[[int], None] | None = None
        self.on_bytes: Callable[[int], None] | None = None
        self.check: Callable[[], None] | None = None
        self.agree: Callable[[Exception | None], Exception | None] = lambda error: error
        self.digest: str | None = None
        self.throttle = BackgroundThrottle(BACKGROUND_SHARE)
        self._seed = seed
        self._retries = retries
        self._reading = _open(source, load_format, reading)
        at_once = quantization != "none" or device != "cpu"
        self.model, self._names = _fit(source, partial(_choose, dtype, device), group, self._reading, at_once)
        self._manifest = None if self._reading is None else self._reading.manifest
        self.model.device = device
        self.model.quantize(quantization)
        self.num_stages = 1 if self._manifest is None else len(self._manifest.stages)
        self.last_stage = 1 if self._reading is None else len(self._reading.groups)
        self._units = ModelUnits(self.model, self._manifest)
        hashes = computes_digest and self._reading is not None and self._manifest is None and group.size == 1
        self._hash = RunningDigest() if hashes else None
        self._groups: GroupLoader | None = None  #: while the thread runs
        self._stages = LoadedStages(self.model, self._manifest)
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        stage_bytes = [self.bytes_until(stage) for stage in range(1, self.last_stage + 1)]
        self._status = LoadStatus(self.num_stages, self.last_stage, stage_bytes)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def stage_ready(self) -> int:
        """The highest stage whose units are all in place and verified; 0 for none."""
        return self._status.stage_ready

    @property
    def is_random(self) -> bool:
        return self._reading is None

    def lay_out(self, weights: str) -> None:
        """Choose the layout of packed weights, before `start`; see `CausalLM.lay_out`."""
        self.model.lay_out(weights, has_rest=self._manifest is not None and self._manifest.has_rest)
        self._units = ModelUnits(self.model, self._manifest)

    def start(self) -> None:
        seconds_ago = 0.0
        if self._reading is not None:
            seconds_ago = (time.time_ns() - self._reading.started_ns) / 1e9
            self._reading.start()
        hooks = LoadHooks(
            self._closing.is_set, self._wait_for_turn, self.throttle.release, self._install, self._report_bytes
        )
        groups = GroupLoader(self.model, self._units, self._reading, self._names, self._hash, self._seed, hooks)
        self._groups = groups
        self._thread = threading.Thread(target=self._work, args=(groups,), name="quire-load", daemon=True)
        weakref.finalize(self, _end, self._closing, self._thread)  # a thread inside a kernel at exit crashes
        self._status.begin(seconds_ago)
        self._thread.start()

    def wait_stage(self, number: int) -> None:
        """Return once a stage is ready; raises ModelLoadError, or ModelConfigError for a misfit adapter."""
        if not 1 <= number <= self.last_stage:
            raise ValueError(f"stage {number} is not one of the {self.last_stage} loaded stages")
        self._wait(lambda: self.stage_ready >= number or self._stages.why_left_out(number) is not None)
        if (error := self._stages.why_left_out(number)) is not None:
            raise error

    def wait_input(self) -> None:
        """Return once the embeddings are in place, where a forward pass begins; raises as `wait_stage`."""
        self._wait(self._units.has_input)

    def layer(self, index: int) -> Module:
        """Wait for a layer; raises as `wait_stage`."""
        if not self._units.has_layer(index):
            self._wait(lambda: self._units.has_layer(index))
        return self.model.layers[index]

    def stage(self, number: int) -> ServableStage:
        """Wait for a stage and return it; raises as `wait_stage`, and ValueError if a later stage is served."""
        self.wait_stage(number)
        with self._changed:
            if (stage := self._stages.get(number)) is None:
                raise ValueError(f"stage {number} was dropped because a later one is served")
            return stage

    def arriving_stage(self, number: int) -> ServableStage:
        """Return a stage at once; its forward passes wait for each layer (`ArrivingLayers`)."""
        return self._stages.arriving(number, self)

    def bytes_until(self, number: int) -> int:
        """Return the bytes that arrive before a stage is ready."""
        if self._reading is None:
            return sum(unit.num_bytes for unit in self._units)
        return sum(group.num_bytes for group in self._reading.groups[:number])

    def set_served_stage(self, number: int) -> None:
        """Report the stage that the engine serves. Adapters of earlier stages are dropped."""
        with self._changed:
            self._stages.drop_before(number)
        self._status.set_served(number)

    def progress(self) -> LoadProgress:
        return self._status.progress()

    def report_progress(self, stats: object = None) -> None:
        """Tell the listener that the start goes on, since a long silence counts as a hang."""
        self._status.notify()

    def pending_memory(self) -> int:
        """Return the bytes of memory that loading will still take, less the read buffers that it will free."""
        buffered = 0 if (groups := self._groups) is None else groups.buffered_bytes
        return max(0, self._units.pending_bytes(self.last_stage) - buffered)

    def close(self) -> None:
        """Stop loading and drop callbacks, of which one may still run. Layers remain; waiting threads get an error."""
        self._closing.set()
        self.throttle.close()
        with self._changed:
            self._changed.notify_all()
        if (groups := self._groups) is not None:
            groups.stop()
        if self._thread is None:
            if self._reading is not None:
                self._reading.close()
        elif self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._status.close()
        self.on_stage = self.on_bytes = self.check = None
        self.agree = lambda error: error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, is_there: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._failure is not None or self._closing.is_set())
            if is_there():
                return
        if self._failure is not None:
            raise self._failure
        raise ModelLoadError("loading was stopped before the model was complete")

    # -- the loader's thread -------------------------------------------------------------------------------------------

    def _work(self, groups: GroupLoader) -> None:
        try:
            self._load_stages(groups)
        except LoadingClosed:
            pass
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, ValueError | OSError) and not is_gpu_full(error):  # an engine reports these
                raise
        finally:
            self.throttle.release()
            groups.close_reader()
            self._groups = None  # it refers to this loader
            give_memory_back()

    def _load_stages(self, groups: GroupLoader) -> None:
        for number in range(1, self.last_stage + 1):
            self._load_group(groups, number)
            error: Exception | None = None
            try:
                self._stages.make(number)
            except Exception as raised:
                error = raised
            error = self.agree(error)
            if error is not None:
                if not self._continues_after_errors:
                    raise error
                self._leave_out(number, error)
                continue
            with self._changed:
                self._status.set_ready(number)
                self._changed.notify_all()
            self._status.notify()
            self._notify_ready(number)

    @property
    def _continues_after_errors(self) -> bool:
        return self._retries and self.stage_ready > 0

    def _load_group(self, groups: GroupLoader, number: int) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            if self._closing.is_set():
                raise LoadingClosed
            self._status.begin_group()
            try:
                groups.load(number)
                if (check := self.check) is not None:
                    check()
                if self._hash is not None and self._reading is not None:
                    self.digest = self._hash.of(self._reading.entries)
                return
            except LoadingClosed:
                raise
            except Exception as error:
                groups.close_reader()
                if not self._continues_after_errors:
                    raise
                self._status.discard_group()
                self._units.reset(number)
                groups.restart()
                self._pause(number, error, pause_s)
            pause_s = min(2 * pause_s, _LAST_RETRY_S)

    def _pause(self, number: int, error: Exception, pause_s: float) -> None:
        """Wait before the next attempt. A damaged file stays damaged, so wait until it changes."""
        is_damaged = isinstance(error, ModelLoadError) and not isinstance(error, UnreadableError)
        retry = "once its file has changed" if is_damaged else f"in {pause_s:.0f} s"
        logger.warning(
            "stage %d cannot be loaded, stage %d stays in service; next attempt %s: %s",
            number, self.stage_ready, retry, error, exc_info=_unexpected(error),
        )  # fmt: skip
        self._status.set_error(str(error), is_stuck=True)
        self._status.notify()
        left_s = _DAMAGED_RETRY_S if is_damaged else pause_s
        while left_s > 0 and not self._closing.wait(pause_s):
            left_s -= pause_s
            if is_damaged and self._reading is not None and self._reading.has_changed(number - 1):
                return

    def _wait_for_turn(self) -> None:
        """Wait for the engine before a piece of work. The engine itself waits for the first stage."""
        if self.stage_ready:
            self.throttle.acquire()

    def _install(self, unit: Unit) -> None:
        finish_tables(self.model, unit)
        if self._manifest is not None and (bits := self._manifest.bits_of(1)) is not None:
            truncate(self.model, unit, bits)
        if not self.throttle.is_stepping:  # freed plain weights lie between packed ones: up to 250 MiB
            give_memory_back()
        with self._changed:
            self._units.set_in_place(unit)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        self._status.set_error(str(error), is_stuck=True)
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._status.notify()

    def _leave_out(self, number: int, error: Exception) -> None:
        """Skip a stage whose adapter is unusable. Later stages do not need it."""
        logger.warning("stage %d is left out: %s", number, error, exc_info=_unexpected(error))
        self._status.set_error(f"stage {number} is left out: {error}", is_stuck=False)
        with self._changed:
            self._stages.leave_out(number, error)
            self._changed.notify_all()
        self._status.notify()

    def _report_bytes(self, num_bytes: int) -> None:
        if (on_bytes := self.on_bytes) is not None:
            on_bytes(num_bytes)
        self._status.add_bytes(num_bytes)

    def _notify_ready(self, number: int) -> None:
        on_stage = self.on_stage  # a local of this frame only: an error's traceback must not keep the engine alive
        if on_stage is not None:
            on_stage(number)


def _open(source: ModelSource, load_format: str, reading: CheckpointReading | None) -> CheckpointReading | None:
    if source.path is not None and load_format != "random":
        return reading or CheckpointReading(source.path)
    if load_format == "safetensors":
        raise ModelLoadError(f"{source.name} is a preset without files; load_format must be auto or random")
    return None


def _choose(dtype: str, device: str, config: ModelConfig, in_files: str | None) -> DType:
    """Choose the dtype of a model's arrays."""
    return dtype_for(choose_served_dtype(dtype, config, in_files, device), device)


def _fit(
    source: ModelSource,
    choose: Callable[[ModelConfig, str | None], DType],
    group: ParallelGroup,
    reading: CheckpointReading | None,
    at_once: bool,
) -> tuple[CausalLM, dict[TensorEntry, str]]:
    """Build the model on the meta device. Returns the model's name of each tensor to read as well."""
    if reading is None:
        return build_model(source.config, choose(source.config, None), "meta", group), {}
    model, matched = fit_model(source.config, reading.entries, choose, group)
    manifest = reading.manifest
    if manifest is not None and manifest.has_rest and (at_once or name_of(model.dtype) != manifest.dtype):
        logger.info("all bits of a layer are loaded at once: only unchanged weights on a CPU have precision stages")
        reading.read_at_once()
    if group.size > 1:
        matched = {name: replace(entry, whole=None) for name, entry in matched.items()}
        reading.narrow(matched.values())
    if reading.manifest is not None:
        check_against(reading.manifest, model.config)
    return model, {entry: name for name, entry in matched.items()}


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, ValueError | OSError) else error


def _end(closing: threading.Event, thread: threading.Thread) -> None:
    closing.set()
    if thread.is_alive() and thread is not threading.current_thread():  # it may hold the last reference
        thread.join(_EXIT_WAIT_S)


def load_model(source: ModelSource, *, use_tqdm: bool = True, weights: str = "auto", **options: Any) -> CausalLM:
    """Load a model in eval mode, packed for this CPU where that helps. Options and errors: see `LayerLoader`."""
    with LayerLoader(source, **options) as loader:
        loader.lay_out(weights)
        wait_with_progress(loader, loader.last_stage, use_tqdm)
    return loader.model


def wait_with_progress(loader: LayerLoader, stage: int, use_tqdm: bool) -> None:
    """Start a loader and wait for a stage; raises as `LayerLoader.wait_stage`."""
    what = "Making random weights" if loader.is_random else "Loading weights"
    with bytes_progress(what, loader.bytes_until(stage), use_tqdm) as advance:
        loader.on_bytes = advance
        loader.start()
        try:
            loader.wait_stage(stage)
        finally:
            loader.on_bytes = None
