"""`quire stages`: plans from the command line, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from click.testing import CliRunner, Result

from progressive.models import make_model
from quire.cli.stages.commands import app
from quire.cli.stages.frontier import StageTrial
from quire.loading.stage_manifest import read_stage_manifest
from quire.progressive import angular_distance, frontier, precision
from quire.progressive.hidden_states import hidden_states
from quire.progressive.plans import ModelBytes, read_plan
from quire.progressive.questions import ReadingQuestion
from quire.progressive.stage_plan import StagePlan

COMMAND = typer.main.get_command(app)  # made once, since it takes longer than the tests


def stages(*arguments: object) -> Result:
    return CliRunner().invoke(COMMAND, [*map(str, arguments)])


def done(*arguments: object) -> str:
    result = stages(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def write_questions(path: Path, answers: list[str]) -> None:
    qas = [
        {"id": str(i), "question": f"Which is number {i}?", "answers": [{"text": answer, "answer_start": 0}]}
        for i, answer in enumerate(answers)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Some numbers.", "qas": qas}]}]}))


def test_from_a_plan_to_a_map(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", num_hidden_layers=5)
    plan, figures, questions = tmp_path / "plan.json", tmp_path / "figures.json", tmp_path / "questions.json"
    write_questions(questions, ["one"] * 12)
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
    looked_at = (
        "--text",
        questions,
        "--text",
        tmp_path / "text.txt",
        "--generate",
        2,
        "--start",
        "The",
        "--tokens",
        40,
    )

    output = done(
        "plan", "--model", model, *looked_at, "--layers-out", 2, "-o", plan, "--json", figures,
        "--plot", tmp_path / "heat.png",
    )  # fmt: skip
    measured, written = json.loads(figures.read_text()), json.loads(plan.read_text())
    assert [len(row) for row in measured["angular_distances"]] == [5, 4, 3, 2, 1]
    pairs = measured["angular_distances"][1]
    best = pairs.index(min(pairs))
    assert written["groups"][1:] == [[best], [best + 1]]
    assert (written["model"], written["method"], written["distance"]) == (str(model), "angular distance", min(pairs))
    assert written["texts"] == ["questions.json", "text.txt", "2 written by the model"]
    assert "all but" in output
    assert len(measured["precision_distances"]) == 7
    assert "mantissa bits" in output
    tried = {(str(each["block_out"]), each["mantissa_bits"]): each["distance"] for each in measured["first_stages"]}
    assert len(tried) == 3 * 8 + 2  # with 0, 1 and 2 layers out; the latter two in plain files, too
    assert [tried["None", bits] for bits in range(7)] == measured["precision_distances"]
    assert tried["None", 7] == pytest.approx(0, abs=1e-6)
    assert "stages that are best for their bytes" in output
    assert (tmp_path / "heat.png").read_bytes()[1:4] == b"PNG"


def test_questions_measure_first_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "SHARES_OUT", (1 / 2,))
    passage = "Ines Haddad was born in Marlow. Tom Weber, a baker, lives in Ashby."
    asked = [
        ReadingQuestion(passage, "Where does Tom Weber live?", ("Ashby",)),
        ReadingQuestion(passage, "Where was Ines Haddad born?", ("Paris", "Marlow")),
        ReadingQuestion(passage, "What is Tom Weber?", ("no baker",)),
    ]
    sizes, values = ModelBytes((1,) * 16, 2), [[0.0] * (17 - size) for size in range(1, 17)]
    distances = angular_distance.AngularDistances(16, 1, tuple(map(tuple, values)), np.zeros((1, 1)))
    trial = StageTrial(sizes, "bfloat16", distances, has_planes=True)
    found = {
        (stage.block_out, stage.mantissa_bits): stage.loss
        for stage in trial.by_exact_match("quire-mini", "float32", asked)
    }
    assert found[None, 7] == found[None, 6] == pytest.approx(1 / 3)
    assert found[(0, 8), 7] == found[(0, 8), None] == 1
    result = stages("plan", "--model", "quire-mini", "--questions", tmp_path / "none.json")
    assert "there is no such file" in str(result.exception)


def test_plans_by_precision_and_of_both_axes(tmp_path: Path) -> None:
    plan, pack = tmp_path / "plan.json", tmp_path / "pack"
    done("plan", "--model", "quire-mini", "--mantissa-bits", 1, "-o", plan)
    assert read_plan(plan)[0] == StagePlan(16, (tuple(range(16)),), 1)
    done("plan", "--model", "quire-mini", "--bytes", "8MB", "--mantissa-bits", "auto", "-o", plan)
    assert read_plan(plan)[0].mantissa_bits == 2
    by_layer = ("--generate", 1, "--start", "Context:", "--tokens", 16)
    output = done("plan", "--model", "quire-mini", "--bytes", "5.6MB", "--mantissa-bits", "auto", *by_layer, "-o", plan)
    assert set(read_plan(plan)[0].layer_bits) == {0, 1}
    assert "mantissa bits by layer: 1 " in output
    done("pack", "--model", "quire-mini", "--plan", plan, "--out", tmp_path / "by-layer", "--no-progress")
    assert read_stage_manifest(tmp_path / "by-layer").stage_bytes(1) == pytest.approx(5.6e6, rel=0.02)
    assert " 0-1 " in done("show", tmp_path / "by-layer")
    output = done("plan", "--model", "quire-mini", "--block", "11:15", "--mantissa-bits", 1, "-o", plan)
    assert "+ mantissas" in output
    made = read_plan(plan)[0]
    assert (made.num_stages, made.mantissa_bits) == (4, 1)
    done("pack", "--model", "quire-mini", "--plan", plan, "--out", pack, "--no-progress")
    shares = [each["weight_bytes"] for each in json.loads(plan.read_text())["stages"]]
    stored = [read_stage_manifest(pack).stage_bytes(stage) for stage in range(1, 5)]
    assert stored == pytest.approx(shares, rel=0.02)
    for arguments, message in (
        (("--mantissa-bits", "auto"), "needs a limit"),
        (("--mantissa-bits", 8), "is not one of"),
        (("--mantissa-bits", "auto", "--bytes", "1MB"), "leave out layers as well"),
    ):
        result = stages("plan", "--model", "quire-mini", *arguments)
        assert message in f"{result.exception} {result.output}"


@pytest.mark.parametrize(("dtype", "passes"), [("bfloat16", 8), ("float16", 1)])
def test_a_plan_computes_no_states_twice_and_none_that_it_does_not_show(
    dtype: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, text, calls = make_model(tmp_path / "model"), tmp_path / "text.txt", list[Any]()
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"dtype": dtype}))
    text.write_text("the keeper sails in early spring " * 8)

    def counted(*given: Any) -> list[np.ndarray]:
        calls.append(given)
        return hidden_states(*given)

    for module in (angular_distance, precision):
        monkeypatch.setattr(module, "hidden_states", counted)
    output = done("plan", "--model", model, "--text", text, "--samples", 1, "--tokens", 8)
    assert len(calls) == passes
    assert ("mantissa bits" in output) == (dtype == "bfloat16")


def test_a_plan_without_text(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"

    def groups(*arguments: object) -> list[list[int]]:
        done("plan", "-o", plan, *arguments)
        return json.loads(plan.read_text())["groups"][1:]

    assert groups("--model", "random:llama-2-7b", "--preset", "progressiveserve") == [
        [20, 21, 22, 23],
        [24, 25, 26, 27],
    ]
    assert groups("--model", "quire-mini", "--block", "11:15", "--stages", 5) == [[11], [12], [13], [14]]
    assert groups("--model", "quire-mini", "--baseline", "deepest", "--layers-out", 3) == [[12, 13], [14]]
    fitting = groups("--model", "quire-mini", "--baseline", "deepest", "--bytes", "18MB")
    assert fitting == groups(
        "--model", "quire-mini", "--baseline", "deepest", "--ttft", 4, "--bandwidth", "18MB", "--allowance", 3
    )
    stage = json.loads(plan.read_text())["stages"][0]
    assert stage["weight_bytes"] <= 18e6 < stage["weight_bytes"] + 1_200_000  # one more layer would not fit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan", "no text is given; name files with --text"),
        ("plan --layers-out 4", "no text is given"),
        ("plan --text none.txt", "none.txt: there is no such file"),
        ("plan --start Context: --block 1:3", "--start needs --generate"),
        ("plan --layers-out 2 --block 1:3", "--layers-out and --block exclude each other"),
        ("plan --layers-out 16 --generate 1", "between 1 and 15 can"),
        ("plan --block 3", "'3' is not START:END"),
        ("plan --block 3:17", "no block 3:17 in 16 layers"),
        ("plan --block 3:6 --stages 5", "ask for 4 stages at most"),
        ("plan --block 3:6 --plot p.png", "--plot draws measured distances"),
        ("plan --ttft 3 --generate 1", "--ttft (seconds) and --bandwidth"),
        ("plan --ttft 3 --bandwidth 1MB --baseline deepest", "leaves no time to load"),
        ("plan --bytes 1MB --baseline deepest", "stage 1 cannot be as small as"),
        ("plan --bytes 1GB --baseline deepest", "it needs no stages"),
        ("plan --bytes much --baseline deepest", "'much' is not a size"),
        ("plan --preset progressiveserve", "for models of 32 layers, and this one has 16"),
        ("plan --block 1:3 --baseline deepest", "--baseline needs --layers-out"),
        ("plan --generate 1 --stages 3", "--stages needs a choice of layers"),
    ],
)
def test_mistakes_are_reported_before_a_model_is_loaded(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quire.progressive.plans import plan_block, write_plan

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quire.loading.layer_loader.load_model", None)
    write_plan(plan_block(16, 11, 15), Path("plan.json"))
    command, *more = arguments.split()
    result = stages(command, "--model", "quire-mini", *more)
    assert isinstance(result.exception, ValueError)  # which `quire` prints as one line
    assert message in str(result.exception)
