"""Every cause of reading a prompt again is told from the prompt, its outline and what the engine found."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from quire.core.block_keys import PUBLIC, TENANT, Domain
from quire.server.history.divergence import CAUSES, Divergence, Reading, SentPrompt, find_divergence, shared_tokens
from quire.server.history.outline import ChatOutline
from quire.server.openai.schema import ChatCompletionRequest

SYSTEM = "You are the keeper of house 7. Today is Friday, 2026-11-27."
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read", "write", "list")]
TURNS = [("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2"), ("user", "Three?")]
OLD = list(range(100, 200))


def outline(system: str = SYSTEM, tools: Any = TOOLS, turns: Any = TURNS, template: str = "t", **body: Any) -> Any:
    messages = [{"role": role, "content": text} for role, text in [("system", system), *turns]]
    request = ChatCompletionRequest.model_validate({"messages": messages, "tools": tools, **body})
    return ChatOutline.of(request, template, shows_tools=True, is_cut=False)


def sent(tokens: list[int], about: ChatOutline | None = None, answer: int = 0, **more: Any) -> SentPrompt:
    return SentPrompt("m", array("i", tokens).tobytes(), len(tokens) - answer, outline=about, **more)


def compare(now: SentPrompt, before: SentPrompt, found: int, **more: Any) -> Divergence | None:
    sources = [("device", found), ("computed", now.num_prompt_tokens - found)]
    return find_divergence(now, Reading(sources, block_size=4, **more), [before])


@pytest.mark.parametrize(
    ("cause", "changed"),
    [
        ("first", {"turns": [("user", "Something else")]}),
        ("history_edited", {"turns": [("user", "Eins?"), *TURNS[1:]]}),
        ("history_edited", {"turns": [*TURNS[:2], ("user", "Zwei?")]}),
        ("history_edited", {"turns": [*TURNS[:2], ("user", "Zwei?"), *TURNS[3:4], *TURNS[:2]]}),
        ("history_truncated", {"turns": [*TURNS[2:], ("assistant", "3"), ("user", "Four?")]}),
        ("history_truncated", {"turns": [("user", "Summary"), *TURNS[3:], ("assistant", "3"), ("user", "Four?")]}),
        ("history_truncated", {"turns": TURNS[:3]}),
        ("system_changed", {"system": "You are somebody else."}),
        ("system_date_or_id", {"system": SYSTEM.replace("Friday, 2026-11-27", "Saturday, 2026-11-28")}),
        ("system_date_or_id", {"system": SYSTEM.replace("Friday, 2026-11-27", "Sat, Nov. 28, 9:30 am")}),
        ("system_date_or_id", {"system": SYSTEM.replace("house 7", "house 8"), "turns": [("user", "New")]}),
        ("tools_changed", {"tools": TOOLS[:2]}),
        ("tools_reordered", {"tools": TOOLS[::-1]}),
        ("template_changed", {"template": "u"}),
        ("template_changed", {"reasoning_effort": "low"}),
        ("template_rewrites", {"turns": [*TURNS, ("assistant", "3"), ("user", "Four?")]}),
    ],
)
def test_the_part_of_a_conversation_that_changed_is_named(cause: str, changed: dict[str, Any]) -> None:
    found = compare(sent(OLD[:22] + [9] * 60, outline(**changed)), sent(OLD, outline()), found=20)
    assert found is not None
    assert (found.cause, found.token) == (cause, 22)
    assert found.num_tokens == (0 if cause == "first" else 60)
    assert str(found.token) in found.explanation or "{token}" not in CAUSES[cause]


def test_a_changed_front_is_told_from_another_conversation() -> None:
    before = sent(OLD, outline())
    other_day = outline(system=SYSTEM.replace("27", "28"))
    found = compare(sent([*OLD[:2], 9, *OLD[3:]], other_day), before, found=0)
    assert found is not None
    assert (found.cause, found.token, found.num_tokens) == ("system_date_or_id", 2, 97)
    new = compare(sent([*OLD[:2], 9, *OLD[3:]], outline("Another.", turns=[("user", "Else")])), before, found=0)
    assert new is not None
    assert (new.cause, new.num_tokens) == ("first", 0)


def test_an_answer_that_comes_back_otherwise_is_told_from_one_that_goes_on() -> None:
    before = sent(OLD, outline(), answer=30)
    longer = outline(turns=[*TURNS, ("assistant", "3"), ("user", "Four?")])
    assert compare(sent([*OLD, *range(20)], longer), before, found=96) is None
    assert compare(sent([*OLD[:-1], 7, *range(20)], longer), before, found=96) is None, "the last token has no KV"
    found = compare(sent([*OLD[:75], *range(40)], longer), before, found=72)
    assert found is not None
    assert (found.cause, found.token, found.num_tokens) == ("answer_changed", 75, 24)
    assert compare(sent(OLD[:50], outline(turns=TURNS[:3])), before, found=48) is None, "an earlier prompt again"


@pytest.mark.parametrize(
    ("cause", "now", "reading"),
    [
        ("evicted", {}, {}),
        ("model_reloaded", {"pid": 2}, {}),
        ("model_promoted", {"pid": 2, "stage": 2}, {}),
        ("cheaper_to_compute", {"pid": 2}, {"num_chosen_tokens": 40}),
        ("state_not_kept", {}, {"has_states": True}),
        ("not_looked_up", {}, {"is_looked_up": False}),
    ],
)
def test_kv_that_was_there_and_is_not_found_has_a_cause(
    cause: str, now: dict[str, Any], reading: dict[str, Any]
) -> None:
    prompt = sent([*OLD, 1, 2], **{"pid": 1, **now})
    found = compare(prompt, sent(OLD, pid=1), found=40, **reading)
    assert found is not None
    assert (found.cause, found.token, found.num_tokens) == (cause, 40, 56)
    assert compare(prompt, sent(OLD, pid=1), found=96, **reading) is None


def test_a_conversation_that_went_to_another_model_is_told_from_a_new_one() -> None:
    prompt = sent(OLD, outline(turns=[*TURNS, ("assistant", "3"), ("user", "Four?")]))
    elsewhere = replace(sent(OLD, outline()), model="n")
    assert compare(prompt, elsewhere, found=0) == Divergence(0, "model_changed")
    assert compare(prompt, replace(elsewhere, outline=outline(turns=[("user", "Else")])), found=0) == Divergence(
        0, "first"
    )


def test_a_prompt_is_not_compared_with_concurrent_ones() -> None:
    prompt = sent(OLD, started=4.0)
    assert compare(prompt, sent(OLD, computed=5.0), found=0) == Divergence(0, "first")
    found = compare(prompt, sent(OLD, computed=3.0), found=0)
    assert found is not None
    assert found.cause == "evicted"


def test_a_prompt_that_the_server_cut_is_told() -> None:
    cut = replace(outline(turns=[*TURNS, ("assistant", "3"), ("user", "Four?")]), is_cut=True)
    found = compare(sent(OLD[:22] + [9] * 60, cut), sent(OLD, outline()), found=20)
    assert found is not None
    assert found.cause == "history_truncated"


def test_a_loss_in_front_of_a_change_is_named_if_it_is_the_larger_one() -> None:
    before = sent(OLD, outline())
    edited = outline(turns=[*TURNS[:2], ("user", "Zwei?")])
    for shared, cause in ((80, "evicted"), (30, "history_edited")):
        found = compare(sent([*OLD[:shared], *range(50)], edited), before, found=0)
        assert found is not None
        assert found.cause == cause


def test_texts_passages_and_salts() -> None:
    changed = sent([*OLD[:50], *range(50)])
    for before, cause in ((sent(OLD), "prompt_changed"), (sent(OLD, passages_end=60), "passages_changed")):
        found = compare(changed, before, found=48)
        assert found is not None
        assert (found.cause, found.token) == (cause, 50)
    salted = replace(sent(OLD), domain=Domain(TENANT, b"a", b"salt"))
    other = replace(sent(OLD), domain=Domain(TENANT, b"a"))
    found = compare(salted, other, found=0)
    assert found is not None
    assert (found.cause, found.token, found.num_tokens) == ("salt_changed", 0, 96)
    assert compare(salted, other, found=96) == Divergence(0, "first"), "a public prefix may be shared"
    assert compare(replace(changed, model="n"), sent(OLD), found=0) == Divergence(0, "first")
    assert sent(OLD).domain == PUBLIC


def test_the_newest_of_the_closest_prompts_is_compared() -> None:
    branch, newest, far = sent(OLD[:60]), sent([*OLD[:60], 5, 5, 5, 5, 5]), sent([1, 2, 3, 4, 5, 6])
    reading = Reading([("device", 60), ("computed", 40)], block_size=4)
    found = find_divergence(sent([*OLD[:60], *range(40)]), reading, [far, newest, branch])
    assert found is not None
    assert found.earlier is newest


def test_shared_tokens_are_counted_to_the_token() -> None:
    for length in (0, 1, 7, 64):
        for at in range(length):
            one = array("i", range(length)).tobytes()
            other = array("i", [-1 if i == at else i for i in range(length)]).tobytes()
            assert shared_tokens(one, other) == at
            assert shared_tokens(one, one[: 4 * at]) == at
        assert shared_tokens(one if length else b"", one if length else b"") == length
