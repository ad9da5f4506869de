"""Training data of an adapter: rows of prompts that share a common start, so a passage is read only once."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from quire.progressive.questions import ReadingQuestion, prompt_of, squad_questions
from quire.text.tokenizer import Tokenizer

_MAX_BRANCHES = 8  # questions per row
_LEAD = "Answer:"  # the end of every prompt
_MAX_ROW = 2048  # tokens per row with several questions, since attention is quadratic


@dataclass(frozen=True)
class Branch:
    """One text of a row, without its shared start."""

    ids: tuple[int, ...]
    first_target: int  #: index of the first learned token; at least 1, since the token before predicts it


@dataclass(frozen=True)
class TrainingRow:
    """Texts with a common start."""

    shared: tuple[int, ...]  #: may be empty
    branches: tuple[Branch, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.shared) + sum(len(branch.ids) for branch in self.branches)


def read_rows(
    files: Sequence[Path], tokenizer: Tokenizer, *, end: Sequence[int], context_length: int, max_length: int
) -> list[TrainingRow]:
    """Read rows from `*.json` (SQuAD v1.1) or UTF-8 text in pieces of `max_length` tokens; `end` ends an answer.
    ValueError if a file cannot be read, is empty, or has a question longer than the model's context."""
    rows: list[TrainingRow] = []
    for file in files:
        try:
            found = (
                list(question_rows(squad_questions(file), tokenizer, end, context_length))
                if file.suffix.lower() == ".json"
                else list(text_rows(tokenizer.encode(_text(file)), min(max_length, context_length)))
            )
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
        except _TooLongError as error:
            raise ValueError(f"{file}: {error}") from None
        if not found:
            raise ValueError(f"{file} holds nothing to learn: no question, or fewer than two tokens of text")
        rows += found
    return rows


def question_rows(
    questions: Sequence[ReadingQuestion], tokenizer: Tokenizer, end: Sequence[int], context_length: int
) -> Iterator[TrainingRow]:
    """Rows of up to eight questions about one passage, in which only the first expected answers are learned."""
    texts = _with_answers(questions, tokenizer, end)
    for number, text in enumerate(texts, start=1):
        if len(text.ids) > context_length:
            raise _TooLongError(
                f"question {number} takes {len(text.ids):,} tokens with its passage and its answer, and the model's "
                f"context has {context_length:,}; leave it out or shorten its passage"
            )
    for _, asked in groupby(zip(questions, texts, strict=True), key=lambda pair: pair[0].passage):
        of_passage = [text for _, text in asked]
        for start in range(0, len(of_passage), _MAX_BRANCHES):
            yield from _rows(of_passage[start : start + _MAX_BRANCHES])


def text_rows(ids: Sequence[int], max_length: int) -> Iterator[TrainingRow]:
    """Split a text into rows, learning each token but the first. A single last token is dropped."""
    for start in range(0, len(ids), max_length):
        piece = tuple(ids[start : start + max_length])
        if len(piece) > 1:
            yield TrainingRow((), (Branch(piece, 1),))


def rows_digest(rows: Sequence[TrainingRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        pieces = [row.shared, *(piece for branch in row.branches for piece in ((branch.first_target,), branch.ids))]
        digest.update(b"".join(array("q", (len(piece), *piece)).tobytes() for piece in pieces))
    return f"sha256:{digest.hexdigest()}"


class _TooLongError(ValueError):
    pass


@dataclass(frozen=True)
class _Text:
    ids: list[int]
    num_prompt: int  # the prompt's tokens, the same as in an engine's request


def _with_answers(questions: Sequence[ReadingQuestion], tokenizer: Tokenizer, end: Sequence[int]) -> list[_Text]:
    prompts = tokenizer.encode_batch([prompt_of(question) for question in questions])
    said = [" " + " ".join(question.answers[0].split()) for question in questions]
    lead = tokenizer.encode(_LEAD)  # an answer may have other tokens alone than after a colon
    led = tokenizer.encode_batch([_LEAD + text for text in said])
    texts = []
    for prompt, ids, text in zip(prompts, led, said, strict=True):
        is_led = ids[: len(lead)] == lead
        answer = ids[len(lead) :] if is_led else tokenizer.encode(text, add_special_tokens=False)
        texts.append(_Text([*prompt, *answer, *end], len(prompt)))
    return texts


def _rows(texts: Sequence[_Text]) -> Iterator[TrainingRow]:
    # The shared part excludes a prompt's last token, which predicts its own answer's first token.
    most = min(text.num_prompt for text in texts) - 1
    differing = (i for i, tokens in enumerate(zip(*(text.ids for text in texts), strict=False)) if len(set(tokens)) > 1)
    num_shared = min(most, next(differing, most)) if len(texts) > 1 else 0
    branches = tuple(Branch(tuple(text.ids[num_shared:]), text.num_prompt - num_shared) for text in texts)
    row = TrainingRow(tuple(texts[0].ids[:num_shared]), branches)
    if row.num_tokens <= _MAX_ROW or len(texts) == 1:
        yield row
        return
    half = len(texts) // 2
    yield from _rows(texts[:half])
    yield from _rows(texts[half:])


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8: {error}") from None
    return text
