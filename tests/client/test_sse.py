"""Server-sent events are complete, however the network splits the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.sse import EventReader


def read(*pieces: bytes) -> list[str]:
    reader = EventReader()
    return [data for piece in pieces for data in reader.feed(piece)] + reader.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data:one\r\n\r\ndata:  two\r\n\r\n", ["one", " two"]),
        (b"data: one\r\rdata: two\r\r", ["one", "two"]),
        (b": preempted\n\ndata: one\n\n: resumed\n\n", ["one"]),
        (b"event: x\nid: 3\nretry: 5\ndata: one\n\n", ["one"]),
        (b"data: one\ndata: two\n\n", ["one\ntwo"]),
        (b"data\n\n", [""]),
        (b"\xef\xbb\xbfdata: one\n\n", ["one"]),
        (b"\n\n\n", []),
        (b"", []),
        ("data: größer 🙂\n\n".encode(), ["größer 🙂"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: one\n\ndata: [DONE]", ["one", "[DONE]"]),  # without the last empty line
        (b"data: one\n\ndata: [DONE]\n", ["one", "[DONE]"]),
    ],
)
def test_the_data_of_each_event(stream: bytes, events: list[str]) -> None:
    assert read(stream) == events
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == events


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_however_the_bytes_are_cut(texts: list[str], newline: bytes, sizes: list[int]) -> None:
    stream = b"".join(b": comment" + newline + b"data: " + text.encode() + newline * 2 for text in texts)
    pieces, at = [], 0
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size
    assert read(*pieces) == texts


def test_an_event_is_given_with_the_bytes_that_end_it() -> None:
    reader = EventReader()
    assert reader.feed(b"data: one\n") == []
    assert reader.feed(b"\nda") == ["one"]
    assert reader.feed(b"ta: two\r\n\r\n") == ["two"]
