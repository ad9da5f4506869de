"""The text part of Qwen3.5 and 3.6: Qwen3-Next with separate projections and an MLP, or with experts."""

from __future__ import annotations

from quire.models.architectures.qwen3_next import HybridDecoderLayer, Qwen3NextForCausalLM, read_hybrid, with_experts
from quire.models.gated_delta import GatedDeltaNet
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    if "moe" in reader.get("model_type", ""):
        return with_experts(read_hybrid(reader, "Qwen3_5MoeForCausalLM"), reader)
    return read_hybrid(reader, "Qwen3_5ForCausalLM")


class Qwen3_5DecoderLayer(HybridDecoderLayer):  # noqa: N801
    delta_class = GatedDeltaNet


class Qwen3_5ForCausalLM(Qwen3NextForCausalLM):  # noqa: N801
    layer_class = Qwen3_5DecoderLayer


class Qwen3_5MoeForCausalLM(Qwen3_5ForCausalLM):  # noqa: N801
    pass
