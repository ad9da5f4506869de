"""The bytes that each token adds to the text, the same everywhere except for a marker or space at the start."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_STEPS = re.compile(r"(Replace )*(ByteFallback )?(Fuse (Strip )?)?")


def byte_level_alphabet() -> dict[str, int]:
    """Return byte-level BPE's character -> byte: printable Latin-1 as itself, the rest from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def decode_complete(data: bytes, *, mark_each_byte: bool) -> tuple[str, bytes]:
    """Return the text, and the incomplete bytes at its end. `mark_each_byte` is SentencePiece's way."""
    text = ""
    while data:
        try:
            return text + data.decode(), b""
        except UnicodeDecodeError as error:
            text += data[: error.start].decode()
            if error.reason == "unexpected end of data":
                return text, data[error.start :]
            text += "\ufffd" * (error.end - error.start if mark_each_byte else 1)
            data = data[error.end :]
    return text, b""


class TokenPieces:
    """Token id -> bytes, filled on use. `of` returns None for decoders without such a table."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._pieces: dict[int, bytes] = {}
        self._alphabet: dict[str, int] | None = None  # byte-level decoders only
        self._replacements: list[tuple[str, str]] = []
        self._start_marker: str | None = None  # dropped from the first token
        self._has_byte_tokens = False
        self.mark_each_byte = False  #: a broken character becomes one U+FFFD per byte
        self.strip_start = 0  #: spaces dropped at the start of the text

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> TokenPieces | None:
        if backend.decoder is None:
            return None
        decoder = json.loads(backend.decoder.__getstate__())
        steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
        kinds = [step["type"] for step in steps]
        pieces = cls(backend)
        if kinds == ["ByteLevel"]:
            pieces._alphabet = byte_level_alphabet()
        elif kinds == ["Metaspace"]:
            marker = steps[0]["replacement"]
            pieces._replacements = [(marker, " ")]
            if steps[0].get("prepend_scheme", "always") != "never":
                pieces._start_marker = marker
        elif kinds and _SENTENCEPIECE_STEPS.fullmatch("".join(f"{kind} " for kind in kinds)):
            return pieces if pieces._read_sentencepiece(steps) else None
        else:
            return None
        return pieces

    def _read_sentencepiece(self, steps: list[dict[str, Any]]) -> bool:
        for step in steps:
            if step["type"] == "Replace":
                if not step["pattern"].get("String"):
                    return False
                self._replacements.append((step["pattern"]["String"], step["content"]))
            elif step["type"] == "ByteFallback":
                self._has_byte_tokens = self.mark_each_byte = True
            elif step["type"] == "Strip":
                if step["content"] != " " or step["stop"]:
                    return False
                self.strip_start = step["start"]
        return True

    @property
    def has_start_rule(self) -> bool:
        """Whether the start of the text is decoded differently."""
        return self.strip_start > 0 or self._start_marker is not None

    def __getitem__(self, token_id: int) -> bytes:
        """The token's bytes within a text; empty for an unknown id."""
        piece = self._pieces.get(token_id)
        if piece is None:
            token = self._backend.id_to_token(token_id)
            piece = self._pieces[token_id] = b"" if token is None else self._to_bytes(token)
        return piece

    def at_start(self, token_id: int) -> bytes:
        """The token's bytes at the start of a text, before `strip_start` is applied."""
        if self._start_marker is None:
            return self[token_id]
        token = self._backend.id_to_token(token_id)
        return b"" if token is None else self._to_bytes(token.replace(self._start_marker, ""))

    def _to_bytes(self, token: str) -> bytes:
        if self._alphabet is not None:
            try:
                return bytes(self._alphabet[character] for character in token)
            except KeyError:  # an added token in plain text
                return token.encode()
        for old, new in self._replacements:
            token = token.replace(old, new)
        if self._has_byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.encode()
