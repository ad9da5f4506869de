"""The offline API beyond `generate`: chat, stream, kept prefixes, statistics."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from checkpoints import make_checkpoint
from engine.harness import (
    PROMPTS,
    Job,
    assert_all_greedy,
    assert_same_tokens,
    check_books,
    drive,
    greedy,
    greedy_params,
    make_llm,
    random_ids,
)
from parameters import quick
from quire import LLM, BeamSearchParams, SamplingParams
from quire.engine.pinned_prefix import pin_prefix
from quire.outputs import Stats

NAME = "llama"


@pytest.fixture(scope="module")
def texts() -> LLM:
    return LLM("random:tiny", num_kv_blocks=100, use_tqdm=False)


# -- a prefix that is kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quick(["gpt2"], ["llama", "gpt2", "opt-350m"]))
def test_a_pinned_prefix_survives_heavy_traffic(name: str) -> None:
    llm = make_llm(name, block_size=4, num_kv_blocks=24, max_model_len=72, watermark=0)
    prefix = PROMPTS[8][:24]
    assert pin_prefix(llm.engine, list(prefix)) == 24
    pool = llm.engine.scheduler.kv.pool
    pinned = [block for block, count in enumerate(pool.ref_counts) if count]
    assert len(pinned) == 6
    jobs = [Job(tuple(random_ids(10 + i, i)), greedy_params(8), arrival=i) for i in range(12)]
    assert_all_greedy(name, drive(llm, jobs))
    job = drive(llm, [Job(PROMPTS[8], greedy_params(12))])[0]
    assert job.output.num_cached_tokens == 24
    assert_all_greedy(name, [job])
    assert [block for block, count in enumerate(pool.ref_counts) if count] == pinned
    # Turns, preemption and beams work in the rest of the pool.
    jobs = drive(llm, [Job(prompt, greedy_params(10, n=2)) for prompt in PROMPTS[5:]])
    assert_all_greedy(name, jobs)


def test_a_prefix_is_pinned_by_its_full_blocks_and_may_be_as_short_as_nothing() -> None:
    llm = make_llm(NAME, block_size=16)
    assert pin_prefix(llm.engine, list(PROMPTS[1])) == 0
    assert pin_prefix(llm.engine, list(PROMPTS[3])) == 16
    assert not llm.engine.has_unfinished()
    check_books(llm)


def test_a_prefix_nearly_as_long_as_the_context_is_pinned() -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=40, max_model_len=40)
    assert pin_prefix(llm.engine, random_ids(38, 5)) == 36
    check_books(llm)


@pytest.mark.parametrize("length", [39, 40])
def test_a_prefix_longer_than_the_context_is_refused(length: int) -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=40, max_model_len=40)
    with pytest.raises(ValueError, match="max_model_len"):
        pin_prefix(llm.engine, random_ids(length, 5))
    check_books(llm)


def test_a_pinned_prefix_that_nothing_could_find_is_refused() -> None:
    llm = make_llm(NAME, block_size=4, enable_prefix_caching=False)
    with pytest.raises(ValueError, match="enable_prefix_caching"):
        pin_prefix(llm.engine, list(PROMPTS[8]))


def test_the_file_of_a_pinned_prefix_leaves_the_rest_of_the_pool_to_requests(tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("You are a helpful assistant, and you know it. ")
    options = {"num_kv_blocks": 20, "block_size": 8, "use_tqdm": False}
    plain = LLM("random:tiny", **options)
    llm = LLM("random:tiny", pin_prefix=str(file), **options)
    num_tokens = len(llm.tokenizer.encode(file.read_text()))
    assert plain.engine.max_model_len == 160
    assert llm.engine.max_model_len == 160 - num_tokens // 8 * 8
    longest = "x" * (llm.engine.max_model_len - 5)
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    for prompt in (longest, "Hello", file.read_text()[:40] + "Who are you?", longest[:50]):
        ours = llm.generate(prompt, params, use_tqdm=False)[0]
        theirs = plain.generate(prompt, params, use_tqdm=False)[0]
        count = len(ours.outputs[0].token_ids)
        assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids[:count]
        check_books(llm)
    assert llm.generate(file.read_text()[:40], params, use_tqdm=False)[0].num_cached_tokens == 32


# -- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caching", [True, False])
def test_statistics_add_up(caching: bool) -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=17, max_num_batched_tokens=16, enable_prefix_caching=caching)
    seen: list[Stats] = []
    llm.engine.on_stats.append(seen.append)
    llm.engine.clock = count(0.0).__next__  # every read of the clock takes a second
    jobs = [Job(prompt, greedy_params(10), arrival=3 * i) for i, prompt in enumerate((*PROMPTS, PROMPTS[4]))]
    drive(llm, jobs)
    requests = [job.answer.request for job in jobs if job.answer is not None]
    assert sum(stats.num_sampled_tokens for stats in seen) == 10 * len(jobs)
    assert sum(stats.preemptions for stats in seen) == sum(request.num_preemptions for request in requests)
    assert sum(stats.preemptions for stats in seen) > 0
    assert sum(stats.prefix_queries for stats in seen) == sum(len(job.prompt) for job in jobs)
    assert sum(stats.prefix_hits for stats in seen) == sum(job.output.num_cached_tokens for job in jobs)
    assert (sum(stats.prefix_hits for stats in seen) > 0) == caching
    least = sum(len(job.prompt) - job.output.num_cached_tokens + 9 for job in jobs)
    assert sum(stats.num_scheduled_tokens for stats in seen) >= least
    for stats in seen:
        assert stats.num_scheduled_tokens <= 16
        assert stats.num_used_blocks + stats.num_cached_blocks <= stats.num_blocks == 17
        assert stats.num_preempted <= stats.num_waiting
        assert (stats.schedule_s, stats.execute_s, stats.update_s) == (1, 1, 2), "an update looks at the clock once"
    assert [stats.step_id for stats in seen] == list(range(seen[0].step_id, seen[0].step_id + len(seen)))
    assert seen[-1].num_running == seen[-1].num_waiting == seen[-1].num_used_blocks == seen[-1].num_kv_tokens == 0
    assert llm.engine.last_stats is seen[-1]


def test_every_sample_counts_as_sampled() -> None:
    llm = make_llm(NAME)
    seen: list[Stats] = []
    llm.engine.on_stats.append(seen.append)
    drive(llm, [Job(PROMPTS[2], greedy_params(6, n=3)), Job(PROMPTS[1], greedy_params(4))])
    assert sum(stats.num_sampled_tokens for stats in seen) == 3 * 6 + 4


def test_times_are_in_order() -> None:
    job = drive(make_llm(NAME), [Job(PROMPTS[2], greedy_params(5))])[0]
    metrics = job.output.metrics
    assert metrics is not None
    times = [
        metrics.arrival_time, metrics.first_scheduled_time, metrics.first_token_time, metrics.last_token_time,
        metrics.finished_time,
    ]  # fmt: skip
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert metrics.first_token_time < metrics.last_token_time  # type: ignore[operator]


# -- generate and its neighbours -------------------------------------------------------------------------------------


def test_outputs_come_in_the_order_of_the_prompts() -> None:
    llm = make_llm(NAME)
    params = [greedy_params(12 - i) for i in range(len(PROMPTS))]
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
    found = llm.generate(prompts, params, use_tqdm=False, priority=list(range(len(PROMPTS), 0, -1)))
    for prompt, param, output in zip(PROMPTS, params, found, strict=True):
        assert output.prompt_token_ids == list(prompt)
        assert output.finished
        assert len(output.outputs[0].token_ids) == param.max_tokens
        assert_same_tokens(NAME, prompt, output.outputs[0].token_ids)


def test_a_progress_bar_is_shown_on_stderr_only(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    for is_shown in (True, False):
        make_llm(NAME).generate([{"prompt_token_ids": [1]}] * 3, greedy_params(3), use_tqdm=is_shown)
        out, err = capfd.readouterr()
        assert out == ""
        assert ("generating" in err and "3/3" in err) == is_shown
        assert is_shown or not err


def test_without_parameters_the_models_own_recommendations_hold(tmp_path: Path) -> None:
    directory = make_checkpoint(NAME, tmp_path)
    prompt = {"prompt_token_ids": list(PROMPTS[2])}

    def run(recommended: dict[str, Any], params: SamplingParams | None) -> list[int]:
        (directory / "generation_config.json").write_text(json.dumps(recommended))
        llm = LLM(str(directory), skip_tokenizer_init=True, num_kv_blocks=20, use_tqdm=False)
        return llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids

    expected = greedy(NAME, PROMPTS[2]).token_ids
    assert tuple(run({"temperature": 0.0}, None)) == expected[:16]
    assert tuple(run({"do_sample": False}, None)) == expected[:16]
    assert tuple(run({"top_k": 1, "temperature": 1.5}, None)) == expected[:16]
    assert tuple(run({"temperature": 1.5}, None)) != expected[:16]
    assert tuple(run({"temperature": 1.5}, SamplingParams(temperature=0))) == expected[:16], "what is given goes first"
    end = expected[5]
    first = expected.index(end)
    assert run({"temperature": 0.0, "eos_token_id": [end, 1]}, None) == list(expected[: first + 1])


def test_chat_is_generate_over_the_rendered_template(texts: LLM) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    params = SamplingParams(temperature=0, max_tokens=8)
    text = texts.tokenizer.apply_chat_template(messages)
    ids = texts.tokenizer.encode(text, add_special_tokens=False)
    expected = texts.generate({"prompt_token_ids": ids}, params, use_tqdm=False)[0].outputs[0]
    one = texts.chat(messages, params, use_tqdm=False)
    two = texts.chat([messages, messages], params, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in (*one, *two)] == [expected.token_ids] * 3
    assert one[0].prompt == text
    assert one[0].prompt_token_ids == ids
    with pytest.raises(ValueError, match="messages"):
        texts.chat([], params)


@pytest.mark.parametrize("stop", [[], ["b", "ca"], ["never this"]])
def test_a_stream_grows_to_what_generate_gives(texts: LLM, stop: list[str]) -> None:
    allowed = [texts.tokenizer.encode(c)[0] for c in "abcde "] + list("é".encode())
    params = SamplingParams(seed=4, max_tokens=50, stop=stop, allowed_token_ids=allowed, logprobs=1, n=2)
    expected = texts.generate("Hello", params, use_tqdm=False)[0]
    last = None
    for output in texts.stream("Hello", params):
        if last is not None:
            assert not last.finished
            for before, after in zip(last.outputs, output.outputs, strict=False):
                assert after.token_ids[: len(before.token_ids)] == before.token_ids
                # Text grows; only parts of a stop string may disappear again.
                kept = len(before.text) - max(map(len, stop), default=0)
                assert after.text.startswith(before.text[: max(kept, 0)])
                if not stop:
                    assert after.text.startswith(before.text)
        last = output
    assert last is not None
    assert last.finished
    assert [o.text for o in last.outputs] == [o.text for o in expected.outputs]
    assert [o.token_ids for o in last.outputs] == [o.token_ids for o in expected.outputs]
    assert [o.logprobs for o in last.outputs] == [o.logprobs for o in expected.outputs]
    assert [(o.finish_reason, o.stop_reason) for o in last.outputs] == [
        (o.finish_reason, o.stop_reason) for o in expected.outputs
    ]


def test_streams_and_calls_beside_each_other_all_see_their_end(texts: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    expected = texts.generate("Hello", params, use_tqdm=False)[0].outputs[0].token_ids
    first, second = texts.stream("Hello", params), texts.stream("Hello", params)
    next(first)
    next(second)
    # All tokens of the streams are generated in the steps of this call.
    texts.generate("What else?", SamplingParams(temperature=0, max_tokens=30, ignore_eos=True), use_tqdm=False)
    for stream in (first, second):
        last = list(stream)[-1]
        assert last.finished
        assert last.outputs[0].token_ids == expected


def test_deltas_together_are_the_text(texts: LLM) -> None:
    allowed = [texts.tokenizer.encode(c)[0] for c in "abc"] + list("é€".encode())
    for stop in ([], ["ab"], ["bca", "cc"]):
        params = SamplingParams(seed=2, max_tokens=60, stop=stop, allowed_token_ids=allowed, n=3, min_tokens=5)
        expected = texts.generate("Hello", params, use_tqdm=False)[0]
        answer = texts.engine.add_request("Hello", params)
        found = dict.fromkeys(range(3), "")
        while not answer.is_finished:
            texts.engine.step()
            for delta in answer.pop_deltas():
                found[delta.index] += delta.text
        assert found == {output.index: output.text for output in expected.outputs}


def test_beams_have_text_too(texts: LLM) -> None:
    found = texts.beam_search("Hello", BeamSearchParams(3, 6))[0]
    assert len(found.outputs) == 3
    for output in found.outputs:
        ids = output.token_ids[:-1] if output.finish_reason == "stop" else output.token_ids
        assert output.text == texts.tokenizer.decode(ids)
