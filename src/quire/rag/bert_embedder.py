"""Embed texts with a BERT encoder (arXiv 1810.04805), as sentence-transformers does with all-MiniLM-L6-v2: the mean of
the last hidden states, special tokens included, scaled to length 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quire.loading.checkpoint import match_tensors, read_headers
from quire.loading.known_digest import checkpoint_digest
from quire.loading.modules.fill import load_tensors
from quire.loading.source import read_json_object
from quire.models.base import checkpoint_tensors
from quire.models.layers import Embedding, LayerNorm, check_activation
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ConfigReader, UnsupportedModelError
from quire.ops import functions as ops
from quire.ops.arrays import Array, as_numpy, like
from quire.ops.backend import dtype_for
from quire.ops.module import Module, ModuleList
from quire.rag.embedding import EmbedderFacts, EmbedderInput, Embeddings
from quire.text.tokenizer import Tokenizer

_LONG = 128  # tokens
_BATCH_TOKENS = 2048  # padding included; larger batches were no faster on two cores
_SETTINGS = "sentence_bert_config.json"
_PREFIX = "bert."  # before tensor names in checkpoints saved with a head
_IGNORED = re.compile(r"embeddings\.position_ids|pooler\..*|cls\..*|classifier\..*")


class BertEmbedder:
    """An `Embedder` from a Hugging Face directory. Raises ValueError if its files are missing, broken, or no BERT."""

    def __init__(self, name: str, directory: Path) -> None:
        config = BertConfig.read(read_json_object(directory / "config.json"))
        settings = read_json_object(directory / _SETTINGS) if (directory / _SETTINGS).is_file() else {}
        limit = settings.get("max_seq_length")
        self._max_tokens = min(limit if isinstance(limit, int) else config.max_positions, config.max_positions)
        self._tokenizer = Tokenizer.from_dir(directory)
        self._encoder = load_encoder(directory, config)
        self.facts = EmbedderFacts(name, config.hidden_size, self._max_tokens, self._fingerprint(directory))

    def _fingerprint(self, directory: Path) -> str:
        digest = hashlib.sha256(checkpoint_digest(directory, use_tqdm=False).encode())
        digest.update(self._tokenizer.backend.to_str().encode())
        digest.update(str(self._max_tokens).encode())
        return digest.hexdigest()

    def embed(self, texts: Sequence[EmbedderInput], max_tokens: int | None = None) -> Embeddings:
        limit = min(max_tokens or self._max_tokens, self._max_tokens)
        encoded = iter(self._tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
        all_ids = [next(encoded) if isinstance(text, str) else self._check(text) for text in texts]
        counts = [len(ids) for ids in all_ids]
        is_truncated = [count > limit for count in counts]
        # Truncated as in the reference: the last special token stays.
        all_ids = [
            [*ids[: limit - 1], ids[-1]] if is_cut else ids for ids, is_cut in zip(all_ids, is_truncated, strict=True)
        ]
        vectors = np.empty((len(texts), self.facts.dimension), np.float32)
        for indices in _batches([len(ids) for ids in all_ids]):
            vectors[indices] = self._embed([all_ids[index] for index in indices])
        return Embeddings(vectors, counts, is_truncated)

    def _check(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids of this embedder's tokenizer, which its special tokens tell from ids of others."""
        ids, around = list(token_ids), self._tokenizer.encode("")
        half = len(around) // 2
        is_own = ids[:half] == around[:half] and ids[len(ids) - len(around) + half :] == around[half:]
        if not is_own or max(ids) >= self._encoder.config.vocab_size:
            raise ValueError(
                f"token ids of another tokenizer: those of {self.facts.name} are below "
                f"{self._encoder.config.vocab_size} and have the special tokens {around} around them; send texts (in "
                "LangChain, set check_embedding_ctx_length=False)"
            )
        return ids

    def _embed(self, batch: list[list[int]]) -> np.ndarray:
        lengths = np.array([len(ids) for ids in batch])
        input_ids = np.zeros((len(batch), lengths.max()), np.int64)
        for row, ids in zip(input_ids, batch, strict=True):
            row[: len(ids)] = ids
        hidden = self._encoder(input_ids, lengths)  # [batch, length, dimension]
        is_real = np.arange(input_ids.shape[1]) < lengths[:, None]
        mean = (hidden * is_real[:, :, None]).sum(1) / lengths[:, None].astype(np.float32)
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield indices of texts in batches of similar length, which keeps padding small."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@dataclass(frozen=True)
class BertConfig:
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
        """Read a config.json. Raises ModelConfigError for other models and for unsupported variants of BERT."""
        reader = ConfigReader(hf_config)
        if (kind := hf_config.get("model_type")) != "bert":
            raise UnsupportedModelError(f"model_type {kind!r} is not a supported text encoder; supported: bert")
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
        reader.refuse_if(odd, f"hidden_size={config.hidden_size} not divisible by its {config.num_heads} heads")
        return config


class BertLayer(Module):
    def __init__(self, config: BertConfig, **factory: Any) -> None:
        size = config.hidden_size
        self.num_heads = config.num_heads
        self.qkv = MergedLinear(size, {"query": size, "key": size, "value": size}, bias=True, **factory)
        self.attention_out = Linear(size, size, bias=True, **factory)
        self.attention_norm = LayerNorm(size, config.norm_eps, **factory)
        self.up = Linear(size, config.intermediate_size, bias=True, **factory)
        self.down = Linear(config.intermediate_size, size, bias=True, **factory)
        self.mlp_norm = LayerNorm(size, config.norm_eps, **factory)
        self.activation = ops.ACTIVATIONS[config.hidden_act]

    def __call__(self, x: Array, batch: int, mask: np.ndarray | None) -> Array:
        # [batch * length, 3 * size] -> three of [batch, heads, length, head_dim]
        qkv = as_numpy(self.qkv(x)).reshape(batch, -1, 3, self.num_heads, x.shape[1] // self.num_heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        attended = _attend(q, k, v, mask).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self.attention_norm(ops.add(x, self.attention_out(like(attended, x))))
        return self.mlp_norm(ops.add(x, self.down(ops.activate(self.up(x), self.activation))))

    def named_parts(self) -> dict[str, Module]:
        """The layer's parts by their checkpoint names."""
        return {
            "attention.self.qkv": self.qkv,
            "attention.output.dense": self.attention_out,
            "attention.output.LayerNorm": self.attention_norm,
            "intermediate.dense": self.up,
            "output.dense": self.down,
            "output.LayerNorm": self.mlp_norm,
        }


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Attend in both directions: [batch, heads, length, head_dim]; tokens with a `mask`, [batch, length], of 0 are
    padding."""
    bias = None if mask is None else np.where(mask, np.float32(0), np.float32(-np.inf))[:, None, None, :]
    if q.shape[2] < _LONG:
        return _attend_at_once(q, k, v, bias)
    out = np.empty(q.shape, np.float32)
    for text, head in np.ndindex(*q.shape[:2]):  # scores of one head stay in the cache
        one = slice(text, text + 1), slice(head, head + 1)
        out[one] = _attend_at_once(q[one], k[one], v[one], None if bias is None else bias[text : text + 1])
    return out


def _attend_at_once(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    scores = (q * np.float32(q.shape[-1] ** -0.5)) @ k.swapaxes(-1, -2)
    if bias is not None:
        scores += bias
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    return (scores @ v) / scores.sum(-1, keepdims=True)


class BertEncoder(Module):
    """Token ids to hidden states in float32. Shorter texts of a batch are padded on the right."""

    def __init__(self, config: BertConfig) -> None:
        self.config = config
        factory: dict[str, Any] = {"dtype": dtype_for("float32", "cpu"), "device": "cpu"}
        size = config.hidden_size
        self.words = Embedding(config.vocab_size, size, **factory)
        self.positions = Embedding(config.max_positions, size, **factory)
        self.token_types = Embedding(config.num_token_types, size, **factory)
        self.norm = LayerNorm(size, config.norm_eps, **factory)
        self.layers = ModuleList(BertLayer(config, **factory) for _ in range(config.num_layers))

    def __call__(self, input_ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Compute hidden states [batch, length, hidden_size] of int64 [batch, length] ids, padded to `lengths`."""
        batch, length = input_ids.shape
        is_real = np.arange(length) < lengths[:, None]  # [batch, length]
        mask = None if is_real.all() else is_real
        words, places = (
            like(each, self.words.weight) for each in (input_ids.reshape(-1), np.tile(np.arange(length), batch))
        )
        x = ops.add(self.words(words), ops.add(self.positions(places), self.token_types(places * 0)))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, batch, mask)
        return as_numpy(x).reshape(batch, length, -1)

    def checkpoint_tensors(self) -> dict[str, Array]:
        """Checkpoint name -> the view that receives the tensor."""
        parts: dict[str, Module] = {
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
    """Load an encoder from safetensors. Raises ModelLoadError if the files do not match the config."""
    encoder = BertEncoder(config)
    views = encoder.checkpoint_tensors()
    entries = {name.removeprefix(_PREFIX): entry for name, entry in read_headers(directory).items()}
    matched = match_tensors(entries, {name: tuple(view.shape) for name, view in views.items()}, ignored=_IGNORED)
    load_tensors(matched, views, lambda num_bytes: None)
    for module in encoder.modules():
        if isinstance(module, Linear):
            module.pack()
    return encoder
