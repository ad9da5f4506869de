"""Question-answering data: read question files, word prompts, and compare answers as SQuAD does.

Source: Rajpurkar et al., 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T", str, list[Any])
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:an?|the)\b")


@dataclass(frozen=True)
class ReadingQuestion:
    """A question about a passage, or an open one."""

    passage: str  #: empty for open questions
    question: str
    answers: tuple[str, ...]  #: all acceptable answers


def read_questions(path: str | Path) -> list[ReadingQuestion]:
    """Read open questions from a .jsonl file, or SQuAD v1.1 from any other. Raises ValueError or OSError."""
    return open_questions(path) if Path(path).suffix == ".jsonl" else squad_questions(path)


def open_questions(path: str | Path) -> list[ReadingQuestion]:
    """Read Natural Questions Open: lines of `{"question": ..., "answer": [...]}`. Raises ValueError and OSError."""
    questions = []
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            answers = _field(item, "answer", list, "the object")
            question = _field(item, "question", str, "the object")
            if not answers or not all(isinstance(answer, str) for answer in answers):
                raise ValueError("'answer' must be a list of strings, at least one")
        except ValueError as error:  # JSONDecodeError is one
            raise ValueError(
                f'{path}, line {number}: {error}; expected {{"question": "...", "answer": ["...", ...]}} a line'
            ) from None
        questions.append(ReadingQuestion("", question, tuple(answers)))
    if not questions:
        raise ValueError(f"{path} holds no questions")
    return questions


def squad_questions(path: str | Path) -> list[ReadingQuestion]:
    """Read SQuAD v1.1: `data[].paragraphs[].{context, qas[].{question, answers[].text}}`. Raises ValueError."""
    try:
        root = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a JSON file in UTF-8: {error}") from error
    try:
        return list(_questions(root))
    except ValueError as error:
        raise ValueError(f"{path} is not in SQuAD v1.1's form: {error}") from None


def prompt_of(question: ReadingQuestion, with_passage: bool = True) -> str:
    """Word a question as one line each of `Context: ...` (with a passage), `Question: ...` and `Answer:`."""
    context = f"Context: {_squeezed(question.passage)}\n" if with_passage and question.passage else ""
    return f"{context}Question: {_squeezed(question.question)}\nAnswer:"


def normalize_answer(text: str) -> str:
    """Lower-case an answer, delete ASCII punctuation (`don't` becomes `dont`), then articles and extra whitespace."""
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a prediction equals an expected answer after normalization, else 0.0."""
    check_answers(answers)
    said = normalize_answer(prediction)
    return float(any(said == normalize_answer(answer) for answer in answers))


def is_exact_match(prediction: str, question: ReadingQuestion) -> bool:
    """Return whether the first line of a prediction is an expected answer."""
    return exact_match(first_line(prediction), question.answers) == 1.0


def first_line(prediction: str) -> str:
    return prediction.partition("\n")[0].strip()


def check_answers(answers: Sequence[str]) -> None:
    if isinstance(answers, str):  # would count as a sequence of letters
        raise ValueError(f"answers must be a sequence of strings, got the string {answers!r}: write [{answers!r}]")
    if not answers:
        raise ValueError("a prediction needs at least one expected answer to be scored against, got none")


def _questions(root: object) -> Iterator[ReadingQuestion]:
    for article, article_at in _items(root, "data", ""):
        for paragraph, paragraph_at in _items(article, "paragraphs", article_at):
            passage = _field(paragraph, "context", str, paragraph_at)
            for qa, at in _items(paragraph, "qas", paragraph_at):
                answers = tuple(_field(answer, "text", str, place) for answer, place in _items(qa, "answers", at))
                if not answers:
                    raise ValueError(f"{at} has no answers; every question needs one (SQuAD v2.0's files are not read)")
                yield ReadingQuestion(passage, _field(qa, "question", str, at), answers)


def _items(node: object, name: str, at: str) -> Iterator[tuple[object, str]]:
    path = f"{at}.{name}" if at else name
    return ((item, f"{path}[{i}]") for i, item in enumerate(_field(node, name, list, at)))


def _field(node: object, name: str, kind: type[_T], at: str) -> _T:
    value = node.get(name) if isinstance(node, dict) else None
    if not isinstance(value, kind):
        noun = "string" if kind is str else "list"
        raise ValueError(f"{at or 'the file'} must be an object with a {noun} {name!r}")
    return value


def _squeezed(text: str) -> str:
    return " ".join(text.split())
