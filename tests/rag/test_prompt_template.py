"""Prompts with passages: the same form for every question, and the domains of each part."""

from __future__ import annotations

import pytest

from quire.core.block_keys import PUBLIC_ONLY, check_domains, collection_domain, tenant_domain
from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate, join_conversation, join_passage, join_question, share
from quire.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.byte_level(512)
ASKER = tenant_domain("key", b"secret")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_the_passages_are_the_collections_and_what_follows_is_the_askers() -> None:
    prompt = share(join_question(TOKENIZER, ["It is {red}.", "Or not."], "Is it {blue}?"), "id", ((0, ASKER),))
    text = TOKENIZER.decode(list(prompt.token_ids))
    assert text == prompt.text == "Context: It is {red}.\n\nOr not.\nQuestion: Is it {blue}?\nAnswer:"
    start, end = prompt.documents
    assert TOKENIZER.decode(list(prompt.token_ids[:start])) == "Context: It is {red}."
    assert prompt.domains == ((0, collection_domain("id")), (end, ASKER))
    check_domains(prompt.domains)


def test_without_tenants_all_of_it_is_the_collections_and_a_salt_narrows_it() -> None:
    prompt = join_question(TOKENIZER, ["a"], "b")
    assert share(prompt, "id", PUBLIC_ONLY).domains == ((0, collection_domain("id")),)
    assert share(prompt, "id", PUBLIC_ONLY, "s").domains == ((0, collection_domain("id").salted("s")),)


def test_nothing_is_shared_behind_what_a_template_writes_of_the_request() -> None:
    prompt = share(Prompt(token_ids=[1, 2, 3]), "id", ((0, ASKER),))
    assert prompt.domains == ((0, ASKER),)
    assert prompt.documents == ()


@pytest.mark.parametrize("form", [None, PromptTemplate.parse("{documents} | {question}?")])
@pytest.mark.parametrize("role", [None, "user", "system"])
def test_a_passage_alone_begins_every_prompt_with_it(role: str | None, form: PromptTemplate | None) -> None:
    found = join_passage(TOKENIZER, "It is red.", role=role, template=form, chat_template=TEMPLATE)
    assert found is not None
    alone, start = found
    messages = [{"role": role, "content": "Is it?"}, {"role": "user", "content": "No."}]
    if role is None:
        whole = join_question(TOKENIZER, ["It is red.", "b"], "Is it?", form)
    else:
        whole = join_conversation(TOKENIZER, ["It is red.", "b"], messages, form, chat_template=TEMPLATE)
    assert list(whole.token_ids[: whole.documents[0]]) == list(alone.token_ids)
    assert TOKENIZER.decode(list(alone.token_ids[start:])).strip() == "It is red."


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([("user", "Who?")], "<user>Context: a\n\nb\nQuestion: Who?"),
        ([("system", "Be brief."), ("user", "Who?")], "<system>Context: a\n\nb\n\nBe brief.<user>Who?"),
        ([("user", "Who?"), ("assistant", "I."), ("user", "Why?")],
         "<user>Context: a\n\nb\nQuestion: Who?<assistant>I.<user>Why?"),
    ],
)  # fmt: skip
def test_in_a_conversation_the_passages_stand_in_the_first_message(messages: list[tuple[str, str]], text: str) -> None:
    said = [{"role": role, "content": content} for role, content in messages]
    assert join_conversation(TOKENIZER, ["a", "b"], said, chat_template=TEMPLATE).text == text


@pytest.mark.parametrize("text", ["", "{documents}", "{question} {documents}", "{documents} {question} {question}"])
def test_a_form_has_documents_and_then_the_question(text: str) -> None:
    with pytest.raises(ValueError, match=r"should have \{documents\} once"):
        PromptTemplate.parse(text)
