"""Token masks of grammars for every kind of tokenizer, and rejections before the engine."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire import StructuredOutputsParams
from quire.ops.arrays import numpy_dtype
from quire.runner.token_mask import allowed_tokens, apply_mask, is_allowed
from quire.structured.bits import bits_of, words_of
from quire.structured.checker import GrammarChecker, TooManyGrammars
from quire.structured.grammar import GrammarError, compile_grammar, grammar_text
from quire.structured.matcher import Grammars
from quire.structured.vocabulary import byte_vocabulary
from quire.system.worker_process import WorkerError, WorkerKilled, WorkerTimeout
from quire.text.tokenizer import Tokenizer
from text.conftest import BACKENDS

KINDS = {name: build for name, build in BACKENDS.items() if name != "word_piece"}


@pytest.mark.parametrize("kind", [*KINDS, "preset"])
def test_a_mask_allows_the_tokens_that_keep_the_text_in_the_language(kind: str) -> None:
    if kind == "preset":
        tokenizer = Tokenizer.byte_level(300)
    else:
        tokenizer = Tokenizer(KINDS[kind](), special_tokens={"bos_token": "<s>", "eos_token": "</s>"})
    assert tokenizer.pieces is not None
    vocab_size = tokenizer.vocab_size + 37  # logits without a token, as in real models
    end = tokenizer.eos_token_id
    assert end is not None
    grammars = Grammars(tokenizer, vocab_size, (end,))
    matcher = grammars.matcher(StructuredOutputsParams(regex="[a-z ]{2,12}"), (end, vocab_size - 1))
    text = b""
    for chosen in ("th", "e ", "ab"):
        allowed = allowed_by(grammars, matcher, vocab_size)
        for token in range(vocab_size):
            grown = text + tokenizer.pieces[token]
            fits = token not in tokenizer.special_ids and grown != text and re.fullmatch(rb"[a-z ]{1,12}", grown)
            may_end = token in (end, vocab_size - 1) and re.fullmatch(rb"[a-z ]{2,12}", text)
            assert allowed[token] == bool(fits or may_end), (token, tokenizer.pieces[token])
        for byte in chosen.encode():
            token = next(t for t in range(vocab_size) if tokenizer.pieces[t] == bytes([byte]))
            matcher.advance([token])
            text += bytes([byte])


def allowed_by(grammars: Grammars, matcher: Any, vocab_size: int) -> np.ndarray:
    (words,) = grammars.fill_masks([matcher])
    matcher.finish_mask(words)
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:vocab_size].astype(bool)


@pytest.mark.parametrize("kernels", ["", "none"])
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.sampled_from([31, 32, 515, 5003]),
    share=st.sampled_from([0.0, 0.001, 0.3, 0.97, 1.0]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    seed=st.integers(0, 1000),
)
def test_banned_logits_become_minus_infinity_and_others_stay(
    kernels: str, monkeypatch: pytest.MonkeyPatch, size: int, share: float, dtype: str, seed: int
) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", kernels)
    rng = np.random.default_rng(seed)
    fits = rng.random(size) < share
    logits = rng.standard_normal((3, size), dtype=np.float32).astype(numpy_dtype(dtype))
    expected = logits.copy()
    expected[1][~fits] = -np.inf
    words = bits_of(np.flatnonzero(fits).tolist(), size)
    assert words.shape == (words_of(size),)
    apply_mask(logits[1], words)
    assert np.array_equal(logits, expected)
    assert [is_allowed(words, token) for token in range(size)] == fits.tolist()
    listed = allowed_tokens(words, size)
    assert listed is not None
    assert listed.tolist() == np.flatnonzero(fits).tolist()


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


INTERSECTION = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}c"} for i in range(20, 32)]

HOSTILE = {
    "deep": ({"json": nested(300)}, "levels"),
    "large": ({"json": {"enum": ["x" * 10] * 20_000}}, "characters"),
    "slow to compile": ({"json": {"type": "integer", "multipleOf": 1_000_003}}, "too complex"),
    "slow to follow": ({"regex": "(((a{1000}){1000}){1000}){1000}"}, "too complex"),
    "exponential": ({"grammar": "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(40)) + 'a40: "x"'},
                    "[Tt]oo"),
    "without an instance": ({"json": {"$ref": "#"}}, "nothing matches"),
    "not supported": ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
    "lenient by its own word": ({"json": {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}},
                                "x-guidance"),
    "no regex": ({"regex": "(?=a)b"}, "look-ahead"),
    "no JSON": ({"json": '{"type": '}, "not a JSON Schema"),
    "no grammar": ({"grammar": "start: nowhere"}, "nowhere"),
}  # fmt: skip


def test_an_intersection_that_is_not_found_to_be_empty_is_too_complex() -> None:
    text = grammar_text(StructuredOutputsParams(json=json.dumps({"allOf": INTERSECTION})))
    with pytest.raises(GrammarError, match="too complex"):  # by the compiler's own limit, not by time
        compile_grammar(text, byte_vocabulary())


def test_what_cannot_be_served_is_refused_and_says_why() -> None:
    """The checking process is killed by several of these grammars; valid ones pass in between."""

    async def refuse_all() -> None:
        checker = GrammarChecker()
        try:
            for name, (fields, why) in HOSTILE.items():
                with pytest.raises(GrammarError, match=why):
                    await checker.check(StructuredOutputsParams(**fields))
                await checker.check(StructuredOutputsParams(choice=(name, "b")))
        finally:
            checker.close()

    asyncio.run(refuse_all())


def test_a_grammar_that_cannot_be_tried_is_asked_for_again_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checker = GrammarChecker()
    failing = [OSError("too many open files"), WorkerTimeout("too late"), WorkerKilled("no memory")] * 12
    starts = False

    def ask(question: bytes) -> bytes:
        if not starts:
            raise WorkerError("it ended with status 1")
        if question and failing:
            raise failing.pop()
        return b""

    monkeypatch.setattr(checker._child, "ask", ask)

    async def check() -> None:
        nonlocal starts
        with pytest.raises(TooManyGrammars, match="status 1"):
            await checker.check(StructuredOutputsParams(regex="a"))
        starts = True
        for _ in range(36):  # more than the queue holds
            with pytest.raises(TooManyGrammars, match=r"too many open files|too late|no memory"):
                await checker.check(StructuredOutputsParams(regex="a"))
        await checker.check(StructuredOutputsParams(regex="a"))

    asyncio.run(check())
    checker.close()


def test_a_grammar_that_a_request_holds_is_not_compiled_again() -> None:
    grammars = Grammars(Tokenizer.byte_level(300), 300, (299,))
    held = grammars.start_compiling(StructuredOutputsParams(choice=["held"]))
    for number in range(70):
        grammars.start_compiling(StructuredOutputsParams(choice=[str(number)]))
    assert grammars.start_compiling(StructuredOutputsParams(choice=["held"])) is held
    grammars.close()
