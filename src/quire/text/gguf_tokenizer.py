"""Build the tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from quire.gguf_header import gguf_parts, read_gguf_header

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # types of tokens
_SPACE, _TEMPLATE = "▁", "tokenizer.chat_template"

_TABLE = Path(__file__).with_name("gguf_splits.toml")
#: The first of these in a vocabulary ends a turn where the metadata does not say so, as in llama.cpp. gpt-oss ends tool
#: calls with <|call|>, and answers with its eos, <|return|>.
_ENDS_OF_TURN = (
    "<|call|>", "<|return|>", "<end_of_turn>", "<turn|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|endofturn|>"
)  # fmt: skip


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def splits() -> dict[str, list[str]]:
    """Return the expressions that split texts, one after the other, by the names of `tokenizer.ggml.pre`."""
    return {name: list(map("|".join, each["expressions"])) for each in _table()["splits"] for name in each["names"]}


def read_gguf_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Return the tokenizer without added tokens and post-processor, and the fields of a tokenizer_config.json. Raises
    ValueError."""
    values = read_gguf_header(gguf_parts(path)[0], has_lists=True).values
    model, pre = (values.get(f"tokenizer.ggml.{name}", "default") for name in ("model", "pre"))
    tokens = values.get("tokenizer.ggml.tokens", [])
    types = values.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if not tokens or len(types) != len(tokens):
        raise ValueError(f"{path} has {len(tokens)} tokens and {len(types)} types of tokens; download it again")
    vocab = {token: index for index, token in reversed(list(enumerate(tokens)))}  # the first of equal tokens counts
    merges = [
        (merge[:at], merge[at + 1 :])
        for merge in values.get("tokenizer.ggml.merges", [])
        if (at := merge.find(" ", 1)) > 0
    ]
    try:
        if model == "gpt2":
            backend = _byte_level(vocab, merges, pre)
        elif model in ("llama", "gemma4"):
            if model == "llama":  # has scores instead
                pieces = [token for token, kind in zip(tokens, types, strict=True) if kind == _NORMAL]
                merges = _merges_of_scores(vocab, pieces, values.get("tokenizer.ggml.scores", []))
            unknown = tokens[values.get("tokenizer.ggml.unknown_token_id", 0)]
            has_prefix = values.get("tokenizer.ggml.add_space_prefix", model == "llama")
            backend = _sentence_piece(vocab, merges, unknown, has_prefix)
        else:
            raise ValueError(f"its tokenizer is of type {model!r:.100}; supported: gpt2, llama, gemma4")
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{path}: {error}") from None
    begins = model != "gpt2" or pre in _table()["whole_words"]
    templates = [name for name in values if name.startswith(_TEMPLATE)]
    config: dict[str, Any] = {
        "add_bos_token": values.get("tokenizer.ggml.add_bos_token", begins),
        "add_eos_token": values.get("tokenizer.ggml.add_eos_token", False),
        "added_tokens_decoder": {
            index: {"content": token, "special": kind != _USER_DEFINED, "normalized": False}
            for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
        },
        "chat_template": [
            {"name": name[len(_TEMPLATE) + 1 :] or "default", "template": values.get(name)} for name in templates
        ],
    }
    if turn := next((token for token in _ENDS_OF_TURN if token in vocab), None):
        config["eot_token"] = turn
    for name, field in (("eot", "eot"), ("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        if (index := values.get(f"tokenizer.ggml.{name}_token_id", -1)) in range(len(tokens)):
            config[f"{field}_token"] = tokens[index]
    return backend, config


def _byte_level(vocab: dict[str, int], merges: list[tuple[str, str]], pre: str) -> tokenizers.Tokenizer:
    if (expressions := splits().get(pre)) is None:
        raise ValueError(f"texts are split as by {pre!r:.100}, which is not supported")
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _table()["whole_words"]))
    backend.normalizer = normalizers.NFC() if pre in _table()["nfc"] else None
    steps = [pre_tokenizers.Split(Regex(each), "isolated") for each in expressions]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, byte_level])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_piece(
    vocab: dict[str, int], merges: list[tuple[str, str]], unknown: str, has_prefix: bool
) -> tokenizers.Tokenizer:
    bpe = models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(bpe)
    before: list[Any] = [normalizers.Prepend(_SPACE)] * has_prefix + [normalizers.Replace(" ", _SPACE)]
    after: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.normalizer = normalizers.Sequence(before)
    backend.decoder = decoders.Sequence(after + [decoders.Strip(" ", 1, 0)] * has_prefix)
    return backend


def _merges_of_scores(
    vocab: Mapping[str, int], pieces: Sequence[str], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Return the merges by which SentencePiece's BPE makes its pieces: the best score first."""
    merges = [
        (-scores[vocab[piece]], -at, piece)
        for piece in pieces
        for at in range(1, len(piece))
        if piece[:at] in vocab and piece[at:] in vocab
    ]
    return [(piece[:-at], piece[-at:]) for _, at, piece in sorted(merges, key=lambda each: each[:2])]
