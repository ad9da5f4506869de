"""The offline API: prompts in, `RequestOutput`s out, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.system.interrupts import interrupts_deferred

#: Text, {"prompt": text}, {"prompt_token_ids": [...]}, both keys for an encoded text, or a `Prompt`.
PromptInput = str | Mapping[str, Any] | Prompt


class LLM:
    """A loaded model. Raises ValueError if the model or an option is not supported; the message says why.

    Args:
        model: a directory in the Hugging Face format, a hub id, an embedded model (``quire-mini``) or a preset such
            as ``random:qwen2.5-0.5b``.
        options: fields of `EngineConfig`.
    """

    def __init__(self, model: str, **options: Any) -> None:
        self.config = EngineConfig(model=str(model), **options)
        self.engine: Engine = start_engine(self.config)

    @property
    def tokenizer(self) -> Any:
        """The `Tokenizer`; None with skip_tokenizer_init."""
        return self.engine.tokenizer

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        priority: Sequence[int] | None = None,
        lora: str | Sequence[str | None] | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts in one batch.

        Args:
            prompts: one or several; text, or ``{"prompt_token_ids": [...]}``.
            sampling_params: one for all or one each; None uses the model's defaults.
            use_tqdm: show progress on stderr.
            priority: one per prompt; smaller goes first.
            lora: name of the adapter for all prompts, or one each (None: the model alone); `engine.adapters.load` loads
                others than those of the option `lora`.

        Returns:
            One output per prompt, in order. The output of a failed request has `error` set and the finish_reason
            "error"; the error is logged.

        Raises:
            ValueError: a prompt or parameter is invalid; no request has run.
            RuntimeError: every request failed.
        """
        prompts = self._as_list(prompts)
        params = self._one_each(sampling_params, len(prompts))
        if priority is not None and len(priority) != len(prompts):
            raise ValueError(f"{len(priority)} priorities for {len(prompts)} prompts; give one each")
        if lora is not None:
            names = [lora] * len(prompts) if isinstance(lora, str) else lora
            if len(names) != len(prompts):
                raise ValueError(f"{len(names)} adapters for {len(prompts)} prompts; give one for all or one each")
            pairs = zip(prompts, names, strict=True)
            prompts = [replace(self._as_prompt(prompt), adapter=name or "") for prompt, name in pairs]
        return self._run(prompts, params, use_tqdm, priority)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several.

        Args:
            messages: list of dicts with role and content, or a list of such lists.
            chat_template: Jinja text, or the name of one of the model's templates.
            add_generation_prompt: open the assistant's turn at the end.
            continue_final_message: continue the last message.
            variables: template variables, such as tools or enable_thinking.

        Raises:
            ValueError: the model has no chat template, or it refuses the messages.
        """
        if self.tokenizer is None:
            raise ValueError("chat needs a tokenizer, and there is none (skip_tokenizer_init)")
        if not messages:
            raise ValueError("messages is empty; give at least one, such as {'role': 'user', 'content': 'Hello'}")
        conversations = [messages] if isinstance(messages[0], Mapping) else list(messages)
        lead = self.tokenizer.answer_lead(chat_template)
        prompts = []
        for conversation in conversations:
            text = self.tokenizer.apply_chat_template(
                conversation,
                chat_template=chat_template,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=variables,
            )
            text, token_ids = self.tokenizer.encode_chat(text)
            prompts.append(Prompt(text, token_ids, answer_lead=lead))
        return self._run(prompts, self._one_each(sampling_params, len(prompts)), use_tqdm)

    def beam_search(
        self, prompts: PromptInput | Sequence[PromptInput], params: BeamSearchParams, use_tqdm: bool = False
    ) -> list[RequestOutput]:
        """Return the `beam_width` best continuations of each prompt, best first.

        Beams are ranked by `cumulative_logprob / number of tokens ** length_penalty`.
        """
        if not isinstance(params, BeamSearchParams):
            raise ValueError(f"beam search takes BeamSearchParams(...), not {params!r:.80}")
        prompts = self._as_list(prompts)
        return self._run(prompts, [params] * len(prompts), use_tqdm)

    def stream(self, prompt: PromptInput, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Complete one prompt and yield its growing output; the last one is `finished`. Raises ValueError for an
        invalid prompt or parameter, RuntimeError if a step failed."""
        state = self._add(prompt, self._one_each(sampling_params, 1)[0])
        has_yielded_end = False
        try:
            while not state.is_finished:
                if state in self.engine.step():
                    has_yielded_end = state.is_finished
                    yield self._checked(state)
            if not has_yielded_end:  # it ended in a step of another call
                yield self._checked(state)
        finally:
            self.engine.abort(state.request.request_id)

    def _run(
        self,
        prompts: Sequence[PromptInput],
        params: Sequence[SamplingParams | BeamSearchParams | None],
        use_tqdm: bool,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        engine = self.engine
        states: list[RequestState] = []
        try:
            for i, (prompt, param) in enumerate(zip(prompts, params, strict=True)):
                with interrupts_deferred():
                    states.append(self._add(prompt, param, priority[i] if priority is not None else 0))
            with _progress(engine, len(states), use_tqdm) as show:
                while not all(state.is_finished for state in states):
                    engine.step()
                    show(sum(state.is_finished for state in states))
        finally:  # an invalid prompt, an error, Ctrl-C
            with interrupts_deferred():
                for state in states:
                    engine.abort(state.request.request_id)
        if states and all(state.request.error is not None for state in states):
            self._checked(states[0])  # raises
        return [state.to_output() for state in states]

    def _add(
        self, prompt: PromptInput, params: SamplingParams | BeamSearchParams | None, priority: int = 0
    ) -> RequestState:
        return self.engine.add_request(self._as_prompt(prompt), params, priority=priority)

    @staticmethod
    def _as_prompt(prompt: PromptInput) -> Prompt:
        if isinstance(prompt, Mapping):
            if unknown := set(prompt) - {"prompt", "prompt_token_ids"}:
                raise ValueError(f"a prompt has the keys prompt and prompt_token_ids, not {', '.join(sorted(unknown))}")
            text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
            if text is not None or token_ids is not None:
                prompt = Prompt(text, token_ids if token_ids is not None else ())
        if not isinstance(prompt, str | Prompt):
            expected = 'text, {"prompt": text} or {"prompt_token_ids": [...]}'
            raise ValueError(f"a prompt is {expected}, not {prompt!r:.80}")
        return Prompt.of(prompt)

    @staticmethod
    def _checked(state: RequestState) -> RequestOutput:
        if state.request.error is not None:
            raise RuntimeError(f"request {state.request.request_id} failed: {state.request.error}")
        return state.to_output()

    @staticmethod
    def _as_list(prompts: PromptInput | Sequence[PromptInput]) -> Sequence[PromptInput]:
        if isinstance(prompts, str | Mapping | Prompt):
            return [prompts]
        if not isinstance(prompts, Sequence):
            raise ValueError(f"prompts are one prompt or a list of them, not {prompts!r:.80}")
        if prompts and isinstance(prompts[0], int):
            raise ValueError('token ids are given as {"prompt_token_ids": [...]}')
        return list(prompts)

    @staticmethod
    def _one_each(
        params: SamplingParams | Sequence[SamplingParams] | None, count: int
    ) -> list[SamplingParams | BeamSearchParams | None]:
        if params is None or isinstance(params, SamplingParams):
            return [params] * count
        if isinstance(params, BeamSearchParams):
            raise ValueError("BeamSearchParams are for beam_search(prompts, params)")
        if not isinstance(params, Sequence):
            raise ValueError(f"sampling_params is SamplingParams(...) or a list of them, not {params!r:.80}")
        if len(params) != count:
            raise ValueError(f"{len(params)} sampling_params for {count} prompts; give one for all or one each")
        return list(params)


@contextmanager
def _progress(engine: Engine, total: int, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over the requests of one call. Yields `show(num_done)`, to call after each step."""
    if not is_shown or not total:
        yield lambda num_done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("generating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[speed]}"),
    )  # fmt: skip
    started = engine.clock()
    num_tokens = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, speed="")

        def show(num_done: int) -> None:
            nonlocal num_tokens
            num_tokens += engine.last_stats.num_sampled_tokens if engine.last_stats is not None else 0
            elapsed = engine.clock() - started
            bar.update(task, completed=num_done, speed=f"{num_tokens / elapsed:.0f} tok/s" if elapsed > 0 else "")

        yield show
