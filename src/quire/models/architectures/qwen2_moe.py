"""Qwen2 with mixtures of experts, one of which every token uses, times a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quire.models.architectures import qwen2
from quire.models.model_config import ConfigReader, ExpertsConfig, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    config = qwen2.read_config(reader)
    experts = read_experts(
        reader, config, shared_inner=reader.integer("shared_expert_intermediate_size", 5632), shared_gate=True
    )
    qkv_bias = reader.flag("qkv_bias", True)
    return replace(config, architecture="Qwen2MoeForCausalLM", qkv_bias=qkv_bias, experts=experts)


def read_experts(reader: ConfigReader, config: ModelConfig, **shared: Any) -> ExpertsConfig:
    step, dense = reader.integer("decoder_sparse_step", 1), reader.token_ids("mlp_only_layers")
    return ExpertsConfig(
        count=reader.integer("num_experts", reader.get("num_local_experts")),
        chosen=reader.integer("num_experts_per_tok"),
        inner=reader.integer("moe_intermediate_size"),
        normalizes=reader.flag("norm_topk_prob", False),
        dense_layers=tuple(i for i in range(config.num_layers) if i in dense or (i + 1) % step),
        **shared,
    )
