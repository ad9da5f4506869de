"""The list of architectures. A new one is one file and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quire.models.model_config import ConfigReader, ModelConfig, ModelConfigError, UnsupportedModelError
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.quantized_weights import read_quantized_weights

if TYPE_CHECKING:
    from quire.models.base import CausalLM


@dataclass(frozen=True)
class Architecture:
    """An architecture's name in config.json, its module in `models/architectures` and its model families. One that
    differs from Llama's in the config only has no class of its own."""

    name: str
    model_type: str
    module: str
    families: str

    @property
    def model_class(self) -> type[CausalLM]:
        from quire.models.architectures.llama import LlamaForCausalLM

        return getattr(self._imported, self.name, LlamaForCausalLM)

    @property
    def read_config(self) -> Callable[[ConfigReader], ModelConfig]:
        return self._imported.read_config

    @property
    def _imported(self) -> Any:
        return importlib.import_module(f"quire.models.architectures.{self.module}")


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("LlamaForCausalLM", "llama", "llama", "Llama 1 to 3.x, TinyLlama, SmolLM"),
        Architecture("MistralForCausalLM", "mistral", "mistral", "Mistral"),
        Architecture("Qwen2ForCausalLM", "qwen2", "qwen2", "Qwen2, Qwen2.5"),
        Architecture("Qwen3ForCausalLM", "qwen3", "qwen3", "Qwen3, dense"),
        Architecture("Phi3ForCausalLM", "phi3", "phi3", "Phi-3, Phi-4, Phi-4-mini"),
        Architecture("GlmForCausalLM", "glm", "glm", "GLM-4-9B of 2024"),
        Architecture("Glm4ForCausalLM", "glm4", "glm", "GLM-4-0414, GLM-Z1"),
        Architecture("Olmo2ForCausalLM", "olmo2", "olmo2", "OLMo 2"),
        Architecture("SmolLM3ForCausalLM", "smollm3", "smollm3", "SmolLM3"),
        Architecture("SeedOssForCausalLM", "seed_oss", "seed_oss", "Seed-OSS"),
        Architecture("InternLM3ForCausalLM", "internlm3", "seed_oss", "InternLM3"),
        Architecture("Olmo3ForCausalLM", "olmo3", "olmo2", "OLMo 3"),
        Architecture("Exaone4ForCausalLM", "exaone4", "exaone4", "EXAONE 4"),
        Architecture("GraniteForCausalLM", "granite", "granite", "Granite 3, dense"),
        Architecture("GraniteMoeHybridForCausalLM", "granitemoehybrid", "granite_hybrid", "Granite 4"),
        Architecture("MinistralForCausalLM", "ministral", "mistral", "Ministral of 2024"),
        Architecture("Ministral3ForCausalLM", "ministral3", "mistral", "Ministral 3"),
        Architecture("Gemma2ForCausalLM", "gemma2", "gemma", "Gemma 2"),
        Architecture("Gemma3ForCausalLM", "gemma3_text", "gemma", "Gemma 3"),
        Architecture("Qwen2MoeForCausalLM", "qwen2_moe", "qwen2_moe", "Qwen1.5-MoE, Qwen2-57B-A14B"),
        Architecture("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3_moe", "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder"),
        Architecture("Qwen3NextForCausalLM", "qwen3_next", "qwen3_next", "Qwen3-Next"),
        Architecture("Qwen3_5ForCausalLM", "qwen3_5_text", "qwen3_next", "Qwen3.5, Qwen3.6, dense"),
        Architecture("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen3_next", "Qwen3.5-35B-A3B, Qwen3.6-35B-A3B"),
        Architecture("Lfm2ForCausalLM", "lfm2", "lfm2", "LFM2, LFM2.5"),
        Architecture("Lfm2MoeForCausalLM", "lfm2_moe", "lfm2", "LFM2-8B-A1B"),
        Architecture("MixtralForCausalLM", "mixtral", "mixtral", "Mixtral"),
        Architecture("GptOssForCausalLM", "gpt_oss", "gpt_oss", "gpt-oss-20b, gpt-oss-120b"),
        Architecture("Gemma4ForCausalLM", "gemma4_text", "gemma4", "Gemma 4"),
        Architecture("DeepseekV2ForCausalLM", "deepseek_v2", "deepseek", "DeepSeek-V2, DeepSeek-V2-Lite"),
        Architecture("DeepseekV3ForCausalLM", "deepseek_v3", "deepseek", "DeepSeek-V3, DeepSeek-R1"),
        Architecture("Glm4MoeForCausalLM", "glm4_moe", "glm4_moe", "GLM-4.5, GLM-4.6, GLM-4.7"),
        Architecture("Glm4MoeLiteForCausalLM", "glm4_moe_lite", "deepseek", "GLM-4.7-Flash"),
        Architecture("GPT2LMHeadModel", "gpt2", "gpt2", "GPT-2, DialoGPT"),
        Architecture("OPTForCausalLM", "opt", "opt", "OPT, Galactica"),
    )
}


#: Multimodal architectures, of which the text part is served.
MULTIMODAL = {
    "Gemma3ForConditionalGeneration": "Gemma 3 of 4B to 27B",
    "Gemma4ForConditionalGeneration": "Gemma 4",
    "Qwen3_5ForConditionalGeneration": "Qwen3.5 and 3.6, dense",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3.5 and 3.6 with experts",
    "Mistral3ForConditionalGeneration": "Mistral Small 3.1 and 3.2, Ministral 3",
}
#: Prefixes of names in a multimodal checkpoint's text part, and in the text model.
_TEXT_PREFIXES = {
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_SHARED_FIELDS = ("tie_word_embeddings", "dtype", "torch_dtype", "eos_token_id", "quantization_config")


def text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the config of a multimodal model's text part and the model's architecture, or a config itself and ""."""
    names, text = config.get("architectures"), config.get("text_config")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in MULTIMODAL or not isinstance(text, Mapping):
        return config, ""
    shared = {field: config[field] for field in _SHARED_FIELDS if config.get(field) is not None}
    return {**shared, **{field: value for field, value in text.items() if value is not None}}, name


def text_name(name: str) -> str:
    """Return a text model's name of a tensor or layer of a multimodal checkpoint; others are the same."""
    prefix = next(filter(name.startswith, _TEXT_PREFIXES), "")
    return _TEXT_PREFIXES.get(prefix, "") + name.removeprefix(prefix)


def find_architecture(config: Mapping[str, Any]) -> Architecture:
    """Find the architecture that a `config.json` names, by model_type if it lists none."""
    config, _ = text_config(config)
    names = config.get("architectures") or []
    if not isinstance(names, list):
        raise ModelConfigError(f"the config's architectures are {names!r}; expected a list of names")
    for name in names:
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    model_type = config.get("model_type")
    if not names:
        for architecture in ARCHITECTURES.values():
            if architecture.model_type == model_type:
                return architecture
    if not names and not model_type:
        raise ModelConfigError(
            "the config names neither 'architectures' nor 'model_type'; is it a model's config.json?"
        )
    named = ", ".join(map(str, names)) or f"model_type {model_type!r}"
    served = ", ".join(f"{a.name} ({a.families})" for a in ARCHITECTURES.values())
    raise UnsupportedModelError(f"{named} is not supported; Quire serves {served}")


def read_model_config(values: Mapping[str, Any]) -> ModelConfig:
    """Read the shape that a `config.json` describes. Raises UnsupportedModelError or ModelConfigError."""
    architecture = find_architecture(values)
    text, text_of = text_config(values)
    reader = ConfigReader(text)
    quantized = read_quantized_weights(ConfigReader({**values, **text}))
    reader.refuse_if(reader.flag("is_encoder_decoder", False), "an encoder-decoder model")
    reader.refuse_if(reader.flag("add_cross_attention", False), "cross-attention")
    return replace(architecture.read_config(reader), quantized=quantized, text_of=text_of)


def build_model(config: ModelConfig, dtype: Any, device: str, group: ParallelGroup = ALONE) -> CausalLM:
    """Build an uninitialised model of this shape, or a rank's part of it, of arrays of the dtype's kind; raises as
    `ModelSplit`."""
    return ARCHITECTURES[config.architecture].model_class(config, dtype=dtype, device=device, group=group)
