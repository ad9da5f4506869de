"""The tokenizer of a GGUF file gives the ids of its original, and SentencePiece's where it has scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from gguf_files import write_gguf
from quire.loading.source import embedded_path
from quire.text.gguf_tokenizer import splits
from quire.text.tokenizer import Tokenizer

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = [
    "", " ", "Hello  world\n\n\tindented", "I'll've DON'T 'S", "1234567 x12", "naïve ÄÖß ﬁ", "日本語 한국어 中文",
    "हिन्दी में",
    "👩‍👩‍👧 🇩🇪", "<s> </s> <unk>", "a\u00a0b\u2003c", "e\u0301", "'\"`~!@#$%^&*()", "camelCaseWORDS_snake", "\x00\x7f",
]  # fmt: skip
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|end|> there"}]


def write_tokenizer(path: Path, model: str, tokens: Sequence[str], types: Sequence[int], **more: Any) -> Tokenizer:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for name, value in more.items():
        writer.add_key_value(f"tokenizer.{name}", value, gguf.GGUFValueType.get_type(value))
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Tokenizer.from_dir(path)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer of quire-mini, and the one of its GGUF file."""
    directory = embedded_path("quire-mini")
    assert directory is not None
    path = write_gguf(directory, tmp_path_factory.mktemp("mini") / "mini.gguf")
    return Tokenizer.from_dir(directory), Tokenizer.from_dir(path)


@settings(deadline=None)
@given(
    text=st.text()
    | st.sampled_from(TEXTS)
    | st.lists(st.sampled_from(["<|user|>", " the", "\n", "'s", "é"])).map("".join)
)
def test_a_byte_level_tokenizer_gives_the_same_ids(text: str, embedded: tuple[Tokenizer, Tokenizer]) -> None:
    original, found = embedded
    assert found.encode(text) == original.encode(text)
    assert found.encode_plain(text) == original.encode_plain(text)
    ids = original.encode(text)
    assert found.decode(ids) == original.decode(ids)


def test_special_tokens_and_the_chat_template_are_the_same(embedded: tuple[Tokenizer, Tokenizer]) -> None:
    original, found = embedded
    assert found.special_ids == original.special_ids
    assert found.eos_token_id == original.eos_token_id
    assert found.vocab_size == original.vocab_size
    assert found.apply_chat_template(MESSAGES) == original.apply_chat_template(MESSAGES)


def train_pieces(num_tokens: int = 600) -> dict[str, float]:
    """Return pieces with scores, as SentencePiece's BPE trains them."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(?=▁)"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=num_tokens, show_progress=False)
    backend.train_from_iterator([path.read_text() for path in sorted(DOCS.glob("*.md"))], trainer)
    pieces = sorted(backend.get_vocab().items(), key=lambda pair: pair[1])
    return {piece: -float(index) for piece, index in pieces}


def merge_greedily(text: str, pieces: dict[str, float]) -> list[str]:
    """Join the two neighbours with the best score, the first of them, until none is a piece (SentencePiece's BPE)."""
    symbols = list(text)
    while True:
        joined = [(-pieces[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in pieces]
        if not joined:
            return symbols
        _, i = min(joined)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, dict[str, float], list[str]]:
    pieces = train_pieces()
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    scores = [0.0] * 259 + list(pieces.values())
    types = [2, 3, 3] + [6] * 256 + [1] * len(pieces)
    ids = {"ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0}
    path = tmp_path_factory.mktemp("pieces") / "pieces.gguf"
    return write_tokenizer(path, "llama", tokens, types, **{"ggml.scores": scores}, **ids), pieces, tokens


@settings(deadline=None, max_examples=200)
@given(
    text=st.text(max_size=40)
    | st.sampled_from(TEXTS)
    | st.lists(st.sampled_from(["the", "model", "s", "of", "a", "1é\n"])).map(" ".join)
)
def test_scores_are_merged_as_by_sentencepiece(
    text: str, sentence_piece: tuple[Tokenizer, dict[str, float], list[str]]
) -> None:
    found, pieces, tokens = sentence_piece
    expected = [1]
    for symbol in merge_greedily("▁" + text.replace(" ", "▁"), pieces) if text else ():
        if symbol in pieces:
            expected.append(tokens.index(symbol, 259))
        else:
            expected += [3 + byte for byte in symbol.encode()]
    escaped = found.encode_plain(text)
    assert [1, *escaped] == expected
    if "▁" not in text:
        assert found.decode(escaped) == text


def test_merges_without_scores_are_gemma_4_s(tmp_path: Path) -> None:
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *"▁ab\n", "ab", "▁ab", "\n\n", "<0xC3>", "<0xA9>"]
    types = [3, 3, 3, 2] + [1] * 7 + [6, 6]
    more: dict[str, Any] = {"ggml.merges": ["a b", "▁ ab", "\n \n"], "ggml.bos_token_id": 2, "ggml.unknown_token_id": 3}
    found = write_tokenizer(tmp_path / "x.gguf", "gemma4", tokens, types, **more)
    assert [tokens[i] for i in found.encode("ab ab\n\né")] == ["<bos>", "ab", "▁ab", "\n\n", "<0xC3>", "<0xA9>"]
    assert found.decode(found.encode("ab ab")) == "ab ab"


def test_the_end_of_a_turn_is_found_by_its_text_unless_stated(tmp_path: Path) -> None:
    tokens = ["<unk>", "<eos>", "a", "<end_of_turn>", "<stop>"]
    for stated, expected in (({}, 3), ({"ggml.eot_token_id": 4}, 4)):
        path = tmp_path / f"{expected}.gguf"
        found = write_tokenizer(path, "gemma4", tokens, [2, 3, 1, 3, 3], **{"ggml.eos_token_id": 1}, **stated)
        assert (found.eos_token_id, found.eot_token_id) == (1, expected)
    of_gpt_oss = ["a", "<|return|>", "<|call|>"]
    found = write_tokenizer(
        tmp_path / "gpt-oss.gguf", "gpt2", of_gpt_oss, [1, 3, 3], **{"ggml.eos_token_id": 1, "ggml.pre": "gpt-4o"}
    )
    assert (found.eos_token_id, found.eot_token_id) == (1, 2), "of an answer, and of a tool call"


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "It's 123 x\n\n y", ["It", "'s", "Ġ123", "Ġx", "ĊĊ", "Ġy"]),
        ("llama-bpe", "IT'S 12345\n\n y", ["IT", "'S", "Ġ", "123", "45", "ĊĊ", "Ġy"]),
        ("qwen2", "IT'S 12\n\n y", ["IT", "'S", "Ġ", "1", "2", "ĊĊ", "Ġy"]),
        ("gpt-4o", "camelCase'll 1234//\n", ["camel", "Case'll", "Ġ", "123", "4", "//Ċ"]),
        ("tekken", "camelCase'll 12", ["camel", "Case", "'ll", "Ġ", "1", "2"]),
        ("smollm", "a12 b", ["a", "1", "2", "Ġb"]),
        ("deepseek-v3", "a1234.b", ["a", "123", "4", ".b"]),
        ("deepseek-llm", "éa 12 b?!\n", ["Ã©", "a", "Ġ", "1", "2", "Ġb", "?!", "Ċ"]),  # from : to ~ are letters, too
        ("deepseek-coder", "ab 12.b", ["ab", "Ġ", "1", "2", ".", "b"]),
        ("default", "a12345.b", ["a", "123", "45", ".", "b"]),
        ("seed-coder", "a12?\n\n", ["a", "1", "2", "?", "ĊĊ"]),
    ],
)
def test_texts_are_split_as_by_the_original(pre: str, text: str, expected: list[str], tmp_path: Path) -> None:
    """With all pieces in the vocabulary, and merged from left to right."""
    alphabet = list(pre_tokenizers.ByteLevel.alphabet())
    prefixes = {piece[:end]: None for piece in expected for end in range(2, len(piece) + 1)}
    merges = [f"{prefix[:-1]} {prefix[-1]}" for prefix in prefixes]
    tokens = [*sorted(alphabet), *prefixes]
    found = write_tokenizer(
        tmp_path / "x.gguf", "gpt2", tokens, [1] * len(tokens), **{"ggml.pre": pre, "ggml.merges": merges}
    )
    words, _ = zip(*found.backend.pre_tokenizer.pre_tokenize_str(text), strict=True)
    assert list(words) == expected
    assert [tokens[i] for i in found.encode(text)] == expected


def test_every_split_is_a_valid_expression() -> None:
    for patterns in splits().values():
        for pattern in patterns:
            Regex(pattern)
