"""Which tokens an answer's content was made of: their log-probabilities go with the text, and those of thoughts, calls
and markers do not.
"""

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
Told = tuple[Event, list[JsonObject]]  #: an event, and the log-probabilities of its tokens if it is content


class LogprobsReader:
    """Reads one answer as `AnswerReader` does, a character at a time, so as to know where each piece of content stands.

    Args:
        reader: of the answer.
        tokenizer: of the model.
        top: how many of the likeliest tokens are shown at each position.
        hidden_ids: special tokens that the text does not have.
        lead: what the tokens begin with and the text does not.
    """

    def __init__(self, reader: AnswerReader, tokenizer: Any, top: int, hidden_ids: Collection[int], lead: str) -> None:
        self._reader, self._tokenizer, self._top, self._hidden_ids = reader, tokenizer, top, hidden_ids
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # tokens may be parts of a character
        self._lead = lead
        self._num_characters = 0  # of all tokens
        self._tokens: deque[tuple[int, int, int, Entry]] = deque()  # first character, end, id, entry; not passed yet
        self._num_read = 0
        self._unread = ""  # text that no event has told of yet

    def feed(self, text: str, token_ids: Sequence[int], entries: Sequence[Entry]) -> list[Told]:
        """What a further piece of text turns out to be; tokens may come before their text."""
        for token_id, entry in zip(token_ids, entries, strict=True):
            start = self._num_characters
            if token_id not in self._hidden_ids:
                piece = self._decode(self._tokenizer.token_bytes(token_id))
                if not start and self._lead and piece:
                    piece, self._lead = piece.removeprefix(self._lead), ""
                self._num_characters += len(piece)
            self._tokens.append((start, self._num_characters, token_id, entry))
        told: list[Told] = []
        for character in text:
            self._num_read += 1
            self._unread += character
            told += self._locate(self._reader.feed(character))
        return _join(told)

    def finish(self) -> list[Told]:
        """What the rest is, now that the text has ended."""
        return self._locate(self._reader.finish())

    def _locate(self, events: Sequence[Event]) -> list[Told]:
        told: list[Told] = []
        for event in events:
            text = getattr(event, "text", "")
            at = self._unread.rfind(text) if text else -1
            if at < 0:
                told.append((event, []))
                continue
            start = self._num_read - len(self._unread) + at
            self._unread = self._unread[at + len(text) :]
            tokens = self._pass_tokens(start, start + len(text))
            told.append((event, self._show(tokens) if isinstance(event, Content) else []))
        return told

    def _pass_tokens(self, start: int, end: int) -> list[tuple[int, Entry]]:
        """Those that some character in this range begins with or is part of; earlier ones are forgotten."""
        found = []
        while self._tokens and self._tokens[0][0] < end:
            first, last, token_id, entry = self._tokens.popleft()
            if last > start or first == start:
                found.append((token_id, entry))
        return found

    def _show(self, tokens: Sequence[tuple[int, Entry]]) -> list[JsonObject]:
        ids, entries = [token_id for token_id, _ in tokens], [entry for _, entry in tokens]
        return chat_logprobs(self._tokenizer, ids, entries, self._top, shows_ids=False)


def _join(told: Sequence[Told]) -> list[Told]:
    """The same with neighbours of one kind as one."""

    def kind(each: Told) -> tuple[type, Any]:
        event = each[0]
        return type(event), event if isinstance(event, CallStart) else getattr(event, "index", None)

    joined: list[Told] = []
    for _, group in groupby(told, kind):
        events, logprobs = zip(*group, strict=True)
        event: Event = events[0]
        if not isinstance(event, CallStart):
            event = replace(event, text="".join(each.text for each in events))
        joined.append((event, [*chain.from_iterable(logprobs)]))
    return joined
