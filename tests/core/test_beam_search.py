"""Beam search alone against `transformers` on a tiny random model: same beams, same scores."""

from __future__ import annotations

import itertools

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from parameters import quick
from quire.core.beam_search import BeamSearch
from quire.sampling_params import BeamSearchParams

VOCAB_SIZE = 50
PAD = 49  # only after an end
EARLY_STOPPING = (True, False, "never")
LENGTH_PENALTIES = (-1.0, 0.0, 0.5, 1.0, 2.0)
EOS = {"none": (), "one": (7,), "several": (3, 7, 11, 20)}


def make_model(architecture: str, seed: int) -> PreTrainedModel:
    """Make random weights large enough that tokens depend on the whole context, and ends are frequent."""
    torch.manual_seed(seed)
    if architecture == "llama":
        config = LlamaConfig(
            vocab_size=VOCAB_SIZE, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, initializer_range=0.3, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()
    config = GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


@torch.inference_mode()
def search(model: PreTrainedModel, prompt: list[int], params: BeamSearchParams, eos: tuple[int, ...]) -> BeamSearch:
    """Run beam search with the model recomputed over all tokens in every step."""
    state = BeamSearch(params, frozenset(eos), params.max_tokens)
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    while not state.is_done:
        ids = torch.tensor([[*prompt, *tokens] for tokens, _ in beams])
        logprobs = model(ids).logits[:, -1].log_softmax(-1)
        top = logprobs.topk(min(state.num_candidates, VOCAB_SIZE))
        found = zip(beams, top.indices.tolist(), top.values.tolist(), strict=True)
        asked = [(tokens, total, list(zip(*likeliest, strict=True))) for (tokens, total), *likeliest in found]
        beams = [([*beams[c.beam][0], c.token_id], c.sum_logprob) for c in state.advance(asked)]
        assert state.is_done or 1 <= len(beams) <= params.beam_width
    return state


@torch.inference_mode()
def reference(
    model: PreTrainedModel, prompt: list[int], params: BeamSearchParams, eos: tuple[int, ...]
) -> tuple[list[list[int]], list[float]]:
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=params.beam_width,
        num_return_sequences=params.beam_width,
        max_new_tokens=params.max_tokens,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
        eos_token_id=list(eos) or None,
        pad_token_id=PAD,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return found.sequences[:, len(prompt) :].tolist(), found.sequences_scores.tolist()


def check(architecture: str, seed: int, params: BeamSearchParams, eos: tuple[int, ...]) -> BeamSearch:
    model = make_model(architecture, seed)
    prompt = torch.randint(0, VOCAB_SIZE - 1, (1 + seed % 6,), generator=torch.Generator().manual_seed(seed)).tolist()
    ours = search(model, prompt, params, eos)
    sequences, scores = reference(model, prompt, params, eos)
    for hypothesis, sequence, score in zip(ours.finished, sequences, scores, strict=True):
        length = len(hypothesis.token_ids)
        assert list(hypothesis.token_ids) == sequence[:length]
        assert set(sequence[length:]) <= {PAD}
        assert hypothesis.score == pytest.approx(score, abs=1e-4, rel=1e-4)
        assert hypothesis.stopped == (hypothesis.token_ids[-1] in eos)
        assert hypothesis.stop_token == (hypothesis.token_ids[-1] if hypothesis.stopped else None)
    return ours


GRID = list(itertools.product(EARLY_STOPPING, LENGTH_PENALTIES, EOS))
#: Every way to stop with every length penalty.
FEW = list(zip(itertools.product(EARLY_STOPPING, LENGTH_PENALTIES), itertools.cycle(EOS)))
FEW = [(*point, eos) for point, eos in FEW]


@pytest.mark.parametrize(("early_stopping", "length_penalty", "eos"), quick(FEW, GRID))
def test_beams_and_scores_are_the_references(early_stopping: bool | str, length_penalty: float, eos: str) -> None:
    # One of each family at each point of the grid, and every width with every way to end.
    is_odd = GRID.index((early_stopping, length_penalty, eos)) % 2
    for width, seed in ((2, 1), (3, 2)) if is_odd else ((2, 0), (5, 3)):
        params = BeamSearchParams(width, 10, length_penalty=length_penalty, early_stopping=early_stopping)
        check(("llama", "gpt2")[seed % 2], seed, params, EOS[eos])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("early_stopping", "length_penalty", "eos"), GRID)
def test_beams_and_scores_are_the_references_over_many_models(
    early_stopping: bool | str, length_penalty: float, eos: str
) -> None:
    for seed in range(100, 120):
        width, max_tokens = 2 + seed % 5, 1 + seed % 17
        params = BeamSearchParams(width, max_tokens, length_penalty=length_penalty, early_stopping=early_stopping)
        check(("llama", "gpt2")[seed % 2], seed, params, EOS[eos])


def test_the_grid_sees_ends_and_length_limits() -> None:
    """The comparison needs beams that end by a token, and others by length, at different lengths."""
    params = BeamSearchParams(4, 10, early_stopping=False)
    found = [check("llama", seed, params, EOS["several"]).finished for seed in range(6)]
    stopped = [hypothesis.stopped for finished in found for hypothesis in finished]
    assert True in stopped
    assert False in stopped
    assert any(len({len(hypothesis.token_ids) for hypothesis in finished}) > 1 for finished in found)


def test_a_width_of_one_is_greedy() -> None:
    model = make_model("llama", 0)
    ours = search(model, [1, 2, 3], BeamSearchParams(1, 8), ())
    greedy = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False, pad_token_id=PAD)
    assert list(ours.finished[0].token_ids) == greedy[0, 3:].tolist()


def test_one_token_gives_the_likeliest_tokens() -> None:
    state = BeamSearch(BeamSearchParams(2, 1), frozenset(), 1)
    assert state.advance([([], 0.0, [(4, -0.5), (9, -1.0), (2, -2.0)])]) == []
    assert [hypothesis.token_ids for hypothesis in state.finished] == [(4,), (9,)]
    assert state.is_done


@pytest.mark.parametrize("length_penalty", [-10, -10.0, 10, 10.0])
def test_no_length_is_too_long_for_a_score(length_penalty: float) -> None:
    longest = 2**31 - 1
    state = BeamSearch(BeamSearchParams(1, longest, length_penalty, "never"), frozenset((1,)), longest)
    state.num_generated = longest - 2
    state.advance([([], -1e9, [(1, -1.0), (2, -2.0)])])
    assert len(state.finished) == 1


def test_an_end_that_is_not_among_the_best_is_passed_over() -> None:
    state = BeamSearch(BeamSearchParams(2, 8), frozenset((1,)), 8)
    going_on = state.advance([([], 0.0, [(4, -0.5), (9, -1.0), (1, -2.0), (5, -3.0)])])
    assert [candidate.token_id for candidate in going_on] == [4, 9]
    assert state.finished == []
