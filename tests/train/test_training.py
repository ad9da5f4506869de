"""Packed samples, training, resumption and export, on a model of a few thousand weights."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from train.export import export
from train.fit import Batches, build, fit, learning_rate_at, make_batch
from train.recipes import PAD, RECIPES
from train.samples import END, Piece, Sample, encode
from train.tokenizer import train_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from quire import LLM, SamplingParams

MINI = RECIPES["quire-mini"]
TINY = replace(
    MINI,
    config=MINI.config
    | {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "head_dim": 8, "intermediate_size": 48},
    tokens_per_step=4096,
    total_tokens=12_000,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(replace(TINY, tokenizer_samples=60), seed=1)


def test_the_tokenizer_puts_special_tokens_first_and_keeps_any_text(tokenizer):
    assert [tokenizer.token_to_id(token) for token in TINY.special] == list(range(len(TINY.special)))
    text = "Jürgen paid 12 € – “gladly”, 猫!"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("name", RECIPES)
def test_a_branch_in_a_packed_row_is_computed_as_if_it_were_alone(tokenizer, name):
    config = TINY.config if name == "quire-mini" else {**RECIPES[name].config, "n_embd": 24, "n_layer": 2}
    torch.manual_seed(0)
    model = build(replace(TINY, config=config | {"vocab_size": 400})).eval()
    shared = (Piece("Context: Ann lives in Marlow.\n", 0.1),)
    branches = tuple(
        (Piece(f"Question: {question}\nAnswer:", 0.1), Piece(f" {answer}{END}", 1.0))
        for question, answer in (("Where does Ann live?", "Marlow"), ("Who lives in Marlow?", "Ann"))
    )
    row = encode(Sample(shared, branches), tokenizer)
    batch = make_batch([row], 96, tokenizer.token_to_id(PAD), torch.device("cpu"))
    with torch.inference_mode():
        packed = model(
            input_ids=batch.ids, attention_mask=batch.mask.float(), position_ids=batch.positions, use_cache=False
        ).logits[0]
        for number, text in enumerate(Sample(shared, branches).texts(), 1):
            ids = tokenizer.encode(text).ids
            places = [i for i, segment in enumerate(row.segments) if segment in (0, number)]
            assert [row.ids[i] for i in places] == ids
            alone = model(input_ids=torch.tensor([ids])).logits[0]
            torch.testing.assert_close(packed[places], alone, atol=1e-4, rtol=1e-4)


def test_a_sample_is_encoded_as_the_texts_that_a_user_would_send(tokenizer):
    """No token of the whole text may cross a boundary; within a line, a blank and the next word are one token."""
    rng = Random(5)
    on_one_line = 0
    for _ in range(100):
        sample = MINI.source(rng, 1.0)
        row = encode(sample, tokenizer)
        for number, text in enumerate(sample.texts(), 1):
            ids = [token for token, segment in zip(row.ids, row.segments, strict=True) if segment in (0, number)]
            assert ids == tokenizer.encode(text).ids, text
            on_one_line += text.startswith("Context: ") and "\n" not in text
    assert on_one_line > 30


def test_what_a_token_weighs(tokenizer):
    sample = Sample((Piece("Context: a b.\n", 0.1),), ((Piece("Question: c?\nAnswer:", 0.1), Piece(f" a{END}", 1.0)),))
    row = encode(sample, tokenizer)
    first_of_branch = row.segments.index(1)
    assert row.weights[0] == row.weights[first_of_branch] == 0.0
    assert row.weights[-1] == 1.0  # it also learns to end
    assert {w for i, w in enumerate(row.weights[:first_of_branch]) if i} == {0.1}


def test_batches_have_one_shape_a_length_and_about_as_many_tokens_as_asked_for(tokenizer):
    batches = Batches(TINY, tokenizer, torch.device("cpu"))
    drawn = list(batches.draw(Random(0), tokens=60_000, progress=1.0))
    assert all(batch.ids.shape[1] % 32 == 0 for batch in drawn)
    shapes = {batch.ids.shape for batch in drawn}
    assert len(shapes) == len({length for _, length in shapes}) < len(drawn)
    padded = sum(batch.ids.numel() for batch in drawn)
    assert abs(padded - 60_000) < 4096


def test_batches_hold_every_sample_that_was_drawn_once_and_whole(tokenizer):
    samples = [Sample((Piece(f"Context: {at} {'word ' * (at % 40)}", 0.1),)) for at in range(2000)]
    numbered = iter(samples)
    recipe = replace(TINY, source=lambda rng, progress: next(numbered))
    batches = Batches(recipe, tokenizer, torch.device("cpu"))
    drawn = [
        *batches.draw(Random(0), tokens=20_000, progress=1.0),
        *batches.draw(Random(0), tokens=20_000, progress=1.0),
    ]
    pad = tokenizer.token_to_id(PAD)
    texts = [tokenizer.decode([token for token in row if token != pad]) for b in drawn for row in b.ids.tolist()]
    assert len(texts) == len(set(texts)) > 500
    assert set(texts) <= {sample.shared[0].text for sample in samples}


def test_the_learning_rate_rises_stays_and_falls():
    rates = [learning_rate_at(MINI, progress) for progress in (0.0, 0.005, 0.2, 0.4, 0.9, 1.0)]
    assert rates[0] == 0.0
    assert rates[2] == rates[3] == MINI.learning_rate
    assert rates[1] < rates[2] > rates[4] > rates[5] == 0.0


def test_training_stops_resumes_and_ends_with_a_model_that_can_be_served(tokenizer, tmp_path, capsys):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "stop").touch()
    fit(TINY, tmp_path, seed=1, total_tokens=12_000)
    assert not (tmp_path / "weights.pt").exists()
    stopped = torch.load(tmp_path / "checkpoint-0-of-1.pt", weights_only=True)
    assert stopped["step"] == 1
    (tmp_path / "stop").unlink()
    fit(TINY, tmp_path, seed=1, total_tokens=12_000)
    resumed = torch.load(tmp_path / "checkpoint-0-of-1.pt", weights_only=True)
    assert resumed["step"] > 1
    assert resumed["tokens"] >= 12_000
    line = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert line["tokens"] == resumed["tokens"]
    assert "quire-mini seed 1 step" in capsys.readouterr().out

    folder = tmp_path / "model"
    export(TINY, tmp_path, folder)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    hf_tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = "Context: Ann lives in Marlow.\nQuestion: Where does Ann live?\nAnswer:"
    inputs = hf_tokenizer(prompt, return_tensors="pt")
    expected = reference.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    llm = LLM(str(folder), dtype="float32", kv_cache_memory="8MiB", use_tqdm=False)
    made = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)[0].outputs[0].token_ids
    assert made == expected.tolist()


def test_an_export_may_be_the_mean_of_what_was_trained_and_where_it_began(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for seed, name in enumerate(("start", "trained")):
        torch.manual_seed(seed)
        torch.save(build(TINY).state_dict(), tmp_path / "weights.pt")
        export(TINY, tmp_path, tmp_path / name)
    export(TINY, tmp_path, tmp_path / "mean", halfway_from=tmp_path / "start")
    start, trained, mean = (load_file(tmp_path / name / "model.safetensors") for name in ("start", "trained", "mean"))
    assert "model.embed_tokens.weight" in mean  # which is also the head
    for name, weight in mean.items():
        expected = (start[name].float() + trained[name].float()) / 2
        torch.testing.assert_close(weight.float(), expected, atol=2e-3, rtol=2e-2)


def test_exporting_before_training_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="train first"):
        export(TINY, tmp_path, tmp_path / "model")


def test_recipes_make_models_within_the_stated_size():
    sizes = {name: sum(p.numel() for p in build(recipe).parameters()) for name, recipe in RECIPES.items()}
    assert 6e6 <= sizes["quire-mini"] <= 25e6
    assert sizes["quire-chat"] < sizes["quire-mini"]
    assert MINI.config["num_hidden_layers"] >= 16
    assert MINI.config["num_key_value_heads"] < MINI.config["num_attention_heads"]


def test_unknown_models_are_refused_by_name(monkeypatch, capsys):
    from train.__main__ import main

    monkeypatch.setattr("sys.argv", ["train", "fit", "quire-max", "--folder", "x"])
    with pytest.raises(SystemExit):
        main()
    assert "quire-mini" in capsys.readouterr().err
