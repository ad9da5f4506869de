"""Tiny real tokenizers of the common kinds, trained on a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import settings
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from quire.text.tokenizer import Tokenizer

settings.register_profile("text", deadline=None, max_examples=50)
settings.load_profile("text")

LINES = [
    "The capital of France is Paris, and the quick brown fox jumps over the lazy dog.",
    "the theatre of the absurd: there they were, then and there\n\tindented = True",
    "서울은 대한민국의 수도이다. 안녕하세요, 세계! 안녕히 가세요.",
    "naïve café — “quotes” … e\u0301 a\u0308 (combining) ½ ² €",
    "😀 😃 👩‍👩‍👧‍👦 👍🏽 🇰🇷 🇫🇷 emoji galore 😀😀",
    "日本語のテキスト 中文文本 русский текст العربية עברית",
    "<|im_start|> is only text here, <0x41> too, and ▁ as well",
]
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def _specials() -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in SPECIALS]


def byte_level_backend() -> tokenizers.Tokenizer:
    """As in GPT-2, Llama 3 and Qwen, with an added plain-text token that is not special."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=_specials(),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    backend.add_tokens([AddedToken("<tool 도구>", special=False, normalized=False)])
    return backend


def sentencepiece_backend() -> tokenizers.Tokenizer:
    """As in Llama 2, Mistral and TinyLlama: a marker for spaces, and byte tokens."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", *byte_tokens], show_progress=False, limit_alphabet=60
    )
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    trained.train_from_iterator([*LINES[:2] * 3, "안녕하세요"], trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(_specials())
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return backend


def unigram_backend() -> tokenizers.Tokenizer:
    """As in older SentencePiece conversions, with the Metaspace decoder."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=[*_specials(), "<unk>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(LINES * 3, trainer)
    return backend


def word_piece_backend() -> tokenizers.Tokenizer:
    """A decoder without a table of bytes per token."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", *SPECIALS], show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    return backend


BACKENDS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte_level": byte_level_backend,
    "sentencepiece": sentencepiece_backend,
    "unigram": unigram_backend,
    "word_piece": word_piece_backend,
}


@pytest.fixture(scope="session")
def backends() -> dict[str, tokenizers.Tokenizer]:
    return {name: build() for name, build in BACKENDS.items()}


@pytest.fixture(scope="session")
def tokenizers_by_name(backends: dict[str, tokenizers.Tokenizer]) -> dict[str, Tokenizer]:
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    built = {name: Tokenizer(backend, special_tokens=names) for name, backend in backends.items()}
    return built | {"preset": Tokenizer.byte_level(300)}


@pytest.fixture(scope="session")
def byte_level(tokenizers_by_name: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers_by_name["byte_level"]


@pytest.fixture(scope="session")
def sentencepiece(tokenizers_by_name: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers_by_name["sentencepiece"]


@pytest.fixture
def write_model_dir(tmp_path: Path) -> Callable[..., Path]:
    """Write a directory: file names (with _ for .) -> text, objects (as JSON) or a tokenizer."""

    def write(**files: Any) -> Path:
        for name, content in files.items():
            file = tmp_path / ".".join(name.rsplit("_", 1))
            if isinstance(content, tokenizers.Tokenizer):
                content.save(str(file))
            else:
                file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return tmp_path

    return write
