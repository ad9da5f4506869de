"""Qwen3 with mixtures of experts: Qwen3-30B-A3B, Qwen3-Coder."""

from __future__ import annotations

from dataclasses import replace

from quire.models.architectures import qwen3
from quire.models.architectures.qwen2_moe import read_experts
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    config = qwen3.read_config(reader)
    return replace(config, architecture="Qwen3MoeForCausalLM", experts=read_experts(reader, config))
