"""Masks while a model reasons before its output in a grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from quire import StructuredOutputsParams
from quire.structured.matcher import Grammars
from quire.text.tokenizer import Tokenizer
from structured.test_masks import KINDS, allowed_by

OPENING, CLOSING = "<think>", "</think>"
#: Text that looks like a closing marker and is none, in the grammar and outside of it.
THOUGHT = "abc: </thin </</think < > 안녕!"


def make_tokenizer(kind: str, markers: str) -> Tokenizer:
    """Return a tokenizer with the markers as special tokens, as plain tokens, or without them."""
    backend = KINDS[kind]()
    # As ">\n" and "</" of real vocabularies, which cross the borders of a marker.
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("k>\n", "k></", "> ", "</t")])
    if markers != "pieces":
        is_special = markers == "special"
        backend.add_tokens(
            [AddedToken(text, special=is_special, normalized=False) for text in (OPENING, CLOSING, CLOSING + "x")]
        )
    return Tokenizer(backend, special_tokens={"bos_token": "<s>", "eos_token": "</s>"})


class Model:
    """A tokenizer's grammars, and masks as sets of tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.pieces is not None
        assert tokenizer.eos_token_id is not None
        self.tokenizer, self.pieces, self.end = tokenizer, tokenizer.pieces, tokenizer.eos_token_id
        self.vocab_size = tokenizer.vocab_size + 5
        self.grammars = Grammars(tokenizer, self.vocab_size, (self.end,))

    def matcher(self, tokens: Iterable[int] = (), reasoning: tuple[str, str] | None = None, **wanted: Any) -> Any:
        wanted = wanted or {"regex": "[a-c ]{2,9}"}
        params = StructuredOutputsParams(reasoning=reasoning, **wanted)
        return self.grammars.matcher(params, (self.end, self.vocab_size - 1), tokens)

    def allowed(self, tokens: Iterable[int] = (), reasoning: tuple[str, str] | None = None, **wanted: Any) -> set[int]:
        return self.allowed_by(self.matcher(tokens, reasoning, **wanted))

    def allowed_by(self, matcher: Any) -> set[int]:
        return set(np.flatnonzero(allowed_by(self.grammars, matcher, self.vocab_size)).tolist())

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text by single bytes, or by whole markers that are tokens."""
        by_piece = {self.pieces[token]: token for token in reversed(range(self.vocab_size))}
        found: list[int] = []
        for part in filter(None, re.split(f"({OPENING}|{CLOSING})", text)):
            is_marker = part in (OPENING, CLOSING) and part.encode() in by_piece
            found += [by_piece[piece] for piece in re.findall(b"(?s:.+)" if is_marker else b"(?s:.)", part.encode())]
        return found


CASES = [(kind, markers) for kind in ("byte_level", "sentencepiece") for markers in ("special", "plain", "pieces")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def model(request: pytest.FixtureRequest) -> Model:
    return Model(make_tokenizer(*request.param))


def test_reasoning_is_free_and_the_grammar_begins_behind_it(model: Model) -> None:
    markers = ("", CLOSING)
    matcher = model.matcher(reasoning=markers)
    tokens = model.tokens(THOUGHT + CLOSING)
    text = b""
    for number, token in enumerate(tokens):
        allowed = model.allowed_by(matcher)
        assert allowed == model.allowed(tokens[:number], markers), "as after a preemption"
        for each in range(model.vocab_size):
            piece = model.pieces[each]
            goes_beyond = CLOSING.encode() in (text + piece)[:-1]
            is_hidden = each in model.tokenizer.special_ids and piece != CLOSING.encode()
            is_end = each in (model.end, model.vocab_size - 1)
            assert (each in allowed) == (not goes_beyond and not is_hidden and not is_end), (text, piece)
        assert token in allowed
        matcher.advance([token])
        text += model.pieces[token]
    assert model.allowed_by(matcher) == model.allowed()
    matcher.advance(answer := model.tokens("ab"))
    assert model.allowed_by(matcher) == model.allowed(answer) == model.allowed([*tokens, *answer], markers)
    assert model.end in model.allowed(answer)
    assert model.end not in model.allowed_by(model.matcher([*tokens, *answer[:1]], markers))


def test_an_answer_without_reasoning_begins_at_once(model: Model) -> None:
    markers = (OPENING, CLOSING)
    opening = model.matcher(reasoning=markers)._reasoning._tokens.opening
    assert "".join(model.tokenizer.token_text(token) for token in opening) == OPENING
    assert model.allowed(reasoning=markers) == model.allowed() | {opening[0]}
    answer = model.tokens("ab")
    for end in range(1, 3):
        assert model.allowed(answer[:end], markers) == model.allowed(answer[:end])
    for end in range(1, len(opening)):
        assert model.allowed(opening[:end], markers) == {opening[end]}
    thought = [*opening, *model.tokens(THOUGHT)]
    assert model.allowed(thought, markers) == model.allowed(model.tokens(THOUGHT), ("", CLOSING))
    assert model.allowed([*thought, *model.tokens(CLOSING)], markers) == model.allowed()


def test_a_schema_may_allow_the_marker_itself(model: Model) -> None:
    """The first closing marker ends reasoning; a later one is text of the answer."""
    tokens = model.tokens("b" + CLOSING)
    wanted = {"regex": "(a|</think>){2,9}"}
    assert model.allowed(tokens, ("", CLOSING), **wanted) == model.allowed(**wanted)


def test_a_tokenizer_that_cannot_write_the_marker_does_not_reason() -> None:
    model = Model(make_tokenizer("unigram", "pieces"))
    assert model.allowed(reasoning=("\u2603", CLOSING)) == model.allowed()


@pytest.mark.parametrize("markers", [("<think>",), ("", ""), ("", 1)])
def test_markers_are_checked(markers: Any) -> None:
    with pytest.raises(ValueError, match="reasoning="):
        StructuredOutputsParams(regex="a", reasoning=markers)
