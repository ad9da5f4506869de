"""What a client asks for, as a grammar of llguidance, within limits of size and depth.

llguidance is imported when the first grammar is compiled: a server that nobody asks for one never loads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quire.sampling_params import MAX_GRAMMAR_CHARACTERS, StructuredOutputsParams
from quire.structured.formats import with_strict_formats

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_CHOICES = 10_000
_MAX_DEPTH = 100  # of a schema's JSON; llguidance gives up at 128
_MOST_SHOWN = 300  # characters of an error of llguidance's
_MAX_LEXER_STATES = 50_000  # of a matcher, at 1 to 2 KiB
#: White space between the parts of JSON. Left to itself a model may write white space until max_tokens, so there is an
#: end to it: a space, or a new line and its indentation.
_WHITESPACE = r"( |\n[ \t]{0,40})?"


class GrammarError(ValueError):
    """What was asked for cannot be compiled, or not within the limits. The message says why."""


def check_form(params: StructuredOutputsParams) -> None:
    """Refuse what is too large or too deep, or no JSON. Costs little whatever comes, and does not need llguidance.

    Raises:
        GrammarError: the message names the field.
    """
    for name in ("json", "regex", "grammar", "whitespace_pattern"):
        text = getattr(params, name)
        if text is not None and len(text) > MAX_GRAMMAR_CHARACTERS:
            raise GrammarError(f"{name} has {len(text)} characters, and {MAX_GRAMMAR_CHARACTERS} is the most")
    if params.choice is not None and (size := sum(map(len, params.choice))) > MAX_GRAMMAR_CHARACTERS:
        raise GrammarError(f"choice has {size} characters, and {MAX_GRAMMAR_CHARACTERS} is the most")
    if params.choice is not None and len(params.choice) > MAX_CHOICES:
        raise GrammarError(f"choice has {len(params.choice)} strings, and {MAX_CHOICES} is the most")
    if params.json is not None:
        _check_depth(_parse(params.json))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise GrammarError(f"json is not a JSON Schema: {error}") from None


def _check_depth(schema: Any) -> None:
    level = [schema]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> GrammarError:
    return GrammarError(f"json is a schema of more than {_MAX_DEPTH} levels")


def grammar_text(params: StructuredOutputsParams) -> str:
    """The grammar as llguidance reads it, without looking closely at it.

    Raises:
        GrammarError: it is none.
    """
    from llguidance import LLMatcher, grammar_from

    check_form(params)
    if params.regex is not None:
        return LLMatcher.grammar_from_regex(params.regex)
    if params.choice is not None:
        return grammar_from("choice", json.dumps(params.choice))
    if params.grammar is not None:
        try:
            return grammar_from("grammar", params.grammar)
        except ValueError as error:
            raise GrammarError(worded(str(error))) from None
    schema: Any = {"type": "object"} if params.json is None else _parse(params.json)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarError("json is a schema that nothing matches" if schema is False else "json is no schema")
    schema = with_strict_formats(schema)
    if "x-guidance" in schema:  # would have keywords ignored
        raise GrammarError("x-guidance is not taken; see whitespace_pattern and disable_any_whitespace")
    options: dict[str, Any] = {"whitespace_pattern": params.whitespace_pattern or _WHITESPACE}
    if params.disable_any_whitespace:
        options = {"whitespace_flexible": False}
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)  # type: ignore[arg-type]


def compile_grammar(text: str, vocabulary: LLTokenizer) -> LLMatcher:
    """A matcher at the start of a grammar of `grammar_text`. Takes up to seconds, most of them without the interpreter.

    Raises:
        GrammarError: it cannot be compiled; the message names what is not supported, or the limit that it breaks.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(vocabulary, text, log_level=0, limits=_limits())
    check(matcher)
    return matcher


def check(matcher: LLMatcher) -> None:
    """Raise a GrammarError where a matcher has failed."""
    if not matcher.is_error():
        return
    error = worded(matcher.get_error())
    if error.startswith("Unable to determine if regex is empty"):  # it gives up after so many steps
        error = "it is too complex: finding out whether anything matches takes too long"
    elif error.startswith("NoExtension"):
        error = "nothing matches, or there is a beginning that nothing can follow"
    raise GrammarError(error)


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)


def worded(error: str) -> str:
    """llguidance's words, as far as a client needs them."""
    text = " ".join(error.partition("<state>")[0].partition("<non-verbose/>")[0].split()).rstrip("| ")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
