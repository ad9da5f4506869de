"""Sources of draft tokens."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from quire.core.request import Sequence
from quire.core.speculation.ngrams import NgramIndex
from quire.outputs import FROM_MODEL


@dataclass(slots=True)
class Draft:
    """Tokens that may follow a sequence."""

    token_ids: list[int]
    source: str
    strength: int = 0  #: of the evidence: drafts of equal source and strength are accepted equally often
    prior: float = 0.5  #: rate of acceptance until it has been measured

    @property
    def is_from_model(self) -> bool:
        return self.source == "model"

    @property
    def kind(self) -> tuple[str, int]:
        return self.source, self.strength


def model_draft(most: int) -> Draft:
    """Return a draft that the runner's draft model fills in."""
    return Draft([FROM_MODEL] * most, "model", prior=0.7)


class DraftSource(Protocol):
    """Proposes draft tokens of one sequence, whatever the cost; wrong ones cost time and change no output."""

    def propose(self, seq: Sequence, most: int) -> Draft | None:
        """Return up to `most` tokens after those that `seq` has; None for none."""
        ...


class Lookup:
    """Tokens that followed the last ones earlier in the text: prompt, with its documents, and output; before them the
    request's `prediction`."""

    def __init__(self, prediction: Seq[int] = ()) -> None:
        self._prediction = list(prediction)
        self._text: list[int] = list(prediction)
        self._index = NgramIndex()

    def propose(self, seq: Sequence, most: int) -> Draft | None:
        tokens, text, prediction = seq.token_ids, self._text, self._prediction
        text += tokens[len(text) - len(prediction) :]
        length = seq.num_output_tokens
        if 0 < length < len(prediction) and tokens[-length:] == prediction[:length]:
            return Draft(prediction[length : length + most], "prediction", prior=0.9)
        found, match = self._index.propose(text, most)
        return Draft(found, "lookup", min(match, 8), prior=min(0.9, 0.2 + 0.1 * match)) if found else None
