"""The assistants of Gemma 4: small models that draft, as in transformers' modeling_gemma4_assistant.py. Each layer
attends to the KV of the served model's last layer of its kind, so it has no keys and values. All drafts of a step have
the rotary position of the text's last token, and see the KV of the tokens before it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from quire.attention.interface import LayerAttention, LayerState
from quire.models.architectures.gemma4 import Gemma4Attention, Gemma4ForCausalLM, read_config
from quire.models.base import CausalLM
from quire.models.draft_head import HiddenStateReader
from quire.models.linear.layer import Linear
from quire.models.model_config import ConfigReader, LayerConfig
from quire.ops.arrays import Array


class Gemma4Assistant(HiddenStateReader, Gemma4ForCausalLM):
    """An assistant of a served model. ValueError if it was trained with another one."""

    reads_served_kv = True
    checkpoint_names: ClassVar = {
        "fc": "pre_projection",
        "post_projection": "post_projection",
        "embed_tokens": "model.embed_tokens",
        "layers": "model.layers",
        "norm": "model.norm",
    }

    def __init__(self, served: CausalLM, values: Mapping[str, Any]) -> None:
        text = ConfigReader(values.get("text_config") or {}).replaced(num_kv_shared_layers=0, tie_word_embeddings=True)
        config, size = read_config(text), ConfigReader(values).integer("backbone_hidden_size", 1536)
        reads = [_layer_read(served, layer) for layer in config.layer_configs]
        if None in reads or (size, config.vocab_size) != (served.config.hidden_size, served.config.vocab_size):
            raise ValueError("this assistant drafts for another Gemma 4; name that of the served model")
        layers = tuple(
            replace(layer, reads_layer=index, num_kv_heads=served.config.layer_configs[index or 0].num_kv_heads)
            for layer, index in zip(config.layer_configs, reads, strict=True)
        )
        config = replace(config, layers=layers, logits_softcap=0.0)
        super().__init__(config, dtype=served.dtype, device="meta", group=served.split.group)
        factory: dict[str, Any] = {"bias": False, "dtype": served.dtype, "device": "meta"}
        self.fc = Linear(2 * size, config.hidden_size, **factory)
        self.post_projection = Linear(config.hidden_size, size, **factory)
        self.kv_dtype, self._of_served = served.kv_dtype, served.attention_layers()
        for module in self.modules():
            if isinstance(module, Gemma4Attention):
                module.index += len(self._of_served)
        # All logits are computed, not only those of the likeliest clusters of tokens.
        self.ignored_tensors = re.compile(rf"{self.ignored_tensors.pattern}|masked_embedding\..*")

    def attention_layers(self) -> tuple[LayerAttention | LayerState, ...]:
        """Return the served model's, then its own."""
        return (*self._of_served, *super().attention_layers())

    def next_hidden(self, hidden: Array) -> Array:
        return self.post_projection(hidden)


def _layer_read(served: CausalLM, layer: LayerConfig) -> int | None:
    """Return the served model's last layer with KV of a kind."""
    layers = enumerate(served.config.layer_configs)
    kind = (bool(layer.window), layer.head_dim)
    found = [i for i, each in layers if each.reads_layer is None and (bool(each.window), each.head_dim) == kind]
    return found[-1] if found and isinstance(served, Gemma4ForCausalLM) else None
