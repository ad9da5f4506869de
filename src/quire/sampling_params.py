"""Sampling parameters of a request, validated on arrival."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_MAX_BEAM_WIDTH = 50
_SEED_RANGE = 2**63
_MAX_SHOWN = 200  #: characters of an invalid value in its error
MAX_ITEMS = {  #: by field
    "allowed_token_ids": 2**18, "bad_words": 2**12, "bad_words_token_ids": 2**12, "logit_bias": 2**14,
    "logprob_token_ids": 2**10, "stop": 2**10, "stop_token_ids": 2**10,
}  # fmt: skip
_MAX_BAD_WORD_TOKENS = 2**14  #: of all words together


def _error(name: str, value: Any, expected: str) -> ValueError:
    shown = repr(value)
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[:_MAX_SHOWN]}..."
    return ValueError(f"{name}={shown} is not valid: {expected}")


def _check_number(name: str, value: Any, low: float, high: float, expected: str, *, low_open: bool = False) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # NaN fails the comparison, and an integer of any size takes part in it (math.isfinite would overflow).
    if not is_number or not low <= value <= high or (low_open and value == low):
        raise _error(name, value, expected)


def _check_int(name: str, value: Any, low: int, high: int, expected: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _error(name, value, expected)


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _error(name, value, "True or False")


def _as_tuple(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Return the items of a list of limited length; none for None."""
    try:
        items = () if value is None else tuple(value)
    except TypeError:
        raise _error(name, value, expected) from None
    _check_length(name, len(items))
    return items


def _check_length(name: str, length: int, limit: int | None = None, items: str = "entries") -> None:
    limit = MAX_ITEMS.get(name, length) if limit is None else limit
    if length > limit:
        raise ValueError(f"{name}=... is not valid: it has {length} {items}; at most {limit} are allowed")


def _token_id(key: Any) -> Any:
    """Read a token id, which may be text. `int` alone also accepts " 5", "5_0", "+5" and digits of other scripts."""
    if not isinstance(key, str):
        return key
    if str(token := int(key)) != key:
        raise ValueError(key)
    return token


def _check_token_ids(name: str, value: tuple[Any, ...]) -> None:
    if any(not isinstance(token, int) or isinstance(token, bool) or token < 0 for token in value):
        raise _error(name, value, "token ids are integers from 0 on")


#: Limit of a schema, a regex, all choices or a grammar.
MAX_GRAMMAR_CHARACTERS = 2**17


@dataclass(frozen=True)
class StructuredOutputsParams:
    """The language that an output must be in: exactly one of the first five fields says which.

    See docs/design/structured-output.md.
    """

    json: str | None = None  #: a JSON Schema: text, a dict, True or False
    regex: str | None = None  #: matches the whole output
    choice: tuple[str, ...] | None = None  #: the possible outputs
    grammar: str | None = None  #: context-free, in the dialect of Lark or of llama.cpp (GBNF)
    json_object: bool | None = None  #: any JSON object
    disable_any_whitespace: bool = False  #: no whitespace between the parts of JSON
    whitespace_pattern: str | None = None  #: regex of the whitespace between the parts of JSON
    #: Lark text of a rule `alternative` that the output may follow in place of JSON; without JSON, of `start`
    alternative: str | None = None
    #: markers of a free text before the output; the first is "" if the prompt contains it, else the text is optional
    reasoning: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        given: Any = self.json
        if given is not None and not isinstance(given, str):
            if not isinstance(given, (dict, bool)):
                raise _error("json", given, "a JSON Schema: text, a dict, or True or False")
            try:
                text = json.dumps(given, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise _error("json", "...", f"it cannot be written as JSON ({error})") from None
            object.__setattr__(self, "json", text)
        if self.choice is not None:
            expected = "a list of strings, at least one and none of them empty"
            options: Any = self.choice
            words = () if isinstance(options, str) else _as_tuple("choice", options, expected)
            if not words or any(not isinstance(word, str) or not word for word in words):
                raise _error("choice", self.choice, expected)
            object.__setattr__(self, "choice", words)
        for name in ("json", "regex", "grammar", "whitespace_pattern", "alternative"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text):
                raise _error(name, text, "text, not empty")
        if self.reasoning is not None:
            marks = _as_tuple("reasoning", self.reasoning, "two markers")
            if len(marks) != 2 or any(not isinstance(mark, str) for mark in marks) or not marks[1]:
                raise _error("reasoning", marks, "an opening marker, which may be empty, and a closing one")
            object.__setattr__(self, "reasoning", marks)
        if self.json_object is False:  # as if not given
            object.__setattr__(self, "json_object", None)
        if self.json_object is not None:
            _check_bool("json_object", self.json_object)
        _check_bool("disable_any_whitespace", self.disable_any_whitespace)
        fields = ("json", "regex", "choice", "grammar", "json_object")
        named = [name for name in fields if getattr(self, name) is not None]
        if len(named) != 1 and (named or not self.alternative):
            raise _error("structured_outputs", named, f"give exactly one of {', '.join(fields)}")
        if not (self.json or self.json_object) and (
            self.disable_any_whitespace or self.whitespace_pattern or (named and self.alternative)
        ):
            expected = "disable_any_whitespace, whitespace_pattern and alternative go with JSON"
            raise _error("structured_outputs", named, expected)
        if self.disable_any_whitespace and self.whitespace_pattern:
            raise _error("whitespace_pattern", self.whitespace_pattern, "it does not go with disable_any_whitespace")


@dataclass(frozen=True)
class SamplingParams:
    """Sampling of one request.

    They apply in this order: biases, penalties, bans, temperature, min_p, top_k, top_p. A request whose parameters
    leave no token, or numbers that are not finite, ends with an error.

    Raises:
        ValueError: a value is out of range; the message names the field, the value and the range.
    """

    n: int = 1  #: samples to return; they share the prompt's blocks
    temperature: float = 1.0  #: 0 is greedy
    top_p: float = 1.0  #: the smallest set of most likely tokens whose probability reaches this; 1 keeps all
    top_k: int = 0  #: the k most likely tokens; 0 or -1 keeps all
    min_p: float = 0.0  #: minimum probability, relative to the most likely token
    repetition_penalty: float = 1.0  #: 0.01 to 100; divides positive, multiplies negative logits of seen tokens (CTRL)
    presence_penalty: float = 0.0  #: subtracted from the logits of tokens in the output
    frequency_penalty: float = 0.0  #: subtracted once per occurrence in the output
    logit_bias: dict[int, float] | None = None  #: token id -> value added to its logit
    bad_words: tuple[str, ...] = ()  #: words that the output never completes
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()  #: the same as token ids; the engine fills it from bad_words
    allowed_token_ids: tuple[int, ...] | None = None  #: the only tokens to sample
    structured_outputs: StructuredOutputsParams | None = None
    seed: int | None = None  #: address of the random numbers, independent of other requests
    stop: tuple[str, ...] = ()  #: strings that end the output
    stop_token_ids: tuple[int, ...] = ()  #: tokens that end the output, besides the model's own
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False  #: continue after the model's end tokens
    min_tokens: int = 0  #: minimum length of the output
    max_tokens: int | None = 16  #: 16 as in vLLM; None: up to max_model_len
    logprobs: int | None = None  #: most likely tokens with log-probabilities (-1: all), besides the sampled one
    logprob_token_ids: tuple[int, ...] | None = None  #: with logprobs: these tokens instead of the most likely ones
    prompt_logprobs: int | None = None  #: as logprobs, for each token of the prompt
    skip_special_tokens: bool = True  #: leave special tokens out of the text
    detokenize: bool = True  #: produce text
    pooling: str | None = None  #: return the prompt's hidden states after the final norm: the last one, or their mean

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words"):
            value = getattr(self, name)
            expected = "a string or a list of strings, none of them empty"
            words = (value,) if isinstance(value, str) else _as_tuple(name, value, expected)
            if any(not isinstance(word, str) or not word for word in words):
                raise _error(name, value, expected)
            object.__setattr__(self, name, words)
        for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            ids = _as_tuple(name, getattr(self, name), "a list of token ids")
            _check_token_ids(name, ids)
            if getattr(self, name) is not None or name == "stop_token_ids":
                object.__setattr__(self, name, ids)
        expected = "a list of lists of token ids, none of them empty"
        words = _as_tuple("bad_words_token_ids", self.bad_words_token_ids, expected)
        words = tuple(_as_tuple("bad_words_token_ids", ids, expected) for ids in words)
        _check_length("bad_words_token_ids", sum(map(len, words)), _MAX_BAD_WORD_TOKENS, "tokens in all")
        for ids in words:
            _check_token_ids("bad_words_token_ids", ids)
            if not ids:
                raise _error("bad_words_token_ids", words, expected)
        object.__setattr__(self, "bad_words_token_ids", words)
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens", "detokenize"):
            _check_bool(name, getattr(self, name))
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        _check_int("n", self.n, 1, 1024, "an integer from 1 to 1024")
        _check_number("temperature", self.temperature, 0, 100, "a number from 0 (greedy) to 100")
        _check_number("top_p", self.top_p, 0, 1, "a number above 0 and up to 1", low_open=True)
        _check_int("top_k", self.top_k, 0, 2**31 - 1, "a positive integer, or 0 or -1 to keep all tokens")
        _check_number("min_p", self.min_p, 0, 1, "a number from 0 to 1")
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 100, "a number from 0.01 to 100; 1: none")
        _check_number("presence_penalty", self.presence_penalty, -2, 2, "a number from -2 to 2")
        _check_number("frequency_penalty", self.frequency_penalty, -2, 2, "a number from -2 to 2")
        _check_int("min_tokens", self.min_tokens, 0, 2**31 - 1, "an integer from 0 on")
        if self.seed is not None:
            _check_int("seed", self.seed, -_SEED_RANGE, _SEED_RANGE - 1, "an integer of 64 bits")
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1, "an integer from 1 on, or None for as many as fit")
            if self.min_tokens > self.max_tokens:
                raise _error("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name), -1, 2**31 - 1, "an integer from 0 on, or -1 for all tokens")
        if self.pooling is not None and (self.pooling not in ("last", "mean") or (self.n, self.max_tokens) != (1, 1)):
            raise _error("pooling", self.pooling, "last or mean, with n=1 and max_tokens=1")
        if self.logprob_token_ids and self.logprobs is None:
            raise _error("logprob_token_ids", self.logprob_token_ids, "it goes with logprobs")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise _error("allowed_token_ids", (), "at least one token, or None to allow all")
        if self.logit_bias is not None:
            self._read_logit_bias()
        if self.structured_outputs is not None:
            self._check_structured_outputs()
        if self.stop and not self.detokenize:
            raise _error("stop", self.stop, "stop strings need detokenize=True; use stop_token_ids instead")

    def _read_logit_bias(self) -> None:
        pairs: Any = self.logit_bias
        _check_length("logit_bias", len(pairs) if isinstance(pairs, dict) else 0)
        try:  # keys may be text, as in JSON
            bias = {_token_id(token): value for token, value in pairs.items()}
        except (AttributeError, ValueError):
            raise _error(
                "logit_bias", self.logit_bias, "a mapping from token ids, in plain digits, to numbers"
            ) from None
        _check_token_ids("logit_bias", tuple(bias))
        for value in bias.values():
            _check_number("logit_bias", value, -100, 100, "each bias is a number from -100 to 100")
        object.__setattr__(self, "logit_bias", {token: float(value) for token, value in bias.items()})

    def _check_structured_outputs(self) -> None:
        given: Any = self.structured_outputs
        if isinstance(given, dict):
            try:
                object.__setattr__(self, "structured_outputs", StructuredOutputsParams(**given))
            except TypeError as error:
                raise _error("structured_outputs", given, f"StructuredOutputsParams(...) ({error})") from None
        elif not isinstance(given, StructuredOutputsParams):
            raise _error("structured_outputs", given, "StructuredOutputsParams(...)")
        if self.ignore_eos:
            raise _error("ignore_eos", True, "with structured_outputs the output ends where the grammar ends")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < 1e-5

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise ValueError for the first token id beyond the vocabulary; the message names the field."""
        for name, ids in (
            ("logit_bias", self.logit_bias or ()),
            ("allowed_token_ids", self.allowed_token_ids or ()),
            ("stop_token_ids", self.stop_token_ids),
            ("logprob_token_ids", self.logprob_token_ids or ()),
            ("bad_words_token_ids", [token for word in self.bad_words_token_ids for token in word]),
        ):
            for token in ids:
                if token >= vocab_size:
                    raise _error(name, token, f"the model's token ids end at {vocab_size - 1}")


@dataclass(frozen=True)
class BeamSearchParams:
    """Beam search of one request, with the scores and the ending rule of `transformers`.

    A finished beam scores ``sum of log-probabilities / generated_tokens ** length_penalty``, end token included.
    """

    beam_width: int
    max_tokens: int
    length_penalty: float = 1.0
    early_stopping: bool | str = False  #: True: at beam_width hypotheses; False: when none seems to improve; "never"
    ignore_eos: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        _check_int("beam_width", self.beam_width, 1, _MAX_BEAM_WIDTH, f"an integer from 1 to {_MAX_BEAM_WIDTH}")
        _check_int("max_tokens", self.max_tokens, 1, 2**31 - 1, "an integer from 1 on")
        # Beyond this the length, raised to it, may leave the range of floats.
        _check_number("length_penalty", self.length_penalty, -10, 10, "a number from -10 to 10")
        for name in ("ignore_eos", "skip_special_tokens"):
            _check_bool(name, getattr(self, name))
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise _error("early_stopping", self.early_stopping, "True, False or 'never'")
