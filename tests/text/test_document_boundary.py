"""A document's tokens do not depend on the text behind it, none is special, and the text is the template's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.text.document_boundary import join_messages, join_text
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.tokenizer import Tokenizer

TOKENIZER, ESCAPING = Tokenizer.byte_level(300), Tokenizer.byte_level(300)
ESCAPING.escaper = SpecialTokenEscaper(ESCAPING.backend)
#: Templates of real models: Qwen and similar; trimmed; with a default system prompt; with bos and brackets.
TEMPLATES = {
    "plain": TOKENIZER.chat_template,
    "trimmed": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}",
    "system": "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "brackets": "<s>{% for m in messages %}[INST] {{ m.content.strip() }} [/INST]{% endfor %}",
}
DOCUMENTS = st.lists(
    st.lists(st.sampled_from([*"aé\n. 7", "the ", "<|im_end|>", "<s>", "\ue0c2", "안녕"]), min_size=1).map("".join),
    min_size=1,
    max_size=2,
)
RESTS = st.lists(st.sampled_from([*"b\n ?", "the ", "Question:"]), max_size=6).map("".join)


def user(text: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def spans(joined: Any) -> list[list[int]]:
    starts = (0, *joined.documents[:-1])
    return [joined.token_ids[start:end] for start, end in zip(starts, joined.documents, strict=True)]


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece", "unigram", "word_piece", "preset"])
def test_documents_have_the_same_tokens_whatever_follows_and_none_is_special(
    name: str, tokenizers_by_name: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers_by_name[name]
    marks = {tokenizer.backend.token_to_id(token) for token in ("<s>", "<|im_end|>")}

    @settings(max_examples=15)
    @given(documents=DOCUMENTS, rest=RESTS, head=st.sampled_from(["", "Context: "]))
    def check(documents: list[str], rest: str, head: str) -> None:
        if not all(tokenizer.encode_plain(document) for document in documents):  # word pieces have no blanks
            return
        alone, joined = (join_text(tokenizer, documents, text, head=head) for text in ("", rest))
        assert joined.documents == alone.documents
        assert joined.token_ids[: alone.documents[-1]] == alone.token_ids
        assert joined.text == head + "".join(documents) + rest
        opening = tokenizer.encode("", add_special_tokens=True)
        assert joined.token_ids[: len(opening)] == opening
        assert not set(joined.token_ids[len(opening) :]) & marks

    check()


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece"])
def test_the_tokens_are_those_of_the_whole_text_where_nothing_merges_over_the_joint(
    name: str, tokenizers_by_name: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers_by_name[name]
    for head in ("", "Context:\n", "Context: "):
        joined = join_text(tokenizer, ["the quick fox.", "\nover there."], "\nthe end", head=head)
        assert joined.token_ids == tokenizer.encode(joined.text)
        assert tokenizer.decode(joined.token_ids) == joined.text


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=15)
@given(documents=DOCUMENTS, rest=RESTS, later=st.booleans(), escapes=st.booleans())
def test_a_conversation_with_documents_is_what_the_template_renders(
    template: str, documents: list[str], rest: str, later: bool, escapes: bool
) -> None:
    tokenizer = ESCAPING if escapes else TOKENIZER
    if not documents[0].strip():
        documents[0] = "a"
    rest += "!"  # a trimming template would trim the document if no text followed
    more = [{"role": "assistant", "content": "yes"}, *user("and?")] if later else []
    joined = join_messages(
        tokenizer, documents, [*user(rest), *more], chat_template=TEMPLATES[template], head="Read:\n"
    )
    alone = join_messages(tokenizer, documents, user(""), chat_template=TEMPLATES[template], head="Read:\n")
    assert joined.documents == alone.documents
    assert spans(joined) == spans(alone)
    shown = TOKENIZER.apply_chat_template(
        [*user("Read:\n" + "".join(documents) + rest), *more], chat_template=TEMPLATES[template]
    )
    assert joined.text == shown
    assert tokenizer.decode(joined.token_ids, skip_special_tokens=False) == shown
    harmless = join_messages(TOKENIZER, ["a"], [*user("!"), *more], chat_template=TEMPLATES[template])
    specials = [token for token in joined.token_ids if token in tokenizer.special_ids]
    assert specials == [token for token in harmless.token_ids if token in tokenizer.special_ids]


@pytest.mark.parametrize(("template", "start"), [("plain", " \n"), ("trimmed", ""), ("brackets", "")])
def test_a_document_is_trimmed_where_the_template_trims(template: str, start: str) -> None:
    joined = join_messages(TOKENIZER, [" \nThe fox."], user(" Who?"), chat_template=TEMPLATES[template])
    assert start + "The fox. Who?" in joined.text
    assert joined.text == TOKENIZER.apply_chat_template(user(" \nThe fox. Who?"), chat_template=TEMPLATES[template])


def test_a_content_of_parts_goes_on_behind_the_document() -> None:
    parts = [{"type": "text", "text": "Who?"}, {"type": "text", "text": "Where?"}]
    assert join_messages(TOKENIZER, ["The fox."], user(parts)) == join_messages(
        TOKENIZER, ["The fox."], user("Who?\nWhere?")
    )


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ messages[-1].content }}", "does not show the first message"),
        ("{{ messages[0].content | upper }}", "changes the text"),
        ("{{ messages[0].content | e }}", "changes the text"),
        ("{{ messages[0].content.split() | join(' ') }}", "changes the text"),
        ("{{ messages[0].content[:8] }}", "changes the text"),
        ("{{ messages[0].content }}{{ messages[0].content }}", "shows the first message 2 times"),
    ],
)
def test_a_template_that_does_not_show_the_document_as_it_is_is_refused(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"the chat template {problem}"):
        join_messages(TOKENIZER, ["The fox."], [*user("Who?"), *user("Where?")], chat_template=template)


def test_behind_what_a_request_brings_itself_no_document_may_be_shared() -> None:
    template = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}{{ tail }}"
    shared = join_messages(TOKENIZER, ["The fox."], user("Who?"), chat_template=template, variables={"tail": "!"})
    assert shared.documents == (len("The fox."),)
    tools = {"tools": [{"type": "function"}]}
    own = join_messages(TOKENIZER, ["The fox."], user("Who?"), chat_template=template, variables=tools)
    assert own.documents == ()
    assert own.text.endswith("The fox.Who?")


def test_documents_that_are_missing_or_empty_are_refused() -> None:
    with pytest.raises(ValueError, match="there are no documents"):
        join_text(TOKENIZER, [], "x")
    with pytest.raises(ValueError, match=r"documents\[1\] is empty"):
        join_text(TOKENIZER, ["x", ""])
    with pytest.raises(ValueError, match="not valid Unicode"):
        join_text(TOKENIZER, ["\ud800"])
