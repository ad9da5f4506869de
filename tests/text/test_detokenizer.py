"""Deltas add up to the text, the text equals the tokenizer's, and stop strings are always found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.text.detokenizer import IncrementalDetokenizer, StopStrings
from quire.text.tokenizer import Tokenizer

EXACT = ["byte_level", "preset", "unigram"]  # the text equals the library's decode for any ids
PIECEWISE = [*EXACT, "sentencepiece"]
texts = st.text() | st.text(alphabet="한국 어éé😀👩‍👧ab \n▁<>0x4")
ids_of_any_kind = st.lists(st.integers(0, 460), max_size=40)


def stream(detokenizer: IncrementalDetokenizer, token_ids: list[int]) -> list[str]:
    deltas = []
    for token_id in token_ids:
        detokenizer.append([token_id])
        deltas.append(detokenizer.take_delta(finished=False))
    return [*deltas, detokenizer.take_delta(finished=True)]


def decode_as_sentencepiece(tokenizer: Tokenizer, token_ids: list[int], skip: bool) -> str:
    """Decode naively: valid byte tokens become characters, and each invalid byte one mark."""
    data = b""
    for token_id in token_ids:
        token = tokenizer.backend.id_to_token(token_id)
        if token is None or (skip and token_id in tokenizer.special_ids):
            continue
        byte = re.fullmatch(r"<0x(..)>", token)
        data += bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
    text = ""
    while data:
        for length in (1, 2, 3, 4):
            try:
                text += data[:length].decode()
            except UnicodeDecodeError:
                continue
            data = data[length:]
            break
        else:
            text, data = text + "\ufffd", data[1:]
    return text.removeprefix(" ")


@pytest.mark.parametrize("name", PIECEWISE)
@given(text=texts, skip=st.booleans())
def test_streaming_a_text_gives_what_decode_gives(
    tokenizers_by_name: dict[str, Tokenizer], name: str, text: str, skip: bool
) -> None:
    tokenizer = tokenizers_by_name[name]
    token_ids = tokenizer.encode(text)
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip)
    deltas = stream(detokenizer, token_ids)
    assert "".join(deltas) == detokenizer.text == tokenizer.decode(token_ids, skip_special_tokens=skip)
    if "\ufffd" not in text and name in ("byte_level", "preset", "sentencepiece"):
        assert "\ufffd" not in detokenizer.text


@pytest.mark.parametrize("name", EXACT)
@given(token_ids=ids_of_any_kind, skip=st.booleans())
def test_streaming_any_token_ids_gives_what_decode_gives(
    tokenizers_by_name: dict[str, Tokenizer], name: str, token_ids: list[int], skip: bool
) -> None:
    tokenizer = tokenizers_by_name[name]
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip)
    assert "".join(stream(detokenizer, token_ids)) == tokenizer.decode(token_ids, skip_special_tokens=skip)


@given(token_ids=ids_of_any_kind, skip=st.booleans())
def test_byte_tokens_that_are_no_text_lose_only_themselves(
    sentencepiece: Tokenizer, token_ids: list[int], skip: bool
) -> None:
    text = "".join(stream(IncrementalDetokenizer(sentencepiece, skip_special_tokens=skip), token_ids))
    assert text == decode_as_sentencepiece(sentencepiece, token_ids, skip)
    if "\ufffd" not in text:
        assert text == sentencepiece.decode(token_ids, skip_special_tokens=skip)


@pytest.mark.parametrize("name", EXACT)
@given(prompt=ids_of_any_kind, output=ids_of_any_kind, skip=st.booleans())
def test_the_text_is_what_decode_adds_behind_the_prompt(
    tokenizers_by_name: dict[str, Tokenizer], name: str, prompt: list[int], output: list[int], skip: bool
) -> None:
    tokenizer = tokenizers_by_name[name]
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip, prompt_token_ids=prompt)
    text = "".join(stream(detokenizer, output))
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    whole = tokenizer.decode(prompt + output, skip_special_tokens=skip)
    if before.endswith("\ufffd"):  # possibly a character that the output completes, which then belongs to the output
        assert whole in (before + text, before[:-1] + text)
    else:
        assert whole == before + text


@given(prompt=texts, output=texts)
def test_the_space_between_prompt_and_output_is_kept(sentencepiece: Tokenizer, prompt: str, output: str) -> None:
    prompt_ids, output_ids = sentencepiece.encode(prompt), sentencepiece.encode(output, add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(sentencepiece, prompt_token_ids=prompt_ids)
    text = "".join(stream(detokenizer, output_ids))
    assert sentencepiece.decode(prompt_ids) + text == sentencepiece.decode(prompt_ids + output_ids)


@given(character=st.sampled_from("é한😀"), data=st.data())
def test_a_character_that_the_prompt_begins_belongs_to_the_output(
    byte_level: Tokenizer, character: str, data: st.DataObject
) -> None:
    alphabet = {
        byte_level.token_bytes(i): i for i in range(byte_level.vocab_size) if len(byte_level.token_bytes(i)) == 1
    }
    token_ids = [alphabet[bytes([byte])] for byte in character.encode()]
    cut = data.draw(st.integers(1, len(token_ids) - 1))
    detokenizer = IncrementalDetokenizer(byte_level, prompt_token_ids=token_ids[:cut])
    assert "".join(stream(detokenizer, token_ids[cut:])) == character


@pytest.mark.parametrize("name", ["byte_level", "preset", "sentencepiece"])
@given(text=st.text(alphabet="한국어 é😀👍🏽e\u0301a", min_size=1))
def test_no_delta_has_a_broken_character_that_the_text_has_not(
    tokenizers_by_name: dict[str, Tokenizer], name: str, text: str
) -> None:
    tokenizer = tokenizers_by_name[name]
    deltas = stream(IncrementalDetokenizer(tokenizer), tokenizer.encode(text))
    assert not any("\ufffd" in delta for delta in deltas)
    assert deltas[-1] == ""


@pytest.mark.parametrize("name", ["byte_level", "preset", "sentencepiece"])
def test_a_character_that_is_never_completed_is_marked_at_the_end_only(
    tokenizers_by_name: dict[str, Tokenizer], name: str
) -> None:
    tokenizer = tokenizers_by_name[name]
    token_ids = tokenizer.encode("ok 🦖", add_special_tokens=False)[:-1]
    detokenizer = IncrementalDetokenizer(tokenizer)
    *deltas, last = stream(detokenizer, token_ids)
    assert "".join(deltas) == "ok "
    assert last
    assert set(last) == {"\ufffd"}
    assert detokenizer.text == "ok " + last


@given(text=st.text(alphabet="the quick brown fox 한", max_size=60), prompt=st.text(alphabet="the fox ", max_size=20))
def test_a_decoder_that_cannot_be_taken_apart_streams_as_well(
    tokenizers_by_name: dict[str, Tokenizer], text: str, prompt: str
) -> None:
    tokenizer = tokenizers_by_name["word_piece"]
    assert tokenizer.pieces is None
    prompt_ids, token_ids = tokenizer.encode(prompt), tokenizer.encode(text)
    detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids=prompt_ids)
    streamed = "".join(stream(detokenizer, token_ids))
    assert tokenizer.decode(prompt_ids) + streamed == tokenizer.decode(prompt_ids + token_ids)


def test_special_tokens_are_shown_or_skipped(byte_level: Tokenizer) -> None:
    token_ids = byte_level.encode("<|im_start|>한<|im_end|>", add_special_tokens=False)
    shown = IncrementalDetokenizer(byte_level, skip_special_tokens=False)
    skipped = IncrementalDetokenizer(byte_level)
    assert "".join(stream(shown, token_ids)) == "<|im_start|>한<|im_end|>"
    assert "".join(stream(skipped, token_ids)) == "한"


def test_ids_beyond_the_vocabulary_add_nothing(byte_level: Tokenizer) -> None:
    token_ids = [byte_level.vocab_size + 7, *byte_level.encode("ab", add_special_tokens=False), 10**6]
    assert "".join(stream(IncrementalDetokenizer(byte_level), token_ids)) == "ab"


def test_the_cost_of_a_token_does_not_grow_with_the_text(byte_level: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(byte_level, stop=["never there"])
    token_ids = byte_level.encode("한국어 and the rest ", add_special_tokens=False)
    for _ in range(200):
        for token_id in token_ids:
            detokenizer.append([token_id])
            detokenizer.take_delta(finished=False)
            assert len(detokenizer._tail) < len("never there")
            assert len("".join(detokenizer._fresh)) < len("never there")


# Stop strings

stop_texts = st.text(alphabet="ab한 ", min_size=1, max_size=5)


def first_stop(text: str, stops: list[str], after: int = 0) -> tuple[int, int] | None:
    """Search naively: read character by character until one is complete, and take the longest."""
    for end in range(after + 1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return end - len(stop), end
    return None


@given(
    text=st.text(alphabet="ab한 ", max_size=40),
    stops=st.lists(stop_texts, max_size=4),
    include=st.booleans(),
    min_tokens=st.integers(0, 6),
    takes=st.lists(st.booleans(), min_size=200, max_size=200),
)
def test_the_first_stop_string_ends_the_text(
    byte_level: Tokenizer, text: str, stops: list[str], include: bool, min_tokens: int, takes: list[bool]
) -> None:
    token_ids = byte_level.encode(text, add_special_tokens=False)
    plain = IncrementalDetokenizer(byte_level)
    detokenizer = IncrementalDetokenizer(byte_level, stop=stops, include_stop_str_in_output=include)
    unchecked, reason, deltas = 0, None, []
    for index, token_id in enumerate(token_ids):
        plain.append([token_id])
        reason = detokenizer.append([token_id], check_stop=index >= min_tokens)
        if index < min_tokens:
            unchecked = len(plain.text)
        expected = first_stop(plain.text, stops, unchecked)
        assert reason == (plain.text[slice(*expected)] if expected else None)
        if reason is not None:
            break
        if takes[index]:
            deltas.append(detokenizer.take_delta(finished=False))
    expected = first_stop(plain.text, stops, unchecked)
    final_text = plain.text[: expected[include]] if expected else plain.text
    deltas.append(detokenizer.take_delta(finished=True))
    assert "".join(deltas) == detokenizer.text == final_text


@given(text=st.text(alphabet="ab한 ", max_size=30), stops=st.lists(stop_texts, max_size=3), data=st.data())
def test_where_a_text_stops_does_not_depend_on_its_tokens(
    byte_level: Tokenizer, text: str, stops: list[str], data: st.DataObject
) -> None:
    token_ids = byte_level.encode(text, add_special_tokens=False)
    one_by_one = IncrementalDetokenizer(byte_level, stop=stops)
    in_groups = IncrementalDetokenizer(byte_level, stop=stops)
    for token_id in token_ids:
        one_by_one.append([token_id])
    while token_ids:
        count = data.draw(st.integers(1, len(token_ids)))
        in_groups.append(token_ids[:count])
        token_ids = token_ids[count:]
    assert one_by_one.stop_reason == in_groups.stop_reason
    assert one_by_one.take_delta(True) == in_groups.take_delta(True)


def test_text_that_may_become_a_stop_string_is_held_back_and_given_out_at_the_end() -> None:
    tokenizer = Tokenizer.byte_level(300)
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["###"])
    deltas = stream(detokenizer, tokenizer.encode("a#b##"))
    assert deltas == ["a", "", "#b", "", "", "##"]


def test_a_stop_string_that_is_kept_holds_nothing_back() -> None:
    tokenizer = Tokenizer.byte_level(300)
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["##"], include_stop_str_in_output=True)
    assert stream(detokenizer, tokenizer.encode("a##b")) == ["a", "#", "#", "", ""]
    assert detokenizer.stop_reason == "##"


def test_nothing_is_added_behind_a_stop_string() -> None:
    tokenizer = Tokenizer.byte_level(300)
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["b"])
    assert detokenizer.append(tokenizer.encode("abc")) == "b"
    assert detokenizer.append(tokenizer.encode("d")) == "b"
    assert detokenizer.take_delta(finished=True) == detokenizer.text == "a"


def test_a_stop_string_may_begin_before_min_tokens_and_end_behind() -> None:
    tokenizer = Tokenizer.byte_level(300)
    detokenizer = IncrementalDetokenizer(tokenizer, stop=["ab"])
    assert detokenizer.append(tokenizer.encode("aba"), check_stop=False) is None
    assert detokenizer.take_delta(finished=False) == "ab"
    assert detokenizer.append(tokenizer.encode("b")) == "ab"
    assert detokenizer.text == "ab"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="stop string is empty"):
        StopStrings(["a", ""])


@given(text=st.text(alphabet="ab", max_size=30), stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=6)))
def test_exactly_the_longest_possible_beginning_of_a_stop_string_is_held(text: str, stops: list[str]) -> None:
    beginnings = [stop[:length] for stop in stops for length in range(1, len(stop))]
    assert StopStrings(stops).held_length(text) == max((len(b) for b in beginnings if text.endswith(b)), default=0)


@pytest.mark.parametrize(
    ("lead", "text", "expected"),
    [(" ", " Marlow, a town", "Marlow, a town"), (" ", "Marlow", "Marlow"), ("\n\n", "\n\nYes", "Yes"),
     ("\n\n", "\nYes \n\nNo", "Yes \n\nNo"), (" ", "  a", " a"), ("", " a", " a")],
)  # fmt: skip
def test_the_lead_of_an_answer_is_left_out_once(
    tokenizers_by_name: dict[str, Tokenizer], lead: str, text: str, expected: str
) -> None:
    tokenizer = tokenizers_by_name["preset"]
    detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids=tokenizer.encode("?"), lead=lead)
    deltas = stream(detokenizer, tokenizer.encode(text, add_special_tokens=False))
    assert "".join(deltas) == detokenizer.text == expected


def test_long_stop_strings_that_nearly_match_cost_no_more_than_a_search_in_their_order() -> None:
    """A thousand beginnings of each of 64 stop strings are no 64,000 comparisons."""
    num_comparisons = 0

    class Counted(str):
        def startswith(self, *args: Any) -> bool:
            nonlocal num_comparisons
            num_comparisons += 1
            return super().startswith(*args)

    stops = StopStrings([Counted("a" * number + "b" * (1024 - number)) for number in range(64)])
    assert stops.held_length("a" * 1000 + "c") == 0
    assert num_comparisons <= 1024
    assert stops.held_length("c" + "a" * 63) == 63
