"""Binary format of blocks in segments and swap files.

    file header    magic, version, block_bytes, capacity in bytes, root, checksum: 128 bytes
    record         header: magic, kind, length of the data, cost, epoch, key, parent, checksum over that and the block,
                   checksum over the header: 128 bytes; then the data: the block, plain or coded (coding.py)
    encrypted      the same, with the seal of the data (cipher.py) in place of its checksum

Headers can be scanned without the data. All records of version 1 are plain, as those of a swap file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from quire.tiers.store.layout.cipher import SEAL_BYTES, Cipher
from quire.tiers.store.layout.coding import CODED_KINDS, decode

VERSION = 1  #: of a namespace's other files
SEGMENT_VERSIONS = (1, 2)  #: the last one is written
KEY_BYTES = 32
FILE_HEADER_BYTES = 128
HEADER_BYTES = 128

_FILE_MAGIC = b"quireseg"
_FILE_FIELDS = struct.Struct("<8sI4xQQ32s")  # magic, version, block_bytes, capacity, root
MAGIC = b"qblk"
_PLAIN = 1  # kinds of records, beside `CODED_KINDS`
_FIELDS = struct.Struct("<4sB3xQdQ32s32s")  # magic, kind, length, cost, epoch, key, parent
_CHECKSUM = struct.Struct("<Q")
CHECKSUM_BYTES = _CHECKSUM.size
_DATA_CHECKSUM_END = _FIELDS.size + 16

Buffer = memoryview | bytes | bytearray


class Row(NamedTuple):
    """The fields of a record's header."""

    key: bytes
    parent: bytes  #: the key before it, or the namespace's root
    cost_s: float
    epoch: int  #: number of deletions when its storage was decided


@dataclass(frozen=True)
class FileHeader:
    version: int
    block_bytes: int
    capacity: int  #: maximum size of the file
    root: bytes

    def encode(self) -> bytes:
        fields = _FILE_FIELDS.pack(_FILE_MAGIC, self.version, self.block_bytes, self.capacity, self.root)
        return with_checksum(fields, FILE_HEADER_BYTES)

    @staticmethod
    def decode(header: bytes) -> FileHeader | None:
        """Decode a header of any version; None if it is damaged."""
        if len(header) != FILE_HEADER_BYTES or not has_checksum(header) or not header.startswith(_FILE_MAGIC):
            return None
        _, version, block_bytes, capacity, root = _FILE_FIELDS.unpack_from(header)
        return FileHeader(version, block_bytes, capacity, root)


def encode_header(root: bytes, row: Row, block: Buffer, kind: int = _PLAIN, coded: Buffer | None = None) -> bytes:
    """The header of a record of a contiguous block, plain or as `coded` data of this kind."""
    fields = _encode_fields(row, kind, len(block if coded is None else coded))
    return with_checksum(fields + data_checksum(fields, block), HEADER_BYTES, root)


def encode_record(
    root: bytes, row: Row, block: Buffer, cipher: Cipher | None, kind: int | None = None, coded: Buffer | None = None
) -> list[Buffer]:
    """The header and data of a record, encrypted by a cipher. Without `coded` data of this kind the block is plain."""
    kind, data = (_PLAIN, block) if kind is None or coded is None else (kind, coded)
    if cipher is None:
        return [encode_header(root, row, block, kind, coded), data]
    fields = _encode_fields(row, kind, len(data))
    seal, encrypted = cipher.encrypt(root + fields, data)
    return [with_checksum(fields + seal, HEADER_BYTES, root), encrypted]


def _encode_fields(row: Row, kind: int, length: int) -> bytes:
    return _FIELDS.pack(MAGIC, kind, length, row.cost_s, row.epoch, row.key, row.parent)


def decode_header(root: bytes, block_bytes: int, header: Buffer) -> Row | None:
    """Decode a header; None unless it belongs to a block of this size in this namespace."""
    if len(header) != HEADER_BYTES or not has_checksum(header, root):
        return None
    magic, kind, length, cost_s, epoch, key, parent = _FIELDS.unpack_from(header)
    if magic != MAGIC or not (length < block_bytes if kind in CODED_KINDS else (kind, length) == (_PLAIN, block_bytes)):
        return None
    return Row(key, parent, cost_s, epoch)


def data_length(header: Buffer) -> int:
    return int(_FIELDS.unpack_from(header)[2])


def is_intact(root: bytes, key: bytes, header: Buffer, block: Buffer) -> bool:
    """Whether header and (decoded) block are the unaltered record of this key in this namespace."""
    row = decode_header(root, len(block), header)
    if row is None or row.key != key:
        return False
    return bytes(header[_FIELDS.size : _DATA_CHECKSUM_END]) == data_checksum(bytes(header[: _FIELDS.size]), block)


def read_block(
    root: bytes, key: bytes, header: Buffer, data: memoryview, into: memoryview, cipher: Cipher | None
) -> bool:
    """Check the record of this key, decrypt its data in place and, unless `into` is the data, decode it. Returns False
    if it is damaged, or is none; data and `into` are then undefined."""
    if cipher is None:
        is_plain = data is into or (header[4] in CODED_KINDS and decode(header[4], data, into))
        return is_plain and is_intact(root, key, header, into)
    row = decode_header(root, len(into), header)
    if row is None or row.key != key:
        return False
    fields, seal = bytes(header[: _FIELDS.size]), bytes(header[_FIELDS.size : _FIELDS.size + SEAL_BYTES])
    return cipher.decrypt(root + fields, seal, data) and (data is into or decode(header[4], data, into))


def read_record(root: bytes, block_bytes: int, record: memoryview, cipher: Cipher | None) -> Row | None:
    """The fields of an intact record; else None."""
    header, data = record[:HEADER_BYTES], record[HEADER_BYTES:]
    row = decode_header(root, block_bytes, header)
    if row is None or len(data) != data_length(header):
        return None
    if cipher is not None:
        data = memoryview(bytearray(data))  # the record stays encrypted
    into = data if len(data) == block_bytes else memoryview(bytearray(block_bytes))
    return row if read_block(root, row.key, header, data, into, cipher) else None


def data_checksum(fields: bytes, data: Buffer) -> bytes:
    checksum = xxhash.xxh3_128(fields)
    checksum.update(data)
    return checksum.digest()


def with_checksum(fields: bytes, num_bytes: int = 0, root: bytes = b"") -> bytes:
    """Return fields, padded to `num_bytes`, with a checksum over the root and them."""
    fields = fields.ljust(num_bytes - _CHECKSUM.size, b"\0")
    return fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(root + fields))


def has_checksum(header: Buffer, root: bytes = b"") -> bool:
    if len(header) < CHECKSUM_BYTES:
        return False
    (expected,) = _CHECKSUM.unpack_from(header, len(header) - _CHECKSUM.size)
    return bool(expected == xxhash.xxh3_64_intdigest(root + bytes(header[: -_CHECKSUM.size])))
