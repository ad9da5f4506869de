"""Turn structured output parameters into llguidance grammars, within limits of size and depth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from quire.sampling_params import MAX_GRAMMAR_CHARACTERS, StructuredOutputsParams
from quire.structured.formats import with_strict_formats

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_CHOICES = 10_000
_MAX_DEPTH = 100  # of a schema's JSON; llguidance fails at 128
_MAX_ERROR = 300  # characters of llguidance's error texts
_MAX_LEXER_STATES = 50_000  # per matcher, at 1 to 2 KiB each
_MAX_STEP_ITEMS = 20_000  # of the parser per mask; bounds the time of a single mask
#: White space in JSON: a space, or a new line with indentation. Without a bound, a model may write it until max_tokens.
_WHITESPACE = r"( |\n[ \t]{0,40})?"


class GrammarError(ValueError):
    """A grammar that cannot be compiled within the limits."""


def check_form(params: StructuredOutputsParams) -> None:
    """Raise GrammarError for parameters that are too large, too deep or no JSON. Cheap, and without llguidance."""
    for name in ("json", "regex", "grammar", "whitespace_pattern", "alternative"):
        text = getattr(params, name)
        if text is not None and len(text) > MAX_GRAMMAR_CHARACTERS:
            raise GrammarError(f"{name} has {len(text)} characters; at most {MAX_GRAMMAR_CHARACTERS} are allowed")
    if params.choice is not None and (size := sum(map(len, params.choice))) > MAX_GRAMMAR_CHARACTERS:
        raise GrammarError(f"choice has {size} characters; at most {MAX_GRAMMAR_CHARACTERS} are allowed")
    if params.choice is not None and len(params.choice) > MAX_CHOICES:
        raise GrammarError(f"choice has {len(params.choice)} strings; at most {MAX_CHOICES} are allowed")
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
    """Return llguidance's source text of the parameters, mostly unchecked. Raises GrammarError if there is none."""
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
            raise GrammarError(shorten_error(str(error))) from None
    if not params.json and not params.json_object:
        return LLMatcher.grammar_from_lark(params.alternative or "")
    schema: Any = {"type": "object"} if params.json is None else _parse(params.json)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarError("json is a schema that nothing matches" if schema is False else "json is not a schema")
    schema = with_strict_formats(schema)
    if "x-guidance" in schema:  # it could make llguidance ignore keywords
        raise GrammarError("x-guidance is not allowed; see whitespace_pattern and disable_any_whitespace")
    options: dict[str, Any] = {"whitespace_pattern": params.whitespace_pattern or _WHITESPACE}
    if params.disable_any_whitespace:
        options = {"whitespace_flexible": False}
    if params.alternative is not None:
        answer = json.dumps({**schema, "x-guidance": options})
        return LLMatcher.grammar_from_lark(f"start: answer | alternative\nanswer: %json {answer}\n{params.alternative}")
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)  # type: ignore[arg-type]


def compile_grammar(text: str, vocabulary: LLTokenizer) -> LLMatcher:
    """Compile a text of `grammar_text` in up to seconds, mostly without the GIL. Raises GrammarError."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, step_max_items=_MAX_STEP_ITEMS, verbose_errors=False)
    matcher = LLMatcher(vocabulary, text, log_level=0, limits=limits)
    check(matcher)
    return matcher


def check(matcher: LLMatcher) -> None:
    """Raise GrammarError if a matcher has failed."""
    if not matcher.is_error():
        return
    error = shorten_error(matcher.get_error())
    if error.startswith("Unable to determine if regex is empty"):  # llguidance's step limit
        error = "it is too complex: checking whether anything matches takes too long"
    elif error.startswith("NoExtension"):
        error = "nothing matches, or some beginning has no continuation"
    raise GrammarError(error)


def shorten_error(error: str) -> str:
    """Keep the part of llguidance's error that helps a client."""
    text = " ".join(error.partition("<state>")[0].partition("<non-verbose/>")[0].split()).rstrip("| ")
    return text if len(text) <= _MAX_ERROR else f"{text[:_MAX_ERROR]}..."
