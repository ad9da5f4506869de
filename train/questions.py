"""Questions about generated passages: to heal a stage with, and to measure it by; files of them in SQuAD v1.1's form.

What passages for training tell and what held-out ones tell have no name in common; see `words.is_held_out`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

from quire.progressive.questions import ReadingQuestion
from train.world import FACTS
from train.world.frame import Frame
from train.world.passage import Passage, PassageMaker

_MAX_QUESTIONS = 6  # of one passage, as in `samples.py`


def held_out_questions(
    num_facts: int, count: int, seed: int = 0, frames: Sequence[Frame] = FACTS
) -> list[ReadingQuestion]:
    """One question each about `count` passages with names that no training passage holds."""
    maker = PassageMaker(frames, held_out=True)
    return ask_once(lambda rng: maker.draw(rng, num_facts), Random(f"evaluation/{num_facts}/{seed}"), count)


def ask_once(draw: Callable[[Random], Passage], rng: Random, count: int) -> list[ReadingQuestion]:
    """One question each about `count` passages."""
    questions = []
    for _ in range(count):
        passage = draw(rng)
        question = rng.choice(passage.questions)
        questions.append(ReadingQuestion(passage.text, question.text, (question.answer,)))
    return questions


def training_questions(num_facts: int, num_passages: int, seed: int = 0) -> list[ReadingQuestion]:
    """Up to six questions each about passages with names of training, those of a passage side by side."""
    maker = PassageMaker(FACTS, held_out=False)
    rng = Random(f"healing/{num_facts}/{seed}")
    questions = []
    for _ in range(num_passages):
        passage = maker.draw(rng, num_facts)
        for question in rng.sample(passage.questions, min(len(passage.questions), _MAX_QUESTIONS)):
            questions.append(ReadingQuestion(passage.text, question.text, (question.answer,)))
    return questions


def write_squad(questions: Iterable[ReadingQuestion], target: Path) -> None:
    """Write them in SQuAD v1.1's form; neighbours with one passage share a paragraph."""
    paragraphs = []
    number = 0
    for passage, asked in groupby(questions, key=lambda question: question.passage):
        rows = []
        for question in asked:
            answers = [{"text": text, "answer_start": passage.lower().find(text.lower())} for text in question.answers]
            rows.append({"id": str(number), "question": question.question, "answers": answers})
            number += 1
        paragraphs.append({"context": passage, "qas": rows})
    data = {"version": "1.1", "data": [{"title": "generated", "paragraphs": paragraphs}]}
    target.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
