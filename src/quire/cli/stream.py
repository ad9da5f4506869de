"""One prompt's answer, written to the terminal while it grows. Knows nothing about options."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from quire.config import EngineConfig


def stream_to_terminal(config: EngineConfig, text: str, *, is_chat: bool, **sampling: Any) -> None:
    """Load the model and continue `text`: the answer goes to standard output, what it cost to a terminal's stderr.

    Raises:
        ValueError: the model, the prompt or a parameter cannot be served.
        RuntimeError: a step failed.
    """
    from quire import LLM

    llm = LLM(**asdict(config))
    engine = llm.engine
    if llm.tokenizer is None:
        raise ValueError("generate reads and writes text; leave out skip_tokenizer_init")
    prompt_token_ids, lead = None, ""
    if is_chat:
        text = llm.tokenizer.apply_chat_template([{"role": "user", "content": text}])
        prompt_token_ids = llm.tokenizer.encode(text, add_special_tokens=False)  # the template has written them
        lead = llm.tokenizer.answer_lead()
    params = engine.default_sampling_params(**sampling)
    answer = engine.add_request(text, params, prompt_token_ids=prompt_token_ids, answer_lead=lead)
    try:
        while not answer.is_finished:
            engine.step()
            # Deltas, not the text so far: that may shrink again where a stop string is completed.
            for _, delta in answer.take_deltas():
                sys.stdout.write(delta)
                sys.stdout.flush()
    finally:
        engine.abort(answer.request.request_id)
        sys.stdout.write("\n")
        sys.stdout.flush()
    output = answer.to_output()
    if output.error is not None:
        raise RuntimeError(f"the request failed: {output.error}")
    if sys.stderr.isatty():
        print(_cost(output), file=sys.stderr)


def _cost(output: Any) -> str:
    metrics, count = output.metrics, len(output.outputs[0].token_ids)
    ttft = metrics.first_token_time - metrics.arrival_time
    line = f"[{len(output.prompt_token_ids)} tokens in, {count} out ({output.outputs[0].finish_reason}); "
    line += f"first after {ttft * 1e3:.0f} ms"
    if count > 1:
        line += f", then {(metrics.last_token_time - metrics.first_token_time) / (count - 1) * 1e3:.1f} ms each"
    return line + "]"
