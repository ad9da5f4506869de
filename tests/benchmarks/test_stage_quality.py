"""Stages answer as they would alone, in any order, and are compared question by question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from typer.testing import CliRunner, Result

from benchmarks.script import make_app
from benchmarks.stage_quality.__main__ import main
from benchmarks.stage_quality.variants import (
    Variant,
    VariantAnswers,
    answer,
    compare,
    staged,
    truncated,
    variants_of,
    variants_of_pack,
    won_back,
)
from checkpoints import make_reference
from progressive.models import VOCAB, make_model, random_texts
from quire.loading.stage_manifest import LayerGroup, Stage, StageManifest
from quire.progressive.healing.reference import remove_layers
from quire.progressive.plans import plan_block, preset_plan, write_plan
from quire.text.tokenizer import Tokenizer

PLAN = plan_block(5, 2, 4)
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def model() -> Any:
    return make_reference("llama", num_hidden_layers=5, vocab_size=VOCAB, eos_token_id=256)


def write_adapter(folder: Path, out: tuple[int, ...] = ()) -> torch.Tensor:
    """Write an effective adapter for a model without some layers; return its logits."""
    torch.manual_seed(3)
    stage = model()
    remove_layers(stage, out)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    wrapped = peft.get_peft_model(stage, config)
    wrapped.save_pretrained(str(folder))
    with torch.no_grad():
        return wrapped.eval()(input_ids=IDS).logits


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_a_variant_is_its_stage_and_leaves_the_model_whole(tmp_path: Path) -> None:
    healed = write_adapter(tmp_path / "1", PLAN.layers_out(1))
    controlled = write_adapter(tmp_path / "control")
    whole = model()
    expected, bare = logits(whole), model()
    remove_layers(bare, PLAN.layers_out(1))
    for variant, wanted in (
        (Variant(1, "healed", adapter=tmp_path / "1"), healed),
        (Variant(1, "bare"), logits(bare)),
        (Variant(3, "control", adapter=tmp_path / "control"), controlled),
        (Variant(1, "healed", adapter=tmp_path / "1"), healed),
    ):
        with staged(whole, PLAN, variant):
            torch.testing.assert_close(logits(whole), wanted)
        assert torch.equal(logits(whole), expected)
    for stage, folder, message in (
        (2, "1", r"not an adapter for stage 2 .* it lacks the layers \[2\]"),
        (1, "control", r"it has the layers \[2, 3\], which are out there"),
        (1, "none", "cannot be read"),
    ):
        with (
            pytest.raises(ValueError, match=message),
            staged(whole, PLAN, Variant(stage, "healed", adapter=tmp_path / folder)),
        ):
            pass
    assert torch.equal(logits(whole), expected)


@pytest.mark.parametrize(("mantissa_bits", "expected"), [(0, 1.5), (1, 1.75), (2, 1.625), (6, 1.6640625)])
def test_truncated_weights_keep_their_top_bits_and_come_back(mantissa_bits: int, expected: float) -> None:
    whole = torch.nn.Linear(2, 1)
    with torch.no_grad():
        whole.weight[:] = torch.tensor([1.65625 + 2**-7, -1.65625])  # mantissas 1010101 and 1010100
        whole.bias[:] = 1.3
    with truncated(whole, mantissa_bits):
        assert whole.weight.tolist() == [[expected, -expected]]
        assert whole.bias.item() == pytest.approx(1.3)
    assert whole.weight.tolist() == [[1.65625 + 2**-7, -1.65625]]
    stack = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Linear(1, 1), whole])})
    with truncated(stack, 7 - mantissa_bits, (7 - mantissa_bits, mantissa_bits)):
        assert whole.weight.tolist() == [[expected, -expected]]


def test_an_answer_is_the_same_alone_and_in_a_batch() -> None:
    reference, tokenizer = model(), Tokenizer.byte_level(VOCAB)
    prompts = random_texts(6, shortest=2, longest=40)
    together = answer(reference, tokenizer, prompts, 5)
    for prompt, said in zip(prompts, together, strict=True):
        ids = torch.tensor([prompt])
        (row,) = reference.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False)
        assert tokenizer.decode(row[len(prompt) :].tolist()) == said
    assert len(set(together)) > 1


def answered(variant: Variant, *exact: float) -> VariantAnswers:
    return VariantAnswers(variant, ("",) * len(exact), exact, exact)


def test_stages_are_compared_as_they_are_served_and_the_control_with_the_original() -> None:
    here = Path(".")
    found = variants_of(PLAN, {1: here}, control=here)
    assert [variant.name for variant in found] == [
        "stage 1, bare", "stage 1, healed", "stage 2, bare", "full", "control"
    ]  # fmt: skip
    exact = [(0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 0)]
    all_answers = [answered(variant, *map(float, each)) for variant, each in zip(found, exact, strict=True)]
    pairs = {(pair.first, pair.second): pair.result for pair in compare(all_answers)}
    assert list(pairs) == [
        ("stage 1, bare", "stage 1, healed"),
        ("full", "control"),
        ("stage 1, healed", "stage 2, bare"),
        ("stage 2, bare", "full"),
    ]
    assert (pairs["full", "control"].only_first, pairs["full", "control"].only_second) == (1, 0)
    shares = [won_back(each, all_answers) for each in all_answers]
    assert shares[:3] == [None, pytest.approx(1 / 3), None]
    with pytest.raises(ValueError, match="stage 3 has no adapter: of 3 stages, 1 to 2 lack layers"):
        variants_of(PLAN, {3: here})


def test_a_packs_variants_are_what_its_manifest_names(tmp_path: Path) -> None:
    stages = (
        Stage(1, PLAN.layers_in_place(1), adapter="adapters/1"),
        Stage(2, PLAN.layers_in_place(2), adapter="adapters/2"),
        Stage(3, PLAN.layers_in_place(3)),
    )
    groups = tuple(LayerGroup(f"{i}", layers) for i, layers in enumerate(PLAN.groups))
    manifest = StageManifest(tmp_path, "LlamaForCausalLM", 5, "float32", "sha256:0", groups, stages, {})
    plan, found = variants_of_pack(manifest)
    assert plan == PLAN
    assert [variant.name for variant in found] == [
        "stage 1, bare", "stage 1, healed", "stage 2, bare", "stage 2, healed", "full"
    ]  # fmt: skip
    assert found[1].adapter == tmp_path / "adapters/1"
    rest = LayerGroup("rest", tuple(range(5)))
    stages = (*stages[:2], Stage(3, PLAN.layers_in_place(3), adapter="adapters/3"), Stage(4, tuple(range(5))))
    of_planes = replace(manifest, groups=(*groups, rest), stages=stages, mantissa_bits=1)
    plan, found = variants_of_pack(of_planes)
    assert plan == replace(PLAN, mantissa_bits=1)
    assert [variant.mantissa_bits for variant in found] == [1] * 6 + [None]
    assert found[0].name == "stage 1, bare"


def write_questions(path: Path, answers: list[str]) -> None:
    qas = [
        {"id": str(i), "question": f"Which is number {i}?", "answers": [{"text": answer, "answer_start": 0}]}
        for i, answer in enumerate(answers)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Some numbers.", "qas": qas}]}]}))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(make_app(main), [*map(str, arguments)])


def test_the_script_scores_and_compares_every_stage(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", num_hidden_layers=5)
    plan, figures, questions = tmp_path / "plan.json", tmp_path / "figures.json", tmp_path / "questions.json"
    write_plan(PLAN, plan)
    write_questions(questions, ["one"] * 12)
    given = ("--model", folder, "--plan", plan, "--questions", questions, "--json", figures)
    result = run(*given)
    assert result.exit_code == 0, result.output
    said = json.loads(figures.read_text())["predictions"]["full"]
    answers = [text.partition("\n")[0].strip() for text in said]
    assert len(set(answers)) > 1
    write_questions(questions, answers)
    result = run(*given, "--limit", 6, "--paper", "--mantissa-bits", "1,4", "--plot", tmp_path / "plot.png")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(figures.read_text())
    scores = {(row["stage"], row["kind"]): row["exact_match"] for row in found["results"]}
    assert set(scores) == {(1, "bare"), (2, "bare"), (3, "full"), (3, "truncated")}
    shares = [row["share"] for row in found["results"]]
    assert shares[0] < shares[1] < shares[2] == 1
    assert 0.1 < shares[3] < shares[4] < found["results"][2]["coded_share"] < 0.9
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert scores[3, "full"] == 100
    assert scores[1, "bare"] < 100
    assert found["num_questions"] == 6
    lost = next(pair for pair in found["pairs"] if pair["second"] == "full")
    assert (lost["only_first"], lost["only_second"]) == (0, round((100 - scores[2, "bare"]) * 6 / 100))
    assert "66.11" in result.output


def test_a_plan_of_four_stages_is_scored_and_written_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, four = make_model(tmp_path / "model", num_hidden_layers=5), plan_block(5, 1, 4, 4)
    plan, figures, questions = tmp_path / "plan.json", tmp_path / "figures.json", tmp_path / "questions.json"
    write_plan(four, plan)
    write_adapter(tmp_path / "3", four.layers_out(3))
    write_questions(questions, ["one"] * 2)
    given = ("--model", folder, "--plan", plan, "--questions", questions, "--json", figures)
    result = run(*given, "--adapter", f"3={tmp_path / '3'}")
    assert result.exit_code == 0, result.output
    found = [(row["stage"], row["kind"], row["num_layers"]) for row in json.loads(figures.read_text())["results"]]
    assert found == [(1, "bare", 2), (2, "bare", 3), (3, "bare", 4), (3, "healed", 4), (4, "full", 5)]
    assert "stage 3, healed" in result.output
    figures.unlink()
    monkeypatch.setattr("benchmarks.stage_quality.__main__.print_table", None)
    assert run(*given).exit_code != 0
    assert len(json.loads(figures.read_text())["predictions"]["full"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "quire-mini is not a pack"),
        ("--plan plan.json", "q.json cannot be read"),
        ("--plan plan.json --adapter here", "'here' is not STAGE=PATH"),
        ("--plan plan.json --adapter 1=none", "there is no none"),
        ("--plan plan.json --adapter 3=plan.json", "stage 3 has no adapter"),
        ("--plan two.json --paper", "the paper has 3 stages, and this plan has 2"),
        ("--plan deep.json", "plans 32 layers, and the model has 16"),
    ],
)
def test_mistakes_are_reported_before_a_model_is_loaded(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("quire.progressive.healing.reference.load_reference", None)
    write_plan(plan_block(16, 11, 15), Path("plan.json"))
    write_plan(plan_block(16, 11, 12), Path("two.json"))
    write_plan(preset_plan("progressiveserve", 32), Path("deep.json"))
    result = run("--model", "quire-mini", "--questions", "q.json", *arguments.split())
    assert result.exit_code == 2
    assert message in result.output
