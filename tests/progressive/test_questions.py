"""Questions are read from SQuAD's files, and worded uniformly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.progressive.questions import (
    ReadingQuestion,
    open_questions,
    prompt_of,
    read_questions,
    squad_questions,
)

QUESTION = ReadingQuestion("The pier  is old.\n\nIt stands in Portwick. ", " Where is\tthe pier?\n", ("Portwick",))


def squad() -> dict[str, Any]:
    def qa(number: int, *answers: str) -> dict[str, Any]:
        texts = [{"text": text, "answer_start": 0} for text in answers]
        return {"id": str(number), "question": f"Question {number}?", "answers": texts}

    first = {"context": "First.", "qas": [qa(1, "one"), qa(2, "two", "Two", "two")]}
    second = {"context": "Sécond.", "qas": [qa(3, "three")]}
    third = {"context": "Third.", "qas": [qa(4, "four")]}
    articles = [{"title": "A", "paragraphs": [first, second]}, {"title": "B", "paragraphs": [third]}]
    return {"version": "1.1", "data": articles}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[object], Path]:
    def write_json(content: object) -> Path:
        path = tmp_path / "dev.json"
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return path

    return write_json


def test_a_file_gives_every_question_with_its_own_passage_in_order(write: Callable[[object], Path]) -> None:
    path = write(squad())
    assert squad_questions(path) == squad_questions(str(path))
    assert squad_questions(path) == [
        ReadingQuestion("First.", "Question 1?", ("one",)),
        ReadingQuestion("First.", "Question 2?", ("two", "Two", "two")),
        ReadingQuestion("Sécond.", "Question 3?", ("three",)),
        ReadingQuestion("Third.", "Question 4?", ("four",)),
    ]


def corrupt(path: list[str | int], value: object) -> dict[str, Any]:
    """Return a valid file with one value replaced."""
    content = squad()
    node: Any = content
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return content


PARAGRAPH: list[str | int] = ["data", 0, "paragraphs", 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the file must be an object with a list 'data'"),
        (corrupt(["data"], {}), "the file must be an object with a list 'data'"),
        (corrupt(["data", 1], "B"), "data[1] must be an object with a list 'paragraphs'"),
        (corrupt([*PARAGRAPH, "context"], None), "data[0].paragraphs[1] must be an object with a string 'context'"),
        (corrupt([*PARAGRAPH, "qas"], {}), "data[0].paragraphs[1] must be an object with a list 'qas'"),
        (corrupt([*PARAGRAPH, "qas", 0, "question"], 3), "paragraphs[1].qas[0] must be an object with a string"),
        (corrupt([*PARAGRAPH, "qas", 0, "answers"], ["three"]), "qas[0].answers[0] must be an object with a string"),
        (corrupt([*PARAGRAPH, "qas", 0, "answers"], []), "data[0].paragraphs[1].qas[0] has no answers"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(
    write: Callable[[object], Path], content: object, message: str
) -> None:
    path = write(content)
    with pytest.raises(ValueError, match=r"not in SQuAD v1\.1's form") as error:
        squad_questions(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("content", [b'{"data": [', b'{"data": "\xff"}', b""])
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json is not a JSON file in UTF-8"):
        squad_questions(path)


def test_open_questions_have_a_line_each_and_are_asked_without_a_passage(tmp_path: Path) -> None:
    path = tmp_path / "open.jsonl"
    path.write_text(
        '{"question": "who\u2028wrote it", "answer": ["One", "1"]}\n\n{"question": "when", "answer": ["now"]}\n'
    )
    questions = read_questions(path)
    assert questions == [ReadingQuestion("", "who\u2028wrote it", ("One", "1")), ReadingQuestion("", "when", ("now",))]
    assert prompt_of(questions[0]) == "Question: who wrote it\nAnswer:"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "holds no questions"),
        ("{", "line 1: "),
        ("[]", "line 1: the object must be an object with a list 'answer'"),
        ('{"question": "who", "answer": "One"}', "with a list 'answer'"),
        ('{"question": "who", "answer": []}', "at least one"),
        ('{"answer": ["One"]}', "with a string 'question'"),
    ],
)
def test_open_questions_in_another_form_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "open.jsonl").write_text(line)
    with pytest.raises(ValueError, match=r"open\.jsonl") as error:
        open_questions(tmp_path / "open.jsonl")
    assert message in str(error.value)


def test_a_prompt_has_one_line_a_part_and_ends_at_the_colon() -> None:
    without = "Question: Where is the pier?\nAnswer:"
    assert prompt_of(QUESTION) == f"Context: The pier is old. It stands in Portwick.\n{without}"
    assert prompt_of(QUESTION, with_passage=False) == without
