"""Question files: training and evaluation data never overlap."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from train.__main__ import main
from train.questions import training_questions

from quire.progressive.questions import squad_questions


def test_exported_questions_are_read_back_and_those_to_train_on_share_no_name_with_those_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for kind, options in (("train", []), ("measure", ["--held-out"])):
        file = tmp_path / f"{kind}.json"
        monkeypatch.setattr("sys.argv", ["train", "questions", "--passages", "40", "--to", str(file), *options])
        with pytest.raises(SystemExit, match="0"):
            main()
        found[kind] = squad_questions(file)
    assert found["train"] == training_questions(5, 40)
    assert len(found["measure"]) == 40 < len(found["train"])
    texts = {kind: " ".join(q.passage for q in questions) for kind, questions in found.items()}
    names = {kind: set(re.findall(r"(?=\b([A-Z]\w+ [A-Z]\w+))", text)) for kind, text in texts.items()}
    answers = {text for q in found["measure"] if q.question.startswith("Who ") for text in q.answers}
    assert answers & names["measure"]
    assert not answers & names["train"]
