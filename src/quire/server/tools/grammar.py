"""Lark grammars of calls in a family's notation, in place of an answer or within text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from quire.server.tools.families import forced_calls_schema
from quire.server.tools.parser import ReasoningMarkers, ToolParser
from quire.server.tools.tagged import properties_of, types_of

_COMPACT = {"x-guidance": {"whitespace_pattern": " ?"}}


def calls_grammar(parser: type[ToolParser], functions: Sequence[Mapping[str, Any]]) -> str:
    """Return Lark rules of one or more calls in the form that the parser reads: `alternative` and its parts."""
    opening = f"{parser.before} {json.dumps(parser.trigger)}"
    bare = "| calls" if parser.bare else ""
    return f"alternative: {opening} calls (BLANK {opening} calls)* {bare}\n{_rules(parser, functions)}"


def text_grammar(
    parser: type[ToolParser], functions: Sequence[Mapping[str, Any]], reasoning: ReasoningMarkers | None
) -> str:
    """Return a Lark grammar of text with any number of calls, maybe behind reasoning. Only functions that are `strict`
    restrict arguments. If a call needs no marker, the first character of one begins no text."""
    shown = [each if each.get("strict") else {**each, "parameters": {"type": "object"}} for each in functions]
    lead = rf"\s*[^{re.escape(parser.bare)}\s](?s:.*)" if parser.bare else "(?s:.*)"
    trigger, start, but = _pattern(parser.trigger), "answer", ""
    if reasoning is not None:
        opening = rf"\s*{_pattern(reasoning.opening)}(?s:.*)"
        start, but = (
            f"thought? answer | THOUGHT\nthought[lazy]: /{opening}{_pattern(reasoning.closing)}/",
            f"& ~/{opening}/",
        )
        start += f"\nTHOUGHT: /{opening}/"
    return (
        f"start: {start}\n"
        f"answer: (first calls (more calls)* OTHER?)? | TEXT{' | BLANKS? calls OTHER?' if parser.bare else ''}\n"
        f"first[lazy]: FIRST\nFIRST: /(\\s*|{lead}){trigger}/ {but}\nmore[lazy]: /(?s:.*){trigger}/\n"
        f"TEXT: /{lead}/ {but}\nOTHER: /(?s:.+)/\nBLANKS: /\\s+/\n{_rules(parser, shown)}"
    )


def _pattern(text: str) -> str:
    return re.escape(text).replace("/", r"\/").replace("\n", "n")


def _fill(template: str, **values: str) -> str:
    return re.sub("|".join(values), lambda found: values[found[0]], template)


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, **_COMPACT})}"


def _rules(parser: type[ToolParser], functions: Sequence[Mapping[str, Any]]) -> str:
    schema = forced_calls_schema(functions, is_parallel=True, keys=parser.keys)
    definitions = {"$defs": schema["$defs"]}
    rules = [f"calls: {parser.calls}", "BLANK: /\\n?/", f"body: {_json({**schema['items'], **definitions})}"]
    rules.append("function: " + " | ".join(f"function{number}" for number in range(len(functions))))
    rules.append(f"text[lazy]: /(?s:.*){_pattern(parser.quotes[1])}/")
    for number, function in enumerate(functions):
        name = json.dumps(function["name"])
        rules.append(f"function{number}: " + _fill(parser.function, NAME=name, ALL=f"all{number}"))
        root = f"#/$defs/arguments{number}"
        if parser.pair:
            rules += _pairs(parser, f"all{number}", definitions["$defs"][f"arguments{number}"], root, definitions)
        else:
            rules.append(f"all{number}: {_json({'$ref': root, **definitions})}")
    return "\n".join(rules) + "\n"


def _pairs(parser: type[ToolParser], rule: str, schema: Any, root: str, definitions: Mapping[str, Any]) -> list[str]:
    """Return the rules of arguments one by one, in the schema's order; any arguments if it lists none."""
    given, required = properties_of(schema), schema.get("required") or ()
    between = json.dumps(parser.between) if parser.between else ""
    if not given and schema.get("additionalProperties") is not False and schema.keys() != {"type", "properties"}:
        value = "text" if parser.quotes[1] and not parser.quotes[0] else _json({})
        pair = _fill(parser.pair, KEY=r"/[\w.-]{1,64}/", VALUE=f"{rule}_any")
        return [f"{rule}: ({pair} ({between} {pair})*)?", f"{rule}_any: {value}"]
    rules = []
    for number, (key, each) in enumerate(given.items()):
        pointer = f"{root}/properties/{key.replace('~', '~0').replace('/', '~1')}"
        value = _value(parser, each, _json({"$ref": pointer, **definitions}))
        rules.append(f"{rule}_value{number}: {value}")
        pair = _fill(parser.pair, KEY=json.dumps(key, ensure_ascii=False), VALUE=f"{rule}_value{number}")
        for state, lead in (("first", ""), ("more", between)):
            skip = "" if key in required else f" | {rule}_{state}{number + 1}"
            rules.append(f"{rule}_{state}{number}: {lead} {pair} {rule}_more{number + 1}{skip}")
    rules += [f'{rule}_{state}{len(given)}: ""' for state in ("first", "more")]
    return [f"{rule}: {rule}_first0", *rules]


def _value(parser: type[ToolParser], schema: Any, as_json: str) -> str:
    """Return the rule of a value: texts in the family's quotes, other values as JSON."""
    opening, closing = map(json.dumps, parser.quotes)
    types = types_of(schema)
    if not parser.quotes[1]:
        return as_json
    if types == {"string"} or ("string" in types and not parser.quotes[0]):
        options = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(options, list) and all(isinstance(option, str) for option in options):
            shown = " | ".join(json.dumps(option, ensure_ascii=False) for option in options)
            return f"{opening} ({shown}) {closing}"
        return f"{opening} text"
    return as_json if parser.quotes[0] else f"{as_json} {closing}"
