"""DeepSeek-V2 and V3, and GLM-4.7-Flash: latent attention, and mixtures of experts after a few dense layers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

from quire.models.architectures.llama import LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.latent_attention import LatentAttention
from quire.models.model_config import ConfigReader, ExpertsConfig, LatentConfig, ModelConfig, yarn_sharpening

_NAMES = {"deepseek_v2": "DeepseekV2ForCausalLM", "glm4_moe_lite": "Glm4MoeLiteForCausalLM"}
#: Supported values, the defaults first.
_OF_V2 = {"topk_method": ("greedy", "group_limited_greedy"), "scoring_func": ("softmax",), "norm_topk_prob": (False,)}
_OF_V3 = {"topk_method": ("noaux_tc",), "scoring_func": ("sigmoid",), "norm_topk_prob": (True, False)}


def read_config(reader: ConfigReader) -> ModelConfig:
    kind = reader.get("model_type")
    latent = LatentConfig(
        rank=reader.integer("kv_lora_rank", 512),
        nope_dim=reader.integer("qk_nope_head_dim", 192 if kind == "glm4_moe_lite" else 128),
        rope_dim=reader.integer("qk_rope_head_dim", 64),
        value_dim=reader.integer("v_head_dim", 256 if kind == "glm4_moe_lite" else 128),
        query_rank=reader.count("q_lora_rank"),
    )
    config = read_decoder_config(
        reader.replaced(num_key_value_heads=1),
        architecture=_NAMES.get(kind, "DeepseekV3ForCausalLM"),
        head_dim=latent.rope_dim,
        is_interleaved=kind == "deepseek_v2" or reader.flag("rope_interleave", True),
        reads_biases=("attention_bias",),
        experts=read_experts(reader, is_v2=kind == "deepseek_v2"),
    )
    scale = (latent.nope_dim + latent.rope_dim) ** -0.5
    rope = reader.get("rope_parameters") or reader.get("rope_scaling") or {}
    if config.rope is not None and config.rope.rope_type == "yarn" and rope.get("mscale_all_dim"):
        scale *= yarn_sharpening(config.rope["factor"], rope["mscale_all_dim"]) ** 2
    return replace(config, head_dim=latent.rank + latent.rope_dim, latent=latent, attention_scale=scale)


def read_experts(reader: ConfigReader, *, is_v2: bool) -> ExpertsConfig:
    values = {"moe_layer_freq": (1,), **(_OF_V2 if is_v2 else _OF_V3)}
    found = {name: reader.get(name, known[0]) for name, known in values.items()}
    for name, value in found.items():
        reader.refuse_if(value not in values[name], f"{name} {value!r:.100}", f"supported: {values[name]}")
    inner, has_groups = reader.integer("moe_intermediate_size"), found["topk_method"] != "greedy"
    kinds = reader.get("mlp_layer_types", ["dense"] * reader.count("first_k_dense_replace"))
    return ExpertsConfig(
        count=reader.integer("n_routed_experts"),
        chosen=reader.integer("num_experts_per_tok"),
        inner=inner,
        scores=found["scoring_func"],
        normalizes=found["norm_topk_prob"],
        scale=reader.number("routed_scaling_factor", 1.0),
        shared_inner=inner * reader.count("n_shared_experts"),
        dense_layers=tuple(i for i in range(len(kinds)) if kinds[i] == "dense"),
        num_groups=reader.integer("n_group", 1) if has_groups else 1,
        num_chosen_groups=reader.integer("topk_group", 1) if has_groups else 1,
        num_of_group=1 if is_v2 else 2,
        has_choice_bias=not is_v2,
        has_float_logits=True,
    )


class DeepseekDecoderLayer(LlamaDecoderLayer):
    attention_class: ClassVar[Any] = LatentAttention


class DeepseekV2ForCausalLM(LlamaForCausalLM):
    renamed_tensors: ClassVar = {".shared_experts.": ".shared_expert."}
    layer_class: ClassVar[type[LlamaDecoderLayer]] = DeepseekDecoderLayer
    draft_head_names: ClassVar = {
        "fc": "model.layers.{}.eh_proj",
        "embedding_norm": "model.layers.{}.enorm",
        "hidden_norm": "model.layers.{}.hnorm",
        "layer": "model.layers.{}",
        "norm": "model.layers.{}.shared_head.norm",
    }

    def __init__(self, config: ModelConfig, **factory: Any) -> None:
        super().__init__(config, **factory)
        # The layer behind the last is the draft head's.
        self.ignored_tensors = re.compile(rf"{self.ignored_tensors.pattern}|model\.layers\.{config.num_layers}\..*")


DeepseekV3ForCausalLM = Glm4MoeLiteForCausalLM = DeepseekV2ForCausalLM
