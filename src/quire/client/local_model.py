"""A model in this process, with the interface of `RemoteModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from quire.client.chunk import AnswerChunk, AnswerStream, TokenUsage
from quire.config import EngineConfig
from quire.engine.request_state import RequestState
from quire.llm import LLM
from quire.prompt import Prompt, PromptLike
from quire.system.interrupts import interrupts_deferred


class LocalModel:
    """Loads a model and answers one request at a time, in the caller's thread. A child process with limits renders and
    encodes. Answers have the config's first adapter. Raises ValueError."""

    def __init__(self, config: EngineConfig, *, chat_template: str | None = None) -> None:
        if config.skip_tokenizer_init:
            raise ValueError("a local model needs its tokenizer; leave out skip_tokenizer_init")
        self.name = config.model
        self._adapter = next(iter(config.adapters), "")
        self._chat_template = chat_template
        self._llm = LLM(**asdict(config))
        engine = self._llm.engine
        self._inputs = engine.input_processor = engine.input_processor.isolated(self.name)

    def close(self) -> None:
        """End the process that renders and encodes."""
        self._inputs.close()

    def chat(self, messages: Sequence[Mapping[str, Any]], *, stream: bool = True, **sampling: Any) -> AnswerStream:
        """Generate the next message, by default up to the context's end. Raises ValueError or RuntimeError."""
        tokenizer = self._inputs.tokenizer
        assert tokenizer is not None
        text = tokenizer.apply_chat_template(messages, chat_template=self._chat_template)
        text, token_ids = tokenizer.encode_chat(text)
        prompt = Prompt(text, token_ids, answer_lead=tokenizer.answer_lead(self._chat_template))
        return self._run(prompt, stream, {"max_tokens": None, **sampling})

    def complete(self, prompt: str, *, stream: bool = True, **sampling: Any) -> AnswerStream:
        """Continue a prompt, by default with 16 tokens. Raises as `chat`."""
        return self._run(prompt, stream, sampling)

    def _run(self, prompt: PromptLike, is_streamed: bool, sampling: dict[str, Any]) -> AnswerStream:
        """Run a request; closing the iterator aborts it."""
        engine = self._llm.engine
        params = engine.default_sampling_params(**sampling)
        state: RequestState | None = None
        try:
            with interrupts_deferred():
                state = engine.add_request(replace(Prompt.of(prompt), adapter=self._adapter), params)
            while not state.is_finished:
                grown = engine.step()
                # Use deltas: the whole text may shrink when a stop string is completed.
                if is_streamed and state in grown:
                    yield AnswerChunk("".join(delta.text for delta in state.pop_deltas()), is_token=True)
            output = state.to_output()
            if output.error is not None:
                raise RuntimeError(f"the request failed: {output.error}")
            first = output.outputs[0]
            rest = "".join(delta.text for delta in state.pop_deltas())
            usage = TokenUsage(len(output.prompt_token_ids), len(first.token_ids), output.num_cached_tokens)
            yield AnswerChunk(rest, is_token=bool(rest), finish_reason=first.finish_reason, usage=usage)
        finally:
            if state is not None:
                with interrupts_deferred():
                    engine.abort(state.request.request_id)
