"""Healing: the learned adapter, resumption to the same bytes, and rejected input."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from typer.testing import CliRunner, Result

from checkpoints import make_reference
from command_line import app
from quire.progressive.healing.heal import heal
from quire.progressive.healing.reference import load_reference, remove_layers
from quire.progressive.healing.samples import TrainingRow, question_rows, text_rows
from quire.progressive.healing.settings import HealSettings
from quire.progressive.healing.trainer import HealProgress, Trainer, make_batch
from quire.progressive.questions import ReadingQuestion
from quire.text.tokenizer import Tokenizer

MODEL = "random:tiny"  # 4 layers
OUT = (1, 2)
SETTINGS = HealSettings(rank=4, steps=5, batch_size=2, learning_rate=3e-3, num_threads=1)
PASSAGES = {
    "Ann lives in Marlow. Ben lives in Ashby.": (("Where does Ann live?", "Marlow"), ("Where does Ben live?", "Ashby")),
    "Tom is a baker.": (("What is Tom?", "a baker"), ("Who bakes?", "Tom"), ("What is Tom?", "baker")),
    "Ida sold the boat to Eve.": (("Who sold it?", "Ida"),),
}
QUESTIONS = [ReadingQuestion(passage, q, (a,)) for passage, asked in PASSAGES.items() for q, a in asked]


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    paragraphs = [
        {"context": passage, "qas": [{"question": q, "answers": [{"text": a}]} for q, a in asked]}
        for passage, asked in PASSAGES.items()
    ]
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return file


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_run_that_is_killed_or_stopped_at_any_step_ends_in_the_same_bytes(tmp_path: Path, data: Path) -> None:
    def run(name: str, **options: Any) -> Any:
        return heal(MODEL, OUT, tmp_path / name, SETTINGS, data=[data], resume=True, checkpoint_seconds=0, **options)

    def kill_at(step: int) -> None:
        """Run in a process that is killed after a step, before its checkpoint is written."""
        if (child := os.fork()) == 0:
            try:
                run("killed", advance=lambda progress: progress.step == step and os.kill(os.getpid(), signal.SIGKILL))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL

    for step in (1, 4):
        kill_at(step)
        assert "adapter_model.safetensors" not in files(tmp_path / "killed")
    stopped = run("killed", should_stop=lambda: True)
    assert (stopped.step, stopped.is_finished) == (4, False)  # killed in step 4, whose checkpoint was of step 3
    resumed, whole = run("killed"), run("whole")
    assert resumed == whole
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert set(files(tmp_path / "whole")) == {"adapter_config.json", "adapter_model.safetensors", "healing.json"}
    assert run("whole") == whole, "a finished run is left as it is"


def test_peft_puts_the_adapter_on_the_layers_of_the_stage_in_the_pruned_model_and_in_the_full_one(
    tmp_path: Path, data: Path
) -> None:
    seen: list[HealProgress] = []
    heal(MODEL, OUT, tmp_path / "out", SETTINGS, data=[data], advance=seen.append)
    assert [progress.step for progress in seen] == [1, 2, 3, 4, 5]
    assert seen[-1].loss < seen[0].loss
    losses = {}
    rows = list(question_rows(QUESTIONS, Tokenizer.byte_level(512), (0,), 512))
    for name, is_pruned in (("bare", True), ("healed", True), ("full", False)):
        reference, _ = load_reference(MODEL, "float32")
        if is_pruned:
            remove_layers(reference, OUT)
        model: Any = reference
        if name != "bare":
            model = PeftModel.from_pretrained(reference, tmp_path / "out")
            adapted = {key.split(".layers.")[1][0] for key in model.state_dict() if "lora_B" in key}
            assert adapted == {"0", "3"}, "indices of the full model, and none on the layers that are out"
            assert all(value.any() for key, value in model.state_dict().items() if "lora_B" in key)
        batch = make_batch(rows)
        with torch.inference_mode():
            logits = model(input_ids=batch.input_ids, attention_mask=batch.mask, position_ids=batch.positions).logits
        losses[name] = torch.nn.functional.cross_entropy(logits[batch.predicting], batch.targets).item()
    assert losses["healed"] < 0.9 * losses["bare"]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "opt"])
def test_questions_that_share_a_row_are_computed_as_if_each_stood_alone(architecture: str) -> None:
    reference = make_reference(architecture, vocab_size=512)
    tokenizer = Tokenizer.byte_level(512)
    end = tokenizer.eos_token_id
    assert end is not None
    rows = list(question_rows(QUESTIONS, tokenizer, (end,), 512))
    assert [len(row.branches) for row in rows] == [2, 3, 1]
    batch = make_batch([*rows, *text_rows(tokenizer.encode("Some text."), 8)])
    with torch.inference_mode():
        logits = reference(input_ids=batch.input_ids, attention_mask=batch.mask, position_ids=batch.positions).logits
    found = iter(zip(logits[batch.predicting], batch.targets.tolist(), strict=True))
    for row in rows:
        for branch in row.branches:
            ids = [*row.shared, *branch.ids]
            first = len(row.shared) + branch.first_target
            with torch.inference_mode():
                alone = reference(input_ids=torch.tensor([ids])).logits[0]
            for place in range(first, len(ids)):
                together, target = next(found)
                assert target == ids[place]
                torch.testing.assert_close(together, alone[place - 1], rtol=1e-4, atol=1e-4)
    assert len(list(found)) == 7 + 1, "of a text each token but the first of a piece"
    answers = [
        tokenizer.decode(b.ids[b.first_target :], skip_special_tokens=False) for row in rows for b in row.branches
    ]
    assert answers == [f" {question.answers[0]}<|endoftext|>" for question in QUESTIONS]


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["stages", "heal", "--model", MODEL, *map(str, arguments)])


def write_plan(path: Path, num_layers: int = 4) -> Path:
    groups = [[0, num_layers - 1], list(range(1, num_layers - 1))]
    path.write_text(json.dumps({"quire_plan": 1, "num_layers": num_layers, "groups": groups}))
    return path


def test_ctrl_c_keeps_a_checkpoint_and_says_how_to_go_on(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    given = ("--plan", write_plan(tmp_path / "plan.json"), "--stage", 1, "--data", data, "--out", out)
    given = (*given, "--generate", 2, "--start", "Tom", "--steps", 3, "--max-length", 16, "--num-threads", 1)
    step = Trainer._step

    def interrupted_step(trainer: Any, rows: list[TrainingRow]) -> float:
        if trainer.step == 1:
            signal.raise_signal(signal.SIGINT)
        return step(trainer, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted_step)
        stopped = command(*given)
    assert stopped.exit_code == 130
    assert "stopped after step 2 of 3" in stopped.stderr
    assert "--resume" in stopped.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = command(*given)
    assert again.exit_code == 2
    assert "is not empty" in again.stderr
    other = command(*given, "--resume", "--rank", 8)
    assert other.exit_code == 2
    assert "another rank (16, now 8)" in other.stderr
    resumed = command(*given, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "after 3 steps" in resumed.stdout
    assert len(json.loads((out / "generated.json").read_text())) == 2


def test_what_cannot_be_healed_is_refused_in_one_line(tmp_path: Path, data: Path) -> None:
    plan, other_plan = write_plan(tmp_path / "plan.json"), write_plan(tmp_path / "other.json", 6)
    empty, long, foreign = tmp_path / "empty.txt", tmp_path / "long.json", tmp_path / "foreign"
    empty.write_text("")
    long.write_text(data.read_text().replace("Ann lives", "Ann " * 2100 + "lives"))
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine")
    stage = ("--plan", plan, "--stage", 1)
    for given, said in (
        ((*stage,), "--generate N"),
        ((*stage, "--data", tmp_path / "none.json"), "there is no such file"),
        ((*stage, "--data", empty), "holds nothing to learn"),
        ((*stage, "--data", long), "question 1 takes"),
        ((*stage, "--data", data, "--targets", "q_proj,c_attn"), "'c_attn'"),
        ((*stage, "--data", data, "--out", foreign, "--resume"), "letter.txt"),
        (("--plan", plan, "--stage", 2, "--data", data), "--control"),
        (("--plan", other_plan, "--stage", 1, "--data", data), "plans 6 layers"),
        (("--data", data), "no stage is given"),
        ((*stage, "--control", "--data", data), "leave out --plan and --stage"),
    ):
        refused = command("--out", tmp_path / "out", *given)
        assert refused.exit_code == 2, refused.output
        assert said in refused.stderr
