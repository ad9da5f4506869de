"""Log-probabilities of a response's content, without those of reasoning, calls and markers."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

from quire.server.openai.logprobs import Entry, chat_logprobs
from quire.server.tools.answer_reader import AnswerReader
from quire.server.tools.events import CallStart, Content, Event

JsonObject = dict[str, Any]
ScoredEvent = tuple[Event, list[JsonObject]]  #: an event, and the log-probabilities of its tokens if it is content


class LogprobsReader:
    """Parses one answer one character at a time, to know the position of each piece of content.

    Args:
        top: number of likeliest tokens to show.
        hidden_ids: special tokens that the text lacks.
        lead: prefix of the tokens that the text lacks.
    """

    def __init__(self, reader: AnswerReader, tokenizer: Any, top: int, hidden_ids: Collection[int], lead: str) -> None:
        self._reader, self._tokenizer, self._top, self._hidden_ids = reader, tokenizer, top, hidden_ids
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # tokens may be parts of a character
        self._lead = lead
        self._num_characters = 0  # of all tokens
        self._tokens: deque[tuple[int, int, int, Entry]] = deque()  # first character, end, id, entry; not passed yet
        self._num_read = 0
        self._unread = ""  # text without an event yet

    def feed(self, text: str, token_ids: Sequence[int], entries: Sequence[Entry]) -> list[ScoredEvent]:
        """Return the events in a further piece of text; tokens may come before their text."""
        for token_id, entry in zip(token_ids, entries, strict=True):
            start = self._num_characters
            if token_id not in self._hidden_ids:
                piece = self._decode(self._tokenizer.token_bytes(token_id))
                if not start and self._lead and piece:
                    piece, self._lead = piece.removeprefix(self._lead), ""
                self._num_characters += len(piece)
            self._tokens.append((start, self._num_characters, token_id, entry))
        scored: list[ScoredEvent] = []
        for character in text:
            self._num_read += 1
            self._unread += character
            scored += self._score(self._reader.feed(character))
        return _join(scored)

    def finish(self) -> list[ScoredEvent]:
        """Return the events in the rest, at the end of the text."""
        return self._score(self._reader.finish())

    def _score(self, events: Sequence[Event]) -> list[ScoredEvent]:
        scored: list[ScoredEvent] = []
        for event in events:
            text = getattr(event, "text", "")
            at = self._unread.rfind(text) if text else -1
            logprobs: list[JsonObject] = []
            if at >= 0:
                start = self._num_read - len(self._unread) + at
                self._unread = self._unread[at + len(text) :]
                tokens = self._pass_tokens(start, start + len(text))
                if isinstance(event, Content):
                    ids, entries = [token_id for token_id, _ in tokens], [entry for _, entry in tokens]
                    logprobs = chat_logprobs(self._tokenizer, ids, entries, self._top, shows_ids=False)
            scored.append((event, logprobs))
        return scored

    def _pass_tokens(self, start: int, end: int) -> list[tuple[int, Entry]]:
        """Remove the tokens before `end`, and return those that overlap with the range."""
        found = []
        while self._tokens and self._tokens[0][0] < end:
            first, last, token_id, entry = self._tokens.popleft()
            if last > start or first == start:
                found.append((token_id, entry))
        return found


def _join(scored: Sequence[ScoredEvent]) -> list[ScoredEvent]:
    """Join neighbouring events of one kind."""

    def kind(each: ScoredEvent) -> tuple[type, Any]:
        event = each[0]
        return type(event), event if isinstance(event, CallStart) else getattr(event, "index", None)

    joined: list[ScoredEvent] = []
    for _, group in groupby(scored, kind):
        events, logprobs = zip(*group, strict=True)
        event: Event = events[0]
        if not isinstance(event, CallStart):
            event = replace(event, text="".join(each.text for each in events))
        joined.append((event, [*chain.from_iterable(logprobs)]))
    return joined
