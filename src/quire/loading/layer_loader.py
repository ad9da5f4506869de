"""A model that arrives layer by layer, in a thread of its own, while what is there may already be used.

Each layer gets memory, is filled, looked at, packed and installed as its bytes come. Memory: the model, one layer, and
the buffers of the reader. A model in stages is served from its first one on, and the rest arrives in the background.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Self

import torch
from torch import nn

from quire.loading.checkpoint import TensorEntry
from quire.loading.digest import RunningDigest
from quire.loading.errors import ModelLoadError, UnreadableError
from quire.loading.modules.fitting import choose_dtype, fit_model
from quire.loading.modules.incoming import IncomingTensors
from quire.loading.modules.loaded_stages import LoadedStages
from quire.loading.modules.stage_parts import GroupCheck
from quire.loading.modules.units import Unit, tie_head, tied_head_bytes, units_of
from quire.loading.progress import LoadStatus
from quire.loading.random_weights import fill_random
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.reading.reader import ByteReader
from quire.loading.source import ModelSource
from quire.loading.stage_manifest import StageManifest, check_against
from quire.models.parallel import ALONE, ParallelGroup
from quire.models.registry import build_model
from quire.models.stages import ServableStage
from quire.outputs import LoadProgress
from quire.system.malloc import give_memory_back
from quire.system.turns import Turns

logger = logging.getLogger("quire")

BACKGROUND_SHARE = 0.08  #: of the time, while the engine steps
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 30.0
_WRONG_CONTENT_RETRY_S = 300.0  # that a file whose content is wrong has to change in
_END_S = 5.0  # that the process's exit waits


class LayerLoader:
    """Builds a model on meta at once, and fills it once it is started.

    Args:
        source: a checkpoint, a pack or a preset.
        dtype: float32, bfloat16, float16, or auto: the config's, else the files'.
        device: that the model computes on.
        quantization: none, int8 or int4, which linear layers become as they arrive.
        storage_bandwidth: bytes a second that reads are held back to; None is as fast as they go.
        manifest: of the stages, in whose order the model arrives; None is a model that arrives as one stage.
        last_stage: that is loaded; None is the last.
        load_format: random gives a checkpoint random weights; a preset has them anyway.
        seed: of random weights.
        reading: of the same checkpoint, where reading has begun before torch was there.
        takes_digest: hash the weights on the way, for `digest`.
        retries: where layers of a later stage cannot be read, go on trying; where its adapter or its map cannot, leave
            it out, since the last stage needs none. Otherwise whoever waits for it gets the error.
        group: of the ranks that hold the model together, each of which makes its loader at the same time. A rank reads
            its own parts of the files: so it hashes no weights, and of a pack's files it checks samples, no checksums.

    Raises:
        UnsupportedModelError, ModelConfigError: from the config, or from how the group would share the model out.
        ModelLoadError: the files are not what the config describes; no byte of weights is read before.
        ValueError: the model cannot be quantized in this dtype or on this device.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        dtype: str = "auto",
        device: torch.device | str = "cpu",
        quantization: str = "none",
        storage_bandwidth: float | None = None,
        manifest: StageManifest | None = None,
        last_stage: int | None = None,
        load_format: str = "auto",
        seed: int = 0,
        reading: CheckpointReading | None = None,
        takes_digest: bool = False,
        retries: bool = False,
        group: ParallelGroup = ALONE,
    ) -> None:
        self.on_stage: Callable[[int], None] | None = None  #: called in the loader's thread as a stage gets ready
        self.on_bytes: Callable[[int], None] | None = None  #: called there with the number of those that have arrived
        self.check: Callable[[], None] | None = None  #: called there before a stage counts as ready; may raise
        #: Called there with what is wrong with the rest of a stage whose layers are there, or None. Returns what is
        #: wrong with it on any rank: a stage serves on all of them, or on none.
        self.agree: Callable[[Exception | None], Exception | None] = lambda error: error
        self.turns = Turns(BACKGROUND_SHARE)  #: of the engine, which serves the first stage while later ones arrive
        self._seed = seed
        self._retries = retries
        self._reading: CheckpointReading | None = None
        self._names: dict[TensorEntry, str] = {}  # of tensors in the files: as the model calls them
        if load_format == "random" or source.path is None:
            if load_format == "safetensors":
                raise ModelLoadError(f"{source.name} is a preset without files; load_format must be auto or random")
            self._manifest = None
            self.model = build_model(source.config, choose_dtype(dtype, source.config, None), "meta", group)
        else:
            self._reading = reading or CheckpointReading(
                source.path, manifest=manifest, last_stage=last_stage, bandwidth=storage_bandwidth
            )
            self._manifest = self._reading.manifest
            self.model, matched = fit_model(source.config, self._reading.entries, dtype, group)
            if group.size > 1:
                self._reading.narrow(matched.values())
            self._names = {entry: name for name, entry in matched.items()}
            if self._manifest is not None:
                check_against(self._manifest, self.model.config)
        self._device = self.model.device = torch.device(device)
        self.model.quantize(quantization)
        num_groups = 1 if self._reading is None else len(self._reading.groups)
        self.num_stages = 1 if self._manifest is None else len(self._manifest.stages)
        self.last_stage = min(last_stage or num_groups, num_groups)
        self._units = units_of(self.model)
        hashes = takes_digest and self._reading is not None and self._manifest is None and group.size == 1
        self._hash = RunningDigest() if hashes else None
        self._incoming = IncomingTensors(self._names, self._units, self._device, self._hash)
        self.digest: str | None = None  #: of the weights, where it was asked for, once all of them are in place

        self._changed = threading.Condition()
        self._in_place: set[str] = set()  # names of units
        self._stages = LoadedStages(self.model, self._manifest)
        self._reader: ByteReader | None = None
        self._failure: BaseException | None = None
        self._status = LoadStatus(self.num_stages, self.last_stage, self.bytes_until(self.last_stage))
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def stage_ready(self) -> int:
        """The highest stage whose units are all in place and verified; 0 is none."""
        return self._status.stage_ready

    def start(self) -> None:
        """Begin to load."""
        seconds_ago = 0.0
        if self._reading is not None:
            seconds_ago = (time.time_ns() - self._reading.started_ns) / 1e9
            self._reading.start()
        self._thread = threading.Thread(target=self._work, name="quire-load", daemon=True)
        weakref.finalize(self, _end, self._closing, self._thread)  # a thread within torch at exit ends in an error
        self._status.begin(seconds_ago)
        self._thread.start()

    def wait_stage(self, number: int) -> None:
        """Return once a stage can be served.

        Raises:
            ModelLoadError: it cannot be loaded, or the loader was closed before.
            ModelConfigError: its adapter or its linear map cannot be used.
        """
        if not 1 <= number <= self.last_stage:
            raise ValueError(f"stage {number} is not one of the {self.last_stage} that are loaded")
        self._wait(lambda: self.stage_ready >= number or self._stages.why_left_out(number) is not None)
        if (error := self._stages.why_left_out(number)) is not None:
            raise error

    def wait_input(self) -> None:
        """Return once the embeddings are in place, which a forward pass begins with; raises as `wait_stage`."""
        names = [unit.name for unit in self._units[: self._first_layer()]]
        self._wait(lambda: self._in_place.issuperset(names))

    def layer(self, index: int) -> nn.Module:
        """A layer, once it is in place; raises as `wait_stage`."""
        name = self._units[self._first_layer() + index].name
        if name not in self._in_place:
            self._wait(lambda: name in self._in_place)
        return self.model.layers[index]

    def stage(self, number: int) -> ServableStage:
        """What the model computes with at a stage, once it is ready; raises as `wait_stage`.

        Raises:
            ValueError: a later one is served. Whoever still computes with this one has kept it.
        """
        self.wait_stage(number)
        with self._changed:
            if (stage := self._stages.get(number)) is None:
                raise ValueError(f"stage {number} was let go of, since a later one is served")
            return stage

    def arriving_stage(self, number: int) -> ServableStage:
        """As `stage`, at once: forward passes wait for each of its layers (`ArrivingLayers`).

        Raises:
            ValueError: its adapter or its linear map cannot be read.
        """
        return self._stages.arriving(number, self)

    @property
    def is_random(self) -> bool:
        """Whether weights are made, and not read."""
        return self._reading is None

    def bytes_until(self, number: int) -> int:
        """Bytes that arrive before a stage is ready."""
        return sum(self._stage_bytes(each) for each in range(1, number + 1))

    def set_served_stage(self, number: int) -> None:
        """The engine serves this stage now. Adapters and maps of those before it are let go of."""
        with self._changed:
            self._stages.drop_before(number)
        self._status.set_served(number)

    def progress(self) -> LoadProgress:
        """How far loading has come."""
        return self._status.progress()

    def memory_to_come(self) -> int:
        """Bytes of memory that loading will still take, beside what its buffers will give back."""
        units = [unit for unit in self._units if self._stage_of(unit) <= self.last_stage]
        missing = [unit for unit in units if unit.name not in self._in_place]
        to_come = sum(unit.packed_bytes for unit in missing)
        if any(unit.name == "embed_tokens" for unit in missing):
            to_come += tied_head_bytes(self.model)
        return max(0, to_come - (0 if self._reader is None else self._reader.buffered_bytes))

    def close(self) -> None:
        """End loading. Layers that are in place stay; whoever waits for others gets an error.

        Afterwards nobody is called any more, and whoever was is let go of, so that an engine which closes its loader
        can be freed. What still calls, where this is called from within, ends soon.
        """
        self._closing.set()
        self.turns.close()
        with self._changed:
            self._changed.notify_all()
        if (reader := self._reader) is not None:
            reader.stop()
        if self._thread is None:
            if self._reading is not None:
                self._reading.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()
        self._status.close()
        self.on_stage = self.on_bytes = self.check = None
        self.agree = lambda error: error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what waits ----------------------------------------------------------------------------------------------------

    def _wait(self, is_there: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._failure is not None or self._closing.is_set())
            if is_there():
                return
        if self._failure is not None:
            raise self._failure
        raise ModelLoadError("loading was ended before all of the model was there")

    # -- the loader's thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with torch.no_grad():
                self._load_stages()
        except _ClosedError:
            pass
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, ValueError | OSError):
                raise
        finally:
            self.turns.leave()
            self._close_reader()
            give_memory_back()

    def _load_stages(self) -> None:
        for number in range(1, self.last_stage + 1):
            self._load_group(number)
            wrong: Exception | None = None
            try:
                self._stages.make(number)
            except Exception as error:
                wrong = error
            wrong = self.agree(wrong)
            if wrong is not None:
                if not self._goes_on_after_errors:
                    raise wrong
                self._leave_out(number, wrong)
                continue
            with self._changed:
                self._status.set_ready(number)
                self._changed.notify_all()
            self._status.tell()
            self._tell_ready(number)

    @property
    def _goes_on_after_errors(self) -> bool:
        return self._retries and self.stage_ready > 0

    def _load_group(self, number: int) -> None:
        """Bring what comes with a stage. A later one's is read until it is there."""
        pause_s = _FIRST_RETRY_S
        while True:
            if self._closing.is_set():
                raise _ClosedError
            self._status.begin_group()
            try:
                return self._load_units(number)
            except _ClosedError:
                raise
            except Exception as error:
                self._close_reader()
                if not self._goes_on_after_errors:
                    raise
                self._reset(number)
                self._pause(number, error, pause_s)
            pause_s = min(2 * pause_s, _LAST_RETRY_S)

    def _pause(self, number: int, error: Exception, pause_s: float) -> None:
        """Until a group may be read again. Where its content is wrong, reading the same file again is of little use."""
        has_wrong_content = isinstance(error, ModelLoadError) and not isinstance(error, UnreadableError)
        self._note_error(number, error, "once its file has changed" if has_wrong_content else f"in {pause_s:.0f} s")
        left_s = _WRONG_CONTENT_RETRY_S if has_wrong_content else pause_s
        while left_s > 0 and not self._closing.wait(pause_s):
            left_s -= pause_s
            if has_wrong_content and self._reading is not None and self._reading.has_changed(number - 1):
                return

    def _load_units(self, number: int) -> None:
        units = [unit for unit in self._units if self._stage_of(unit) == number]
        for unit in units:
            self._note_whole(unit)
        if self._reading is None:
            self._make_random(units)
        else:
            self._read_group(number)
        if missing := [name for unit in units if not unit.is_whole for name in unit.tensors]:
            raise ModelLoadError(f"{len(missing)} tensors of stage {number} are not in its file, {missing[0]} for one")
        if (check := self.check) is not None:
            check()
        if self._hash is not None:
            assert self._reading is not None
            self.digest = self._hash.of(self._reading.entries)

    def _make_random(self, units: list[Unit]) -> None:
        shares, std = self.model.checkpoint_shares(), self.model.config.initializer_range
        for unit in units:
            for name in unit.tensors:
                if self._closing.is_set():
                    raise _ClosedError
                view = {name: unit.view(name, self._device)}
                fill_random(view, std=std, seed=self._seed, shares=shares)
                num_bytes = view.pop(name).nbytes
                self._take_turn()
                unit.finish(name)
                self._note_whole(unit)
                self._note_bytes(num_bytes)

    def _read_group(self, number: int) -> None:
        assert self._reading is not None
        group = self._reading.groups[number - 1]
        if self._reader is None:
            self._reader = self._reading.reader(number - 1)
            if group.file is None and self._hash is None and self.model.split.group.size == 1:
                self._reader.skip(entry for entry in self._reading.entries.values() if entry not in self._names)
        check = GroupCheck(self._reading.directory, group)
        for run in group.runs:
            for entry in run.tensors:
                if not entry.num_bytes:
                    self._take_part(entry, 0, memoryview(b""))
            at = run.start
            while at < run.end:
                self.turns.leave()
                piece = self._reader.next_piece()
                if piece is None or self._closing.is_set():
                    raise _ClosedError
                self._take_turn()
                check.update(piece.data)
                for entry, offset, data in piece.parts():
                    self._take_part(entry, offset, data)
                self._reader.release(piece)
                self._note_bytes(piece.end - at)
                at = piece.end
        check.finish()

    def _take_part(self, entry: TensorEntry, offset: int, data: memoryview) -> None:
        """Bytes of a tensor, from an offset on."""
        unit = self._incoming.add(entry, offset, data, self._take_turn)
        if unit is not None:
            self._note_whole(unit)

    def _note_whole(self, unit: Unit) -> None:
        if not unit.is_whole or unit.name in self._in_place:
            return
        if unit.name == "embed_tokens" and self.model.config.tie_word_embeddings:
            tie_head(self.model)
        if not self.turns.is_stepping:  # plain weights that were packed lie between packed ones, as much as 250 MiB
            give_memory_back()
        with self._changed:
            self._in_place.add(unit.name)
            self._changed.notify_all()

    def _reset(self, number: int) -> None:
        """What has arrived of a stage that failed gives its memory back; nobody has seen it."""
        self._status.take_back_group()
        model = build_model(self.model.config, self.model.dtype, "meta", self.model.split.group)
        model.quantize(self.model.quantization)
        fresh = units_of(model)
        for i, unit in enumerate(fresh):
            if self._stage_of(unit) == number and unit.layer is not None:
                self._in_place.discard(unit.name)
                self.model.layers[unit.layer] = unit.module
                self._units[i] = unit
        self._incoming.expect(self._units)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # -- what others are told ------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        self._status.set_error(str(error), is_stuck=True)
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._status.tell()

    def _note_error(self, number: int, error: Exception, again: str) -> None:
        """Reading in the background failed."""
        logger.warning(
            "stage %d cannot be loaded, and the model goes on at stage %d; tried again %s: %s",
            number, self.stage_ready, again, error, exc_info=_unless_known(error),
        )  # fmt: skip
        self._status.set_error(str(error), is_stuck=True)
        self._status.tell()

    def _leave_out(self, number: int, error: Exception) -> None:
        """A stage's layers are there, but not what it would serve with. The stages after it need that no more."""
        logger.warning("stage %d is left out: %s", number, error, exc_info=_unless_known(error))
        self._status.set_error(f"stage {number} is left out: {error}", is_stuck=False)
        with self._changed:
            self._stages.leave_out(number, error)
            self._changed.notify_all()
        self._status.tell()

    def _note_bytes(self, num_bytes: int) -> None:
        if (on_bytes := self.on_bytes) is not None:
            on_bytes(num_bytes)
        self._status.add_bytes(num_bytes)

    def _tell_ready(self, number: int) -> None:
        on_stage = self.on_stage  # which may be taken away meanwhile; and no frame that an error keeps has it
        if on_stage is not None:
            on_stage(number)

    def _take_turn(self) -> None:
        """Before a piece of work. What the first stage needs is waited for by the engine itself."""
        if self.stage_ready:
            self.turns.take()

    # -- what belongs to which stage -----------------------------------------------------------------------------------

    def _first_layer(self) -> int:
        """The index among units of the first one that is a layer."""
        return next(i for i, unit in enumerate(self._units) if unit.layer is not None)

    def _stage_of(self, unit: Unit) -> int:
        """The stage that a unit comes with."""
        if self._manifest is None or unit.layer is None:
            return 1
        return next(n for n, group in enumerate(self._manifest.groups, 1) if unit.layer in group.layers)

    def _stage_bytes(self, number: int) -> int:
        """Bytes that come with a stage."""
        if self._reading is None:
            return sum(unit.num_bytes for unit in self._units)
        return self._reading.groups[number - 1].num_bytes


class _ClosedError(Exception):
    """The loader was closed in the midst of its work."""


def _unless_known(error: Exception) -> Exception | None:
    """An error whose message alone does not say enough."""
    return None if isinstance(error, ValueError | OSError) else error


def _end(closing: threading.Event, thread: threading.Thread) -> None:
    closing.set()
    if thread is not threading.current_thread():  # which may be the last one that knew the loader
        thread.join(_END_S)
