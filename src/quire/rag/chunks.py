"""Documents cut into chunks: as long as every model's tokenizer allows, ended where a sentence or line ends.

Chunks overlap, so that what stands at a border is whole in one of them. A chunk is a span of its document's text.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quire.rag.embedder import TokenCounter

#: Places where a chunk may end, the best ones first: after a paragraph, a line, a sentence, a word.
_BORDERS = tuple(map(re.compile, (r"\n[ \t]*\n\s*", r"\n\s*", r"[.!?…][\"'”’)\]]*\s+|[。！？]", r"\s+")))
_WINDOW = 1 << 16  # characters that are tokenized at once: it takes some 170 bytes for each
_REACH = (0.5, 0.25, 0.4, 0.5)  # of a chunk: how far before its longest end a border of each kind is looked for


@dataclass(frozen=True)
class Chunk:
    """A span of a document's text, in characters."""

    start: int
    end: int
    num_tokens: int  #: by the tokenizer that makes the most of them


def cut(text: str, counters: Sequence[TokenCounter], num_tokens: int, overlap: int) -> list[Chunk]:
    """The chunks of a text, in order; together they cover all of it but white space.

    Args:
        counters: of the models that read the chunks, the embedder's among them.
        num_tokens: that a chunk may have by any of them, with the special ones that it adds.
        overlap: tokens of a chunk that the next one begins with, at most, from the first border among
            them on.

    Raises:
        ValueError: `overlap` leaves no room for anything new.
    """
    if not 0 <= overlap <= num_tokens // 2:
        raise ValueError(f"an overlap of {overlap} tokens in chunks of {num_tokens}; take at most half of a chunk")
    cutter = _Cutter(text, counters)
    return list(cutter.cut(num_tokens, overlap))


class _Cutter:
    def __init__(self, text: str, counters: Sequence[TokenCounter]) -> None:
        self.text = text
        self.counters = counters
        # Of each tokenizer, where the whole text's tokens begin and end: an estimate for a span of it.
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
                limit = max(1, min(limit - 1, limit * num_tokens // count))  # alone, a span may have more tokens
            if stop <= before:  # nothing but what overlaps, and blanks
                start, stop = self._skip_space(before), before
                continue
            yield Chunk(start, stop, count)
            if self._skip_space(end) >= len(self.text):
                return
            start = max(self._skip_space(self._overlap_start(start, stop, overlap) or end), start + 1)

    def _count(self, start: int, end: int) -> int:
        return max(len(each.spans(self.text[start:end])) + each.num_special for each in self.counters)

    def _reach(self, start: int, limit: int) -> int:
        """The furthest end of a chunk that has at most `limit` tokens by every tokenizer, and at least a character."""
        furthest = len(self.text)
        for counter, starts, ends in zip(self.counters, self.starts, self.ends, strict=True):
            last = bisect_left(starts, start) + max(1, limit - counter.num_special)
            if last < len(starts):
                furthest = min(furthest, max(starts[last], ends[last - 1]))
        return max(furthest, start + 1)

    def _end(self, after: int, start: int, furthest: int) -> int:
        """The best border before `furthest`, and beyond the end of the chunk before."""
        if furthest == len(self.text):
            return furthest
        for borders, reach in zip(self.borders, _REACH, strict=True):
            index = bisect_right(borders, furthest) - 1
            if index >= 0 and borders[index] >= max(after + 1, furthest - int((furthest - start) * reach)):
                return borders[index]
        return furthest

    def _overlap_start(self, start: int, end: int, overlap: int) -> int | None:
        """Where the next chunk begins: the first border within the last `overlap` tokens, of the best kind that is
        there. None without one."""
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
    """The text in pieces that end before a blank, where there is one."""
    start = 0
    while start < len(text):
        end = start + _WINDOW
        if end < len(text):
            blank = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
            end = blank if blank > start else end
        yield start, min(end, len(text))
        start = end
