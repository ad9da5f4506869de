"""Granite 4: Mamba-2 in most layers, attention without positions in the others, and an MLP, maybe with experts beside
it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from quire.models.architectures.granite import read_multipliers
from quire.models.architectures.llama import FusedMLP, LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.experts import ExpertRouter, Experts
from quire.models.model_config import ConfigReader, ExpertsConfig, ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.states.mamba import Mamba2, read_mamba
from quire.ops.arrays import Array
from quire.ops.module import Module

_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}  # names in older configs


def read_config(reader: ConfigReader) -> ModelConfig:
    given = reader.get("layer_types", reader.get("layers_block_type"))
    kinds = [_KINDS.get(kind, kind) for kind in given] if isinstance(given, list) else None
    inner = reader.integer("shared_intermediate_size", 1024)
    config = read_decoder_config(
        reader.replaced(intermediate_size=inner, layer_types=kinds),
        "GraniteMoeHybridForCausalLM",
        reads_biases=("attention_bias",),
        gate_and_up_apart=reader.flag("gate_and_up_apart", False),  # in GGUF files
        **read_multipliers(reader),
    )
    default = ["linear_attention"] * config.num_layers
    kinds = list(reader.replaced(layer_types=kinds).layer_types(default, other="linear_attention"))
    rope = config.rope if reader.get("position_embedding_type") == "rope" else None
    layers = tuple(replace(config.layer_configs[0], rope=rope, has_state=kind != "full_attention") for kind in kinds)
    experts = None
    if reader.count("num_local_experts"):
        experts = ExpertsConfig(
            count=reader.integer("num_local_experts"),
            chosen=reader.integer("num_experts_per_tok", 2),
            inner=reader.integer("intermediate_size"),
            scores="softmax_of_chosen",
            normalizes=False,
            shared_inner=inner,
        )
    state = read_mamba(reader, config.hidden_size) if "linear_attention" in kinds else None
    return replace(config, layers=layers, state=state, experts=experts)


class GraniteHybridMLP(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        self.shared_expert, self._group = FusedMLP(config, split, **factory), split.group
        self.gate = self.experts = None
        if config.experts is not None:
            self.gate = ExpertRouter(config.hidden_size, config.experts.count, bias=False, **factory)
            self.experts = Experts(config, split, **factory)

    def __call__(self, x: Array) -> Array:
        if self.gate is None or self.experts is None:
            return self.shared_expert(x)
        return self._group.all_reduce(self.experts(x, self.gate(x), self.shared_expert.addend(x)))


class GraniteHybridDecoderLayer(LlamaDecoderLayer):
    mlp_class = sparse_mlp_class = GraniteHybridMLP
    state_class, state_name = Mamba2, "mamba"


class GraniteMoeHybridForCausalLM(LlamaForCausalLM):
    renamed_tensors: ClassVar = {
        ".shared_mlp.input_linear.": ".mlp.shared_expert.gate_up_proj.",
        ".shared_mlp.output_linear.": ".mlp.shared_expert.down_proj.",
        ".block_sparse_moe.input_linear.weight": ".mlp.experts.gate_up_proj",
        ".block_sparse_moe.output_linear.weight": ".mlp.experts.down_proj",
        ".block_sparse_moe.router.layer.": ".mlp.gate.",
    }
    layer_class = GraniteHybridDecoderLayer
