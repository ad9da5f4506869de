"""Incremental detokenization: decode output tokens as they arrive, stop at stop strings, return deltas."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.text.text_stream import open_stream

if TYPE_CHECKING:
    from quire.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Decodes output tokens at a constant cost per token.

    The text is `decode(prompt + output)` minus the text decided by `decode(prompt)`. A space between prompt and output
    is kept, and a character begun by the prompt and completed by the output belongs to the output. One difference is
    deliberate: of an invalid run of byte tokens (SentencePiece's byte fallback) the library drops everything, whereas
    its valid characters stay here, as in SentencePiece, since they may have been streamed.

    An incomplete character is in neither `text` nor a delta, until `finish` or `take_delta(finished=True)` turns it
    into U+FFFD.

    Args:
        stop: strings that end the text, found across token boundaries.
        include_stop_str_in_output: keep the matching stop string at the end of the text.
        prompt_token_ids: prompt tokens, of which only the first and last few are read.
        lead: blanks to drop at the start of the text (`Tokenizer.answer_lead`).
        shown_specials: special tokens kept despite `skip_special_tokens`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        stop: Sequence[str] = (),
        include_stop_str_in_output: bool = False,
        prompt_token_ids: Sequence[int] = (),
        lead: str = "",
        shown_specials: Sequence[int] = (),
    ) -> None:
        hidden = tokenizer.special_ids.difference(shown_specials) if skip_special_tokens else frozenset()
        self._stream = open_stream(tokenizer, prompt_token_ids, hidden)
        self._stops = StopStrings(stop)
        self._include_stop = include_stop_str_in_output
        self._delivered: list[str] = []
        self._fresh: list[str] = []  # decided but not delivered
        self._tail = ""  # last characters, which may begin a stop string
        self._lead = lead  # blanks still to drop
        self.stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All decided text, delivered or not."""
        return "".join(self._delivered) + "".join(self._fresh)

    def append(self, token_ids: Sequence[int], *, check_stop: bool = True) -> str | None:
        """Add output tokens and return the stop string that they complete, if any, at which the text then ends.

        With `check_stop=False` (min_tokens), a stop string completed by these tokens is ignored; one that begins in
        them still counts later.
        """
        if self.stop_reason is not None:
            return self.stop_reason
        feed = self._stream.feed
        new_text = feed(token_ids[0]) if len(token_ids) == 1 else "".join(map(feed, token_ids))
        if self._lead:
            new_text = self._without_lead(new_text)
        if not new_text:
            return None
        self._fresh.append(new_text)
        return self._search(new_text, check_stop) if self._stops else None

    def _without_lead(self, text: str) -> str:
        same = 0
        while same < len(text) and text[same] == self._lead[same : same + 1]:
            same += 1
        self._lead = self._lead[same:] if same == len(text) else ""
        return text[same:]

    def _search(self, new_text: str, check_stop: bool) -> str | None:
        window = self._tail + new_text
        match = self._stops.first_match(window, len(self._tail)) if check_stop else None
        if match is None:
            self._tail = window[max(0, len(window) + 1 - self._stops.longest) :]
            return None
        start, end = match
        self.stop_reason = window[start:end]
        # Text that may begin a stop string is never delivered, so the cut lies in the fresh text.
        surplus = len(window) - (end if self._include_stop else start)
        fresh = "".join(self._fresh)
        self._fresh = [fresh[: len(fresh) - surplus]]
        return self.stop_reason

    def finish(self) -> None:
        """Decide an incomplete character, since no more tokens follow."""
        if self.stop_reason is None and (rest := self._stream.flush()):
            self._fresh.append(rest)

    def take_delta(self, finished: bool) -> str:
        """Return newly decided text. Unless `finished`, possible stop strings and characters are held back."""
        if finished:
            self.finish()
        fresh = "".join(self._fresh)
        held = 0
        if not (finished or self._include_stop or self.stop_reason is not None):
            held = self._stops.held_length(fresh)
        delta = fresh[: len(fresh) - held]
        self._delivered.append(delta)
        self._fresh = [fresh[len(delta) :]] if held else []
        return delta


class StopStrings:
    """Stop strings, searched together.

    The one completed at the earliest character wins, so the result does not depend on the tokenization. Of two that
    end at the same character, the longer wins.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys([stops] if isinstance(stops, str) else stops))
        if "" in self._stops:
            raise ValueError("a stop string is empty; give one or more characters, or leave `stop` out")
        self._sorted = sorted(self._stops)
        self.longest = max(map(len, self._stops), default=0)

    def __bool__(self) -> bool:
        return bool(self._stops)

    def first_match(self, text: str, after: int) -> tuple[int, int] | None:
        """Start and end of the first stop string that ends after offset `after`, or None."""
        found = ((text.find(stop, max(0, after + 1 - len(stop))), len(stop)) for stop in self._stops)
        ends = [(start + length, start) for start, length in found if start >= 0]
        return min(ends)[::-1] if ends else None

    def held_length(self, text: str) -> int:
        """Length of the longest suffix of `text` that may begin a stop string."""
        for start in range(max(0, len(text) + 1 - self.longest), len(text)):
            suffix = text[start:]
            at = bisect_right(self._sorted, suffix)  # longer strings with this beginning come next
            if at < len(self._sorted) and self._sorted[at].startswith(suffix):
                return len(suffix)
        return 0
