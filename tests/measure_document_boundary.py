"""What the end of a document on a block boundary costs, by giving up its last partial block or by padding it.

    python tests/measure_document_boundary.py quality --model quire-mini --questions squad-v1.1-subset.json [--most 240]
    python tests/measure_document_boundary.py time --model random:qwen2.5-0.5b [--runs 9]

Quality: questions about passages, with the passage as the document; the mean log-probability of the right answer's
tokens, exact match and F1 of the greedy answer, and how many answers are others than with the partial block given up.
Time: a step that computes a short question behind a context whose KV is there, and 0 to 15 tokens more. By hand; no
test runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from quire import LLM, SamplingParams
from quire.evaluate.metrics import exact_match, f1
from quire.evaluate.reading import ReadingQuestion, prompt_of, squad_questions
from quire.prompt import Prompt
from quire.text.document_boundary import join_text

BLOCK = 16
BASE = "partial block given up"


def read_questions(path: Path) -> list[ReadingQuestion]:
    """A file in SQuAD's form, or a list of {passage, question, answer or answers} as in `train/development.json`."""
    found = json.loads(path.read_text())
    if isinstance(found, dict):
        return squad_questions(path)
    return [
        ReadingQuestion(each["passage"], each["question"], tuple(each.get("answers") or [each["answer"]]))
        for each in found
    ]


def prompts_of(tokenizer: Any, question: ReadingQuestion) -> dict[str, list[int]]:
    """The prompt with each ending of its document, by name."""
    head, document = "Context: ", " ".join(question.passage.split())
    text = prompt_of(question)
    rest = text.removeprefix(head + document)
    assert head + document + rest == text
    joined = join_text(tokenizer, [document], rest, head=head)
    (end,) = joined.documents
    ids = joined.token_ids
    pads = {
        "newlines": tokenizer.encode("\n", add_special_tokens=False),
        "spaces": tokenizer.encode("  ", add_special_tokens=False)[:1],
        "full stops": tokenizer.encode(".", add_special_tokens=False),
        "end tokens": [tokenizer.eos_token_id],
    }
    assert all(len(pad) == 1 for pad in pads.values()), pads
    padded = {f"padded with {name}": ids[:end] + pad * (-end % BLOCK) + ids[end:] for name, pad in pads.items()}
    with_head = tokenizer.encode(head, add_special_tokens=False) + tokenizer.encode_plain(document) + ids[end:]
    return {
        "in one piece": tokenizer.encode(text),
        BASE: ids,
        "the blank with the head": with_head,
        **padded,
    }


def measure_quality(args: argparse.Namespace) -> dict[str, Any]:
    llm = LLM(args.model, dtype="float32", device="cpu", use_tqdm=False, block_size=BLOCK)
    tokenizer, longest = llm.tokenizer, llm.engine.max_model_len - 64
    questions = [q for path in args.questions for q in read_questions(path)]
    questions = [q for q in questions if len(tokenizer.encode(prompt_of(q))) < longest]
    random.Random(0).shuffle(questions)
    questions = questions[: args.most]
    cases = [prompts_of(tokenizer, question) for question in questions]
    scored = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    greedy = SamplingParams(max_tokens=24, temperature=0, stop="\n")
    results: dict[str, dict[str, float]] = {}
    kept: dict[str, tuple[list[str], list[float]]] = {}
    for way in cases[0]:
        if args.ways is not None and args.ways not in way and way != BASE:
            continue
        prompts = [case[way] for case in cases]
        texts = [out.outputs[0].text.strip() for out in llm.generate([_ids(p) for p in prompts], greedy, False)]
        answers = [tokenizer.encode(" " + q.answers[0], add_special_tokens=False) for q in questions]
        whole = llm.generate([_ids(p + a) for p, a in zip(prompts, answers, strict=True)], scored, False)
        logprobs = []
        for out, prompt, answer in zip(whole, prompts, answers, strict=True):
            assert out.prompt_logprobs is not None
            entries = [out.prompt_logprobs[len(prompt) + at] for at in range(len(answer))]
            logprobs.append(
                statistics.fmean(entry[t].logprob for entry, t in zip(entries, answer, strict=True) if entry)
            )
        kept[way] = texts, logprobs
    base_texts, base_logprobs = kept[BASE]
    print(f"{args.model}, {len(questions)} questions")
    print(f"{'':32}{'logprob a token':>16}{'difference':>18}{'EM %':>8}{'F1 %':>8}{'other answers %':>17}")
    for way, (texts, logprobs) in kept.items():
        gaps = [a - b for a, b in zip(logprobs, base_logprobs, strict=True)]
        error = statistics.stdev(gaps) / len(gaps) ** 0.5
        result = results[way] = {
            "logprob": statistics.fmean(logprobs),
            "difference": statistics.fmean(gaps),
            "standard_error": error,
            "exact_match": 100 * statistics.fmean(map(exact_match, texts, (q.answers for q in questions))),
            "f1": 100 * statistics.fmean(map(f1, texts, (q.answers for q in questions))),
            "changed": 100 * statistics.fmean(a != b for a, b in zip(texts, base_texts, strict=True)),
        }
        print(
            f"{way:32}{result['logprob']:16.3f}{result['difference']:+10.3f} ±{error:5.3f} "
            f"{result['exact_match']:8.1f}{result['f1']:8.1f}{result['changed']:17.1f}"
        )
    return {"model": args.model, "questions": len(questions), "ways": results}


def measure_time(args: argparse.Namespace) -> dict[str, Any]:
    llm = LLM(
        args.model, use_tqdm=False, block_size=BLOCK, max_model_len=args.context + 64, skip_tokenizer_init=True,
        kv_cache_memory="512MiB",
    )  # fmt: skip
    engine, draw = llm.engine, random.Random(0)
    context = [draw.randrange(5, 250) for _ in range(args.context // BLOCK * BLOCK)]
    more = [0, 1, 2, 4, 6, 8, 10, 12, 15]
    seconds: dict[int, list[float]] = {count: [] for count in more}
    for run in range(args.runs + 1):  # the first computes the context, and warms up
        for count in more:
            ids = context + [draw.randrange(5, 250) for _ in range(args.question + count)]
            started = time.perf_counter()
            state = engine.add_request(_prompt(ids), SamplingParams(max_tokens=1, temperature=0, detokenize=False))
            while not state.is_finished:
                engine.step()
            if run:
                assert state.request.num_cached_tokens == len(context)
                seconds[count].append(time.perf_counter() - started)
    medians, least = ({n: 1000 * of(found) for n, found in seconds.items()} for of in (statistics.median, min))
    extra, of_least = (statistics.fmean(figures[n] - figures[0] for n in more) for figures in (medians, least))
    print(f"{args.model}, {args.question} tokens behind {len(context)}: ms, of {args.runs} runs")
    print("more tokens " + "".join(f"{count:8}" for count in more))
    print("median      " + "".join(f"{medians[count]:8.1f}" for count in more))
    print("least       " + "".join(f"{least[count]:8.1f}" for count in more))
    print(f"on the mean over 0 to 15 tokens: median {extra:+.2f} ms, {100 * extra / medians[0]:+.1f} %; ", end="")
    print(f"least {of_least:+.2f} ms, {100 * of_least / least[0]:+.1f} %")
    return {
        "model": args.model,
        "context": len(context),
        "question": args.question,
        "ms": medians,
        "mean_extra_ms": extra,
    }


def _ids(ids: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": ids}


def _prompt(ids: list[int]) -> Prompt:
    return Prompt(token_ids=ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("quality", "time"))
    parser.add_argument("--model", default="quire-mini")
    parser.add_argument("--questions", type=Path, nargs="+", default=[])
    parser.add_argument("--most", type=int, default=240)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--question", type=int, default=16, help="tokens")
    parser.add_argument("--ways", help="only those whose name contains this, and the one that all are compared with")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = measure_quality(args) if args.what == "quality" else measure_time(args)
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
