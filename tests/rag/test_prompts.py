"""Prompts about passages: the same form for every question, and whose each part's KV is."""

from __future__ import annotations

import pytest

from quire.core.block_keys import PUBLIC, Domain, check_domains, tenant_domain
from quire.rag.prompts import documents_domain, passages_prompt, with_domains
from quire.text.joint import Joined
from quire.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.byte_level(512)
ASKER = tenant_domain("key", b"secret")


@pytest.mark.parametrize("is_public", [False, True])
def test_the_documents_are_the_collections_and_what_follows_is_the_askers(is_public: bool) -> None:
    documents = documents_domain("a collection", is_public=is_public)
    prompt = passages_prompt(TOKENIZER, ["It is {red}.", " Or not."], "Is it {blue}?", documents, ASKER)
    assert TOKENIZER.decode(list(prompt.token_ids)) == (
        "Context: It is {red}. Or not.\nQuestion: Is it {blue}?\nAnswer:"
    )
    start, end = prompt.documents
    assert TOKENIZER.decode(list(prompt.token_ids[:start])) == "Context: It is {red}."
    assert prompt.domains == ((0, documents), (end, ASKER))
    check_domains(prompt.domains)
    assert (documents == PUBLIC) == is_public


def test_where_nobody_is_told_apart_all_of_it_is_the_documents() -> None:
    documents = documents_domain("a collection")
    assert passages_prompt(TOKENIZER, ["a"], "b", documents).domains == ((0, documents),)


def test_nothing_is_shared_behind_what_a_template_writes_of_the_request() -> None:
    prompt = with_domains(Joined("tools, documents", [1, 2, 3], ()), Domain(1, b"c"), ASKER)
    assert prompt.domains == ((0, ASKER),)
    assert prompt.documents == ()
