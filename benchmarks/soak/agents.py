"""Requests of agents: schemas, tools, responses and messages, and checks of their answers."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema_rs

from json_schemas import UNSUPPORTED, random_schema

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
#: A function whose arguments are short whatever a model says.
_PARAMETERS = {
    "type": "object",
    "properties": {"size": {"enum": ["S", "M", None]}, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["size", "count"],
    "additionalProperties": False,
}
_CLOTHES = {"name": "clothes", "description": "Buys clothes.", "parameters": _PARAMETERS}
_NOW = {"name": "now", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}
_FUNCTIONS: dict[str, dict[str, Any]] = {str(function["name"]): function for function in (_CLOTHES, _NOW)}
_PATTERN = "[a-c]{2,9}!"
#: Those that a process is killed for, and those that are refused at sight.
HOSTILE: tuple[dict[str, Any], ...] = (
    {"type": "integer", "multipleOf": 1_000_003},
    {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}c"} for i in range(20, 32)]},
    {"type": "array", "uniqueItems": True},
    {"enum": ["x" * 20] * 10_000},
)


def plan_agent(rng: random.Random, model: str, messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request."""
    shared: dict[str, Any] = {"model": model, "temperature": rng.choice((0, 1)), "seed": rng.randrange(1000)}
    if rng.random() < 0.5:
        shared["stream"] = True
    wants_schema, choice = rng.random() < 0.5, rng.choice(("auto", "required", "clothes"))
    match rng.choice((CHAT, CHAT, RESPONSES, MESSAGES, COMPLETIONS)):
        case "/v1/completions":
            count = {"n": rng.randint(1, 3), "max_tokens": 40, "prompt": "Say: "}
            return COMPLETIONS, {**shared, **count, "structured_outputs": {"regex": _PATTERN}}
        case "/v1/chat/completions":
            body = {**shared, "messages": messages, "max_tokens": 60}
            if wants_schema:
                body |= {"n": rng.randint(1, 2), "logprobs": rng.random() < 0.3}
                about = {"name": "it", "schema": _schema(rng)}
                return CHAT, {**body, "response_format": {"type": "json_schema", "json_schema": about}}
            named = {"type": "function", "function": {"name": choice}}
            tools = [{"type": "function", "function": function} for function in _FUNCTIONS.values()]
            return CHAT, {**body, "tools": tools, "tool_choice": named if choice in _FUNCTIONS else choice}
        case "/v1/responses":
            body = {**shared, "input": messages[-1]["content"], "max_output_tokens": 60}
            if wants_schema:
                return RESPONSES, {**body, "text": {"format": {"type": "json_schema", "schema": _schema(rng)}}}
            tools = [{"type": "function", **function} for function in _FUNCTIONS.values()]
            named = {"type": "function", "name": choice}
            return RESPONSES, {**body, "tools": tools, "tool_choice": named if choice in _FUNCTIONS else choice}
    body = {**shared, "messages": messages, "max_tokens": 60}
    if wants_schema:
        return MESSAGES, {**body, "output_config": {"format": {"type": "json_schema", "schema": _schema(rng)}}}
    tools = [
        {"name": name, "description": about["description"], "input_schema": about["parameters"]}
        for name, about in _FUNCTIONS.items()
    ]
    kinds = {"auto": {"type": "auto"}, "required": {"type": "any"}, "clothes": {"type": "tool", "name": "clothes"}}
    return MESSAGES, {**body, "tools": tools, "tool_choice": kinds[choice]}


def plan_hostile(rng: random.Random, model: str, messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """A request that must get a 400."""
    about = {"type": "json_schema", "json_schema": {"name": "it", "schema": rng.choice(HOSTILE)}}
    return CHAT, {"model": model, "messages": messages, "response_format": about}


def _schema(rng: random.Random) -> dict[str, Any]:
    while True:
        schema = random_schema(rng.randrange(40))
        if not any(name in json.dumps(schema) for name in UNSUPPORTED):
            return schema


def problem_of_agent(path: str, body: dict[str, Any], shown: list[dict[str, Any]]) -> str | None:
    """The problem of an answer, if there is one.

    Args:
        shown: the answer, or the payloads of its stream's events.
    """
    if failed := [part for part in shown if part.get("error") or part.get("type") in ("error", "response.failed")]:
        return f"an error in an answer: {failed[0]}"
    match path:
        case "/v1/responses":
            ended = _of_response(shown)
        case "/v1/messages":
            ended = _of_message(shown)
        case _:
            ended = _of_choices(shown)
    if len(ended) != body.get("n", 1):
        return f"{body.get('n', 1)} answers were asked for, and there are {len(ended)}"
    problems = (_problem_of_one(path, body, *each) for each in ended)
    return next(filter(None, problems), None)


_Ended = tuple[bool, str, list[tuple[str, str]]]  #: whether it came to its own end, its text, its calls


def _problem_of_one(path: str, body: dict[str, Any], is_complete: bool, text: str, calls: list[Any]) -> str | None:
    if not is_complete:
        return None  # max_tokens cut it off
    if path == COMPLETIONS:
        return None if re.fullmatch(_PATTERN, text) else f"{text!r} does not match"
    if (schema := _asked_schema(body)) is not None:
        is_valid = jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text))
        return None if is_valid else f"{text!r} is not valid by {json.dumps(schema)}"
    choice = body["tool_choice"]
    if choice in ("auto", {"type": "auto"}):
        return None
    if not calls or text:
        return f"a call was forced, and {text!r} was said, {calls} called"
    for name, arguments in calls:
        if name not in _FUNCTIONS or not jsonschema_rs.is_valid(_FUNCTIONS[name]["parameters"], json.loads(arguments)):
            return f"{name} was called with {arguments}"
    is_named = choice != "required" and choice != {"type": "any"}
    return "another function than the named one" if is_named and [name for name, _ in calls] != ["clothes"] else None


def _asked_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    about = body.get("text") or body.get("output_config")
    return about["format"]["schema"] if about else None


def _of_choices(shown: list[dict[str, Any]]) -> list[_Ended]:
    reasons: dict[int, str] = {}
    texts: dict[int, str] = {}
    calls: dict[int, list[list[str]]] = {}
    for choice in (choice for part in shown for choice in part["choices"]):
        index = choice["index"]
        said = choice.get("message") or choice.get("delta") or choice
        texts[index] = texts.get(index, "") + (said.get("content") or said.get("text") or "")
        mine = calls.setdefault(index, [])
        for call in said.get("tool_calls") or ():
            if call.get("id"):
                mine.append([call["function"]["name"], ""])
            mine[-1][1] += call["function"]["arguments"]
        if choice["finish_reason"]:
            reasons[index] = choice["finish_reason"]
    return [
        (reason in ("stop", "tool_calls"), texts[index], [(name, arguments) for name, arguments in calls[index]])
        for index, reason in reasons.items()
    ]


def _of_response(shown: list[dict[str, Any]]) -> list[_Ended]:
    response = shown[-1]["response"] if "response" in shown[-1] else shown[-1]
    if [part["sequence_number"] for part in shown if "sequence_number" in part] not in ([], [*range(len(shown))]):
        return []
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = [(item["name"], item["arguments"]) for item in response["output"] if item["type"] == "function_call"]
    return [(response["status"] == "completed", "".join(part["text"] for part in parts), calls)]


def _of_message(shown: list[dict[str, Any]]) -> list[_Ended]:
    if shown[0]["type"] == "message":
        (message,) = shown
        calls = [(block["name"], json.dumps(block["input"])) for block in message["content"] if "input" in block]
        text = "".join(block.get("text", "") for block in message["content"])
        return [(message["stop_reason"] in ("end_turn", "tool_use"), text, calls)]
    text, reason = "", ""
    began: list[list[str]] = []
    for event in shown:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            began.append([event["content_block"]["name"], ""])
        delta = event.get("delta", {})
        text += delta.get("text", "")
        if "partial_json" in delta:
            began[-1][1] += delta["partial_json"]
        reason = delta.get("stop_reason") or reason
    if shown[-1]["type"] != "message_stop":
        return []
    return [(reason in ("end_turn", "tool_use"), text, [(name, arguments or "{}") for name, arguments in began])]
