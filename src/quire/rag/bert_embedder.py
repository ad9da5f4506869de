"""Texts to vectors by a BERT encoder, as sentence-transformers makes them of all-MiniLM-L6-v2.

The mean of the last hidden states over a text's real tokens, special ones included, and then scaled to length 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from quire.loading.known_digest import checkpoint_digest
from quire.loading.source import read_json_object
from quire.rag.bert import BertConfig, load_encoder
from quire.rag.embedding import EmbedderFacts, Embeddings
from quire.text.tokenizer import Tokenizer

_BATCH_TOKENS = 2048  # padding included; larger batches were no faster on two cores
_SETTINGS = "sentence_bert_config.json"


class BertEmbedder:
    """An `Embedder` over a directory in the Hugging Face format.

    Raises:
        ValueError: its files are missing, broken, or of no BERT.
    """

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

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Embeddings:
        all_ids = self._tokenizer.encode_batch(texts)
        counts = [len(ids) for ids in all_ids]
        is_truncated = [count > self._max_tokens for count in counts]
        # Cut as in the reference: the last special token stays.
        all_ids = [
            [*ids[: self._max_tokens - 1], ids[-1]] if is_cut else ids
            for ids, is_cut in zip(all_ids, is_truncated, strict=True)
        ]
        vectors = np.empty((len(texts), self.facts.dimension), np.float32)
        for indices in _batches([len(ids) for ids in all_ids]):
            vectors[indices] = self._embed([all_ids[index] for index in indices])
        return Embeddings(vectors, counts, is_truncated)

    def _embed(self, batch: list[list[int]]) -> np.ndarray:
        lengths = torch.tensor([len(ids) for ids in batch])
        input_ids = torch.zeros((len(batch), int(lengths.max())), dtype=torch.int64)
        for row, ids in zip(input_ids, batch, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        hidden = self._encoder(input_ids, lengths)  # [batch, length, dimension]
        is_real = torch.arange(input_ids.shape[1]) < lengths[:, None]
        mean = (hidden * is_real[:, :, None]).sum(1) / lengths[:, None]
        return F.normalize(mean, dim=1).numpy()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Texts by their indices, those of like length together, so that little is padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
