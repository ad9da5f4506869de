"""The bytes that each token adds to the text.

Text is a concatenation: nearly every decoder in use gives each token the same bytes wherever it stands, but for a
marker or a space dropped at the very start. Knowing those bytes makes detokenizing a table lookup.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_STEPS = re.compile(r"(Replace )*(ByteFallback )?(Fuse (Strip )?)?")


def byte_level_alphabet() -> dict[str, int]:
    """The 256 characters in which byte-level BPE writes bytes: printable Latin-1 as itself, the rest from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def decode_complete(data: bytes, *, mark_each_byte: bool) -> tuple[str, bytes]:
    """The text of `data` and the bytes at its end that may still become a character.

    Bytes that can never be UTF-8 become U+FFFD: one for a broken character, as the Unicode standard advises, or one
    for each of its bytes with `mark_each_byte`, as SentencePiece does.
    """
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
    """A table from token id to bytes, filled as it is used. `of` builds it, or gives None for other decoders."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._pieces: dict[int, bytes] = {}
        self._alphabet: dict[str, int] | None = None  # byte-level decoders only
        self._replacements: list[tuple[str, str]] = []
        self._start_marker: str | None = None  # dropped from the token that starts the text
        self._has_byte_tokens = False
        self.mark_each_byte = False  #: a broken character becomes one U+FFFD a byte, not one in all
        self.strip_start = 0  #: spaces that are dropped where the whole text starts

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
        """Whether the start of the text is treated otherwise than the rest."""
        return self.strip_start > 0 or self._start_marker is not None

    def __getitem__(self, token_id: int) -> bytes:
        """The bytes that the token adds within a text; none for an id that the tokenizer does not know."""
        piece = self._pieces.get(token_id)
        if piece is None:
            token = self._backend.id_to_token(token_id)
            piece = self._pieces[token_id] = b"" if token is None else self._to_bytes(token)
        return piece

    def at_start(self, token_id: int) -> bytes:
        """The bytes that the token adds as the first of a text, before `strip_start` is applied."""
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
