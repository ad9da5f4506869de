"""`python -m train fit | export | evaluate | questions | talk`: see README.md beside this file."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from train.recipes import RECIPES

_HAND_WRITTEN = {
    "written by hand": Path("tests/embedded/hand_written.json"),
    "written by hand, on its topics": Path("tests/embedded/hand_written_topics.json"),
    "written by hand, for development": Path("train/development.json"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train", description="Make the models that ship with Quire.")
    commands = parser.add_subparsers(dest="command", required=True)

    fit = commands.add_parser("fit", help="train; goes on from the folder's checkpoint where there is one")
    fit.add_argument("model", choices=RECIPES)
    fit.add_argument("--folder", type=Path, required=True, help="where checkpoints and the log lie")
    fit.add_argument("--seed", type=int, default=1)
    fit.add_argument("--tokens", type=int, help="train on so many tokens; by default the recipe's")
    fit.add_argument("--learning-rate", type=float, help="the highest; by default the recipe's")
    fit.add_argument("--workers", type=int, default=1, help="processes of one thread each (CPU)")
    fit.add_argument("--start-from", type=Path, help="an exported model whose weights and tokenizer to begin with")
    fit.set_defaults(run=_fit)

    export = commands.add_parser("export", help="write a trained model in the Hugging Face format")
    export.add_argument("model", choices=RECIPES)
    export.add_argument("--folder", type=Path, required=True, help="of the training")
    export.add_argument("--to", type=Path, required=True, help="the model's folder")
    export.add_argument("--halfway-from", type=Path, help="an exported model to take the mean with: less is forgotten")
    export.set_defaults(run=_export)

    evaluate = commands.add_parser("evaluate", help="measure quire-mini's reading, and each model at the other's work")
    evaluate.add_argument("--mini", type=Path, default=Path("src/quire/embedded/quire-mini"))
    evaluate.add_argument("--chat", type=Path, default=Path("src/quire/embedded/quire-chat"))
    evaluate.add_argument("--squad", type=Path, help="a file in SQuAD v1.1's form, to be measured too")
    evaluate.add_argument("--questions", type=int, default=500, help="generated passages a test")
    evaluate.add_argument("--json", type=Path, help="write the figures there, too")
    evaluate.set_defaults(run=_evaluate)

    questions = commands.add_parser("questions", help="write generated questions as a file in SQuAD v1.1's form")
    questions.add_argument("--to", type=Path, required=True, help="the file")
    questions.add_argument("--facts", type=int, default=5, help="that a passage tells")
    questions.add_argument("--passages", type=int, default=2000)
    questions.add_argument("--held-out", action="store_true", help="names that no training has; one question each")
    questions.add_argument("--seed", type=int, default=0)
    questions.set_defaults(run=_questions)

    talk = commands.add_parser("talk", help="quire-chat's replies to the twenty openings of the model card")
    talk.add_argument("--chat", type=Path, default=Path("src/quire/embedded/quire-chat"))
    talk.set_defaults(run=_talk)

    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


def _fit(arguments: argparse.Namespace) -> int:
    recipe = RECIPES[arguments.model]
    if arguments.learning_rate is not None:
        recipe = replace(recipe, learning_rate=arguments.learning_rate)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if "RANK" not in os.environ:  # not a worker
        file = arguments.folder / "tokenizer.json"
        if not file.exists() and arguments.start_from is not None:
            shutil.copy(arguments.start_from / "tokenizer.json", file)
        elif not file.exists():
            from train.tokenizer import train_tokenizer

            train_tokenizer(recipe, seed=arguments.seed).save(str(file))
        if arguments.workers > 1:
            launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={arguments.workers}", "-m", "train"]
            own = os.environ | {"OMP_NUM_THREADS": "1"}
            return subprocess.run([sys.executable, "-m", *launch, *sys.argv[1:]], env=own, check=False).returncode
    from train.fit import fit

    tokens = arguments.tokens or recipe.total_tokens
    fit(recipe, arguments.folder, seed=arguments.seed, total_tokens=tokens, start_from=arguments.start_from)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from train.export import export

    export(RECIPES[arguments.model], arguments.folder, arguments.to, arguments.halfway_from)
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from train.evaluate import as_json, evaluate_each_other, evaluate_reading, show

    scores = evaluate_reading(arguments.mini, _HAND_WRITTEN, arguments.squad, arguments.questions)
    scores |= evaluate_each_other(arguments.mini, arguments.chat, min(arguments.questions, 200))
    print(show(scores))
    if arguments.json:
        arguments.json.write_text(as_json(scores))
    return 0


def _questions(arguments: argparse.Namespace) -> int:
    from train.questions import held_out_questions, training_questions, write_squad

    draw = held_out_questions if arguments.held_out else training_questions
    questions = draw(arguments.facts, arguments.passages, arguments.seed)
    write_squad(questions, arguments.to)
    print(f"{arguments.to}: {len(questions):,} questions about {arguments.passages:,} passages")
    return 0


def _talk(arguments: argparse.Namespace) -> int:
    from quire import LLM
    from train.evaluate import SMALL_TALK, small_talk_answers

    llm = LLM(str(arguments.chat), kv_cache_memory="64MiB", use_tqdm=False)
    for said, reply in zip(SMALL_TALK, small_talk_answers(llm, SMALL_TALK), strict=True):
        print(f"> {said}\n  {reply}")
    return 0


if __name__ == "__main__":
    main()
