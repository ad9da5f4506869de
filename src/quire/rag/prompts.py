"""From passages and a question to a prompt, which says whose the KV of each part is. Imports no torch.

head | passages | what follows
the collection's, kept on disk | the asker's own
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.core.block_keys import PUBLIC, Domain, DomainSpans
from quire.prompt import Prompt
from quire.text.joint import Joined, join_text
from quire.text.tokenizer import Tokenizer

HEAD = "Context: "
REST = "\nQuestion: {question}\nAnswer:"


def documents_domain(collection_id: str, *, is_public: bool = False) -> Domain:
    """Who may share the KV of a collection's documents: whoever may read it. Its id is random, and new when it is made
    again."""
    return PUBLIC if is_public else Domain(1, collection_id.encode())


def passages_prompt(
    tokenizer: Tokenizer,
    passages: Sequence[str],
    question: str,
    documents: Domain,
    asker: Domain | None = None,
    *,
    head: str = HEAD,
    rest: str = REST,
) -> Prompt:
    """`Context: ... Question: ... Answer:` for one model.

    Args:
        tokenizer: of the model.
        passages: in front of the question, in this order.
        documents: of the passages' collection (`documents_domain`).
        asker: whose the question is; None where nobody is told apart: then all of it is the documents'.
        head: what stands in front of the passages, the same for every prompt.
        rest: what follows them, with `{question}` in it.

    Raises:
        ValueError: there are no passages, one is empty or not valid Unicode, or the asker's domain is not narrower.
    """
    joined = join_text(tokenizer, passages, rest.replace("{question}", question), head=head)
    return with_domains(joined, documents, asker)


def with_domains(joined: Joined, documents: Domain, asker: Domain | None = None) -> Prompt:
    """A joined prompt, as the engine takes it; a conversation's too. The arguments are those of `passages_prompt`.

    Where the template writes something of the request's own in front of the documents, all of it is the asker's and
    nothing is kept for others.
    """
    if asker is None:
        spans: DomainSpans = ((0, documents),)
    elif joined.documents:
        spans = ((0, documents), (joined.documents[-1], asker))
    else:
        spans = ((0, asker),)
    return Prompt(token_ids=joined.token_ids, domains=spans, documents=joined.documents)
