"""Encode and decode text with the `tokenizers` library: the same ids as `transformers`, without importing it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
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
    """A model's tokenizer and chat templates. Construct it by `from_dir` or `byte_level`."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.special_tokens = dict(special_tokens or {})  #: by name, such as bos_token, as chat templates see them
        self.chat_templates = dict(chat_templates or {})
        self.pieces = TokenPieces.of(backend)  #: bytes per token; None for a decoder without such a table
        #: Treats special tokens in user text as plain text; None treats them as special, as the reference does.
        self.escaper: SpecialTokenEscaper | None = None
        #: Ids that `skip_special_tokens` drops.
        self.special_ids = frozenset(id_ for id_, token in backend.get_added_tokens_decoder().items() if token.special)
        self.bos_token_id = self._named_id("bos_token")
        self.eos_token_id = self._named_id("eos_token")
        self.eot_token_id = self._named_id("eot_token")  #: ends a turn of a chat, which some files state
        self.pad_token_id = self._named_id("pad_token")

    @classmethod
    def from_dir(cls, path: str | Path) -> Tokenizer:
        """Read a Hugging Face model directory. Raises ValueError, which names a missing or broken file and a remedy."""
        try:
            files = read_tokenizer_files(path)
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"the tokenizer's files in {path} are broken ({what}); download them again") from error
        return cls(files.backend, special_tokens=files.named_tokens, chat_templates=files.chat_templates)

    @classmethod
    def byte_level(cls, vocab_size: int) -> Tokenizer:
        """Build a tokenizer for random weights: 256 bytes, three special tokens, and further ids as `[id]`."""
        first_filler = 256 + len(_BYTE_LEVEL_SPECIALS)
        if vocab_size < first_filler:
            raise ValueError(
                f"a byte-level tokenizer needs {first_filler} tokens, but the vocabulary has {vocab_size}; take "
                "another model, or pass prompt_token_ids with skip_tokenizer_init=True"
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
        """Write the Hugging Face format, which `from_dir` and transformers read."""
        self.backend.save(str(directory / "tokenizer.json"))
        settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_tokens}
        settings["clean_up_tokenization_spaces"] = False
        if self.chat_template is not None:
            settings["chat_template"] = self.chat_template
        (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @cached_property
    def vocab_size(self) -> int:
        """Highest id + 1; a model's embedding may have more rows."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def _named_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Encode a text, with the special tokens around it that the model expects. Raises ValueError if not Unicode."""
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Encode texts on all cores without the GIL, in batches (170 bytes of memory per character)."""
        encode = self.backend.encode_batch_fast if self.escaper is None else self.escaper.encode_plain
        return self._encode_batches(encode, texts, add_special_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """Encode a text as plain text, without special tokens. Raises ValueError if it is not Unicode."""
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
        """Encode a rendered template, which has its special tokens; return its displayable form and its token ids."""
        if self.escaper is None:
            return text, self.encode(text, add_special_tokens)
        _check_text(text)
        return self.escaper.encode_marked(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode token ids; unknown ids add nothing. Raises ValueError for negative ids and ids beyond 32 bits."""
        try:
            return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        except OverflowError as error:
            raise ValueError(f"token ids must be between 0 and {self.vocab_size - 1}: {error}") from error

    def token_text(self, token_id: int) -> str:
        """One token in readable form: leading space kept, special tokens by name, U+FFFD for a partial character."""
        if self.pieces is None:
            return self.decode([token_id], skip_special_tokens=False)
        return self.pieces[token_id].decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """One token's bytes within a text."""
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
        """Render a conversation for `encode_chat`. Without template support, tools become plain text.

        `chat_template` is a text, or the name of one of the model's templates. `variables` hold tools, enable_thinking
        and the like. Raises ValueError if there is no template, or it rejects the conversation.
        """
        from quire.text.chat_template import render  # jinja2 is not needed for a start
        from quire.text.template_form import complete_tools, simpler, template_form

        tools = (variables or {}).get("tools")
        template = self.choose_chat_template(chat_template, has_tools=bool(tools))
        form = template_form(template, tuple(self.special_tokens.items()))
        if self.escaper is not None:
            messages, variables = self.escaper.escape(messages), self.escaper.escape(variables)
        is_plain = bool(tools) and not form.shows_tools
        if is_plain or (not form.shows_calls and any(map(_is_about_tools, messages))):
            messages = spell_out_calls(messages)
        if is_plain and variables is not None:
            messages = explain_tools(messages, variables["tools"], takes_system=form.takes_system)
            variables = {**variables, "tools": None}
        shown = partial(
            render,
            template=template,
            special_tokens=self.special_tokens,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        if not all(isinstance(message, Mapping) for message in messages):
            return shown(messages, variables=variables)  # raises ValueError
        messages = form.adapt(messages)
        try:
            return shown(messages, variables=variables)
        except ValueError:
            if variables is not None and tools and not is_plain:
                variables = {**variables, "tools": complete_tools(variables["tools"])}
            for chat in (messages, *simpler(messages)):
                with suppress(ValueError):
                    return shown(chat, variables=variables)
            raise

    def answer_lead(self, chat_template: str | None = None) -> str:
        """Blanks before the assistant's text, with which trained models begin (Llama 2: one); "" without a template."""
        from quire.text.chat_template import answer_lead

        try:
            template = self.choose_chat_template(chat_template, has_tools=False)
        except ValueError:
            return ""
        return answer_lead(template, tuple(self.special_tokens.items()))

    def shows_tools(self, chat_template: str | None = None) -> bool:
        """Whether the template renders tools."""
        from quire.text.template_form import template_form

        template = self.choose_chat_template(chat_template, has_tools=True)
        return template_form(template, tuple(self.special_tokens.items())).shows_tools

    def choose_chat_template(self, chat_template: str | None, *, has_tools: bool) -> str:
        """Resolve a template's name or text, or choose one of the model's. Raises ValueError if there is none."""
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
    """Return the token sequences to ban for these words.

    A word's tokens differ at the start of a line and after a space, so each word is encoded in both forms. A sequence
    that ends in another one is redundant. Raises ValueError if a word is blank or has no tokens.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"bad_words must be non-empty strings, got {word!r}")
        bare = word.lstrip()
        variants = [tokenizer.encode(form, add_special_tokens=False) for form in (bare, " " + bare)]
        # Some tokenizers prepend a space to every text; the bare word only appears after other text.
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
