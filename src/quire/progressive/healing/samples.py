"""What an adapter is trained on: questions with their answers, or texts, as rows of token ids.

A passage is read once and all its questions hang on it: a row holds what their prompts have in common and then each
question's own tokens, which see the common part and themselves. So the model computes what it would for each prompt
alone, and pays for a passage once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from quire.evaluate.reading import ReadingQuestion, prompt_of, squad_questions
from quire.text.tokenizer import Tokenizer

_MAX_BRANCHES = 8  # questions in a row
_LEAD = "Answer:"  # how every prompt ends
_MAX_ROW = 2048  # tokens of a row with several questions: attention is quadratic in them


@dataclass(frozen=True)
class Branch:
    """One text of a row, behind what it shares with the row's others."""

    ids: tuple[int, ...]
    first_target: int  #: the first of `ids` that is learned; it is not 0, since the token before it predicts it


@dataclass(frozen=True)
class TrainingRow:
    """Texts that begin alike."""

    shared: tuple[int, ...]  #: may be empty
    branches: tuple[Branch, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.shared) + sum(len(branch.ids) for branch in self.branches)


def read_rows(
    files: Sequence[Path], tokenizer: Tokenizer, *, end: Sequence[int], context_length: int, max_length: int
) -> list[TrainingRow]:
    """The rows of files: `*.json` in SQuAD v1.1's form, all others plain text in UTF-8.

    Args:
        end: the tokens that end an answer.
        context_length: the model's.
        max_length: tokens of a piece of plain text.

    Raises:
        ValueError: a file cannot be read, holds nothing, or has a question that is too long for the model.
    """
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
            raise ValueError(f"{file} holds nothing to learn: no question, or less than two tokens of text")
        rows += found
    return rows


def question_rows(
    questions: Sequence[ReadingQuestion], tokenizer: Tokenizer, end: Sequence[int], context_length: int
) -> Iterator[TrainingRow]:
    """Prompts as the evaluation puts them, and the first expected answer of each, which alone is learned.

    Neighbours about one passage share a row, up to eight of them.
    """
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
    """A text in pieces, of which each token but the first is learned. A last single token is left out."""
    for start in range(0, len(ids), max_length):
        piece = tuple(ids[start : start + max_length])
        if len(piece) > 1:
            yield TrainingRow((), (Branch(piece, 1),))


def rows_digest(rows: Sequence[TrainingRow]) -> str:
    """What names the data: equal for equal rows in equal order."""
    digest = hashlib.sha256()
    for row in rows:
        pieces = [row.shared, *(piece for branch in row.branches for piece in ((branch.first_target,), branch.ids))]
        digest.update(b"".join(array("q", (len(piece), *piece)).tobytes() for piece in pieces))
    return f"sha256:{digest.hexdigest()}"


class _TooLongError(ValueError):
    pass


@dataclass(frozen=True)
class _Text:
    """A prompt with its answer."""

    ids: list[int]
    num_prompt: int  # tokens of the prompt, exactly those that an engine is asked with


def _with_answers(questions: Sequence[ReadingQuestion], tokenizer: Tokenizer, end: Sequence[int]) -> list[_Text]:
    prompts = tokenizer.encode_batch([prompt_of(question) for question in questions])
    said = [" " + " ".join(question.answers[0].split()) for question in questions]
    lead = tokenizer.encode(_LEAD)  # of the answer alone a tokenizer may make something else than behind a colon
    led = tokenizer.encode_batch([_LEAD + text for text in said])
    texts = []
    for prompt, ids, text in zip(prompts, led, said, strict=True):
        is_led = ids[: len(lead)] == lead
        answer = ids[len(lead) :] if is_led else tokenizer.encode(text, add_special_tokens=False)
        texts.append(_Text([*prompt, *answer, *end], len(prompt)))
    return texts


def _rows(texts: Sequence[_Text]) -> Iterator[TrainingRow]:
    """In one row, or in several where that gets too long."""
    # The last token of a prompt stays out of the shared part: it predicts its own answer's first token.
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
