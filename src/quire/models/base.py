"""The interface of causal language models. The caller's `attend` stores K and V and computes attention."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from quire.attention.interface import LayerAttention, LayerState
from quire.kernels.loaded import DTYPES, has_exact_kernels, load_kernels, uses_triton
from quire.models.layers import Embedding
from quire.models.linear.layer import Linear, Projection, WeightLayer
from quire.models.linear.quantized_weight import HEAD_QUANTIZATION
from quire.models.model_config import ModelConfig
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import ModelSplit, TensorShare
from quire.models.recorded_passes import RecordedPasses
from quire.models.stages import ServableStage
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, name_of, numpy_dtype
from quire.ops.module import Module, ModuleList

Attend = Callable[..., Array]
"""attend(layer_index, q, k, v, sinks=None) -> output; see `AttentionBackend.attend`."""


#: Levels that multiply few rows by compact weights faster than by plain ones (benchmarks.linear). Level generic decodes
#: slowly, and amx was not measured.
PACKED12_LEVELS = ("avx2", "avx512", "avx512bf16")

logger = logging.getLogger("quire")


class CausalLM(Module):
    """A decoder, or one rank's part of it (`split`). Subclasses set `embed_tokens`, `layers` and `norm` (or None), and
    implement `__call__` over `layers_and_rows`. Stand-ins for absent layers keep the others' indices."""

    checkpoint_names: ClassVar[dict[str, str]]  #: prefix of an attribute's tensors in a checkpoint
    optional_prefix: ClassVar[str] = ""  #: missing in checkpoints saved from the headless model
    renamed_tensors: ClassVar[dict[str, str]] = {}  #: parts of names in a checkpoint, and in the model
    ignored_tensors: re.Pattern[str] = re.compile(r"(?!)")  #: derived buffers of old checkpoints
    pairs_expert_rows: ClassVar[bool] = False  #: stacks of experts are transposed, with gate and up in turn

    config: ModelConfig  #: the whole model's
    embed_tokens: Embedding
    layers: ModuleList
    lm_head: Linear

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        self.config = config
        self.split = ModelSplit(config, group)
        self.dtype = dtype
        self.kv_dtype = dtype  #: of the KV cache; int8 has a scale for each key and value
        self.device = device  #: cpu, cuda or meta
        self.quantization = "none"
        self.weights = "plain"  #: or packed12
        self.is_eager = False  #: whether no pass is recorded
        self.is_truncated = False  #: whether linear layers compute with some mantissa bits only
        self.adapter_spans: tuple[tuple[int, int, int], ...] = ()  #: of requests in the pass (`RequestAdapters`)
        self._stage: ServableStage | None = None
        self._passes = RecordedPasses()  # a stage has its own
        self.waited_s = 0.0  #: seconds of waiting for arriving layers in forward passes
        size = config.embedding_dim
        self.embed_tokens = Embedding(self.split.vocab, size, dtype=dtype, device=device)
        head_device = "meta" if config.tie_word_embeddings else device
        self.lm_head = Linear(size, self.split.vocab, bias=False, dtype=dtype, device=head_device)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def set_kv_dtype(self, name: str) -> None:
        """Choose the dtype of the KV cache by `EngineConfig.kv_cache_dtype`. ValueError if it is not available."""
        if name == "auto":
            return
        if not has_exact_kernels("cpu" if self.device == "meta" else self.device, name_of(self.dtype)):
            raise ValueError(
                f"kv_cache_dtype={name} needs device=cpu, Quire's kernels and dtype bfloat16 or float32, not "
                f"{name_of(self.dtype)} on {self.device} with kernels {load_kernels()}; leave it out"
            )
        self.kv_dtype = numpy_dtype(name)

    def attention_layers(self) -> tuple[LayerAttention | LayerState, ...]:
        """Return this rank's attention of each layer."""
        config, split, latent = self.config, self.split, self.config.latent
        state_size = 0 if config.state is None else config.state.num_floats(split.group.size)
        return tuple(
            LayerState(state_size, self.kv_dtype.itemsize)
            if layer.has_state
            else LayerAttention(
                split.num_heads,
                split.kv_heads(layer.num_kv_heads).size,
                layer.head_dim,
                0 if latent is None else latent.rank,
                has_latent=latent is not None,
                scale=config.attention_scale,
                window=layer.window if layer.window < config.context_length else 0,
                softcap=config.attention_softcap,
                reads_layer=layer.reads_layer,
                scale_size=4 if self.kv_dtype is not self.dtype else 0,
            )
            for layer in config.layer_configs
        )

    @property
    def stack(self) -> Iterable[Module]:
        """The layers of a forward pass: the current stage's, or all."""
        return self.layers if self._stage is None else self._stage.layers

    def switch_to(self, stage: ServableStage) -> None:
        """Use a stage's layers, adapter and mantissa bits from the next forward pass on."""
        if self._stage is stage:
            return
        if self._stage is not None and self._stage.adapter is not None:
            self._stage.adapter.detach()
        if stage.adapter is not None:
            stage.adapter.attach()
        if stage.is_truncated != self.is_truncated:
            self.is_truncated = stage.is_truncated
            for module in self.modules():
                if isinstance(module, WeightLayer) and module.views:
                    module.packed = module.views[stage.is_truncated]
        self._stage = stage

    @property
    def recorded_passes(self) -> RecordedPasses:
        """The current stage's recorded passes."""
        return self._passes if self._stage is None else self._stage.recorded_passes

    def layers_and_rows(self, rows: Array | None) -> Iterator[tuple[Module, Array | None]]:
        """Yield layers and rows to compute: None (all) except for the last layer, which gets `rows`."""
        last = self.config.num_layers - 1
        for index, layer in enumerate(self.stack):
            yield layer, rows if index == last else None

    def recorded(
        self,
        prepare: Callable[..., Sequence[Array]],
        compute: Callable[..., Array],
        attend: Attend,
        *given: Array,
        rows: Array | None = None,
    ) -> Array:
        """Run compute(attend, *prepare(*given), rows=rows), from a recording if possible."""
        if self.is_eager or self.split.group.size > 1 or not getattr(self.stack, "has_arrived", True):
            return compute(attend, *prepare(*given), rows=rows)
        return self.recorded_passes.run(prepare, compute, attend, *given, rows=rows, spans=self.adapter_spans)

    def take_waited_s(self) -> float:
        waited_s, self.waited_s = self.waited_s, 0.0
        return waited_s

    def __call__(self, input_ids: Array, positions: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        """Compute hidden states after the final norm: [num_rows or num_tokens, hidden_size]. `input_ids` and
        `positions` (in the tokens' sequences) are int64 [num_tokens]; `rows`, int64 [num_rows], are the tokens to
        compute."""
        raise NotImplementedError

    def compute_logits(self, hidden: Array) -> Array:
        """Compute logits in the model's dtype, the same on every rank: [n, hidden_size] -> [n, vocab_size]."""
        logits = self.split.gather(self.lm_head(hidden), self.split.vocab)
        return ops.cap(ops.scale(logits, self.config.logits_multiplier), self.config.logits_softcap)

    @classmethod
    def model_name(cls, name: str) -> str:
        """Return the model's name of a checkpoint's tensor."""
        return functools.reduce(lambda given, pair: given.replace(*pair), cls.renamed_tensors.items(), name)

    @classmethod
    def checkpoint_name(cls, name: str) -> str:
        """Return a checkpoint's name of the model's tensor."""
        return functools.reduce(lambda given, pair: given.replace(pair[1], pair[0]), cls.renamed_tensors.items(), name)

    def checkpoint_tensors(self) -> dict[str, Array]:
        """Return a view of each checkpoint tensor, or this rank's part, by name. Call before `pack()`."""
        return dict(pair for module, name in self._parts() for pair in checkpoint_tensors(module, name))

    def checkpoint_shares(self) -> dict[str, TensorShare]:
        """Return this rank's parts of the checkpoint's tensors, by name, except whole ones."""
        modules: Iterator[tuple[str, Any]] = (
            each for module, name in self._parts() for each in module.named_modules(name)
        )
        parts = ((path, module) for path, module in modules if hasattr(module, "checkpoint_shares"))
        return dict(pair for path, module in parts for pair in module.checkpoint_shares(path))

    def weighted_layers(self) -> Iterator[tuple[str, WeightLayer]]:
        """Yield all linear layers and embeddings with weights of their own, by their paths in a checkpoint."""
        for module, name in self._parts():
            for path, layer in module.named_modules(name):
                if isinstance(layer, WeightLayer):
                    yield path, layer

    def projections(self) -> dict[str, Projection]:
        """Return the linear layers that take an adapter, by their names in a checkpoint."""
        found: dict[str, Projection] = {}
        for attribute, prefix in self.checkpoint_names.items():
            module = getattr(self, attribute)
            for path, child in () if module is None else module.named_modules(prefix):
                if isinstance(child, Linear) and child.takes_adapter:
                    found.update(child.projections(path))
        return found

    def _parts(self) -> Iterator[tuple[Module, str]]:
        names = dict(self.checkpoint_names)
        if not self.config.tie_word_embeddings:
            names["lm_head"] = "lm_head"
        for attribute, name in names.items():
            module = getattr(self, attribute)
            if module is not None:
                yield module, name

    def quantize(self, quantization: str) -> None:
        """Make packing quantize linear layers to none, int8 or int4, and the head to int8. Raises ValueError."""
        if quantization != "none":
            self._check_quantization(quantization)
        self.quantization, takes_triton = quantization, uses_triton(self.device)
        for module in self.modules():
            if isinstance(module, WeightLayer):
                module.uses_triton = takes_triton
            if isinstance(module, Linear) and module.is_quantizable:
                module.quantization = quantization
        if quantization != "none":
            self.lm_head.quantization = HEAD_QUANTIZATION

    def _check_quantization(self, quantization: str) -> None:
        if self.device == "cuda" and not uses_triton(self.device):
            raise ValueError(
                f"quantization={quantization} on cuda needs Triton's kernels: pip install triton, and unset "
                "QUIRE_KERNELS, or leave it out"
            )
        if self.device == "cpu" and name_of(self.dtype) not in DTYPES:
            raise ValueError(
                f"quantization={quantization} supports float32 and bfloat16 on cpu, not {name_of(self.dtype)}; choose "
                "another dtype, or leave it out"
            )
        if self.device == "cpu" and (kernels := load_kernels()).functions is None:
            raise ValueError(f"quantization={quantization} needs CPU kernels ({kernels.reason}): {kernels.fix}")

    def lay_out(self, weights: str, *, has_rest: bool = False) -> None:
        """Make packing give linear layers in bfloat16 a layout: plain, packed12, or auto (the faster one). `has_rest`:
        bits of mantissas arrive later."""
        level, reason = load_kernels().level, ""
        if name_of(self.dtype) != "bfloat16":
            reason = f"the model is in {name_of(self.dtype)}, not in bfloat16"
        elif self.quantization != "none":
            reason = f"weights in {self.quantization} are smaller"
        elif not uses_triton(self.device) and (self.device == "cuda" or level == "none"):
            reason = "there are no kernels for it here"
        elif self.device == "cuda" and has_rest:
            reason = "on a GPU, weights whose bits arrive later are plain"
        if reason and weights == "packed12":
            logger.info("weights=packed12 has no effect: %s", reason)
        if weights == "auto":
            weights = "packed12" if level in PACKED12_LEVELS and self.device != "cuda" else "plain"
        self.weights = "plain" if reason else weights
        for module in self.modules():
            if isinstance(module, Linear):
                module.is_compact = self.weights == "packed12"

    @property
    def weight_kind(self) -> str:
        """The quantization, or the layout of other weights."""
        return self.weights if self.quantization == "none" else self.quantization

    def weight_bytes(self) -> int:
        """Return the current memory of the weights, with shared tensors counted once."""
        plain = {id(array): array.nbytes for module in self.modules() for _, array in module.named_parameters()}
        layers = [module for module in self.modules() if isinstance(module, WeightLayer)]
        whole = [layer.views.get(False, layer.packed) for layer in layers]
        packed = {id(each): each.num_bytes for each in whole if each is not None}
        return sum(plain.values()) + sum(packed.values())


def checkpoint_tensors(module: Module, name: str) -> Iterator[tuple[str, Array]]:
    """Yield a module's checkpoint names and views. Attributes have the checkpoint's names."""
    if isinstance(module, WeightLayer):
        yield from module.checkpoint_tensors(name)
        return
    for parameter_name, parameter in module.named_parameters():
        yield f"{name}.{parameter_name}", parameter
    for child_name, child in module.named_children():
        yield from checkpoint_tensors(child, f"{name}.{child_name}")
