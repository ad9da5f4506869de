"""Units of a model that are loaded as a whole: embeddings, each layer, the final norm, the head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.loading.stage_manifest import WHOLE_BITS, StageManifest
from quire.models.base import CausalLM, checkpoint_tensors
from quire.models.layers import Embedding
from quire.models.linear.layer import Linear, WeightLayer
from quire.models.linear.panel_weight import panel_kernels
from quire.models.model_config import ModelConfig
from quire.models.registry import build_model
from quire.ops.arrays import Array, empty, is_numpy, numpy_dtype
from quire.ops.module import Module


class Unit:
    """One unit on the meta device. `name` is the model's attribute, `prefix` starts names in a checkpoint."""

    def __init__(self, name: str, module: Module, prefix: str, layer: int | None = None) -> None:
        self.name = name
        self.module = module
        self.layer = layer
        self._prefix = prefix
        views = dict(checkpoint_tensors(module, prefix))
        self.tensors = tuple(views)  #: names in a checkpoint
        self.num_bytes = sum(view.nbytes for view in views.values())
        layers = [part for part in module.modules() if isinstance(part, WeightLayer)]
        self.packed_bytes = self.num_bytes + sum(layer.packed_bytes() - layer.plain_bytes() for layer in layers)
        self._linears = {each: pair for pair in _linears(module, prefix) for each in pair[1]}  # by tensor
        self._missing = set(views)
        self._views: dict[str, Array] | None = None
        self._device = "cpu"

    @property
    def is_whole(self) -> bool:
        return not self._missing

    def view(self, name: str, device: str) -> Array:
        """Return the destination of a tensor. The first call allocates the unit's memory."""
        if self._views is None:
            self._device = device
            _give_memory(self.module, device)
            self._views = dict(checkpoint_tensors(self.module, self._prefix))
        return self._views[name]

    def finish(self, name: str) -> None:
        """Mark a tensor as filled, and pack a complete layer, which frees the weight: drop views before."""
        assert self._views is not None
        del self._views[name]
        self._missing.discard(name)
        linear, names = self._linears.get(name, (None, ()))
        if linear is not None and not self._missing.intersection(names):
            for each in names:
                self._views.pop(each, None)
            linear.pack(self._device)
        if not self._missing:
            self._views = None


def units_of(model: CausalLM) -> list[Unit]:
    """Return a model's units in the order of use. A tied head is part of the embedding's unit (`finish_tables`)."""
    units = []
    names = dict(model.checkpoint_names)
    if not model.config.tie_word_embeddings:
        names["lm_head"] = "lm_head"
    for attribute, prefix in names.items():
        module = getattr(model, attribute)
        if attribute == "layers":
            units += [Unit(f"layers.{i}", layer, f"{prefix}.{i}", i) for i, layer in enumerate(module)]
        elif module is not None:
            units.append(Unit(attribute, module, prefix))
    return units


def finish_tables(model: CausalLM, unit: Unit) -> None:
    """Pack a filled unit's stored tables, and give a tied head the embedding's, before its first use."""
    for module in unit.module.modules():
        if module is model.embed_tokens and model.config.tie_word_embeddings:
            model.embed_tokens.share_with(model.lm_head, model.device)
        elif isinstance(module, Embedding):
            module.pack(model.device)


def truncate(model: CausalLM, unit: Unit, by_layer: Sequence[int]) -> None:
    """Let a filled unit, and a tied head with it, compute with the top bits of mantissas: `StageManifest.bits_of`."""
    bits = by_layer[0 if unit.layer is None or len(by_layer) == 1 else 1 + unit.layer]
    head = [model.lm_head] if unit.module is model.embed_tokens and model.config.tie_word_embeddings else []
    for layer in [*unit.module.modules(), *head]:
        if isinstance(layer, WeightLayer) and bits < WHOLE_BITS:
            layer.truncate(bits)
    model.is_truncated = True


def tied_head_bytes(model: CausalLM) -> int:
    """Return the memory of a packed tied head beside the embedding's table, or less what it saves of that."""
    if not model.config.tie_word_embeddings:
        return 0
    if model.weights == "packed12" and model.embed_tokens.stored is None:
        return model.lm_head.packed_bytes() - model.lm_head.plain_bytes()
    is_shared = model.quantization == "none" and panel_kernels(model.dtype) is not None
    return model.lm_head.packed_bytes() if model.quantization != "none" and not is_shared else 0


def memory_of(config: ModelConfig, dtype: str, quantization: str = "none", weights: str = "plain") -> int:
    """Return the memory of a model's packed weights on a CPU."""
    model = build_model(config, numpy_dtype(dtype), "meta")
    model.quantize(quantization)
    model.lay_out(weights)
    return sum(unit.packed_bytes for unit in units_of(model)) + tied_head_bytes(model)


def _give_memory(module: Module, device: str) -> None:
    for part in module.modules():
        for name, array in list(part.named_parameters()):
            setattr(part, name, empty(array.shape, array.dtype, "cpu" if is_numpy(array) else device))


def _linears(module: Module, name: str) -> Iterator[tuple[Linear, list[str]]]:
    if isinstance(module, Linear):
        if module.weight is not None or module.stored is not None:
            yield module, [each for each, _ in module.checkpoint_tensors(name)]
        return
    for child_name, child in module.named_children():
        yield from _linears(child, f"{name}.{child_name}")


class ModelUnits:
    """All units of a model; without a manifest it has one stage."""

    def __init__(self, model: CausalLM, manifest: StageManifest | None) -> None:
        self._model = model
        self._manifest = manifest
        self._units = units_of(model)
        self._in_place: set[str] = set()
        self._first_layer = next(i for i, unit in enumerate(self._units) if unit.layer is not None)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units)

    def of_stage(self, number: int) -> list[Unit]:
        return [unit for unit in self._units if self._stage_of(unit) == number]

    def _stage_of(self, unit: Unit) -> int:
        if self._manifest is None or unit.layer is None:
            return 1
        return next(n for n, group in enumerate(self._manifest.groups, 1) if unit.layer in group.layers)

    def is_in_place(self, unit: Unit) -> bool:
        return unit.name in self._in_place

    def has_layer(self, index: int) -> bool:
        return self.is_in_place(self._units[self._first_layer + index])

    def has_input(self) -> bool:
        """Return whether the embeddings are in place, the start of a forward pass."""
        return all(self.is_in_place(unit) for unit in self._units[: self._first_layer])

    def set_in_place(self, unit: Unit) -> None:
        self._in_place.add(unit.name)

    def pending_bytes(self, last_stage: int) -> int:
        """Return the memory that units up to a stage will still occupy, once packed."""
        pending = [each for each in self._units if self._stage_of(each) <= last_stage and not self.is_in_place(each)]
        has_head = any(unit.name == "embed_tokens" for unit in pending)
        return sum(unit.packed_bytes for unit in pending) + (tied_head_bytes(self._model) if has_head else 0)

    def reset(self, number: int) -> None:
        """Replace the layers of a failed stage by empty ones, which frees their memory. No reader has seen them."""
        model = build_model(self._model.config, self._model.dtype, "meta", self._model.split.group)
        model.device = self._model.device
        model.quantize(self._model.quantization)
        model.lay_out(self._model.weights)
        for i, unit in enumerate(units_of(model)):
            if self._stage_of(unit) == number and unit.layer is not None:
                self._in_place.discard(unit.name)
                self._model.layers[unit.layer] = unit.module
                self._units[i] = unit
