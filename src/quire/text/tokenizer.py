"""Text to token ids and back, over the `tokenizers` library: the same ids as `transformers`, without importing it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from quire.system.malloc import give_memory_back
from quire.text.plain_tools import explain_tools, spell_out_calls
from quire.text.special_tokens import SpecialTokenEscaper
from quire.text.token_pieces import TokenPieces, byte_level_alphabet
from quire.text.tokenizer_files import read_tokenizer_files

_LARGE_CHARACTERS = 2**16
_BYTE_LEVEL_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_BYTE_LEVEL_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Tokenizer:
    """Use `from_dir` or `byte_level`.

    Attributes:
        bos_token_id, eos_token_id, pad_token_id: None where the files name none.
        special_ids: the ids that `skip_special_tokens` leaves out.
        special_tokens: bos_token, eos_token and the like by name, as chat templates see them.
        chat_template: the template used when none is asked for, or None.
        pieces: the bytes of each token, or None for a decoder that cannot be taken apart.
        escaper: where special tokens in people's texts are to be plain text; None where they are special, as in the
            reference.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.special_tokens = dict(special_tokens or {})
        self.chat_templates = dict(chat_templates or {})
        self.pieces = TokenPieces.of(backend)
        self.escaper: SpecialTokenEscaper | None = None
        self.special_ids = frozenset(id_ for id_, token in backend.get_added_tokens_decoder().items() if token.special)
        self.bos_token_id = self._named_id("bos_token")
        self.eos_token_id = self._named_id("eos_token")
        self.pad_token_id = self._named_id("pad_token")

    @classmethod
    def from_dir(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a model directory in the Hugging Face format.

        Raises:
            ValueError: a file is missing or broken; the message names it and says how to mend it.
        """
        files = read_tokenizer_files(path)
        return cls(files.backend, special_tokens=files.named_tokens, chat_templates=files.chat_templates)

    @classmethod
    def byte_level(cls, vocab_size: int) -> Tokenizer:
        """A tokenizer for models with random weights: a token for each byte, three special ones, and every further id
        as its number in brackets, so that whatever such a model generates can be seen.

        Raises:
            ValueError: the vocabulary is too small for all bytes.
        """
        first_filler = 256 + len(_BYTE_LEVEL_SPECIALS)
        if vocab_size < first_filler:
            raise ValueError(
                f"a byte-level tokenizer needs {first_filler} tokens (256 bytes and {len(_BYTE_LEVEL_SPECIALS)} "
                f"special ones), but the vocabulary has {vocab_size}; take a model with a larger one, or pass "
                f"prompt_token_ids with skip_tokenizer_init=True"
            )
        vocab = byte_level_alphabet()
        vocab |= {token: 256 + index for index, token in enumerate(_BYTE_LEVEL_SPECIALS)}
        vocab |= {f"[{token_id}]": token_id for token_id in range(first_filler, vocab_size)}
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(token, special=True) for token in _BYTE_LEVEL_SPECIALS])
        end = _BYTE_LEVEL_SPECIALS[0]
        return cls(
            backend,
            special_tokens={"bos_token": end, "eos_token": end, "pad_token": end},
            chat_templates={"default": _BYTE_LEVEL_CHAT_TEMPLATE},
        )

    def save(self, directory: Path) -> None:
        """Write it in the Hugging Face format: `from_dir` and transformers read the same again."""
        self.backend.save(str(directory / "tokenizer.json"))
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_tokens}
        settings["clean_up_tokenization_spaces"] = False
        if self.chat_template is not None:
            settings["chat_template"] = self.chat_template
        (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @cached_property
    def vocab_size(self) -> int:
        """The highest id + 1; a model may have more rows than that, never fewer."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. `add_special_tokens` puts around it what the model expects (often a bos token).

        Raises:
            ValueError: the text is not valid Unicode.
        """
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Token ids of several texts, on all cores, without holding the interpreter.

        On its way a text takes some 170 bytes a character, so many texts are encoded batch by batch.
        """
        encode = self.backend.encode_batch_fast if self.escaper is None else self.escaper.encode_plain
        return self._encode_batches(encode, texts, add_special_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of a text in which nothing is special, with nothing around it.

        Raises:
            ValueError: the text is not valid Unicode.
        """
        return self._encode_batches(self._plain.encode_plain, [text], add_special_tokens=False)[0]

    @cached_property
    def _plain(self) -> SpecialTokenEscaper:
        return SpecialTokenEscaper(self.backend) if self.escaper is None else self.escaper

    def _encode_batches(
        self, encode: Callable[..., list[tokenizers.Encoding]], texts: Sequence[str], add_special_tokens: bool
    ) -> list[list[int]]:
        token_ids: list[list[int]] = []
        try:
            for batch in _batches(texts):
                encodings = encode(batch, add_special_tokens=add_special_tokens)
                token_ids.extend(encoding.ids for encoding in encodings)
                del encodings
                if sum(map(len, batch)) >= _LARGE_CHARACTERS:
                    give_memory_back()
        except TypeError:
            for text in texts:
                _check_text(text)
            raise
        return token_ids

    def encode_chat(self, text: str, add_special_tokens: bool = False) -> tuple[str, list[int]]:
        """Token ids of what `apply_chat_template` gave, and that text as it may be shown. Templates write special
        tokens themselves.

        Raises:
            ValueError: the text is not valid Unicode.
        """
        if self.escaper is None:
            return text, self.encode(text, add_special_tokens)
        _check_text(text)
        return self.escaper.encode_marked(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; ids without a token add nothing, and none may be negative or beyond 32 bits."""
        try:
            return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        except OverflowError as error:
            raise ValueError(f"token ids must be between 0 and {self.vocab_size - 1}: {error}") from error

    def token_text(self, token_id: int) -> str:
        """One token for people to read, as it stands within a text: with its leading space, special tokens by name,
        U+FFFD for part of a character."""
        if self.pieces is None:
            return self.decode([token_id], skip_special_tokens=False)
        return self.pieces[token_id].decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, as it stands within a text."""
        return self.token_text(token_id).encode() if self.pieces is None else self.pieces[token_id]

    @property
    def chat_template(self) -> str | None:
        return self.chat_templates.get("default")

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """A conversation as the text that the model expects, for `encode_chat`.

        Tools, calls and their results are the template's to show, as in the reference. Where it has no place for them
        they become plain text (`plain_tools`).

        Args:
            messages: dicts with role and content.
            chat_template: a template, or the name of one of the model's; by default the model's own.
            add_generation_prompt: open the assistant's turn at the end.
            continue_final_message: leave the last message open.
            variables: of the template, such as tools or enable_thinking.

        Raises:
            ValueError: there is no template, or it refuses the conversation.
        """
        from quire.text.chat_template import render, tool_support  # jinja2 is not needed for a start

        tools = (variables or {}).get("tools")
        template = self.choose_chat_template(chat_template, has_tools=bool(tools))
        if self.escaper is not None:
            messages, variables = self.escaper.escape(messages), self.escaper.escape(variables)
        if tools or any(_is_about_tools(message) for message in messages):
            support = tool_support(template, tuple(self.special_tokens.items()))
            is_plain = bool(tools) and not support.shows_tools
            if is_plain or not support.shows_calls:
                messages = spell_out_calls(messages)
            if is_plain and variables is not None:
                messages = explain_tools(messages, variables["tools"], takes_system=support.takes_system)
                variables = {**variables, "tools": None}
        return render(
            messages,
            template,
            special_tokens=self.special_tokens,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
        )

    def answer_lead(self, chat_template: str | None = None) -> str:
        """The blanks that the template writes between the opening of the assistant's turn and its text.

        A model that was trained so starts its answers with them (Llama 2: one blank); they are not part of what it
        says. "" where there is no template.
        """
        from quire.text.chat_template import answer_lead

        try:
            template = self.choose_chat_template(chat_template, has_tools=False)
        except ValueError:
            return ""
        return answer_lead(template, tuple(self.special_tokens.items()))

    def shows_tools(self, chat_template: str | None = None) -> bool:
        """Whether the template has a place for tools; where it has none they are explained in plain text."""
        from quire.text.chat_template import tool_support

        template = self.choose_chat_template(chat_template, has_tools=True)
        return tool_support(template, tuple(self.special_tokens.items())).shows_tools

    def choose_chat_template(self, chat_template: str | None, *, has_tools: bool) -> str:
        """The template of that name or text, or the one of the model's own that fits; ValueError if none does."""
        if chat_template is not None:
            return self.chat_templates.get(chat_template, chat_template)
        if has_tools and "tool_use" in self.chat_templates:
            return self.chat_templates["tool_use"]
        if self.chat_template is not None:
            return self.chat_template
        if self.chat_templates:
            names = ", ".join(sorted(self.chat_templates))
            raise ValueError(f"the model has several chat templates and no default one; name one of: {names}")
        raise ValueError(
            "the model has no chat template; pass `chat_template` (Jinja text), put a chat_template.jinja beside its "
            "tokenizer.json, or send a plain prompt instead of messages"
        )


def _is_about_tools(message: Any) -> bool:
    return isinstance(message, Mapping) and (message.get("role") == "tool" or bool(message.get("tool_calls")))


def encode_bad_words(tokenizer: Tokenizer, words: Iterable[str]) -> list[list[int]]:
    """Token sequences to ban, so that no word is written.

    A word has other tokens at the start of a line than after a space, so each is encoded both with and without the
    space. A sequence that ends in another one is left out: banning the shorter bans it too.

    Raises:
        ValueError: a word is empty or only spaces, or has no tokens.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"bad_words must be non-empty strings, got {word!r}")
        bare = word.lstrip()
        variants = [tokenizer.encode(form, add_special_tokens=False) for form in (bare, " " + bare)]
        # Tokenizers that put a space in front of every text show the bare word only behind something else.
        line_break = tokenizer.encode("\n", add_special_tokens=False)
        behind_break = tokenizer.encode("\n" + bare, add_special_tokens=False)
        if line_break and behind_break[: len(line_break)] == line_break:
            variants.append(behind_break[len(line_break) :])
        variants = [variant for variant in variants if variant]
        if not variants:
            raise ValueError(f"the tokenizer has no tokens for the bad word {word!r}")
        for variant in variants:
            if not any(variant != other and variant[-len(other) :] == other for other in variants):
                sequences[tuple(variant)] = None
    return [list(sequence) for sequence in sequences]


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in batches that end once they are large."""
    batch: list[str] = []
    num_characters = 0
    for text in texts:
        batch.append(text)
        num_characters += len(text)
        if num_characters >= _LARGE_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise ValueError(f"a prompt must be a string, got {type(text).__name__}")
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise ValueError(
                f"the text is not valid Unicode: half of a surrogate pair ({character!a}) at position {position}"
            )
