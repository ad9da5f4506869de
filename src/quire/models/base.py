"""The interface of every causal language model, for the runner and the loader.

A model turns token ids and positions into hidden states and logits. Where K and V are kept, and how attention over
them is computed, is the business of the `attend` function that the caller passes in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from quire.models.layers import Embedding
from quire.models.linear.layer import Linear, Projection
from quire.models.linear.quantized_weight import DTYPES as QUANTIZED_DTYPES
from quire.models.linear.quantized_weight import HEAD_QUANTIZATION
from quire.models.model_config import ModelConfig
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import ModelSplit, TensorShare
from quire.models.recorded_passes import RecordedPasses
from quire.models.stages import ServableStage

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""attend(layer_index, q, k, v) -> output.

q, output: [num_tokens, num_heads, head_dim]; k, v: [num_tokens, num_kv_heads, head_dim], possibly strided. It stores k
and v and attends causally, with scale head_dim ** -0.5.
"""


class CausalLM(nn.Module):
    """A decoder. `layers` keep their original indices, so that an identity may stand in for an absent one.

    Subclasses set `embed_tokens`, `layers` and `norm` (None where there is none), and implement `forward`, which goes
    through `stack`.

    On one rank of several it has that rank's part of every layer (`split`), and every rank runs the same passes.
    """

    checkpoint_names: ClassVar[dict[str, str]]  #: attribute -> the prefix of its tensors in a checkpoint
    optional_prefix: ClassVar[str] = ""  #: checkpoints saved from the headless model lack it
    ignored_tensors: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")  #: in old checkpoints: buffers that are derived

    config: ModelConfig  #: of the whole model
    embed_tokens: Embedding
    layers: nn.ModuleList
    lm_head: Linear

    def __init__(
        self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device | str, group: ParallelGroup = ALONE
    ) -> None:
        super().__init__()
        self.config = config
        self.split = ModelSplit(config, group)
        self.dtype = dtype
        self.device = torch.device(device)
        self.quantization = "none"  #: of the linear layers
        self._stage: ServableStage | None = None
        self._passes = RecordedPasses()  # through all layers; a stage has its own
        self.waited_s = 0.0  #: seconds that forward passes have waited for layers that were still arriving
        size = config.embedding_dim
        self.embed_tokens = Embedding(self.split.vocab, size, dtype=dtype, device=device)
        head_device = "meta" if config.tie_word_embeddings else device
        self.lm_head = Linear(size, self.split.vocab, bias=False, dtype=dtype, device=head_device)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    @property
    def stack(self) -> Iterable[nn.Module]:
        """The layers that a forward pass goes through: those of the stage that is on, or else all."""
        return self.layers if self._stage is None else self._stage.layers

    def switch_to(self, stage: ServableStage) -> None:
        """Compute with a stage's layers and adapter from the next forward pass on."""
        if self._stage is stage:
            return
        if self._stage is not None and self._stage.adapter is not None:
            self._stage.adapter.detach()
        if stage.adapter is not None:
            stage.adapter.attach()
        self._stage = stage

    @property
    def recorded_passes(self) -> RecordedPasses:
        """Those of the stage that is on, or else through all layers."""
        return self._passes if self._stage is None else self._stage.recorded_passes

    def layers_and_rows(self, rows: Tensor | None) -> Iterator[tuple[nn.Module, Tensor | None]]:
        """`stack`, and of each layer the rows whose outputs are wanted: those given of the last one, all of the others.

        What a layer leaves in the KV cache it computes of every row, and what follows only of those wanted: of a long
        prompt the last layer's products are spared, but for K and V.
        """
        last = self.config.num_layers - 1
        for index, layer in enumerate(self.stack):
            yield layer, rows if index == last else None

    def recorded(
        self, compute: Callable[..., Tensor], attend: Attend, *inputs: Tensor, rows: Tensor | None = None
    ) -> Tensor:
        """compute(attend, *inputs, rows=rows), which goes through `stack`: by kernels alone where it was recorded."""
        if self.split.group.size > 1 or not getattr(self.stack, "has_arrived", True):
            return compute(attend, *inputs, rows=rows)
        return self.recorded_passes.run(compute, attend, *inputs, rows=rows)

    def take_waited_s(self) -> float:
        """`waited_s` since this was last asked."""
        waited_s, self.waited_s = self.waited_s, 0.0
        return waited_s

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend, *, rows: Tensor | None = None) -> Tensor:
        """Hidden states after the final norm.

        Args:
            input_ids: int64 [num_tokens], the flattened batch.
            positions: int64 [num_tokens], each token's place in its own sequence.
            rows: int64 [num_rows], the tokens whose hidden states are wanted, which is less work; None is all.

        Returns:
            [num_rows or num_tokens, hidden_size]
        """
        raise NotImplementedError

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] -> [n, vocab_size], in the model's dtype; the same on every rank."""
        return self.split.gather(self.lm_head(hidden), self.split.vocab)

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint must have, by its name there, and the view of a parameter that holds it.

        A view has the shape that the checkpoint's tensor has, or this rank's part of it: loading is one copy into it,
        whatever is stacked or transposed here. To be asked before `pack()`.
        """
        return dict(pair for module, name in self._parts() for pair in checkpoint_tensors(module, name))

    def checkpoint_shares(self) -> dict[str, TensorShare]:
        """Which part of a checkpoint's tensor this rank has, by its name there, for all that are not whole here."""
        layers = ((child, path) for module, name in self._parts() for path, child in module.named_modules(prefix=name))
        return dict(
            pair
            for layer, path in layers
            if isinstance(layer, Linear | Embedding)
            for pair in layer.checkpoint_shares(path)
        )

    def projections(self) -> dict[str, Projection]:
        """The linear layers but the head, by their names in a checkpoint."""
        found: dict[str, Projection] = {}
        for attribute, prefix in self.checkpoint_names.items():
            module = getattr(self, attribute)
            for path, child in () if module is None else module.named_modules(prefix=prefix):
                if isinstance(child, Linear):
                    found.update(child.projections(path))
        return found

    def _parts(self) -> Iterator[tuple[nn.Module, str]]:
        """The parts that a checkpoint has tensors for, and how it calls them. A tied head has none."""
        names = dict(self.checkpoint_names)
        if not self.config.tie_word_embeddings:
            names["lm_head"] = "lm_head"
        for attribute, name in names.items():
            module = getattr(self, attribute)
            if module is not None:
                yield module, name

    def quantize(self, quantization: str) -> None:
        """Have `pack()` give linear layers' weights fewer bits. The head keeps 8, and the embedding all that it has.

        Args:
            quantization: none, int8 or int4.

        Raises:
            ValueError: there are no such layers in the model's dtype, or on its device.
        """
        if quantization != "none" and (self.dtype not in QUANTIZED_DTYPES or self.device.type == "cuda"):
            raise ValueError(
                f"quantization={quantization} is there for float32 and bfloat16 on cpu, and not for {self.dtype} on "
                f"{self.device.type}; choose another dtype, or leave it out"
            )
        self.quantization = quantization
        for module in self.modules():
            if isinstance(module, Linear):
                module.quantization = quantization
        if quantization != "none":
            self.lm_head.quantization = HEAD_QUANTIZATION

    def pack(self) -> None:
        """Give every linear layer the layout that is fastest here, one at a time, freeing the plain one.

        A tied head and the embedding share one table, if rows can be read from the packed one; otherwise the head gets
        a copy of its own (ModelConfig.packed_head_bytes).
        """
        if self.config.tie_word_embeddings:
            self.embed_tokens.share_with(self.lm_head)
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack()

    def weight_bytes(self) -> int:
        """Memory that the weights take now, shared tensors counted once."""
        tensors = {id(p): p for p in self.parameters()}
        packed = [m.packed for m in self.modules() if isinstance(m, Linear) and m.packed is not None]
        return sum(t.numel() * t.element_size() for t in tensors.values()) + sum(w.num_bytes for w in packed)


def checkpoint_tensors(module: nn.Module, name: str) -> Iterator[tuple[str, Tensor]]:
    """Names and views of a module's tensors: attributes bear the checkpoint's names, linear layers know their own."""
    if isinstance(module, Linear):
        yield from module.checkpoint_tensors(name)
        return
    for parameter_name, parameter in module.named_parameters(recurse=False):
        yield f"{name}.{parameter_name}", parameter
    for child_name, child in module.named_children():
        yield from checkpoint_tensors(child, f"{name}.{child_name}")
