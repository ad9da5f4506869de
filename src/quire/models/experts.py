"""Mixtures of experts: a router chooses a few of a layer's MLPs for each token (csrc/experts.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from quire.kernels.loaded import load_kernels, uses_triton
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, structure
from quire.models.linear.layer import Linear
from quire.models.linear.panel_weight import SERIAL_PRODUCTS
from quire.models.model_config import ExpertsConfig, ModelConfig
from quire.models.parallel import ModelSplit, ParallelGroup
from quire.models.parallel.split import Share
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, as_numpy, as_tensor, empty, is_numpy, numpy_dtype, takes_tensors, torch_dtype
from quire.ops.module import Module, ModuleList
from quire.system.threads import num_threads

#: Names of scores, QuireScores in csrc/experts.h.
SCORES = ("softmax", "sigmoid", "softmax_of_chosen")
_GATINGS = {"silu": 0, "gelu_tanh": 1, "clamped_swiglu": 2}  # QuireGating

_Experts = structure(
    "QuireExperts",
    "pointer logits bias factors",
    "int64 num_experts num_chosen num_groups num_chosen_groups num_of_group",
    "float scale",
    "int32 scores normalizes has_float_logits",
    "pointer x",
    "int64 x_stride num_rows hidden inner",
    "pointer gate up down shared shared_gate out",
    "float limit alpha",
    "int32 gate_kind down_kind gating num_threads",
)  # csrc/experts.h; begins with a QuireRouting


class ExpertRouter(Linear):
    """A small linear layer whose outputs choose or weigh experts. It is never quantized, and whole from stage 1 on:
    nearly no bytes, and each of its choices changes the tokens."""

    is_quantizable = has_precisions = False


class FloatRouter(ExpertRouter):
    """A router in float32, maybe with a bias that only the choice adds to scores."""

    def __init__(self, hidden: int, config: ExpertsConfig, *, dtype: DType, device: str) -> None:
        wide = numpy_dtype("float32") if is_numpy(dtype) else torch_dtype("float32")
        super().__init__(hidden, config.count, bias=False, dtype=wide, device=device)
        self.e_score_correction_bias = empty((config.count,), wide, device) if config.has_choice_bias else None

    def __call__(self, x: Array) -> Array:
        return super().__call__(ops.to_float32(x))

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Array]]:
        yield from super().checkpoint_tensors(name)
        if self.e_score_correction_bias is not None:
            yield f"{name}.e_score_correction_bias", self.e_score_correction_bias


class Expert(Module):
    """A gated MLP. `Experts` computes with the weights of its own, whose differences are in `mixture`."""

    def __init__(
        self,
        hidden: int,
        inner: Share,
        activation: str = "silu",
        mixture: ExpertsConfig | None = None,
        *,
        group: ParallelGroup,
        **factory: Any,
    ) -> None:
        self.activation, self.mixture = activation, mixture
        bias = mixture is not None and mixture.has_biases
        self.gate_proj = Linear(hidden, inner, bias=bias, **factory)
        self.up_proj = Linear(hidden, inner, bias=bias, **factory)
        self.down_proj = Linear(inner, hidden, bias=bias, group=group, **factory)

    def addend(self, x: Array) -> Array:
        """Compute this rank's part of the output."""
        if self.activation == "silu":
            return self.down_proj.addend(self.gate_proj.gated(x, self.up_proj))
        if self.mixture is not None and self.activation == "clamped_swiglu":
            return self.down_proj.addend(clamped_swiglu(self.gate_proj(x), self.up_proj(x), self.mixture))
        gated = ops.multiply(ops.activate(self.gate_proj(x), self.activation), self.up_proj(x))
        return self.down_proj.addend(gated)


class SparseMLP(Module):
    """A router and experts in place of an MLP, and maybe an expert of all tokens with a gate."""

    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        assert config.experts is not None
        hidden, self._group = config.hidden_size, split.group
        self.gate = (
            FloatRouter(hidden, config.experts, **factory)
            if config.experts.has_float_logits
            else ExpertRouter(hidden, config.experts.count, bias=config.experts.has_biases, **factory)
        )
        self.experts = Experts(config, split, **factory)
        self.shared_expert = self.shared_expert_gate = None
        if config.experts.shared_inner:
            self.shared_expert = Expert(hidden, split.shared_inner, group=split.group, **factory)
        if config.experts.shared_gate:
            self.shared_expert_gate = ExpertRouter(hidden, 1, bias=False, **factory)

    def __call__(self, x: Array) -> Array:
        shared = None if self.shared_expert is None else self.shared_expert.addend(x)
        gate = None if self.shared_expert_gate is None else self.shared_expert_gate(x)
        choice_bias = getattr(self.gate, "e_score_correction_bias", None)
        return self._group.all_reduce(self.experts(x, self.gate(x), shared, gate, choice_bias))


class Experts(ModuleList):
    """The experts of a layer. Computes the sum of the chosen ones' outputs, times their weights."""

    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        assert config.experts is not None
        size = config.hidden_size
        self.activation = "clamped_swiglu" if config.experts.limit else ops.ACTIVATIONS[config.hidden_act]
        super().__init__(
            Expert(size, split.expert_inner, self.activation, config.experts, group=split.group, **factory)
            for _ in range(config.experts.count)
        )
        for module in self.modules():
            if isinstance(module, Linear):
                module.takes_adapter = False
        self.config = config.experts
        self._hidden, self._inner, self.dtype = config.hidden_size, split.expert_inner.size, factory["dtype"]
        self._calls: dict[Any, list[_Calls] | None] = {}  #: by the view of the first weight
        self.factors: Array | None = None  #: float32 [num_experts], of the experts' weights; numpy's in main memory
        self._products: tuple[Any, Any] = (self, None)  #: the first weight, and the grouped products with all

    def __call__(
        self, x: Array, logits: Array, shared: Array = None, shared_gate: Array = None, choice_bias: Array = None
    ) -> Array:
        """Compute this rank's part of the output, [num_tokens, hidden], from logits [num_tokens, num_experts]. Adds
        `shared`, [num_tokens, hidden], times the sigmoid of `shared_gate`, [num_tokens, 1], if it is given.
        `choice_bias`, float32 [num_experts], is added to scores for the choice."""
        first: Any = self[0]
        view = first.down_proj.packed
        if view not in self._calls:
            self._calls[view] = _calls_of(self)
        if (calls := self._calls[view]) is None:
            return self._reference(x, logits, shared, shared_gate, choice_bias)
        return self._compute(x, logits, shared, shared_gate, choice_bias, calls)

    @takes_tensors
    def _compute(
        self, x: np.ndarray, logits: np.ndarray, shared: np.ndarray | None, shared_gate: np.ndarray | None,
        choice_bias: np.ndarray | None, calls: list[_Calls],
    ) -> np.ndarray:  # fmt: skip
        config, (gate, *ups, down) = self.config, calls
        x = dense_rows(x)
        num_rows = len(x)
        out = new_output((num_rows, self._hidden), x.dtype)
        if not num_rows:
            return out
        work = num_rows * config.chosen * self._hidden * self._inner
        arguments = _Experts(
            logits=address(logits),
            bias=None if choice_bias is None else address(choice_bias),
            factors=None if self.factors is None else address(self.factors),
            num_experts=config.count,
            num_chosen=config.chosen,
            num_groups=config.num_groups,
            num_chosen_groups=config.num_chosen_groups,
            num_of_group=config.num_of_group,
            scale=config.scale,
            scores=SCORES.index(config.scores),
            normalizes=config.normalizes,
            has_float_logits=config.has_float_logits,
            x=address(x),
            x_stride=x.strides[0] // x.itemsize,
            num_rows=num_rows,
            hidden=self._hidden,
            inner=self._inner,
            gate=gate.address,
            up=ups[0].address if ups else None,
            down=down.address,
            shared=None if shared is None else address(shared),
            shared_gate=None if shared_gate is None else address(shared_gate),
            out=address(out),
            gate_kind=gate.kind,
            down_kind=down.kind,
            limit=config.limit,
            alpha=config.alpha,
            gating=_GATINGS[self.activation],
            num_threads=1 if work <= SERIAL_PRODUCTS else num_threads(),
        )
        call_kernel(_function(x.dtype.name, os.environ.get("QUIRE_KERNELS")), arguments)
        return out

    def _reference(self, x: Any, logits: Any, shared: Any, shared_gate: Any, choice_bias: Any = None) -> Any:
        """As `_compute` with tensors."""
        if isinstance(x, np.ndarray):  # weights are packed in ways that differ
            arrays = (x, logits, shared, shared_gate, choice_bias)
            return as_numpy(self._reference(*(None if each is None else as_tensor(each) for each in arrays)))
        experts, weights = choose(logits, self.config, choice_bias)
        if self.factors is not None:
            weights = weights * as_tensor(self.factors)[experts]
        if (grouped := self._grouped()) is not None:
            return grouped(x, experts, weights, shared, shared_gate)
        return self._one_by_one(x, experts, weights, shared, shared_gate)

    def _one_by_one(self, x: Any, experts: Any, weights: Any, shared: Any = None, shared_gate: Any = None) -> Any:
        """As `GroupedExperts`, for any weights. It waits for the device."""
        import torch

        sums = torch.zeros(x.shape, dtype=torch.float32, device=x.device) if shared is None else shared.float()
        if shared_gate is not None:
            sums = sums * shared_gate.float().sigmoid()
        for index in experts.unique().tolist():
            rows, places = (experts == index).nonzero(as_tuple=True)
            expert: Any = self[index]
            sums.index_add_(0, rows, expert.addend(x[rows]).float() * weights[rows, places, None])
        return sums.to(x.dtype)

    def _grouped(self) -> Any:
        """Return the `GroupedExperts` on a GPU, if kernels take the weights; None otherwise."""
        first: Any = self[0]
        linear = first.down_proj
        weight = linear.weight if linear.packed is None else linear.packed
        if self._products[0] is not weight:
            device = getattr(weight, "device", None)  # of tensors, and of what Triton's kernels take
            self._products = weight, _group(self) if device is not None and uses_triton(device.type) else None
        return self._products[1]


def _group(experts: Experts) -> Any:
    from quire.models.linear.triton_weight import encoded  # these import torch
    from quire.ops.grouped_experts import GroupedExperts

    linears = [[getattr(each, name) for each in experts] for name in ("gate_proj", "up_proj", "down_proj")]
    layers: list[Any] = [
        [(encoded(linear.packed, linear.weight), linear.own_bias) for linear in each] for each in linears
    ]
    kinds = [{None if weight is None else weight.kind for weight, _ in each} for each in layers]
    if experts.activation not in _GATINGS or any(len(each) > 1 or None in each for each in kinds):
        return None
    gate, up, down = layers
    return GroupedExperts(gate, up, down, experts.activation, experts.config.limit, experts.config.alpha)


@functools.cache
def _function(dtype: str, level: str | None) -> Any:
    """Return this process's kernel."""
    library = load_kernels().functions
    assert library is not None
    function = library[f"quire_experts_{dtype}"]
    function.restype = None
    return function


class _Calls:
    """The calls of one linear layer of all experts, whose weights are packed alike."""

    def __init__(self, kind: int, calls: list[ctypes.Structure]) -> None:
        self.kind = kind
        self._calls = (type(calls[0]) * len(calls))(*calls)
        self.address = ctypes.addressof(self._calls)


def _calls_of(experts: Experts) -> list[_Calls] | None:
    """Return the calls of gate and up, joined for silu and else separate, and of down; None without kernels for
    them."""
    found: list[_Calls] = []
    joined, separate = (("gate_proj", "up_proj"), ("down_proj",)), (("gate_proj",), ("up_proj",), ("down_proj",))
    for names in joined if experts.activation == "silu" else separate:
        layers: list[list[Linear]] = [[getattr(each, name) for name in names] for each in experts]
        weights = [linear.packed for linears in layers for linear in linears]
        kinds = {getattr(each, "call_kind", None) if getattr(each, "order", None) is None else None for each in weights}
        if len(kinds) > 1 or (kind := kinds.pop()) is None:
            return None
        found.append(_Calls(kind, [_call_of(*linears) for linears in layers]))
    return found if len({each.kind for each in found[:-1]}) == 1 else None


def _call_of(linear: Linear, up: Linear | None = None) -> ctypes.Structure:
    packed: Any = linear.packed
    call = packed.call(up and up.packed)
    call.bias, call.up_bias = (
        None if each is None or each.own_bias is None else address(as_numpy(each.own_bias)) for each in (linear, up)
    )
    return call


def clamped_swiglu(gate: Any, up: Any, config: ExpertsConfig) -> Any:
    """Compute the inner features of gpt-oss with torch, in float32 inside."""
    dtype, gate = gate.dtype, gate.float().clamp(max=config.limit)
    up = up.float().clamp(-config.limit, config.limit)
    return (gate * (config.alpha * gate).sigmoid() * (up + 1)).to(dtype)


def choose(logits: Any, config: ExpertsConfig, choice_bias: Any = None) -> tuple[Any, Any]:
    """Choose each row's experts and their weights with torch, each [num_rows, chosen]."""
    import torch

    scores = logits.float()
    if config.scores == "softmax":
        scores = scores.softmax(-1)
    elif config.scores == "sigmoid":
        scores = scores.sigmoid()
    ranks = scores if choice_bias is None else scores + choice_bias
    if config.num_groups > 1:
        groups = ranks.unflatten(1, (config.num_groups, -1))
        sums = groups.sort(-1, descending=True).values[..., : config.num_of_group].sum(-1)
        best = torch.sort(sums, dim=-1, descending=True, stable=True).indices[:, : config.num_chosen_groups]
        is_kept = torch.zeros_like(sums, dtype=torch.bool).scatter_(1, best, True)
        ranks = groups.masked_fill(~is_kept[..., None], -torch.inf).reshape(ranks.shape)
    experts = torch.sort(ranks, dim=-1, descending=True, stable=True).indices[:, : config.chosen]
    experts = experts.sort(-1).values
    weights = scores.gather(1, experts)
    if config.scores == "softmax_of_chosen":
        weights = weights.softmax(-1)
    if config.normalizes:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return experts, weights * config.scale


def check_experts(model: Module) -> None:
    """Compare the grouped products of a model's first experts, if it has some, with those one by one. ValueError if
    they fail or differ."""
    experts = next((each for each in model.modules() if isinstance(each, Experts)), None)
    if experts is None or (grouped := experts._grouped()) is None:
        return
    import torch

    from quire.ops.triton_check import compare

    device, config, generator = experts._products[0].device, experts.config, torch.Generator().manual_seed(0)
    for num_rows in (1, 1 + 17 * config.count // config.chosen):  # tiles of both sizes
        x, logits = (torch.randn((num_rows, n), generator=generator) for n in (experts._hidden, config.count))
        given = (x.to(device, experts.dtype), *choose(logits.to(device), config), None, None)
        expected, found = (functools.partial(each, *given) for each in (experts._one_by_one, grouped))
        compare("experts", expected, found)
