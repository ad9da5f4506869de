"""A record is intact only as it was written, for the key and the namespace that it was written for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.tiers.block_record import HEADER_BYTES, encode_header, is_intact

names = st.binary(max_size=32)
contents = st.binary(max_size=300)


@given(names, names, contents)
def test_what_was_written_is_intact(key: bytes, namespace: bytes, data: bytes) -> None:
    header = encode_header(key, namespace, data)
    assert len(header) == HEADER_BYTES
    assert is_intact(header, key, namespace, data)


@given(names, names, contents, st.data())
def test_any_other_byte_anywhere_is_noticed(key: bytes, namespace: bytes, content: bytes, data: st.DataObject) -> None:
    record = bytearray(encode_header(key, namespace, content) + content)
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    assert not is_intact(record[:HEADER_BYTES], key, namespace, bytes(record[HEADER_BYTES:]))


@given(names, names, contents, names, names, contents)
def test_another_key_namespace_or_content_is_another_record(
    key: bytes, namespace: bytes, data: bytes, other_key: bytes, other_namespace: bytes, other_data: bytes
) -> None:
    is_same = (key, namespace, data) == (other_key, other_namespace, other_data)
    assert is_intact(encode_header(key, namespace, data), other_key, other_namespace, other_data) == is_same


def test_names_do_not_run_into_each_other() -> None:
    assert encode_header(b"a", b"", b"") != encode_header(b"a\0", b"", b"")


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 32 bytes"):
        encode_header(bytes(33), b"", b"")
