"""BERT as a text encoder: learned positions, attention both ways, LayerNorm after each part (arXiv 1810.04805).

It knows token ids and hidden states. What becomes of a text's hidden states is the embedder's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quire.loading.checkpoint import match_tensors, read_headers
from quire.loading.modules.fill import load_tensors
from quire.models.base import checkpoint_tensors
from quire.models.layers import ACTIVATIONS, Embedding, LayerNorm, Linear, MergedLinear, check_activation
from quire.models.model_config import ConfigReader, UnsupportedModelError

_PREFIX = "bert."  # of tensors in checkpoints that were saved with a head
_IGNORED = re.compile(r"embeddings\.position_ids|pooler\..*|cls\..*|classifier\..*")
_FACTORY: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}


@dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT encoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    num_token_types: int
    norm_eps: float
    hidden_act: str

    @classmethod
    def read(cls, hf_config: Mapping[str, Any]) -> BertConfig:
        """From a config.json.

        Raises:
            ModelConfigError: it is no BERT, or one with parts that are not supported.
        """
        reader = ConfigReader(hf_config)
        if (kind := hf_config.get("model_type")) != "bert":
            raise UnsupportedModelError(f"model_type {kind!r} is no text encoder that is supported; supported: bert")
        position = reader.get("position_embedding_type", "absolute")
        reader.refuse_if(position != "absolute", f"BERT with position_embedding_type={position!r}")
        reader.refuse_if(reader.flag("is_decoder", False), "BERT as a decoder")
        config = cls(
            vocab_size=reader.integer("vocab_size"),
            hidden_size=reader.integer("hidden_size"),
            intermediate_size=reader.integer("intermediate_size"),
            num_layers=reader.integer("num_hidden_layers"),
            num_heads=reader.integer("num_attention_heads"),
            max_positions=reader.integer("max_position_embeddings"),
            num_token_types=reader.integer("type_vocab_size", 2),
            norm_eps=reader.number("layer_norm_eps", 1e-12),
            hidden_act=check_activation(reader.get("hidden_act", "gelu")),
        )
        odd = config.hidden_size % config.num_heads
        reader.refuse_if(odd, f"hidden_size={config.hidden_size} that its {config.num_heads} heads do not divide")
        return config


class BertLayer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_heads
        self.qkv = MergedLinear(size, {"query": size, "key": size, "value": size}, bias=True, **_FACTORY)
        self.attention_out = Linear(size, size, bias=True, **_FACTORY)
        self.attention_norm = LayerNorm(size, config.norm_eps, **_FACTORY)
        self.up = Linear(size, config.intermediate_size, bias=True, **_FACTORY)
        self.down = Linear(config.intermediate_size, size, bias=True, **_FACTORY)
        self.mlp_norm = LayerNorm(size, config.norm_eps, **_FACTORY)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, x: Tensor, batch: int, mask: Tensor | None) -> Tensor:
        # [batch * length, 3 * size] -> three of [batch, heads, length, head_dim]
        q, k, v = self.qkv(x).view(batch, -1, 3, self.num_heads, x.shape[1] // self.num_heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(x.shape)
        x = self.attention_norm(x + self.attention_out(attended))
        return self.mlp_norm(x + self.down(self.activation(self.up(x))))

    def named_parts(self) -> dict[str, nn.Module]:
        """Its parts by their names in a checkpoint."""
        return {
            "attention.self.qkv": self.qkv,
            "attention.output.dense": self.attention_out,
            "attention.output.LayerNorm": self.attention_norm,
            "intermediate.dense": self.up,
            "output.dense": self.down,
            "output.LayerNorm": self.mlp_norm,
        }


class BertEncoder(nn.Module):
    """Token ids to hidden states, float32. Texts that are shorter than the batch's longest are padded on the right."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.words = Embedding(config.vocab_size, size, **_FACTORY)
        self.positions = Embedding(config.max_positions, size, **_FACTORY)
        self.token_types = Embedding(config.num_token_types, size, **_FACTORY)
        self.norm = LayerNorm(size, config.norm_eps, **_FACTORY)
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_layers))

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """The last hidden states; those of padding mean nothing.

        Args:
            input_ids: int64 [batch, length], with any valid id for padding.
            lengths: int64 [batch], real tokens of each text, at least one.

        Returns:
            [batch, length, hidden_size]
        """
        batch, length = input_ids.shape
        x = self.words(input_ids) + (self.positions(torch.arange(length)) + self.token_types(torch.tensor([0])))
        x = self.norm(x).view(batch * length, -1)
        is_real = torch.arange(length) < lengths[:, None]  # [batch, length]
        mask = None if bool(is_real.all()) else is_real[:, None, None, :]
        for layer in self.layers:
            x = layer(x, batch, mask)
        return x.view(batch, length, -1)

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint must have, by its name there, and the view that holds it here."""
        parts: dict[str, nn.Module] = {
            "embeddings.word_embeddings": self.words,
            "embeddings.position_embeddings": self.positions,
            "embeddings.token_type_embeddings": self.token_types,
            "embeddings.LayerNorm": self.norm,
        }
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, BertLayer)
            parts |= {f"encoder.layer.{index}.{name}": part for name, part in layer.named_parts().items()}
        return {name: view for prefix, part in parts.items() for name, view in checkpoint_tensors(part, prefix)}


def load_encoder(directory: Path, config: BertConfig) -> BertEncoder:
    """The encoder of a checkpoint in safetensors, ready to run.

    Raises:
        ModelLoadError: the files are not what the config describes.
    """
    encoder = BertEncoder(config).eval()
    views = encoder.checkpoint_tensors()
    entries = {name.removeprefix(_PREFIX): entry for name, entry in read_headers(directory).items()}
    matched = match_tensors(entries, {name: tuple(view.shape) for name, view in views.items()}, ignored=_IGNORED)
    load_tensors(matched, views, lambda num_bytes: None)
    for module in encoder.modules():
        if isinstance(module, Linear):
            module.pack()
    return encoder
