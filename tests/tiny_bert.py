"""A BERT with large random weights, so every input affects every output."""

from __future__ import annotations

from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "the", "cat", "dog", "sat", "on", "mat", "and", "##s"]


def write_tiny_bert(directory: Path) -> None:
    """Write its files; it reads 24 tokens, and "a cat" is [2, 4, 6, 3]."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    model = transformers.BertModel(config)
    for name, parameter in model.named_parameters():
        if "bias" in name or "LayerNorm" in name:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    backend = tokenizers.Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.save(str(directory / "tokenizer.json"))
    (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
