"""Mixtral: Mistral with mixtures of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from quire.models.architectures import mistral
from quire.models.architectures.llama import LlamaForCausalLM
from quire.models.model_config import ConfigReader, ExpertsConfig, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    values = {"sliding_window": None, **reader.values, "model_type": "mistral"}
    config = mistral.read_config(ConfigReader(values))
    experts = ExpertsConfig(
        count=reader.integer("num_local_experts", 8),
        chosen=reader.integer("num_experts_per_tok", 2),
        inner=config.intermediate_size,
    )
    return replace(config, architecture="MixtralForCausalLM", experts=experts)


class MixtralForCausalLM(LlamaForCausalLM):
    renamed_tensors: ClassVar = {
        ".block_sparse_moe.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
    }
