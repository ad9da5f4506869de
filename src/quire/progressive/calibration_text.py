"""Texts to look at a model with: from files, or written by the model itself; and batches of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quire.evaluate.reading import prompt_of, read_questions
from quire.text.tokenizer import Tokenizer

WRITTEN_AT_ONCE = 32


@dataclass(frozen=True)
class TokenBatch:
    """Texts of similar length. Padding stands at the end, where no token of a causal model sees it."""

    token_ids: Tensor  #: int64 [num_texts, longest]
    lengths: Tensor  #: int64 [num_texts]

    @property
    def is_token(self) -> Tensor:
        """bool [num_texts, longest]: what is no padding."""
        return torch.arange(self.token_ids.shape[1]) < self.lengths[:, None]


def read_texts(path: Path, tokenizer: Tokenizer, max_tokens: int) -> list[list[int]]:
    """The token ids of a file's texts, each of at most `max_tokens`.

    Plain text is cut into pieces of that length. Questions (`evaluate.reading.read_questions`) become prompts, passage
    and all; of one that is too long the end stays.

    Raises:
        ValueError: the file is neither, or has no text.
        OSError: it cannot be read.
    """
    if path.suffix in (".json", ".jsonl"):
        prompts = list(dict.fromkeys(prompt_of(question) for question in read_questions(path)))
        return [ids[-max_tokens:] for ids in tokenizer.encode_batch(prompts)]
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise ValueError(f"{path} holds no text")
    start = _beginning(tokenizer)
    size = max_tokens - len(start)
    return [start + ids[at : at + size] for at in range(0, len(ids), size)]


def write_texts(
    model: Any,
    tokenizer: Tokenizer,
    count: int,
    max_tokens: int,
    *,
    start: str = "",
    seed: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> list[list[int]]:
    """Texts that a model writes, sampled by its own probabilities, each up to its end or to `max_tokens`.

    Args:
        model: as `load_reference` gives it.
        start: what each begins with. Without it they begin as texts do, with a bos token, or, where there is none,
            with a word of the vocabulary drawn at random.
        advance: told how many are written, batch by batch.

    Raises:
        ValueError: the start is too long.
    """
    begin = tokenizer.encode(start) if start else _beginning(tokenizer)
    if len(begin) >= max_tokens:
        raise ValueError(f"the texts begin with {len(begin)} tokens already, and may have {max_tokens}; allow more")
    words = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]
    texts = []
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(seed)
        for done in range(0, count, WRITTEN_AT_ONCE):
            rows = [
                begin or [words[int(torch.randint(len(words), ()))]] for _ in range(min(WRITTEN_AT_ONCE, count - done))
            ]
            prompts = torch.tensor(rows)
            written = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                do_sample=True,
                top_k=0,
                max_new_tokens=max_tokens - prompts.shape[1],
                pad_token_id=padding_id(model, tokenizer),
            )
            texts += [up_to_end(row, prompts.shape[1], model) for row in written.tolist()]
            advance(len(rows))
    return texts


def up_to_end(ids: list[int], start: int, model: Any) -> list[int]:
    """What was generated from `start` on, up to the first token that ends a text; what stands before stays."""
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    last = next((at for at in range(start, len(ids)) if ids[at] in ends), len(ids))
    return ids[:last]


def _beginning(tokenizer: Tokenizer) -> list[int]:
    """The bos token where a model's texts begin with one."""
    first = tokenizer.encode("a")[:1]
    return first if first == [tokenizer.bos_token_id] else []


def padding_id(model: Any, tokenizer: Tokenizer) -> int:
    """Any id that the embedding has: what stands there is masked."""
    named = model.config.pad_token_id if model.config.pad_token_id is not None else tokenizer.pad_token_id
    return named if named is not None and 0 <= named < model.config.vocab_size else 0


def choose_texts(texts: Sequence[list[int]], count: int) -> list[list[int]]:
    """At most `count` of them, evenly spread from the first to the last."""
    return [texts[i * len(texts) // count] for i in range(count)] if len(texts) > count else list(texts)


def batches(texts: Sequence[list[int]], max_tokens: int = 4096) -> Iterator[TokenBatch]:
    """Texts in batches of up to `max_tokens`, padding counted; short ones first, so that there is little of it."""
    batch: list[list[int]] = []
    for text in sorted(texts, key=len):
        if batch and (len(batch) + 1) * len(text) > max_tokens:
            yield _batch_of(batch)
            batch = []
        batch.append(text)
    if batch:
        yield _batch_of(batch)


def _batch_of(texts: list[list[int]]) -> TokenBatch:
    ids = torch.zeros(len(texts), len(texts[-1]), dtype=torch.long)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    return TokenBatch(ids, torch.tensor([len(text) for text in texts]))
