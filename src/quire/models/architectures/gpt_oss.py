"""gpt-oss: attention sinks, windows in every other layer, and mixtures of experts with biases and a clamped SwiGLU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from quire.models.architectures.llama import LlamaAttention, LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.base import Attend
from quire.models.model_config import ConfigReader, ExpertsConfig, ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import TensorShare
from quire.models.rotary import Rotation
from quire.ops.arrays import Array, empty

#: Values that configs leave out.
_DEFAULTS: dict[str, Any] = {
    "head_dim": 64, "rms_norm_eps": 1e-5, "sliding_window": 128, "max_position_embeddings": 131_072,
    "rope_theta": 150_000.0,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096,
    },
}  # fmt: skip


def read_config(reader: ConfigReader) -> ModelConfig:
    reader = reader.with_defaults(_DEFAULTS)
    has_bias = reader.flag("attention_bias", True)
    config = read_decoder_config(
        reader, architecture="GptOssForCausalLM", qkv_bias=has_bias, attention_out_bias=has_bias
    )
    experts = ExpertsConfig(
        count=reader.integer("num_local_experts", reader.get("num_experts")),
        chosen=reader.integer("num_experts_per_tok", 4),
        inner=config.intermediate_size,
        scores="softmax_of_chosen",
        normalizes=False,
        has_biases=True,
        limit=reader.number("swiglu_limit", 7.0),
        alpha=reader.number("swiglu_alpha", 1.702),
    )
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.num_layers)]
    windows = reader.windows(reader.integer("sliding_window"), default)
    return replace(config, experts=experts).with_layers(windows)


class GptOssAttention(LlamaAttention):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        super().__init__(config, split, index, **factory)
        self.sinks = empty((split.num_heads,), **factory)  #: a score of each head that has no value

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        return super().__call__(x, rotation, lambda *qkv: attend(*qkv, self.sinks), rows)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (heads := self.split.heads).is_whole:
            yield f"{name}.sinks", TensorShare((heads.total,), 0, heads.ranges)


class GptOssDecoderLayer(LlamaDecoderLayer):
    attention_class = GptOssAttention


class GptOssForCausalLM(LlamaForCausalLM):
    layer_class = GptOssDecoderLayer
    renamed_tensors: ClassVar = {".mlp.router.": ".mlp.gate."}
    pairs_expert_rows = True
