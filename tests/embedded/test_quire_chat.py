"""quire-chat makes small talk, and each embedded model is best at its own task."""

from __future__ import annotations

from pathlib import Path

import pytest
from train.evaluate import SMALL_TALK, answers, held_out_questions, small_talk_answers, small_talk_questions

from benchmarks.scores import score
from quire import LLM
from quire.loading.source import EMBEDDED_MODELS, embedded_path


@pytest.fixture(scope="module")
def chat() -> LLM:
    return LLM("quire-chat", kv_cache_memory="64MiB", use_tqdm=False)


@pytest.fixture(scope="module")
def mini() -> LLM:
    return LLM("quire-mini", kv_cache_memory="64MiB", use_tqdm=False)


def test_it_answers_in_full_sentences(chat):
    for reply in small_talk_answers(chat, SMALL_TALK):
        assert reply[0].isupper(), reply
        assert reply[-1] in ".!?", reply
        assert len(reply.split()) >= 3, reply


def test_each_model_is_better_at_its_own_work(chat, mini):
    reading, talk = held_out_questions(2, 40), small_talk_questions(40)

    def reads(llm: LLM) -> float:
        return score(answers(llm, reading), reading).exact_match

    def talks(llm: LLM) -> float:
        return score(small_talk_answers(llm, [q.question for q in talk]), talk).f1

    assert reads(mini) > reads(chat) + 50
    assert talks(chat) > talks(mini) + 30


def test_the_embedded_models_are_small_and_carry_a_card():
    sizes = []
    for name in EMBEDDED_MODELS:
        folder = embedded_path(name)
        files = {file.name: file.stat().st_size for file in folder.iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= files.keys()
        sizes.append(sum(files.values()))
    assert sum(sizes) < 60e6
    assert all(Path(embedded_path(name), "README.md").read_text().strip() for name in EMBEDDED_MODELS)
