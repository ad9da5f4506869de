"""Cost of quantized weights, or of KV in 8 bits, in quality, against the same model without.

Measures perplexity of texts, exact match of short answers, and the cosine between both models' logits. A model with
random weights has only the cosine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from benchmarks.scores import score
from benchmarks.script import start
from quire.attention.interface import AttentionBatch, KVLayout
from quire.bench.report import Column, Report
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.models.base import Attend
from quire.progressive.questions import ReadingQuestion, prompt_of, read_questions
from quire.runner.kv_cache import KVCache
from quire.settings import Settings, names, setting

if TYPE_CHECKING:
    import torch

    from quire.llm import LLM
    from quire.models.base import CausalLM

#: How much perplexity may rise, in percent, and exact match may fall, in points.
TARGETS = {"int8": (1.0, 1.0), "int4": (6.0, 3.0), "kv-int8": (1.0, 1.0)}
#: The least mean cosine of a random model's logits.
COSINE_TARGETS = {"int8": 0.999}

_ROWS_AT_ONCE = 64  # of logits, which are wide
_BLOCK_SIZE = 16
_ANSWER_TOKENS = 10
_KEPT, _MISSED = "kept", "missed"


@dataclass(frozen=True)
class QualitySettings(Settings):
    """Options of the quality benchmark."""

    quantization: tuple[str, ...] = setting(
        "int8,int4",
        "Quantizations of the linear layers, or of the KV cache, each beside the model itself.",
        read=names,
        metavar="int8|int4|kv-int8[,...]",
    )
    text: Path | None = setting(
        None,
        "Text whose perplexity counts: plain, or questions; by default those of --questions with their answers, or "
        "what the model writes itself.",
        metavar="FILE",
    )
    questions: Path | None = setting(
        None, "In SQuAD's form (.json), or open ones with lists of answers (.jsonl).", metavar="FILE"
    )
    num_questions: int = setting(400, "The first so many.", at_least=1)
    num_texts: int = setting(64, "At most; evenly spread over the file. Of a random model 4.", at_least=1)
    num_tokens: int = setting(256, "Most tokens of a text.", at_least=16)
    start: str = setting("Context:", "Begin of generated texts.", metavar="TEXT")


@dataclass
class _Texts:
    """Loss and logits of a model over the texts."""

    loss: float = 0.0  # nats, of all tokens but each text's first
    num_tokens: int = 0
    hidden: list[torch.Tensor] = field(default_factory=list)  # of each text
    cosines: list[torch.Tensor] = field(default_factory=list)

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss / max(1, self.num_tokens))


def run(config: EngineConfig, settings: QualitySettings, json_path: Path | None = None) -> bool:
    """Measure and publish. Returns whether every target is kept."""
    if unknown := set(settings.quantization) - set(TARGETS):
        raise ValueError(f"quantization={', '.join(sorted(unknown))} is not one of {', '.join(TARGETS)}")
    questions = _read(settings.questions)[: settings.num_questions] if settings.questions else []
    report = Report("quality", "", _COLUMNS)
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    report.figures = measure(config, settings, questions, report)
    report.title = f"Quality of {config.model} with weights or KV of fewer bits"
    report.notes += _targets(report.figures)
    report.publish(json_path)
    return not any(target == _MISSED for figure in report.figures for target in figure["targets"].values())


def measure(
    config: EngineConfig, settings: QualitySettings, questions: Sequence[ReadingQuestion], report: Report
) -> list[dict[str, Any]]:
    """One figure for the model, and one per quantization. Raises ValueError if it cannot be quantized."""
    from quire.llm import LLM

    config = replace(config, device="cpu", quantization="none", kv_cache_dtype="auto")
    reference = LLM(**asdict(config))
    is_random = config.model.startswith("random:") or config.load_format == "random"
    texts = list(_texts(reference, settings, questions, is_random=is_random))
    known = _read_texts(_model(reference), texts)
    asked = [] if is_random else list(questions)
    figures = [_figure("none", reference, known, _exact_match(reference, asked), is_random)]
    for quantization in settings.quantization:
        option = "kv_cache_dtype" if quantization.startswith("kv-") else "quantization"
        llm = LLM(**asdict(config) | {option: quantization.removeprefix("kv-")})
        read = _read_texts(_model(llm), texts, _model(reference), known)
        figure = _figure(quantization, llm, read, _exact_match(llm, asked), is_random)
        figure |= _changes(figure, figures[0])
        figures.append(figure)
    report.more["num_texts"], report.more["num_tokens"] = len(texts), known.num_tokens
    return figures


def _model(llm: LLM) -> CausalLM:
    from quire.runner.model_runner import ModelRunner

    runner = llm.engine.runner
    assert isinstance(runner, ModelRunner)
    return runner.model


def _texts(
    llm: LLM, settings: QualitySettings, questions: Sequence[ReadingQuestion], *, is_random: bool
) -> Iterator[list[int]]:
    from quire.progressive.calibration_text import choose_texts, read_texts
    from quire.sampling_params import SamplingParams

    longest = min(settings.num_tokens, llm.engine.max_model_len)
    if is_random:
        import torch

        generator = torch.Generator(device="cpu").manual_seed(llm.config.seed)
        vocab_size = _model(llm).config.vocab_size
        for _ in range(min(settings.num_texts, 4)):
            yield torch.randint(vocab_size, (longest,), generator=generator).tolist()
        return
    if settings.text is not None:
        try:
            found = read_texts(settings.text, llm.tokenizer, longest)
        except OSError as error:
            raise ValueError(f"{settings.text} cannot be read: {error.strerror}") from None
        yield from (each for each in choose_texts(found, settings.num_texts) if len(each) > 1)
    elif questions:
        told = [f"{prompt_of(question)} {question.answers[0]}" for question in questions]
        found = [ids[-longest:] for ids in llm.tokenizer.encode_batch(told)]
        yield from choose_texts(found, settings.num_texts)
    else:
        params = [
            SamplingParams(temperature=1.0, top_k=-1, top_p=1.0, max_tokens=longest - 8, seed=seed)
            for seed in range(settings.num_texts)
        ]
        for output in llm.generate([settings.start] * len(params), params, use_tqdm=False):
            yield [*output.prompt_token_ids, *output.outputs[0].token_ids]


def _read_texts(
    model: CausalLM, texts: Sequence[Sequence[int]], reference: CausalLM | None = None, known: _Texts | None = None
) -> _Texts:
    import torch
    import torch.nn.functional as F

    read = _Texts()
    with torch.inference_mode():
        for i, text in enumerate(texts):
            ids = torch.tensor(text)
            hidden = model(ids, torch.arange(len(ids)), _attention(model, len(ids)))
            if reference is None:
                read.hidden.append(hidden)
            for start in range(0, len(ids), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                logits = model.compute_logits(hidden[rows]).float()
                following = ids[start + 1 : start + 1 + _ROWS_AT_ONCE]
                read.loss += F.cross_entropy(logits[: len(following)], following, reduction="sum").item()
                read.num_tokens += len(following)
                if reference is not None and known is not None:
                    theirs = reference.compute_logits(known.hidden[i][rows]).float()
                    read.cosines.append(F.cosine_similarity(logits, theirs, dim=1))
    return read


def _attention(model: CausalLM, num_tokens: int) -> Attend:
    """Return the engine's attention over one whole text."""
    from quire.assembly.runner import make_attention

    layout = KVLayout(model.attention_layers(), _BLOCK_SIZE)
    num_blocks = -(-num_tokens // _BLOCK_SIZE)
    attention = make_attention(KVCache(num_blocks, layout, model.kv_dtype).blocks, layout, model.dtype)
    tables, slots = np.arange(num_blocks, dtype=np.int32)[None], np.arange(num_tokens)
    attention.plan(AttentionBatch(np.array([0, num_tokens]), np.array([num_tokens]), tables, slots))
    return attention.attend


def _read(path: Path) -> list[ReadingQuestion]:
    try:
        return read_questions(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _exact_match(llm: LLM, questions: Sequence[ReadingQuestion]) -> float | None:
    from quire.sampling_params import SamplingParams

    if not questions:
        return None
    greedy = SamplingParams(temperature=0.0, max_tokens=_ANSWER_TOKENS)
    outputs = llm.generate([prompt_of(question) for question in questions], greedy, use_tqdm=False)
    return score([output.outputs[0].text for output in outputs], questions).exact_match


_COLUMNS = (
    Column("quantization", "weights"),
    Column("weight_bytes", "MiB", scale=2**-20, digits=1),
    Column("perplexity", "perplexity", digits=3),
    Column("perplexity_change", "change", digits=2, unit=" %", is_change=True),
    Column("exact_match", "exact match", digits=1),
    Column("exact_match_change", "points", digits=1, is_change=True),
    Column("cosine", "logits' cosine", digits=5),
    Column("least_cosine", "least", digits=5),
)


def _figure(quantization: str, llm: LLM, read: _Texts, exact_match: float | None, is_random: bool) -> dict[str, Any]:
    import torch

    figure: dict[str, Any] = {"quantization": quantization, "weight_bytes": _model(llm).weight_bytes(), "targets": {}}
    if not is_random:
        figure |= {"perplexity": read.perplexity, "exact_match": exact_match}
    if read.cosines:
        cosines = torch.cat(read.cosines)
        figure |= {"cosine": cosines.mean().item(), "least_cosine": cosines.min().item()}
    return figure


def _changes(figure: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    rise, fall = TARGETS[figure["quantization"]]
    changes: dict[str, Any] = {}
    targets = {}
    if "perplexity" in figure:
        changes["perplexity_change"] = 100 * (figure["perplexity"] / before["perplexity"] - 1)
        targets["perplexity"] = _KEPT if changes["perplexity_change"] <= rise else _MISSED
        if figure["exact_match"] is not None:
            changes["exact_match_change"] = figure["exact_match"] - before["exact_match"]
            targets["exact match"] = _KEPT if changes["exact_match_change"] >= -fall else _MISSED
    elif figure["quantization"] in COSINE_TARGETS:
        targets["cosine"] = _KEPT if figure["cosine"] >= COSINE_TARGETS[figure["quantization"]] else _MISSED
    return {**changes, "targets": targets}


def _targets(figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    for figure in figures:
        quantization = figure["quantization"]
        for what, target in figure["targets"].items():
            if what == "perplexity":
                limit = f"at most {TARGETS[quantization][0]:+.0f} %"
            elif what == "exact match":
                limit = f"at most -{TARGETS[quantization][1]:.0f} points"
            else:
                limit = f"at least {COSINE_TARGETS[quantization]}"
            yield f"{quantization}, {what} ({limit}): {target}"


@options(default_model="quire-mini", without=("quantization", "device"))
def main(settings: QualitySettings, engine: EngineConfig, json: Json = None) -> None:
    """Cost of quantized weights: perplexity, exact match of answers, distance of logits."""
    if not run(engine, settings, json):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
