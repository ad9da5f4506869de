"""Evaluate the stages of a model: bare, healed, the full model, and a control."""

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

from benchmarks.scores import Paired, compare_paired, score_each
from quire.loading.stage_manifest import StageManifest
from quire.progressive.healing.reference import decoder_layers, remove_layers
from quire.progressive.questions import ReadingQuestion, prompt_of
from quire.progressive.stage_plan import StagePlan
from quire.text.tokenizer import Tokenizer

PAPER = {1: (48.22, 54.26), 2: (56.22, 62.02), 3: (55.67, 66.11)}
"""Exact match and F1 by stage in Park et al., "ProgressiveServe", table 1: Llama-2-7B on TriviaQA, 3 the original."""

_LAYER = re.compile(r"\b(?:layers|h)\.(\d+)\.")
_BATCH_TOKENS = 4096  # prompt tokens per batch, padding included


@dataclass(frozen=True)
class Variant:
    """A way to run a stage."""

    stage: int
    kind: str  #: bare or healed; of the last stage: full, truncated, control
    adapter: Path | None = None  #: a folder in PEFT's format
    mantissa_bits: int | None = None  #: of the weights, if they are truncated

    @property
    def name(self) -> str:
        if self.kind == "truncated":
            return f"{self.mantissa_bits} mantissa bits"
        return self.kind if self.kind in ("full", "control") else f"stage {self.stage}, {self.kind}"


@dataclass(frozen=True)
class VariantAnswers:
    """A variant's answers and their scores, one entry per question."""

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
    plan: StagePlan,
    adapters: Mapping[int, Path],
    control: Path | None = None,
    mantissa_bits: Sequence[int] = (),
) -> list[Variant]:
    """List all variants to measure, with adapters by stage, and the whole model with truncated weights.

    `control` is an adapter for the full model, trained on the same data: it shows what healing teaches besides
    repairing the gap, such as the format of answers. Raises ValueError for an invalid stage.
    """
    last = plan.num_stages
    for stage in adapters:
        if not 1 <= stage < last:
            raise ValueError(f"stage {stage} has no adapter: of {last} stages, 1 to {last - 1} lack layers")
    found, bits = [], plan.mantissa_bits if plan.has_rest else None
    for stage in range(1, last):
        found.append(Variant(stage, "bare", mantissa_bits=bits))
        if stage in adapters:
            found.append(Variant(stage, "healed", adapters[stage], bits))
    found.append(Variant(last, "full"))
    found += [Variant(last, "truncated", mantissa_bits=bits) for bits in mantissa_bits]
    if control is not None:
        found.append(Variant(last, "control", adapter=control))
    return found


def variants_of_pack(
    manifest: StageManifest, control: Path | None = None, mantissa_bits: Sequence[int] = ()
) -> tuple[StagePlan, list[Variant]]:
    """As `variants_of`, by a pack's manifest."""
    groups = tuple(group.layers for group in manifest.layer_groups)
    plan = StagePlan(manifest.num_layers, groups, manifest.mantissa_bits, manifest.layer_bits)
    folder = manifest.directory
    adapters = {stage.number: folder / stage.adapter for stage in manifest.stages if stage.adapter}
    return plan, variants_of(plan, adapters, control, mantissa_bits)


@contextmanager
def staged(model: Any, plan: StagePlan, variant: Variant) -> Iterator[None]:
    """Turn the model into a variant, and restore it afterwards. Raises ValueError if an adapter does not fit."""
    out = plan.layers_out(variant.stage)
    if variant.adapter is not None:
        _check_adapter(variant.adapter, plan, variant.stage)
    with ExitStack() as stack:
        removed = remove_layers(model, out)
        stack.callback(_restore_layers, model, removed)
        if variant.adapter is not None:
            stack.enter_context(_adapted(model, variant.adapter))
        if variant.mantissa_bits is not None:
            layer_bits = () if variant.kind == "truncated" else plan.layer_bits
            stack.enter_context(truncated(model, variant.mantissa_bits, layer_bits))
        yield


@contextmanager
def truncated(model: Any, mantissa_bits: int, layer_bits: Sequence[int] = ()) -> Iterator[None]:
    """Keep the top mantissa bits of float32 matrices, perhaps others of layers; of the missing bits of bfloat16, the
    highest is set."""
    matrices = {name: each.data for name, each in model.named_parameters() if each.ndim > 1}
    kept = [each.clone() for each in matrices.values()]
    for name, each in matrices.items():
        layer = _LAYER.search(name)
        missing = 23 - (layer_bits[int(layer[1])] if layer and layer_bits else mantissa_bits)
        words = each.view(torch.int32)
        words &= -1 << missing
        words |= 1 << (missing - 1)
    try:
        yield
    finally:
        for each, before in zip(matrices.values(), kept, strict=True):
            each.copy_(before)


@contextmanager
def _adapted(model: Any, folder: Path) -> Iterator[None]:
    """Apply an adapter in place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT uses deprecated parts of transformers
            import peft

            wrapped = peft.PeftModel.from_pretrained(model, str(folder)).eval()
    except ImportError:
        raise ValueError("adapters need peft: pip install '.[heal]'") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"the adapter in {folder} does not fit this model: {error}") from None
    try:
        yield
    finally:
        wrapped.unload()
        if hasattr(model, "peft_config"):
            del model.peft_config  # else the next adapter counts as a second one


def _check_adapter(folder: Path, plan: StagePlan, stage: int) -> None:
    """Raise ValueError unless an adapter covers exactly the layers of a stage."""
    file = folder / "adapter_model.safetensors"
    try:
        with safe_open(file, framework="pt") as handle:
            names = list(handle.keys())
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} cannot be read ({error}); an adapter is a folder in PEFT's format") from None
    layers = {int(match[1]) for name in names if (match := _LAYER.search(name))}
    expected = set(plan.layers_in_place(stage))
    if layers != expected:
        more, less = sorted(layers - expected), sorted(expected - layers)
        what = [f"it has the layers {more}, which are out there"] if more else []
        what += [f"it lacks the layers {less}"] if less else []
        raise ValueError(f"{folder} is not an adapter for stage {stage} of this plan: {', and '.join(what)}")


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
    """Answer all questions by each variant, zero-shot and greedily, and restore the model.

    `advance` receives the number of questions answered in each batch. Raises ValueError for unsuitable questions
    and adapters.
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
    """Generate greedily after each prompt."""
    answers = [""] * len(prompts)
    padding = padding_id(model, tokenizer)
    for batch in by_length(prompts, _BATCH_TOKENS):
        longest = len(prompts[batch[-1]])
        ids = torch.full((len(batch), longest), padding)
        mask = torch.zeros_like(ids)
        for row, index in enumerate(batch):  # padding on the left, since generated tokens follow on the right
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


def up_to_end(ids: list[int], start: int, model: Any) -> list[int]:
    """Cut ids at the first end token from `start` on."""
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    last = next((at for at in range(start, len(ids)) if ids[at] in ends), len(ids))
    return ids[:last]


def padding_id(model: Any, tokenizer: Tokenizer) -> int:
    """Return a valid id for masked positions."""
    named = model.config.pad_token_id if model.config.pad_token_id is not None else tokenizer.pad_token_id
    return named if named is not None and 0 <= named < model.config.vocab_size else 0


def by_length(texts: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of texts of similar length, shortest first, padding counted in `max_tokens`."""
    batch: list[int] = []
    for index in sorted(range(len(texts)), key=lambda index: len(texts[index])):
        if batch and (len(batch) + 1) * len(texts[index]) > max_tokens:
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
    """Two variants and their paired comparison."""

    first: str
    second: str
    result: Paired


def compare(answered: Sequence[VariantAnswers]) -> list[VariantComparison]:
    """Compare each variant with its bare or full stage, and each stage, as served, with the next.

    A served stage is healed if it has an adapter, else it is bare.
    """
    by_stage: dict[int, list[VariantAnswers]] = {}
    for each in answered:
        by_stage.setdefault(each.variant.stage, []).append(each)
    pairs = [(stage[0], other) for stage in by_stage.values() for other in stage[1:]]
    served = [stage[0] if stage[0].variant.kind == "full" else stage[-1] for stage in by_stage.values()]
    pairs += list(pairwise(served))
    return [VariantComparison(a.variant.name, b.variant.name, compare_paired(a.exact, b.exact)) for a, b in pairs]


def won_back(each: VariantAnswers, answered: Sequence[VariantAnswers]) -> float | None:
    """Share of the exact matches lost by the bare stage that a variant recovers; None if none were lost."""
    bare = next((a for a in answered if a.variant.stage == each.variant.stage and a.variant.kind == "bare"), None)
    full = next((a for a in answered if a.variant.kind == "full"), None)
    if bare is None or full is None or each is bare or full.exact_match <= bare.exact_match:
        return None
    return (each.exact_match - bare.exact_match) / (full.exact_match - bare.exact_match)


def _restore_layers(model: Any, removed: Mapping[int, Any]) -> None:
    layers = decoder_layers(model)
    for index, layer in removed.items():
        layers[index] = layer
