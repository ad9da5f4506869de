"""`Prompt`: the engine's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.block_keys import PUBLIC_ONLY, DomainSpans


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, token ids, or both if the text is encoded already."""

    text: str | None = None
    token_ids: Sequence[int] = ()  #: empty if the text is not encoded yet
    domains: DomainSpans = PUBLIC_ONLY  #: sharing domains of its KV blocks
    documents: tuple[int, ...] = ()  #: their ends, ascending; the KV of full blocks up to there is kept on disk
    answer_lead: str = ""  #: blanks to strip from the start of the answer (`Tokenizer.answer_lead`)
    prediction: tuple[int, ...] = ()  #: tokens that the answer may repeat, as drafts
    shown_specials: tuple[int, ...] = ()  #: special tokens to show in the answer's text
    adapter: str = ""  #: name of a loaded LoRA adapter (`engine.adapters`); "" is none

    @property
    def owner(self) -> str:
        """Name of the narrowest domain, without its salt."""
        domain = self.domains[-1][1]
        return f"{domain.level}-{domain.name.hex()}"

    @classmethod
    def of(cls, given: PromptLike) -> Prompt:
        """Return the prompt of a text or a list of token ids."""
        if isinstance(given, Prompt):
            return given
        return cls(text=given) if isinstance(given, str) else cls(token_ids=given)


PromptLike = Prompt | str | Sequence[int]  #: accepted by `Prompt.of`
