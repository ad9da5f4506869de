"""Cut documents into overlapping chunks that fit every model's tokenizer and end at sentences or lines."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quire.rag.embedder import TokenCounter

#: Borders at which a chunk may end, best first: after a paragraph, a line, a sentence, a word.
_BORDERS = tuple(map(re.compile, (r"\n[ \t]*\n\s*", r"\n\s*", r"[.!?…][\"'”’)\]]*\s+|[。！？]", r"\s+")))
_WINDOW = 1 << 16  # characters tokenized at once, at some 170 bytes of memory each
_REACH = (0.5, 0.25, 0.4, 0.5)  # search range of each kind of border before a chunk's longest end


@dataclass(frozen=True)
class Chunk:
    """A span of a document's text, in characters."""

    start: int
    end: int
    num_tokens: int  #: maximum over the tokenizers


def cut(text: str, counters: Sequence[TokenCounter], num_tokens: int, overlap: int) -> list[Chunk]:
    """Cut a text into chunks of at most `num_tokens` by every counter, repeating at most `overlap` tokens."""
    if not 0 <= overlap <= num_tokens // 2:
        raise ValueError(f"an overlap of {overlap} tokens in chunks of {num_tokens}; take at most half of a chunk")
    cutter = _Cutter(text, counters)
    return list(cutter.cut(num_tokens, overlap))


class _Cutter:
    def __init__(self, text: str, counters: Sequence[TokenCounter]) -> None:
        self.text = text
        self.counters = counters
        # Per tokenizer, the token boundaries of the whole text: an estimate for any span of it.
        self.starts = [array("q") for _ in counters]
        self.ends = [array("q") for _ in counters]
        for first, last in _windows(text):
            for counter, starts, ends in zip(counters, self.starts, self.ends, strict=True):
                spans = counter.spans(text[first:last])
                starts.extend(first + start for start, _ in spans)
                ends.extend(first + end for _, end in spans)
        self.borders = [[match.end() for match in border.finditer(text)] for border in _BORDERS]

    def cut(self, num_tokens: int, overlap: int) -> Iterator[Chunk]:
        start, stop = self._skip_space(0), 0
        while start < len(self.text):
            limit, before = num_tokens, stop
            while True:
                end = self._end(max(start, before), start, self._reach(start, limit))
                stop = start + len(self.text[start:end].rstrip())
                count = self._count(start, stop)
                if count <= num_tokens or limit == 1:
                    break
                limit = max(1, min(limit - 1, limit * num_tokens // count))  # a span alone may have more tokens
            if stop <= before:  # only overlap and blanks
                start, stop = self._skip_space(before), before
                continue
            yield Chunk(start, stop, count)
            if self._skip_space(end) >= len(self.text):
                return
            start = max(self._skip_space(self._overlap_start(start, stop, overlap) or end), start + 1)

    def _count(self, start: int, end: int) -> int:
        return max(len(each.spans(self.text[start:end])) + each.num_special for each in self.counters)

    def _reach(self, start: int, limit: int) -> int:
        """The furthest end of a chunk of at most `limit` tokens; at least one character."""
        furthest = len(self.text)
        for counter, starts, ends in zip(self.counters, self.starts, self.ends, strict=True):
            last = bisect_left(starts, start) + max(1, limit - counter.num_special)
            if last < len(starts):
                furthest = min(furthest, max(starts[last], ends[last - 1]))
        return max(furthest, start + 1)

    def _end(self, after: int, start: int, furthest: int) -> int:
        """The best border up to `furthest` and behind `after`, the end of the previous chunk."""
        if furthest == len(self.text):
            return furthest
        for borders, reach in zip(self.borders, _REACH, strict=True):
            index = bisect_right(borders, furthest) - 1
            if index >= 0 and borders[index] >= max(after + 1, furthest - int((furthest - start) * reach)):
                return borders[index]
        return furthest

    def _overlap_start(self, start: int, end: int, overlap: int) -> int | None:
        """Start of the next chunk: the first border of the best kind within the last `overlap` tokens, or None."""
        earliest = start + 1
        for starts in self.starts:
            first = bisect_left(starts, end) - overlap
            if first >= len(starts) or overlap == 0:
                return None
            earliest = max(earliest, starts[max(first, 0)])
        for borders in self.borders:
            index = bisect_left(borders, earliest)
            if index < len(borders) and borders[index] < end:
                return borders[index]
        return None

    def _skip_space(self, start: int) -> int:
        while start < len(self.text) and self.text[start].isspace():
            start += 1
        return start


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Split the text into windows that end before a blank, if they have one."""
    start = 0
    while start < len(text):
        end = start + _WINDOW
        if end < len(text):
            blank = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
            end = blank if blank > start else end
        yield start, min(end, len(text))
        start = end
