"""Fill the units of one layer group after the other, from a checkpoint or with random weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quire.loading.checkpoint import TensorEntry
from quire.loading.digest import RunningDigest
from quire.loading.errors import ModelLoadError
from quire.loading.modules.fill import RestFill, TensorFill, fill_random
from quire.loading.modules.loaded_stages import GroupCheck
from quire.loading.modules.units import ModelUnits, Unit
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.reading.reader import ByteReader
from quire.loading.stage_manifest import REST
from quire.models.base import CausalLM
from quire.models.linear.layer import WeightLayer


class LoadingClosed(Exception):
    """The loader was closed during its work."""


@dataclass(frozen=True)
class LoadHooks:
    """Callbacks of a `GroupLoader`, in its thread."""

    is_closing: Callable[[], bool]
    before_piece: Callable[[], None]  #: before each piece of work; may wait for the engine's step
    before_wait: Callable[[], None]  #: before waiting for bytes
    on_unit: Callable[[Unit], None]  #: a unit is complete
    on_bytes: Callable[[int], None]  #: more bytes are in place


class GroupLoader:
    """`reading` is the checkpoint (None: random weights), `names` map its tensors to the model's, `digest` runs over
    all."""

    def __init__(
        self,
        model: CausalLM,
        units: ModelUnits,
        reading: CheckpointReading | None,
        names: Mapping[TensorEntry, str],
        digest: RunningDigest | None,
        seed: int,
        hooks: LoadHooks,
    ) -> None:
        self._model = model
        self._units = units
        self._reading = reading
        self._parts: dict[TensorEntry, list[tuple[TensorEntry, str]]] = {}  #: the model's, of the files' tensors
        for entry, name in sorted(names.items(), key=lambda pair: pair[0].start):
            self._parts.setdefault(entry.whole or entry, []).append((entry, name))
        self._digest = digest
        self._seed = seed
        self._hooks = hooks
        self._unit_of: dict[str, Unit] = {}
        self.restart()
        self._fills: dict[str, TensorFill] = {}  #: the tensors that are arriving
        self._rests: dict[str, RestFill] = {}  #: the tensors whose mantissas are arriving
        #: In a group that completes mantissas: layers and first rows of the model's tensors.
        self._rows: dict[str, tuple[WeightLayer, int]] = {}
        self._reader: ByteReader | None = None

    @property
    def buffered_bytes(self) -> int:
        return 0 if self._reader is None else self._reader.buffered_bytes

    def load(self, number: int) -> None:
        """Fill the units that a stage adds. Raises ModelLoadError for a damaged file, or LoadingClosed."""
        units = self._units.of_stage(number)
        for unit in units:
            self._report(unit)
        if self._reading is None:
            self._make_random(units)
        else:
            self._read_group(self._reading, number)
        if missing := [name for unit in units if not unit.is_whole for name in unit.tensors]:
            raise ModelLoadError(f"{len(missing)} tensors of stage {number} are not in its file, such as {missing[0]}")

    def restart(self) -> None:
        """Expect the tensors of fresh units after `ModelUnits.reset`."""
        self._fills = {}
        self._unit_of = {name: unit for unit in self._units for name in unit.tensors}

    def stop(self) -> None:
        """Make a waiting `load` return soon; callable from any thread."""
        if (reader := self._reader) is not None:
            reader.stop()

    def close_reader(self) -> None:
        """Close the files. The next `load` opens them again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _make_random(self, units: list[Unit]) -> None:
        shares, std = self._model.checkpoint_shares(), self._model.config.initializer_range
        for unit in units:
            for name in unit.tensors:
                if self._hooks.is_closing():
                    raise LoadingClosed
                view = {name: unit.view(name, self._model.device)}
                fill_random(view, std=std, seed=self._seed, shares=shares)
                num_bytes = view.pop(name).nbytes
                self._hooks.before_piece()
                unit.finish(name)
                self._report(unit)
                self._hooks.on_bytes(num_bytes)

    def _read_group(self, reading: CheckpointReading, number: int) -> None:
        group = reading.groups[number - 1]
        if group.view == REST:
            layers = self._model.weighted_layers()
            parts = [(layer, part) for path, layer in layers for part in layer.parts(path)]
            self._rows = {f"{name}.weight": (layer, rows.start) for layer, (name, rows, _) in parts}
        if self._reader is None:
            self._reader = reading.reader(number - 1)
        if number > 1:
            self._reader.read_on()
        check = GroupCheck(reading.directory, group)
        for run in group.runs:
            for entry in run.tensors:
                if not entry.num_bytes:
                    self._add(entry, 0, memoryview(b""))
            at = run.start
            while at < run.end:
                piece = self._reader.next_piece(self._hooks.before_wait)
                if piece is None or self._hooks.is_closing():
                    raise LoadingClosed
                self._hooks.before_piece()
                check.update(piece.data)
                for entry, offset, data in piece.parts():
                    self._add(entry, offset, data)
                self._reader.release(piece)
                self._hooks.on_bytes(piece.cost)
                at = piece.end
        check.finish()

    def _add(self, entry: TensorEntry, offset: int, data: memoryview) -> None:
        is_last = offset + len(data) == entry.num_bytes
        if self._digest is not None:
            self._digest.add(entry.name, data, is_last)
        parts = self._parts.get(entry, ())
        for part, name in parts[bisect_right(parts, entry.start + offset, key=_end) if data else 0 :]:
            first = max(0, part.start - entry.start - offset)
            last = min(len(data), part.end - entry.start - offset)
            if first > last or (first == last and part.num_bytes):
                return
            self._add_to(part, name, offset + first - (part.start - entry.start), data[first:last])

    def _add_to(self, entry: TensorEntry, name: str, offset: int, data: memoryview) -> None:
        unit = self._unit_of[name]
        if self._rows:
            if not offset:
                self._rests[name] = RestFill(*self._rows[name], entry)
            self._rests[name].add(data)
            return
        if not offset:
            self._fills[name] = TensorFill(unit.view(name, self._model.device), entry)
        if data:
            self._fills[name].add(offset, data)
        if offset + len(data) == entry.num_bytes:
            self._fills.pop(name).finish(self._hooks.before_piece)  # drops the view, which packing invalidates
            self._hooks.before_piece()
            unit.finish(name)
            self._report(unit)

    def _report(self, unit: Unit) -> None:
        if unit.is_whole and not self._units.is_in_place(unit):
            self._hooks.on_unit(unit)


def _end(part: tuple[TensorEntry, str]) -> int:
    return part[0].end
