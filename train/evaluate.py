"""What the embedded models can do and what they can't, measured through the engine.

The passages come from the generator with the names that training never sees; see `words.is_held_out`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.scores import ReadingScores, score
from quire import LLM, SamplingParams
from quire.progressive.questions import ReadingQuestion, prompt_of, squad_questions
from train import tables
from train.questions import ask_once, held_out_questions
from train.small_talk import opening
from train.world import SCENES
from train.world.accounts import AccountMaker

Questions = list[ReadingQuestion]
Answering = Callable[[LLM, Sequence[ReadingQuestion]], list[str]]
_GREEDY = SamplingParams(temperature=0, max_tokens=24, stop=("\n",))


def account_questions(count: int, seed: int = 0) -> Questions:
    """One question each about held-out passages that are told in one wording and asked for in another."""
    return ask_once(AccountMaker(held_out=True).draw, Random(f"accounts/{seed}"), count)


def hand_written_questions(path: Path) -> Questions:
    return [ReadingQuestion(q["passage"], q["question"], (q["answer"],)) for q in json.loads(path.read_text())]


def answers(
    llm: LLM, questions: Sequence[ReadingQuestion], *, with_passage: bool = True, separator: str = "\n"
) -> list[str]:
    """What the model says; `separator` stands between passage, question and "Answer:"."""
    prompts = [prompt_of(question, with_passage).replace("\n", separator) for question in questions]
    return [output.outputs[0].text for output in llm.generate(prompts, _GREEDY, use_tqdm=False)]


def chat_answers(llm: LLM, questions: Sequence[ReadingQuestion]) -> list[str]:
    """The same questions as a user's message."""
    messages = [[{"role": "user", "content": prompt_of(q).removesuffix("\nAnswer:")}] for q in questions]
    return [output.outputs[0].text for output in llm.chat(messages, _GREEDY, use_tqdm=False)]


SMALL_TALK = tables.sentences("openings")["openings"]
"""Twenty things that a user may say, written by hand."""


def small_talk_answers(llm: LLM, said: Sequence[str]) -> list[str]:
    messages = [[{"role": "user", "content": text}] for text in said]
    params = SamplingParams(temperature=0, max_tokens=64)
    return [output.outputs[0].text.strip() for output in llm.chat(messages, params, use_tqdm=False)]


def small_talk_questions(count: int, seed: int = 0) -> Questions:
    """Openings of the generator with all replies that fit them."""
    rng = Random(f"small talk/{seed}")
    return [ReadingQuestion("", *opening(rng)) for _ in range(count)]


def most_alike_quarter(folder: Path, questions: Sequence[ReadingQuestion]) -> tuple[int, int]:
    """The contiguous quarter of the layers, [first, last), that changes its input least.

    Measured as the angle between a block's input and output at each prompt's last token (Gromov et al., 2024, "The
    unreasonable ineffectiveness of the deeper layers", eq. 7).
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    num_layers = model.config.num_hidden_layers
    width = num_layers // 4
    angles = torch.zeros(num_layers - width + 1)
    for question in questions:
        inputs = tokenizer(prompt_of(question), return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs, output_hidden_states=True).hidden_states
        last = torch.stack([state[0, -1] for state in states])  # [num_layers + 1, width]; the last one is normed
        cosines = torch.cosine_similarity(last[: num_layers - width + 1], last[width:], dim=-1)
        angles += torch.arccos(cosines.clamp(-1, 1)) / torch.pi
    first = int(angles[:-1].argmin())  # the block that ends in the final norm is not comparable
    return first, first + width


def without_layers(folder: Path, first: int, last: int, target: Path) -> None:
    """A copy of a Llama checkpoint without the layers [first, last)."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    kept = [i for i in range(config["num_hidden_layers"]) if not first <= i < last]
    weights = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        parts = name.split(".")
        if parts[1] == "layers":
            if int(parts[2]) not in kept:
                continue
            parts[2] = str(kept.index(int(parts[2])))
        weights[".".join(parts)] = tensor
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    config["num_hidden_layers"] = len(kept)
    (target / "config.json").write_text(json.dumps(config))


def load_model(folder: Path) -> LLM:
    return LLM(str(folder), kv_cache_memory="256MiB", max_num_seqs=32, use_tqdm=False)


def evaluate_reading(
    folder: Path, hand_written: Mapping[str, Path], squad: Path | None, count: int
) -> dict[str, ReadingScores]:
    """Exact match and F1, by test.

    Args:
        folder: the model's.
        hand_written: files of passages and questions that people wrote, by the name of the test.
        squad: real text, in SQuAD v1.1's form.
        count: questions of each test that the generator makes.
    """
    found: dict[str, ReadingScores] = {}

    def measure(name: str, questions: Questions, answer: Answering = answers) -> None:
        found[name] = score(answer(llm, questions), questions)

    llm = load_model(folder)
    facts = {num_facts: held_out_questions(num_facts, count) for num_facts in (2, 5)}
    for num_facts, questions in facts.items():
        measure(f"{num_facts} facts", questions)
        measure(f"{num_facts} facts, on one line", questions, partial(answers, separator=" "))
        measure(f"{num_facts} facts, as a chat", questions, chat_answers)
        measure(f"{num_facts} facts, passage taken away", questions, partial(answers, with_passage=False))
    measure("a scene", held_out_questions(2, count, frames=SCENES))
    measure("accounts, in other words", account_questions(count))
    for name, path in hand_written.items():
        measure(name, hand_written_questions(path))
    if squad is not None:
        measure("SQuAD subset", squad_questions(squad))
    first, last = most_alike_quarter(folder, held_out_questions(2, 50, seed=1))
    with tempfile.TemporaryDirectory() as pruned:
        without_layers(folder, first, last, Path(pruned))
        llm = load_model(Path(pruned))
        for num_facts, questions in facts.items():
            measure(f"{num_facts} facts, without layers {first} to {last - 1}", questions)
    return found


def evaluate_each_other(mini: Path, chat: Path, count: int) -> dict[str, ReadingScores]:
    """Each model at its own work and at the other's."""
    found = {}
    reading, talk = held_out_questions(2, count), small_talk_questions(count)
    for name, folder in (("quire-mini", mini), ("quire-chat", chat)):
        llm = load_model(folder)
        found[f"{name}: 2 facts"] = score(answers(llm, reading), reading)
        found[f"{name}: small talk"] = score(small_talk_answers(llm, [q.question for q in talk]), talk)
    return found


def show(scores: dict[str, ReadingScores]) -> str:
    lines = [f"{'test':<40} {'questions':>9} {'EM':>6} {'F1':>6}"]
    lines += [f"{name:<40} {s.questions:>9} {s.exact_match:>6.1f} {s.f1:>6.1f}" for name, s in scores.items()]
    return "\n".join(lines)


def as_json(scores: dict[str, ReadingScores]) -> str:
    return json.dumps({name: asdict(s) for name, s in scores.items()}, indent=2) + "\n"
