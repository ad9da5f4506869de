"""A real model whose logits are overridden to produce scripted answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import tokenizers

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.text.token_pieces import byte_level_alphabet
from quire.text.tokenizer import Tokenizer

_END = 256
_PATIENCE_S = 100
_FIRST_FREE = 259  # from here on the byte-level tokenizer has filler tokens only


@dataclass
class Script:
    """Starts engines that answer `says` and then end; None leaves the answer to the model.

    Their tokenizer also has a token for each word of `texts`, which shortens answers to a few steps.
    """

    says: str | None = None
    after_results: str | None = None  #: the answer to a last message with a tool result, in place of `says`
    texts: Iterable[str] = ()
    specials: Iterable[str] = ()  #: words that are special tokens
    max_model_len: int = 2048
    block_size: int = 16
    kv_dir: str | None = None  #: keeps prompts, and loads what it finds

    def __call__(self, config: EngineConfig) -> Engine:
        longest, size = self.max_model_len, self.block_size
        blocks = 4 * longest // size
        config = replace(config, num_kv_blocks=blocks, block_size=size, max_model_len=longest)
        if self.kv_dir is not None:
            config = replace(config, kv_dir=self.kv_dir, kv_dir_keep_prompts=True)
        engine = start_engine(config)
        engine.scheduler.decider.costs = None
        words = dict.fromkeys(self.specials)
        words |= dict.fromkeys(word for text in self.texts for word in re.findall(r"\w{2,}|\W{2,}", text))
        ids = {word.encode(): _FIRST_FREE + number for number, word in enumerate(words)}
        assert engine.tokenizer is not None
        tokenizer = _with_words(engine.tokenizer, ids, list(self.specials))
        engine.tokenizer = engine.input_processor.tokenizer = tokenizer
        if engine.grammars is not None:
            engine.grammars._tokenizer = tokenizer
        pieces = tokenizer.pieces
        assert pieces is not None
        usual = engine.runner.sampler.sample  # type: ignore[attr-defined]

        def sample(logits: Any, states: Any) -> Any:
            if self.says is not None:
                logits = logits.copy()
                for row, state in enumerate(states):
                    text, written = (
                        self._words_for(state.info, tokenizer).encode(),
                        b"".join(map(pieces.__getitem__, state._output)),
                    )
                    said, position = _tokens(text, ids), state.num_output_tokens
                    if text.startswith(written):  # a grammar may force other tokens of the same text
                        said, position = _tokens(text[len(written) :], ids), 0
                    logits[row] = -1e4
                    logits[row, said[position] if position < len(said) else _END] = 1e4
            return usual(logits, states)

        engine.runner.sampler.sample = sample  # type: ignore[attr-defined]
        return engine

    def _words_for(self, info: Any, tokenizer: Tokenizer) -> str:
        assert self.says is not None
        if self.after_results is None:
            return self.says
        prompt: str = tokenizer.decode(info.token_ids[: info.num_prompt_tokens])
        last = prompt.rpartition("<|im_start|>user")[2]
        return self.after_results if "</tool_response>" in last else self.says


class HeldScript(Script):
    """Its engines make a step only while `may_step` is set."""

    def __init__(self, says: str) -> None:
        super().__init__(says)
        self.may_step = threading.Event()
        self.may_step.set()

    def __call__(self, config: EngineConfig) -> Engine:
        engine = super().__call__(config)
        execute = engine.runner.execute

        def execute_when_free(*args: Any) -> Any:
            self.may_step.wait(_PATIENCE_S)
            return execute(*args)

        engine.runner.execute = execute_when_free  # type: ignore[method-assign]
        return engine


def _tokens(text: bytes, ids: dict[bytes, int]) -> list[int]:
    tokens = []
    while text:
        word = max((word for word in ids if text.startswith(word)), key=len, default=text[:1])
        tokens.append(ids.get(word, word[0]))
        text = text[len(word) :]
    return tokens


def _with_words(tokenizer: Tokenizer, ids: dict[bytes, int], specials: list[str]) -> Tokenizer:
    parts = json.loads(tokenizer.backend.to_str())
    letters = {number: letter for letter, number in byte_level_alphabet().items()}
    named = {number: "".join(letters[byte] for byte in word) for word, number in ids.items()}
    vocab = {named.get(number, token): number for token, number in parts["model"]["vocab"].items()}
    assert len(vocab) == len(parts["model"]["vocab"]), "there are more words than free ids"
    parts["model"]["vocab"] = vocab
    backend = tokenizers.Tokenizer.from_str(json.dumps(parts))
    backend.add_special_tokens(specials)
    return Tokenizer(backend, special_tokens=tokenizer.special_tokens, chat_templates=tokenizer.chat_templates)
