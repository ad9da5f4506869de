"""Binary format of blocks in segments and swap files.

    file header    magic, version, block_bytes, capacity in bytes, root, checksum: 128 bytes
    record         header: magic, kind, length, cost, epoch, key, parent, checksum over that and the data,
                   checksum over the header: 128 bytes; then the data

All records of a segment have the same size. Its headers can be scanned without the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

VERSION = 1
KEY_BYTES = 32
FILE_HEADER_BYTES = 128
HEADER_BYTES = 128

_FILE_MAGIC = b"quireseg"
_FILE_FIELDS = struct.Struct("<8sI4xQQ32s")  # magic, version, block_bytes, capacity, root
_MAGIC = b"qblk"
_BLOCK = 1  # the only kind so far
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


def encode_header(root: bytes, row: Row, data: Buffer) -> bytes:
    """The header of a record with contiguous data."""
    fields = _FIELDS.pack(_MAGIC, _BLOCK, len(data), row.cost_s, row.epoch, row.key, row.parent)
    return with_checksum(fields + data_checksum(fields, data), HEADER_BYTES, root)


def decode_header(root: bytes, block_bytes: int, header: Buffer) -> Row | None:
    """Decode a header; None unless it belongs to a block of this size in this namespace."""
    if len(header) != HEADER_BYTES or not has_checksum(header, root):
        return None
    magic, kind, length, cost_s, epoch, key, parent = _FIELDS.unpack_from(header)
    if (magic, kind, length) != (_MAGIC, _BLOCK, block_bytes):
        return None
    return Row(key, parent, cost_s, epoch)


def is_intact(root: bytes, key: bytes, header: Buffer, data: Buffer) -> bool:
    """Whether header and data are the unaltered record of this key in this namespace."""
    row = decode_header(root, len(data), header)
    if row is None or row.key != key:
        return False
    return bytes(header[_FIELDS.size : _DATA_CHECKSUM_END]) == data_checksum(bytes(header[: _FIELDS.size]), data)


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
