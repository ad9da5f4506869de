"""A record is intact only unchanged, for its key and its namespace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quire.tiers.store.layout.record import HEADER_BYTES, KEY_BYTES, Row, decode_header, encode_header, is_intact

names = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
contents = st.binary(max_size=300)
rows = st.builds(Row, names, names, st.floats(0, 1e6), st.integers(0, 2**63))


@given(names, rows, contents)
def test_what_was_written_is_intact(root: bytes, row: Row, data: bytes) -> None:
    header = encode_header(root, row, data)
    assert len(header) == HEADER_BYTES
    assert is_intact(root, row.key, header, data)
    assert decode_header(root, len(data), header) == row


@given(names, rows, contents, st.data())
def test_any_other_byte_anywhere_is_noticed(root: bytes, row: Row, content: bytes, data: st.DataObject) -> None:
    record = bytearray(encode_header(root, row, content) + content)
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    assert not is_intact(root, row.key, record[:HEADER_BYTES], bytes(record[HEADER_BYTES:]))


@given(names, rows, contents, names, names, contents)
def test_another_key_namespace_or_content_is_another_record(
    root: bytes, row: Row, data: bytes, other_root: bytes, other_key: bytes, other_data: bytes
) -> None:
    is_same = (root, row.key, data) == (other_root, other_key, other_data)
    assert is_intact(other_root, other_key, encode_header(root, row, data), other_data) == is_same
