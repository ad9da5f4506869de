"""A prompt, in the one form in which it goes from whoever asks to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.block_keys import PUBLIC_ONLY, DomainSpans


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, token ids, or both where the text is encoded already.

    Attributes:
        token_ids: empty where the text is still to be encoded.
        domains: who may share the KV of its blocks.
        documents: the tokens after each document's last, ascending; the KV of full blocks up to there is kept on disk.
        answer_lead: blanks that the answer's text starts without (`Tokenizer.answer_lead`).
        shown_specials: special tokens that the answer's text has, though others are left out of it.
    """

    text: str | None = None
    token_ids: Sequence[int] = ()
    domains: DomainSpans = PUBLIC_ONLY
    documents: tuple[int, ...] = ()
    answer_lead: str = ""
    shown_specials: tuple[int, ...] = ()

    @property
    def owner(self) -> str:
        """Whose it is, by the narrowest of its domains, whatever its salt."""
        domain = self.domains[-1][1]
        return f"{domain.level}-{domain.name.hex()}"

    @classmethod
    def of(cls, given: PromptLike) -> Prompt:
        """The prompt that a bare text or a bare list of token ids stands for."""
        if isinstance(given, Prompt):
            return given
        return cls(text=given) if isinstance(given, str) else cls(token_ids=given)


PromptLike = Prompt | str | Sequence[int]  #: what `Prompt.of` takes
