"""How well each stage of a model answers: bare, with a linear map in the gap, healed; whole, and the control."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from quire.evaluate.paired import Paired, compare_paired
from quire.evaluate.reading import ReadingQuestion, prompt_of, score_each
from quire.loading.stage_manifest import StageManifest
from quire.progressive.calibration_text import padding_id, up_to_end
from quire.progressive.linear_map import GapMap
from quire.progressive.plans import gap_of
from quire.progressive.reference import put_back, remove_layers
from quire.progressive.stage_plan import StagePlan
from quire.text.tokenizer import Tokenizer

PAPER = {1: (48.22, 54.26), 2: (56.22, 62.02), 3: (55.67, 66.11)}
"""Exact match and F1 by stage in Park et al., "ProgressiveServe", table 1: Llama-2-7B on TriviaQA, 3 the original."""

_BATCH_TOKENS = 4096  # of prompts, padding counted


@dataclass(frozen=True)
class Variant:
    """A way to run a stage."""

    stage: int
    kind: str  #: bare, linear map, healed, map + healed; of the last stage: full, control
    adapter: Path | None = None  #: a folder in PEFT's format
    linear_map: Path | None = None

    @property
    def name(self) -> str:
        return self.kind if self.kind in ("full", "control") else f"stage {self.stage}, {self.kind}"


@dataclass(frozen=True)
class VariantAnswers:
    """What a variant answered, and what that is worth; one entry a question."""

    variant: Variant
    predictions: tuple[str, ...]
    exact: tuple[float, ...]  #: 0 or 1
    f1s: tuple[float, ...]  #: between 0 and 1

    @property
    def exact_match(self) -> float:
        """In percent."""
        return 100 * sum(self.exact) / len(self.exact)

    @property
    def f1(self) -> float:
        """In percent."""
        return 100 * sum(self.f1s) / len(self.f1s)


def variants_of(
    plan: StagePlan, adapters: Mapping[int, Path], maps: Mapping[int, Path], control: Path | None = None
) -> list[Variant]:
    """All there is to measure, stage by stage.

    Args:
        adapters, maps: by stage; the last stage has neither.
        control: an adapter for the whole model, trained on what the others were trained on. It tells what healing
            teaches beside healing, such as how answers look.

    Raises:
        ValueError: there is no such stage.
    """
    last = plan.num_stages
    for what, stages in (("adapter", adapters), ("map", maps)):
        for stage in stages:
            if not 1 <= stage < last:
                raise ValueError(f"stage {stage} has no {what}: of {last} stages, 1 to {last - 1} lack layers")
    found = []
    for stage in range(1, last):
        found.append(Variant(stage, "bare"))
        if stage in maps:
            found.append(Variant(stage, "linear map", linear_map=maps[stage]))
        if stage in adapters:
            found.append(Variant(stage, "healed", adapter=adapters[stage]))
    found.append(Variant(last, "full"))
    if control is not None:
        found.append(Variant(last, "control", adapter=control))
    return found


def variants_of_pack(manifest: StageManifest, control: Path | None = None) -> tuple[StagePlan, list[Variant]]:
    """As `variants_of`, by a pack's manifest. A stage with both a map and an adapter is measured with both at once,
    too, as it is served."""
    plan = StagePlan(manifest.num_layers, tuple(group.layers for group in manifest.groups))
    folder = manifest.directory
    adapters = {stage.number: folder / stage.adapter for stage in manifest.stages if stage.adapter}
    maps = {stage.number: folder / stage.linear_map for stage in manifest.stages if stage.linear_map}
    found = variants_of(plan, adapters, maps, control)
    for stage in sorted(adapters.keys() & maps.keys(), reverse=True):
        at = max(i for i, variant in enumerate(found) if variant.stage == stage) + 1
        found.insert(at, Variant(stage, "map + healed", adapters[stage], maps[stage]))
    return plan, found


@contextmanager
def staged(model: Any, plan: StagePlan, variant: Variant) -> Iterator[None]:
    """Have the model be as a variant runs it: layers out, map in, adapter on. Afterwards it is whole again.

    Raises:
        ValueError: the adapter or the map does not fit the stage.
    """
    out = plan.layers_out(variant.stage)
    linear_map = None
    if variant.linear_map is not None:
        gap_of(plan, variant.stage)  # a map stands in for one gap
        linear_map = GapMap.load(variant.linear_map, model.config.hidden_size)
    if variant.adapter is not None:
        _check_adapter(variant.adapter, plan, variant.stage)
    with ExitStack() as stack:
        removed = remove_layers(model, out, linear_map)
        stack.callback(put_back, model, removed)
        if variant.adapter is not None:
            stack.enter_context(_adapted(model, variant.adapter))
        yield


@contextmanager
def _adapted(model: Any, folder: Path) -> Iterator[None]:
    """PEFT puts its layers into the model itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of transformers, about what PEFT does with it
            import peft

            wrapped = peft.PeftModel.from_pretrained(model, str(folder)).eval()
    except ImportError:
        raise ValueError("adapters need peft: pip install 'quire[heal]'") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"the adapter in {folder} cannot be put on this model: {error}") from None
    try:
        yield
    finally:
        wrapped.unload()
        if hasattr(model, "peft_config"):
            del model.peft_config  # else the next adapter is taken for a second one


def _check_adapter(folder: Path, plan: StagePlan, stage: int) -> None:
    """Raise ValueError unless an adapter is for the layers of a stage, each and no other."""
    file = folder / "adapter_model.safetensors"
    try:
        with safe_open(file, framework="pt") as handle:
            names = list(handle.keys())
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} cannot be read ({error}); an adapter is a folder in PEFT's format") from None
    layers = {int(match[1]) for name in names if (match := re.search(r"\.(?:layers|h)\.(\d+)\.", name))}
    expected = set(plan.layers_in_place(stage))
    if layers != expected:
        more, less = sorted(layers - expected), sorted(expected - layers)
        what = [f"it has the layers {more}, which are out there"] if more else []
        what += [f"it lacks the layers {less}"] if less else []
        raise ValueError(f"{folder} is no adapter for stage {stage} of this plan: {', and '.join(what)}")


def evaluate_stages(
    model: Any,
    tokenizer: Tokenizer,
    plan: StagePlan,
    variants: Sequence[Variant],
    questions: Sequence[ReadingQuestion],
    *,
    max_new_tokens: int = 10,
    advance: Callable[[int], None] = lambda num_questions: None,
) -> Iterator[VariantAnswers]:
    """Answer all questions by each variant in turn: zero-shot and greedy, prompts as `evaluate.reading` words them.

    Args:
        model: as `load_reference` gives it, whole; so it is again in the end.
        advance: told how many more questions were answered, batch by batch.

    Raises:
        ValueError: there are no questions, one is too long for the model, or an adapter or a map does not fit.
    """
    prompts = tokenizer.encode_batch([prompt_of(question) for question in questions])
    _check_prompts(prompts, model, max_new_tokens)
    for variant in variants:
        with staged(model, plan, variant):
            answers = answer(model, tokenizer, prompts, max_new_tokens, advance)
        each = score_each(answers, questions)
        yield VariantAnswers(variant, tuple(answers), tuple(em for em, _ in each), tuple(f for _, f in each))


def answer(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    advance: Callable[[int], None] = lambda num_prompts: None,
) -> list[str]:
    """What a model says after each prompt, greedily."""
    answers = [""] * len(prompts)
    padding = padding_id(model, tokenizer)
    for batch in _by_length(prompts):
        longest = len(prompts[batch[-1]])
        ids = torch.full((len(batch), longest), padding)
        mask = torch.zeros_like(ids)
        for row, index in enumerate(batch):  # padding to the left, since what is generated stands to the right
            ids[row, longest - len(prompts[index]) :] = torch.tensor(prompts[index])
            mask[row, longest - len(prompts[index]) :] = 1
        with torch.inference_mode():
            said = model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                pad_token_id=padding,
            )
        for row, index in zip(said.tolist(), batch, strict=True):
            tokens = up_to_end(row, longest, model)[longest:]
            answers[index] = tokenizer.decode(tokens)
        advance(len(batch))
    return answers


def _by_length(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indices in batches of prompts of similar length, the longest last in each."""
    batch: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda index: len(prompts[index])):
        if batch and (len(batch) + 1) * len(prompts[index]) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _check_prompts(prompts: Sequence[Sequence[int]], model: Any, max_new_tokens: int) -> None:
    if not prompts:
        raise ValueError("there are no questions to answer")
    longest = max(range(len(prompts)), key=lambda index: len(prompts[index]))
    num_tokens = len(prompts[longest]) + max_new_tokens
    limit = getattr(model.config, "max_position_embeddings", None) or num_tokens
    if num_tokens > limit:
        raise ValueError(
            f"question {longest + 1} and its answer have {num_tokens} tokens, and the model takes {limit}; leave it out"
        )


@dataclass(frozen=True)
class VariantComparison:
    """Two variants, compared question by question."""

    first: str
    second: str
    result: Paired


def compare(answered: Sequence[VariantAnswers]) -> list[VariantComparison]:
    """What each remedy does to its stage, what each stage does to the one before, and what the control adds.

    Stages are compared as they are served: healed where there is an adapter, else with a map, else bare.
    """
    by_stage: dict[int, list[VariantAnswers]] = {}
    for each in answered:
        by_stage.setdefault(each.variant.stage, []).append(each)
    pairs = [(stage[0], other) for stage in by_stage.values() for other in stage[1:]]
    served = [stage[0] if stage[0].variant.kind == "full" else stage[-1] for stage in by_stage.values()]
    pairs += list(pairwise(served))
    return [VariantComparison(a.variant.name, b.variant.name, compare_paired(a.exact, b.exact)) for a, b in pairs]


def won_back(each: VariantAnswers, answered: Sequence[VariantAnswers]) -> float | None:
    """The share of the exact matches that its bare stage lost which a variant has again; None where none were lost."""
    bare = next((a for a in answered if a.variant.stage == each.variant.stage and a.variant.kind == "bare"), None)
    full = next((a for a in answered if a.variant.kind == "full"), None)
    if bare is None or full is None or each is bare or full.exact_match <= bare.exact_match:
        return None
    return (each.exact_match - bare.exact_match) / (full.exact_match - bare.exact_match)
