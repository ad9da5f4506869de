"""The frontier of `quire stages plan`: the bytes of first stages against their quality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from quire.cli.stages.texts import progress_bar
from quire.cli.tables import print_table
from quire.config import format_size

if TYPE_CHECKING:
    from quire.models.base import CausalLM
    from quire.progressive.angular_distance import AngularDistances
    from quire.progressive.frontier import FirstStage
    from quire.progressive.plans import ModelBytes
    from quire.progressive.questions import ReadingQuestion

ANSWER_TOKENS = 16


@dataclass(frozen=True)
class StageTrial:
    """First stages of a model, to be measured."""

    sizes: ModelBytes
    dtype: str  #: of the files
    distances: AngularDistances
    has_planes: bool

    def by_distance(self, model: CausalLM, texts: Sequence[Sequence[int]]) -> list[FirstStage]:
        """Measure how far each stage turns the last hidden states."""
        from quire.progressive.precision import turn

        return self._measure(model, lambda layers: turn(model, texts, self.distances.last_states, layers))

    def by_exact_match(self, name: str, dtype: str, questions: Sequence[ReadingQuestion]) -> list[FirstStage]:
        """Measure how many questions each stage answers wrongly, greedily. The model is loaded again."""
        from quire.llm import LLM
        from quire.models.stages import ServableStage
        from quire.progressive.questions import is_exact_match, prompt_of
        from quire.runner.model_runner import ModelRunner
        from quire.sampling_params import SamplingParams

        llm = LLM(name, dtype=dtype, use_tqdm=False, enable_prefix_caching=False)  # stages may not share KV
        runner = llm.engine.runner
        assert isinstance(runner, ModelRunner)
        model, prompts = runner.model, [prompt_of(question) for question in questions]
        greedy = SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS)

        def wrong(layers: Sequence[Any]) -> float:
            model.switch_to(ServableStage(1, layers))
            outputs = llm.generate(prompts, greedy, use_tqdm=False)
            pairs = zip(outputs, questions, strict=True)
            return 1 - sum(is_exact_match(output.outputs[0].text, each) for output, each in pairs) / len(questions)

        return self._measure(model, wrong)

    def _measure(self, model: CausalLM, loss: Callable[[Sequence[Any]], float]) -> list[FirstStage]:
        from quire.progressive.frontier import first_stages, states_of

        states = states_of(self.distances, model.config, self.has_planes)
        with progress_bar("measuring stages", len(states)) as advance:
            return first_stages(model, states, self.sizes, self.dtype, loss, advance)


def read_some(path: Path, model: str, count: int) -> list[ReadingQuestion]:
    """Read at most `count` questions, evenly spread. Raises ValueError, also for a pack, which switches stages."""
    from quire.loading import resolve_model
    from quire.loading.stage_manifest import is_pack
    from quire.progressive.calibration_text import choose_texts
    from quire.progressive.questions import read_questions

    source = resolve_model(model, load_format="random")  # reads the config only
    if source.path is not None and is_pack(source.path):
        raise ValueError(f"{model} is a pack; name the model that it was made from")
    try:
        return choose_texts(read_questions(path), count)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def show_frontier(stages: Sequence[FirstStage], sizes: ModelBytes, is_exact_match: bool) -> None:
    """Print the stages that are best for their bytes."""
    from quire.progressive.frontier import frontier

    rows = []
    for stage in frontier(stages):
        out = "" if stage.block_out is None else "{}:{}".format(*stage.block_out)
        bits = "plain" if stage.mantissa_bits is None else stage.mantissa_bits
        quality = f"{100 * (1 - stage.loss):.1f} %" if is_exact_match else f"{stage.loss:.4f}"
        rows.append((out, bits, format_size(stage.num_bytes), f"{100 * stage.num_bytes / sizes.total:.0f} %", quality))
    measure = "exact match" if is_exact_match else "distance"
    print_table(("layers out", "mantissa bits", "stage 1, about", "of all", measure), rows)
    typer.echo("\nstages that are best for their bytes\n")
