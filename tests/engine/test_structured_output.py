"""Structured output under random schedules: every output is in its language, and equals its run alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.harness import Preemptor, check_books
from json_schemas import UNSUPPORTED, random_schema
from quire import LLM, SamplingParams, StructuredOutputsParams
from quire.core.block_keys import TENANT, Domain
from quire.kernels.loaded import has_exact_kernels
from quire.outputs import CompletionOutput
from quire.prompt import Prompt

MODEL = "random:tiny"


def make(num_kv_blocks: int) -> LLM:
    return LLM(
        MODEL, num_kv_blocks=num_kv_blocks, block_size=4, max_model_len=320, max_num_seqs=6, use_tqdm=False,
        device="cpu", swap_space="4MiB", recovery_policy="swap",
    )  # fmt: skip


@cache
def roomy() -> LLM:
    return make(800)


Language = tuple[StructuredOutputsParams, Callable[[str], Any]]


def random_language(rng: Random) -> Language:
    kind = rng.randrange(5)
    if kind == 0:
        pattern = random_regex(rng, 3)
        return StructuredOutputsParams(regex=pattern), re.compile(pattern, re.DOTALL).fullmatch
    if kind == 1:
        words = ["yes", "no", "né", 'a"b', "yes indeed"]
        return StructuredOutputsParams(choice=tuple(words)), words.__contains__
    if kind == 2:
        return StructuredOutputsParams(grammar='root ::= "(" root ")" | "x"'), re.compile(r"\(*x\)*").fullmatch
    schema = next(
        schema
        for schema in iter(lambda: random_schema(rng.randrange(10**6)), None)
        if not any(name in json.dumps(schema) for name in UNSUPPORTED)
    )
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    return StructuredOutputsParams(json=schema), lambda text: validator.is_valid(json.loads(text))


def random_regex(rng: Random, depth: int) -> str:
    match rng.randrange(6 if depth else 2):
        case 0:
            return rng.choice(("a", "bc", "é", "[0-9]", "[^x]", " "))
        case 1:
            return rng.choice(("ab{2,3}", "[a-c]{1,4}", "z?"))
        case 2:
            return f"(?:{random_regex(rng, depth - 1)}|{random_regex(rng, depth - 1)})"
        case 3:
            return f"(?:{random_regex(rng, depth - 1)}){{1,3}}"
        case _:
            return random_regex(rng, depth - 1) + random_regex(rng, depth - 1)


def with_reasoning(rng: Random, language: Language) -> Language:
    """Put reasoning before the output, which may leave it out unless the prompt has opened it."""
    wanted, is_in = language
    opening = rng.choice(("", "", "("))

    def is_in_behind(text: str) -> Any:
        if text.startswith(opening):
            _, marker, text = text.partition("q")
            assert marker, "an end token does not end reasoning"
        return is_in(text)

    return replace(wanted, reasoning=(opening, "q")), is_in_behind


def random_params(rng: Random, language: StructuredOutputsParams) -> SamplingParams:
    return SamplingParams(
        n=rng.choice((1, 1, 2, 3)),
        temperature=rng.choice((0.7, 1.0)),
        top_p=rng.choice((1.0, 0.9)),
        seed=rng.randrange(10**6),
        max_tokens=rng.choice((9, 120, 120, 250)),
        min_tokens=rng.choice((0, 0, 3, 9)),
        stop=rng.choice(((), (), ("b", "1"))),
        logprobs=rng.choice((None, 0, 2)),
        repetition_penalty=rng.choice((1.0, 1.1)),
        structured_outputs=language,
        logit_bias={ord("q"): 3} if language.reasoning else None,
    )


@settings(max_examples=2, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), blocks=st.integers(80, 110))
def test_an_output_is_in_its_language_whatever_happens_to_it(seed: int, blocks: int) -> None:
    rng = Random(seed)
    llm = make(blocks)
    languages = [random_language(rng) for _ in range(4)]
    languages += [with_reasoning(rng, random_language(rng)) for _ in range(4)]
    asked = [random_params(rng, language) for language, _ in languages]
    preemptor = Preemptor(llm, seed)
    states = [llm.engine.add_request(f"Prompt {i}", params) for i, params in enumerate(asked)]
    for step in range(10_000):
        if not llm.engine.has_unfinished():
            break
        if step < 4 or rng.random() < 0.1:
            preemptor.preempt_someone()
        llm.engine.step()
        check_books(llm)
    for i, (state, params, (_, is_in)) in enumerate(zip(states, asked, languages, strict=True)):
        output = state.to_output()
        assert output.error is None
        assert len(output.outputs) == params.n
        for completion in output.outputs:
            check_output(completion, params, is_in)
        (alone,) = roomy().generate(f"Prompt {i}", params, use_tqdm=False)
        assert [each.token_ids for each in alone.outputs] == [each.token_ids for each in output.outputs]
    assert sum(state.metrics.num_preemptions for state in states)


def check_output(completion: CompletionOutput, params: SamplingParams, is_in: Callable[[str], Any]) -> None:
    if params.logprobs is not None:
        assert completion.logprobs is not None
        assert len(completion.logprobs) == len(completion.token_ids)
    if completion.finish_reason == "stop" and completion.stop_reason is None:
        assert is_in(completion.text), completion.text
        return
    assert params.structured_outputs is not None  # cut off: a prefix of something in the language
    grammars = roomy().engine.grammars
    assert grammars is not None
    matcher = grammars.matcher(params.structured_outputs, (), completion.token_ids)
    assert not matcher.state.is_error()


def test_reasoning_has_the_tokens_that_it_has_without_a_grammar() -> None:
    plain = SamplingParams(temperature=0, max_tokens=60, logprobs=1, ignore_eos=True)
    wanted = StructuredOutputsParams(choice=("ab",), reasoning=("", "zz"))
    constrained = replace(plain, ignore_eos=False, structured_outputs=wanted)
    prompts, special = [chr(65 + i) for i in range(26)], roomy().tokenizer.special_ids
    free = [each.outputs[0] for each in roomy().generate(prompts, plain, use_tqdm=False)]
    prompt, expected = next(pair for pair in zip(prompts, free, strict=True) if special.isdisjoint(pair[1].token_ids))
    output = roomy().generate(prompt, constrained, use_tqdm=False)[0].outputs[0]
    assert output.token_ids == expected.token_ids
    assert output.logprobs == expected.logprobs or not has_exact_kernels("cpu", "float32")
    assert "zz" not in output.text


def test_min_tokens_yields_to_a_grammar_that_can_only_end() -> None:
    params = SamplingParams(min_tokens=10, max_tokens=20, structured_outputs=StructuredOutputsParams(choice=("ab",)))
    (output,) = roomy().generate("Hello", params, use_tqdm=False)
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("ab", "stop")
    longest = replace(params, structured_outputs=StructuredOutputsParams(regex="a*"))
    (output,) = roomy().generate("Hello", longest, use_tqdm=False)
    assert len(output.outputs[0].token_ids) >= 10


def test_bans_hold_within_a_grammar_and_the_model_is_seen_as_it_is() -> None:
    wanted = StructuredOutputsParams(regex="[abc]{8}")
    params = SamplingParams(structured_outputs=wanted, bad_words=("a",), logit_bias={98: -100}, logprobs=1, seed=1)
    (output,) = roomy().generate("Hello", params, use_tqdm=False)
    (completion,) = output.outputs
    assert completion.text == "cccccccc"
    assert completion.logprobs is not None
    assert completion.logprobs[0][completion.token_ids[0]].rank != 1  # random weights prefer another token
    every = replace(params, bad_words=("a", "b", "c"))
    with pytest.raises(RuntimeError, match="every token is banned"):
        roomy().generate("Hello", every, use_tqdm=False)


def test_a_key_with_many_grammars_delays_no_other_key() -> None:
    engine = make(100).engine
    assert engine.grammars is not None
    may_compile, order = threading.Event(), list[str | None]()
    compile_one = engine.grammars._compile

    def compile_slowly(params: StructuredOutputsParams) -> Any:
        assert may_compile.wait(60)
        order.append(params.regex)
        return compile_one(params)

    engine.grammars._compile = compile_slowly  # type: ignore[method-assign]
    for key, regexes in ((b"many", "abcdef"), (b"one", "z")):
        for number, regex in enumerate(regexes):
            domain = Domain(TENANT, key, b"" if number < 3 else b"%d" % number)  # salts do not change the owner
            prompt = Prompt(token_ids=[1, 2], domains=((0, domain),))
            accepted = engine.input_processor.accept(
                prompt, SamplingParams(max_tokens=2, structured_outputs=StructuredOutputsParams(regex=regex))
            )
            engine.add(accepted)
    may_compile.set()
    while engine.has_unfinished():
        engine.step()
    assert order.index("z") <= 2, order
    engine.close()


def test_what_cannot_be_compiled_is_a_value_error() -> None:
    wanted = StructuredOutputsParams(json={"type": "array", "uniqueItems": True})
    with pytest.raises(ValueError, match="uniqueItems"):
        roomy().generate("Hello", SamplingParams(structured_outputs=wanted))
    with pytest.raises(ValueError, match="exactly one"):
        StructuredOutputsParams(regex="a", json_object=True)
