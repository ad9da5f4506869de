"""From a body to the token ids that the engine reads: chat template, tokenizer, truncation, length.

Encoding is slow: call it in a thread, so that other requests' streams go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quire.prompt import Prompt
from quire.server.errors import ApiError, invalid
from quire.server.openai.prompt_limits import check_num_tokens
from quire.server.openai.schema import Message, TemplateOptions
from quire.server.registry import ServedModel

#: Variables of templates that chat_template_kwargs may not have, and the way to mend that.
_REFUSED_VARIABLES = {
    **dict.fromkeys(("add_generation_prompt", "continue_final_message"), "set it as a field of the body"),
    **dict.fromkeys(("messages", "chat_template", "tools", "documents", "special_tokens"), "leave it out"),
}
_SURELY_ENOUGH_CHARACTERS = 16  # a token of text has some 4; beyond this it is worth asking how long tokens can be


def encode_texts(
    model: ServedModel, texts: Sequence[str], *, add_special_tokens: bool, is_truncated: bool
) -> list[Prompt]:
    """Texts as prompts."""
    tokenizer = tokenizer_of(model)
    if not is_truncated:
        for text in texts:
            _check_characters(model, text, "prompt")
    encoded = tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)
    return [Prompt(text, token_ids) for token_ids, text in zip(encoded, texts, strict=True)]


def encode_messages(
    model: ServedModel, messages: Sequence[Message], options: TemplateOptions, *, is_truncated: bool
) -> Prompt:
    """A conversation as a prompt, through the chat template."""
    tokenizer = tokenizer_of(model)
    if model.chat_template is None and not tokenizer.chat_templates:
        raise ApiError(
            400,
            f"the model {model.name!r} has no chat template, so it takes no messages; send a prompt to "
            "/v1/completions, or start the server with --chat-template FILE",
            "messages",
            "no_chat_template",
        )
    is_continued = bool(options.continue_final_message)
    is_opened = not is_continued and options.add_generation_prompt is not False
    if is_continued and options.add_generation_prompt:
        raise invalid(
            "continue_final_message goes on with the last message; add_generation_prompt would begin another",
            "continue_final_message",
        )
    variables = options.chat_template_kwargs or {}
    for name in variables:
        if hint := _REFUSED_VARIABLES.get(name):
            raise invalid(f"chat_template_kwargs may not have {name!r}; {hint}", "chat_template_kwargs")
    try:
        text: str = tokenizer.apply_chat_template(
            [_to_template(message) for message in messages],
            chat_template=model.chat_template,
            add_generation_prompt=is_opened,
            continue_final_message=is_continued,
            variables=variables,
        )
    except ValueError as error:
        raise invalid(str(error), "messages") from error
    if not is_truncated:
        _check_characters(model, text, "messages")
    return Prompt(
        text,
        tokenizer.encode(text, add_special_tokens=bool(options.add_special_tokens)),
        answer_lead=tokenizer.answer_lead(model.chat_template) if is_opened else "",
    )


def fit(
    prompts: Sequence[Prompt], model: ServedModel, *, keep: int | None, max_tokens: int | None, param: str
) -> list[Prompt]:
    """The prompts, cut to their last `keep` tokens (-1: as many as leave room for the answer).

    Args:
        param: the field that they come from.
    """
    longest = model.async_engine.engine.max_model_len
    if keep == 0:
        raise invalid("truncate_prompt_tokens=0 leaves nothing of the prompt", "truncate_prompt_tokens")
    if keep == -1:
        keep = max(1, longest - (max_tokens or 1))
    fitting = []
    for prompt in prompts:
        if keep is not None and len(prompt.token_ids) > keep:
            prompt = replace(prompt, token_ids=prompt.token_ids[-keep:], text=None)
        if not prompt.token_ids:
            raise invalid(f"the {param} came to no tokens; give at least one", param)
        check_num_tokens(len(prompt.token_ids), longest, param)
        fitting.append(prompt)
    return fitting


def _to_template(message: Message) -> dict[str, Any]:
    shown = message.model_dump(include={"role", "content", "name", "reasoning_content"}, exclude_none=True)
    if message.role == "developer":  # OpenAI's newer word, which templates do not know
        shown["role"] = "system"
    return shown


def _check_characters(model: ServedModel, text: str, param: str) -> None:
    """Refuse a text that no tokenizing can make short enough: megabytes would take seconds of it."""
    if len(text) > _SURELY_ENOUGH_CHARACTERS * model.async_engine.engine.max_model_len:
        model.prompt_limits.check_text(text, param)


def tokenizer_of(model: ServedModel) -> Any:
    """The model's tokenizer."""
    tokenizer = model.async_engine.engine.tokenizer
    if tokenizer is None:
        raise invalid(f"the model {model.name!r} is served without a tokenizer: send token ids as `prompt`", "prompt")
    return tokenizer
