"""Read a tokenizer from a Hugging Face model directory, in all its dialects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from quire.gguf_header import is_gguf
from quire.system.paths import is_inside
from quire.text.gguf_tokenizer import read_gguf_tokenizer

NAMED_TOKENS = (
    "bos_token", "eos_token", "eot_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip
_GPT2_CLASSES = (None, "GPT2Tokenizer", "GPT2TokenizerFast")
_GPT2_TYPES = (None, "gpt2", "opt")
_MAX_FILE_BYTES, _MAX_ADDED_TOKENS = 100 * 10**6, 20_000
_MAX_GROWTH = 256  # characters for each character of a text
_CONVERT = (
    "write one with `python -c \"from transformers import AutoTokenizer; d = '{path}'; "
    'AutoTokenizer.from_pretrained(d).save_pretrained(d)"` (needs `pip install transformers sentencepiece tiktoken`)'
)


@dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer and chat templates of a directory."""

    backend: tokenizers.Tokenizer  #: complete with special tokens and post-processor
    named_tokens: dict[str, str]  #: bos_token, eos_token and the like, if the vocabulary has them
    chat_templates: dict[str, str]  #: by name; the main one is "default"


def read_tokenizer_files(path: str | Path) -> TokenizerFiles:
    """Read tokenizer.json, or GPT-2's and OPT's vocab.json and merges.txt, and the configuration beside it; or a GGUF
    file's metadata."""
    directory = Path(path)
    if is_gguf(directory):
        backend, config = read_gguf_tokenizer(directory)
        named_tokens = _add_special_tokens(backend, config, {}, directory)
        _set_post_processor(backend, config, named_tokens)
        return TokenizerFiles(backend, named_tokens, _read_chat_templates(directory, config))
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory; give the model's directory with tokenizer.json in it")
    config = _read_json(directory / "tokenizer_config.json")
    model_config = _read_json(directory / "config.json")
    if "added_tokens_decoder" not in config:
        config |= _read_json(directory / "special_tokens_map.json")
    has_tokenizer_json = (directory / "tokenizer.json").is_file()
    if has_tokenizer_json:
        backend = _load(directory / "tokenizer.json")
        _check_growth(directory / "tokenizer.json", backend)
    else:
        backend = _build_gpt2(directory, config, model_config)
    backend.no_truncation()  # never truncate a prompt silently
    backend.no_padding()
    named_tokens = _add_special_tokens(backend, config, model_config, directory)
    if not has_tokenizer_json:
        if model_config.get("model_type") == "opt":
            config.setdefault("add_bos_token", True)  # OPT was trained with </s> before every text
        _set_post_processor(backend, config, named_tokens)
    return TokenizerFiles(backend, named_tokens, _read_chat_templates(directory, config))


def _check_size(file: Path) -> None:
    if (size := file.stat().st_size) > _MAX_FILE_BYTES:
        raise ValueError(f"{file} has {size} bytes, more than {_MAX_FILE_BYTES}; take it from the original repository")


def _read_text(file: Path) -> str:
    try:
        _check_size(file)
        return file.read_text(encoding="utf-8")
    except PermissionError as error:
        raise _not_permitted(file, error) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {file}: {error}; copy or download it again") from error


def _not_permitted(file: Path, error: PermissionError) -> ValueError:
    return ValueError(f"{file} cannot be read: {error.strerror}; let this user read it")


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(_read_text(file))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON ({error}); copy or download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds a {type(content).__name__} where an object is expected; download it again")
    return content


def _load(file: Path) -> tokenizers.Tokenizer:
    _check_size(file)
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        try:
            with file.open("rb") as opened:
                is_pointer = opened.read(20).startswith(b"version https://git")
        except PermissionError as reason:
            raise _not_permitted(file, reason) from None
        fix = "it is a Git LFS pointer: run `git lfs pull`" if is_pointer else "copy or download it again"
        raise ValueError(f"{file} is not a tokenizer that the tokenizers library reads ({error}); {fix}") from error


def _check_growth(file: Path, backend: tokenizers.Tokenizer) -> None:
    """Refuse replacements that multiply a text: nine of them make gigabytes of one word."""
    for field, step in (("normalizer", backend.normalizer), ("decoder", backend.decoder)):
        growth = 1.0
        for each in _steps(json.loads(step.__getstate__())) if step is not None else ():
            if each.get("type") in ("Replace", "Prepend"):
                pattern = each.get("pattern") or {}
                added = each.get("content") or each.get("prepend") or ""
                growth *= max(1.0, len(added) / max(1, len(pattern.get("String") or "")))
        if growth > _MAX_GROWTH:
            raise ValueError(
                f"{file}: the replacements of its {field} make a text up to {growth:.3g} times longer, more than "
                f"{_MAX_GROWTH} times; take the tokenizer from the model's original repository"
            )


def _steps(part: dict[str, Any]) -> list[dict[str, Any]]:
    inner = part.get("normalizers") or part.get("decoders")
    return [part] if inner is None else [step for each in inner for step in _steps(each)]


def _build_gpt2(directory: Path, config: dict[str, Any], model_config: dict[str, Any]) -> tokenizers.Tokenizer:
    vocab, merges = directory / "vocab.json", directory / "merges.txt"
    if not (vocab.is_file() and merges.is_file()):
        others = [name for name in ("tokenizer.model", "tekken.json", "tiktoken.model", "vocab.txt", "vocab.json")
                  if (directory / name).is_file()]  # fmt: skip
        convert = _CONVERT.format(path=directory)
        if others:
            raise ValueError(f"{directory} has {', '.join(others)} but no tokenizer.json, which Quire needs; {convert}")
        raise ValueError(
            f"{directory} has no tokenizer.json; download it from where the model came from, or {convert}, "
            f"or pass prompt_token_ids with skip_tokenizer_init=True"
        )
    if config.get("tokenizer_class") not in _GPT2_CLASSES or model_config.get("model_type") not in _GPT2_TYPES:
        raise ValueError(
            f"{directory} has vocab.json and merges.txt but no tokenizer.json; Quire builds a tokenizer from those two "
            f"only for GPT-2 and OPT; {_CONVERT.format(path=directory)}"
        )
    try:
        backend = tokenizers.Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{vocab} or {merges} is broken ({error}); copy or download both again") from error
    prefix_space = bool(config.get("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def _content(token: Any) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _added_token(token: Any, special: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=False)
    flags = {key: bool(token[key]) for key in ("single_word", "lstrip", "rstrip", "normalized") if key in token}
    return AddedToken(token["content"], special=special, **flags)


def _add_special_tokens(
    backend: tokenizers.Tokenizer, config: dict[str, Any], model_config: dict[str, Any], directory: Path
) -> dict[str, str]:
    """Add the tokens that tokenizer.json lacks, and return the named tokens.

    As in transformers, tokenizer.json decides first whether a token is special, then added_tokens_decoder. Named
    tokens missing from the vocabulary, such as an untrained pad_token, are dropped: their ids would exceed the
    embedding.
    """
    added = config.get("added_tokens_decoder") or {}
    if not added:
        added = {index: token for token, index in _read_json(directory / "added_tokens.json").items()}
    present = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    lacking: list[Any] = []
    for _, token in sorted(added.items(), key=lambda item: int(item[0])):
        content = _content(token)
        if content is None:
            raise ValueError(f"{directory / 'tokenizer_config.json'}: added_tokens_decoder has {token!r}, not a token")
        wanted = _added_token(token, isinstance(token, dict) and bool(token.get("special")))
        if repr(present.get(content)) != repr(wanted):
            lacking.append(wanted)
    if len(lacking) > _MAX_ADDED_TOKENS:  # the library's time grows with their square
        raise ValueError(f"{directory} adds {len(lacking)} tokens to its tokenizer, more than {_MAX_ADDED_TOKENS}")
    backend.add_tokens(lacking)

    named: dict[str, str] = {}
    specials: list[Any] = []
    for name in NAMED_TOKENS:
        token = config.get(name)
        if name not in config and name in ("bos_token", "eos_token"):
            token = _token_of_model_config(backend, model_config.get(f"{name}_id"))
        content = _content(token)
        if content and backend.token_to_id(content) is not None:
            named[name] = content
            specials.append(token)
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if isinstance(extra, dict):
        named |= {name: str(_content(token)) for name, token in extra.items() if _content(token)}
        extra = list(extra.values())
    specials += [token for token in extra if backend.token_to_id(_content(token) or "") is not None]
    present = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([_added_token(token, True) for token in specials if _content(token) not in present])
    return named


def _token_of_model_config(backend: tokenizers.Tokenizer, token_id: Any) -> str | None:
    """Look up a token by its id in config.json, since GPT-2's files name no tokens."""
    if isinstance(token_id, list):
        token_id = token_id[0] if token_id else None
    return backend.id_to_token(token_id) if isinstance(token_id, int) and token_id >= 0 else None


def _set_post_processor(backend: tokenizers.Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Add bos and eos around texts; only for directories without tokenizer.json, which specifies them itself."""
    bos = named.get("bos_token") if config.get("add_bos_token") else None
    eos = named.get("eos_token") if config.get("add_eos_token") else None
    template = [f"{bos}:0"] * (bos is not None) + ["$A:0"] + [f"{eos}:0"] * (eos is not None)
    tokens = {token: backend.token_to_id(token) for token in (bos, eos) if token is not None}
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=list(tokens.items()))


def _read_chat_templates(directory: Path, config: dict[str, Any]) -> dict[str, str]:
    """Read all templates. Separate files override the one in the configuration, as newer checkpoints expect."""
    templates: dict[str, str] = {}
    beside = _read_json(directory / "chat_template.json")
    for file, settings in (("tokenizer_config.json", config), ("chat_template.json", beside)):
        source = settings.get("chat_template")
        if source is None:
            continue
        if isinstance(source, str):
            templates["default"] = source
        elif isinstance(source, list) and all(isinstance(item, dict) for item in source):
            templates |= {str(item.get("name", "default")): str(item.get("template", "")) for item in source}
        elif isinstance(source, dict):
            templates |= {str(name): str(template) for name, template in source.items()}
        else:
            kind = type(source).__name__
            raise ValueError(f"{directory / file}: chat_template is a {kind}, not a string or a list of templates")
    if (directory / "chat_template.jinja").is_file():
        templates["default"] = _read_template(directory, directory / "chat_template.jinja")
    more = sorted((directory / "additional_chat_templates").glob("*.jinja"))
    return templates | {path.stem: _read_template(directory, path) for path in more if path.is_file()}


def _read_template(directory: Path, file: Path) -> str:
    """Read a template of the model's own; clients can see it, and a link might show them any file."""
    if not is_inside(directory, file):
        raise ValueError(f"{file} links to a file outside of the model's directory; copy it into the directory")
    return _read_text(file)
