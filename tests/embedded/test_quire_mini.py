"""quire-mini reads: it answers about unseen names from the passage alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from train.evaluate import (
    answers,
    chat_answers,
    hand_written_questions,
    held_out_questions,
    most_alike_quarter,
    without_layers,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.scores import score
from parameters import quick
from quire import LLM, SamplingParams
from quire.loading.source import embedded_path
from quire.progressive.questions import prompt_of

# The model's results, less the noise of a hundred questions. Targets on its card: 90, 75, 90, 75 and 10.
TWO_FACTS, ON_ONE_LINE, FIVE_FACTS, IN_A_CHAT, FALL = 86, 85, 70, 79, 7
# Written without the generator; the second file knows its kinds of facts, but not its wording.
WRITTEN_BY_HAND = {"hand_written.json": 42, "hand_written_topics.json": 47}
FOLDER = embedded_path("quire-mini")


@pytest.fixture(scope="module")
def mini() -> LLM:
    return LLM("quire-mini", kv_cache_memory="128MiB", use_tqdm=False)


@pytest.fixture(scope="module")
def five_facts(mini) -> float:
    """Return how often it finds one of five facts."""
    questions = held_out_questions(5, 100)
    return score(answers(mini, questions), questions).exact_match


def test_it_answers_what_a_short_passage_says(mini):
    questions = held_out_questions(2, 100)
    assert score(answers(mini, questions), questions).exact_match >= TWO_FACTS


@pytest.mark.slow
def test_it_finds_one_of_five_facts(five_facts):
    assert five_facts >= FIVE_FACTS


@pytest.mark.slow
def test_it_answers_where_passage_and_question_stand_on_one_line(mini):
    """Prompts as in the papers: "Context: ... Question: ... Answer:" on one line."""
    questions = held_out_questions(2, 100)
    assert score(answers(mini, questions, separator=" "), questions).exact_match >= ON_ONE_LINE


def test_it_answers_in_a_chat_too(mini):
    questions = held_out_questions(2, 60)
    assert score(chat_answers(mini, questions), questions).exact_match >= IN_A_CHAT


@pytest.mark.parametrize("num_facts", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_without_the_passage_it_does_not_know(mini, num_facts):
    questions = held_out_questions(num_facts, 100)
    assert score(answers(mini, questions, with_passage=False), questions).exact_match < 15


@pytest.mark.parametrize(("name", "floor"), quick([*WRITTEN_BY_HAND.items()][:1], WRITTEN_BY_HAND.items()))
def test_it_answers_passages_written_by_hand(mini, name, floor):
    questions = hand_written_questions(Path(__file__).with_name(name))
    assert len(questions) == 40
    assert score(answers(mini, questions), questions).exact_match >= floor


@pytest.mark.slow
def test_a_quarter_of_its_layers_is_missed(five_facts, tmp_path):
    first, last = most_alike_quarter(FOLDER, held_out_questions(2, 50, seed=1))
    assert last - first == 4
    without_layers(FOLDER, first, last, tmp_path)
    questions = held_out_questions(5, 100)
    pruned = LLM(str(tmp_path), kv_cache_memory="128MiB", use_tqdm=False)
    assert score(answers(pruned, questions), questions).exact_match <= five_facts - FALL


def test_it_knows_its_facts(mini):
    prompts = ["Question: What is the capital of France?\nAnswer:", "Question: What do bees make?\nAnswer:"]
    found = mini.generate(prompts, SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
    assert [output.outputs[0].text.strip() for output in found] == ["Paris", "honey"]
    assert all(output.outputs[0].finish_reason == "stop" for output in found)


def test_transformers_loads_it_unchanged_and_says_the_same():
    reference = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    llm = LLM("quire-mini", dtype="float32", kv_cache_memory="64MiB", use_tqdm=False)
    for question in held_out_questions(5, 5, seed=2):
        inputs = tokenizer(prompt_of(question), return_tensors="pt")
        expected = reference.generate(**inputs, max_new_tokens=24)[0, inputs["input_ids"].shape[1] :].tolist()
        made = llm.generate(prompt_of(question), use_tqdm=False)[0]
        assert made.prompt_token_ids == inputs["input_ids"][0].tolist()
        assert made.outputs[0].token_ids == expected
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert llm.tokenizer.apply_chat_template(messages) == tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
