"""Five hundred schemas through OpenAI's client: finished answers are valid, and nearly all finish."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import jsonschema_rs
import openai
import pytest

from json_schemas import UNSUPPORTED, random_schema
from serving import SMALL, make_model, running

NUM_SCHEMAS = 500
_AT_ONCE = 16


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["quire-mini", "random:tiny"])
def test_answers_to_many_schemas_end_and_are_valid(model: str) -> None:
    config = replace(SMALL, model=model, num_kv_blocks=2048, max_model_len=1024)
    with running(make_model(config, name=model)) as server:
        outcomes = asyncio.run(ask_all(server.async_client().with_options(timeout=3000), model))
    counts = Counter(outcomes)
    print(model, dict(counts))
    refused = {outcome: count for outcome, count in counts.items() if outcome not in ("valid", "invalid", "length")}
    num_taken = NUM_SCHEMAS - sum(refused.values())
    assert all(any(name in outcome for name in UNSUPPORTED) for outcome in refused), refused
    assert sum(refused.values()) <= 0.1 * NUM_SCHEMAS
    assert not counts["invalid"]
    assert counts["valid"] >= 0.95 * num_taken


async def ask_all(client: openai.AsyncOpenAI, model: str) -> list[str]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(seed: int) -> str:
        async with turns:
            return await outcome_of(client, model, seed)

    return await asyncio.gather(*map(ask, range(NUM_SCHEMAS)))


async def outcome_of(client: openai.AsyncOpenAI, model: str, seed: int) -> str:
    """Return valid, invalid or length, or the reason of a rejection."""
    schema = random_schema(seed)
    try:
        answer = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Answer."}],
            response_format={"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}},
            max_tokens=800,
            temperature=1.0,
            seed=seed,
        )
    except openai.BadRequestError as error:
        return str(error.body["message"])  # type: ignore[index]
    (choice,) = answer.choices
    if choice.finish_reason != "stop":
        return str(choice.finish_reason)
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    try:
        is_valid = validator.is_valid(json.loads(choice.message.content or ""))
    except ValueError:
        is_valid = False
    if not is_valid:
        print("invalid", seed, json.dumps(schema), choice.message.content)  # for debugging
    return "valid" if is_valid else "invalid"
