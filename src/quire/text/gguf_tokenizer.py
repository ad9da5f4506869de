"""Build the tokenizer that a GGUF file's metadata describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from quire.gguf_header import GGUFHeader, gguf_parts, read_gguf_header

MAX_ADDED_TOKENS = 20_000  #: the library's time grows with their square
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # types of tokens
_SPACE = "▁"

# How the original tokenizers split texts, by the names of `tokenizer.ggml.pre`.
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+"
_START, _UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_MARKS}[\r\n]*|{_REST}"
_QWEN2 = rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}|{_MARKS}[\r\n]*|{_REST}"
_QWEN35 = rf"{_SHORT}|{_START}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_REST}"
_GPT4O = (
    rf"{_START}{_UPPER}*{_LOWER}+{_SHORT}?|{_START}{_UPPER}+{_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_MARKS}[\r\n/]*|{_REST}"
)
_TEKKEN = rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|\p{{N}}|{_MARKS}[\r\n/]*|{_REST}"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _REST,
)
_SPLITS = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "deepseek-v3": _DEEPSEEK3,
    "hunyuan-dense": _DEEPSEEK3,
    "qwen35": (_QWEN35,),
    "seed-coder": (rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_REST}",),
    "tekken": (_TEKKEN,),
    **dict.fromkeys(("a.x-4.0", "exaone4", "gpt-2", "granite-docling", "mpt", "olmo", "phi-2", "trillion"), (_GPT2,)),
    **dict.fromkeys(("exaone", "minerva-7b", "refact", "smollm", "starcoder", "command-r"), (r"\p{N}", _GPT2)),
    **dict.fromkeys(("dbrx", "falcon3", "lfm2", "llama-bpe", "llama-v3", "llama3", "pixtral", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("chatglm-bpe", "glm4"), (_LLAMA3,)),
    **dict.fromkeys(("deepseek-r1-qwen", "hunyuan", "megrez", "qwen2", "stablelm2"), (_QWEN2,)),
    **dict.fromkeys(("gpt-4o", "kanana2", "llama4"), (_GPT4O,)),
}
_NFC = ("qwen2", "qwen35")
_WHOLE_WORDS = ("falcon3", "lfm2", "llama-bpe", "llama-v3", "llama3", "pixtral", "tekken")  # and begin with bos


def read_gguf_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Return the tokenizer without its post-processor, and the fields of a tokenizer_config.json. Raises ValueError."""
    header = read_gguf_header(gguf_parts(path)[0])
    model, pre = (header.get(f"tokenizer.ggml.{name}", "default") for name in ("model", "pre"))
    tokens, types = (header.get(f"tokenizer.ggml.{name}", []) for name in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"{path} has no tokenizer; pass prompt_token_ids with skip_tokenizer_init=True")
    if not isinstance(types, list) or len(types) not in (0, len(tokens)):
        raise ValueError(f"{path} has {len(tokens)} tokens, but not as many types of tokens; download it again")
    types = types or [_NORMAL] * len(tokens)
    try:
        backend = _build(header, model, pre, tokens, types)
    except ValueError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{path}: its tokenizer is broken ({error}); download it again") from error
    added = [
        AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
    ]
    if len(added) > MAX_ADDED_TOKENS:
        raise ValueError(f"{path} adds {len(added)} tokens to its tokenizer, more than {MAX_ADDED_TOKENS}")
    backend.add_tokens(added)
    begins = model in ("llama", "gemma4") or pre in _WHOLE_WORDS
    config: dict[str, Any] = {
        "add_bos_token": header.get("tokenizer.ggml.add_bos_token", begins),
        "add_eos_token": header.get("tokenizer.ggml.add_eos_token", model == "t5"),
        "chat_template": _chat_templates(header),
    }
    for name, field in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        index = header.get(f"tokenizer.ggml.{name}_token_id")
        config[f"{field}_token"] = tokens[index] if isinstance(index, int) and 0 <= index < len(tokens) else None
    return backend, config


def _chat_templates(header: GGUFHeader) -> list[dict[str, str]]:
    prefix = "tokenizer.chat_template"
    found = {name: value for name, value in header.values.items() if name.startswith(prefix) and isinstance(value, str)}
    return [{"name": name[len(prefix) + 1 :] or "default", "template": text} for name, text in found.items()]


def _build(
    header: GGUFHeader, model: str, pre: str, tokens: Sequence[str], types: Sequence[int]
) -> tokenizers.Tokenizer:
    vocab = {token: index for index, token in reversed(list(enumerate(tokens)))}  # the first of equal tokens counts
    merges = [(merge[:at], merge[at + 1 :]) for merge in _merges(header) if (at := merge.find(" ", 1)) > 0]
    if model == "gpt2":
        if pre not in _SPLITS:
            raise ValueError(f"{header.path}: texts are split as by {pre!r:.100}, which is not supported")
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _WHOLE_WORDS))
        backend.normalizer = normalizers.NFC() if pre in _NFC else None
        splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in _SPLITS[pre]]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
        backend.decoder = decoders.ByteLevel()
        return backend
    if model not in ("llama", "gemma4", "t5"):
        raise ValueError(f"{header.path}: its tokenizer is of type {model!r:.100}; supported: gpt2, llama, gemma4, t5")
    scores, unknown = header.get("tokenizer.ggml.scores", []), header.get("tokenizer.ggml.unknown_token_id", 0)
    if model != "gemma4" and len(scores) != len(tokens):
        raise ValueError(f"{header.path} has {len(tokens)} tokens and {len(scores)} scores; download it again")
    if model == "t5":
        backend = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unknown, False))
    else:
        if model == "llama":
            merges = _merges_of_scores(vocab, [t for t, k in zip(tokens, types, strict=True) if k == _NORMAL], scores)
        bpe = models.BPE(vocab=vocab, merges=merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
        backend = tokenizers.Tokenizer(bpe)
    has_prefix = header.get("tokenizer.ggml.add_space_prefix", model != "gemma4")
    steps: list[Any] = [normalizers.Prepend(_SPACE)] * bool(has_prefix) + [normalizers.Replace(" ", _SPACE)]
    backend.normalizer = normalizers.Sequence(steps)
    undo: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(undo + [decoders.Strip(" ", 1, 0)] * bool(has_prefix))
    return backend


def _merges_of_scores(
    vocab: Mapping[str, int], pieces: Sequence[str], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Return the merges by which SentencePiece's BPE makes its pieces: the best score first."""

    def merges() -> Iterator[tuple[float, int, int, str, str]]:
        for piece in pieces:
            for at in range(1, len(piece)):
                left, right = piece[:at], piece[at:]
                if left in vocab and right in vocab:
                    yield -scores[vocab[piece]], -len(left), -len(right), left, right

    return [(left, right) for *_, left, right in sorted(merges(), key=lambda each: each[:3])]


def _merges(header: GGUFHeader) -> list[str]:
    found = header.get("tokenizer.ggml.merges", [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{header.path}: its merges are not a list of strings; download it again")
    return found
