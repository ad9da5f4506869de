"""Encoding prompts: chat template, tokenizer, truncation, length; POST /tokenize, /detokenize and /apply-template.

Encoding is slow: call it in a thread, so that it does not stall other requests' streams.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from quire.prompt import Prompt
from quire.rag.prompt_template import join_conversation, join_question
from quire.sampling_params import SamplingParams
from quire.server.bodies.conversation import Message, read_cut_arguments
from quire.server.bodies.replies import ERROR_RESPONSES, json_reply
from quire.server.bodies.retrieval import Passages
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import wait_until_known
from quire.server.http.middleware import key_id_of
from quire.server.http.routes import Routes
from quire.server.openai.schema import (
    DetokenizeReply,
    DetokenizeRequest,
    GenerationRequest,
    TemplateOptions,
    TemplateReply,
    TemplateRequest,
    TokenizeReply,
    TokenizeRequest,
)
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

_USUAL_CHARACTERS = 16  # a token of text has some 4; longer texts are compared with the model's longest token
_ALWAYS_TOKENIZED = 2**18  # characters, for any model
#: Variables that chat_template_kwargs may not set -> remedy.
_RESERVED_VARIABLES = {
    **dict.fromkeys(
        ("add_generation_prompt", "continue_final_message", "chat_template", "tools"), "set it as a field of the body"
    ),
    "messages": "leave it out",
}
#: Fields of a message for the chat template.
_SHOWN = {"role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id"}


def encode_question(model: ServedModel, question: str, passages: Passages) -> Prompt:
    _check_characters(model, question, "prompt", is_truncated=False)
    try:
        return join_question(tokenizer_of(model), passages.texts, question, passages.template)
    except ValueError as error:
        raise invalid(str(error), "prompt") from error


def encode_texts(
    model: ServedModel, texts: Sequence[Any], *, add_special_tokens: bool, is_truncated: bool
) -> list[Prompt]:
    """Encode texts, unless they are token ids."""
    if not isinstance(texts[0], str):
        return [Prompt(token_ids=token_ids) for token_ids in texts]
    tokenizer = tokenizer_of(model)
    for text in texts:
        _check_characters(model, text, "prompt", is_truncated=is_truncated)
    try:
        encoded = tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)
    except ValueError as error:
        raise invalid(str(error), "prompt") from error
    return [Prompt(text, token_ids) for token_ids, text in zip(encoded, texts, strict=True)]


def encode_messages(
    model: ServedModel,
    messages: Sequence[Message],
    options: TemplateOptions,
    *,
    trusts_template: bool,
    is_truncated: bool,
    passages: Passages | None = None,
    shows_tools: bool = True,
) -> Prompt:
    """Encode a conversation with the chat template, or if it is trusted with that in `options`. A prompt that will be
    cut (`is_truncated`) may be too long."""
    tokenizer = tokenizer_of(model)
    template = own_template(model, options, trusts_template=trusts_template)
    if template is None and not tokenizer.chat_templates:
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
            "continue_final_message continues the last message; add_generation_prompt would open another",
            "continue_final_message",
        )
    shown = [_to_template(message, f"messages[{index}]") for index, message in enumerate(messages)]
    applied = {
        "chat_template": template,
        "add_generation_prompt": is_opened,
        "continue_final_message": is_continued,
        "variables": _variables(options, shows_tools=shows_tools),
    }
    has_specials = bool(options.add_special_tokens)
    try:
        lead = tokenizer.answer_lead(template) if is_opened else ""
        if options.tools:
            tokenizer.shows_tools(template)  # remembered for the answer's form
        text: str = tokenizer.apply_chat_template(shown, **applied)
        _check_characters(model, text, "messages", is_truncated=is_truncated)
        if passages is not None:
            joined = join_conversation(
                tokenizer, passages.texts, shown, passages.template, add_special_tokens=has_specials, **applied
            )
            return replace(joined, answer_lead=lead)
        text, token_ids = tokenizer.encode_chat(text, add_special_tokens=has_specials)
    except ValueError as error:
        raise invalid(str(error), "messages" if options.chat_template is None else "chat_template") from error
    return Prompt(text, token_ids, answer_lead=lead)


def encode_prediction(model: ServedModel, text: str, lead: str) -> tuple[int, ...]:
    """Encode a prediction of an answer that begins with the blanks `lead`."""
    _check_characters(model, text, "prediction", is_truncated=False)
    try:
        return tuple(tokenizer_of(model).encode_plain(lead + text))
    except ValueError as error:
        raise invalid(str(error), "prediction") from error


def may_think(options: TemplateOptions) -> bool:
    """Whether an answer may begin with reasoning if the prompt neither opens nor closes it."""
    if options.continue_final_message or options.add_generation_prompt is False:
        return False
    return _variables(options, shows_tools=False).get("enable_thinking") is not False


def _variables(options: TemplateOptions, *, shows_tools: bool) -> dict[str, Any]:
    variables = options.chat_template_kwargs or {}
    for name in variables:
        if remedy := _RESERVED_VARIABLES.get(name):
            raise invalid(f"chat_template_kwargs may not have {name!r}; {remedy}", "chat_template_kwargs")
    if options.reasoning_effort is not None:
        effort: dict[str, Any] = {"reasoning_effort": options.reasoning_effort}
        if options.reasoning_effort == "none":
            effort["enable_thinking"] = False  # the switch of most templates
        variables = {**effort, **variables}
    if options.tools and shows_tools:
        variables = {**variables, "tools": [tool.given for tool in options.tools]}
    return variables


MAX_LOGPROBS = 1_000_000  #: of one request, over all tokens; a quarter where an event is encoded at once


def fit(
    prompts: Sequence[Prompt], model: ServedModel, body: GenerationRequest, *, max_tokens: int | None, param: str
) -> list[Prompt]:
    """Cut prompts as the body wants, and reject those that are too long or empty; `param` is their field."""
    longest, keep = model.async_engine.engine.max_model_len, body.truncate_prompt_tokens
    if keep == 0:
        raise invalid("truncate_prompt_tokens=0 leaves nothing of the prompt", "truncate_prompt_tokens")
    if keep == -1:
        keep = max(1, longest - (max_tokens or 1))
    fitting = []
    for prompt in prompts:
        if keep is not None and len(prompt.token_ids) > keep:
            kept = prompt.token_ids[:keep] if body.truncation_side == "right" else prompt.token_ids[-keep:]
            prompt = replace(prompt, token_ids=kept, text=None)
        if not prompt.token_ids:
            raise invalid(f"the {param} came to no tokens; give at least one", param)
        if len(prompt.token_ids) >= longest:
            raise _too_long(f"has {len(prompt.token_ids)} tokens", longest, param)
        fitting.append(prompt)
    return fitting


def limit_logprobs(
    prompts: Sequence[Prompt],
    params: SamplingParams,
    model: ServedModel,
    settings: ServerSettings,
    *,
    is_stream: bool,
) -> SamplingParams:
    """Reject a request for too many log-probabilities over all tokens. Without max_tokens, limit it."""
    if settings.max_logprobs < 0:
        return params
    at_once = is_stream and params.prompt_logprobs is not None  # the prompt that a stream echoes
    engine, most = model.async_engine.engine, MAX_LOGPROBS // 4 if at_once else MAX_LOGPROBS
    widths = (params.prompt_logprobs, (params.logprobs and len(params.logprob_token_ids or ())) or params.logprobs)
    of_prompt, of_answer = (0 if k is None else 1 + (engine.vocab_size if k < 0 else k) for k in widths)
    num_prompt = sum(len(prompt.token_ids) for prompt in prompts) * of_prompt
    longest = [engine.max_model_len - len(prompt.token_ids) for prompt in prompts]
    if params.max_tokens is None and num_prompt + sum(longest) * params.n * of_answer > most:
        room = (most - num_prompt) // (len(prompts) * params.n * of_answer) if of_answer else 1
        params = replace(params, max_tokens=max(1, room))
    num_answer = sum(min(each, params.max_tokens or each) for each in longest) * params.n * of_answer
    if num_prompt + num_answer > most:
        name = "prompt_logprobs" if num_prompt > num_answer else "logprobs"
        raise invalid(
            f"{name} asks for {num_prompt + num_answer:,} log-probabilities over all tokens, and one request gets "
            f"{most:,} at most; send fewer prompts a request, or ask for fewer tokens or log-probabilities a token",
            name,
        )
    return params


def own_template(model: ServedModel, options: TemplateOptions, *, trusts_template: bool) -> str | None:
    """Return the template that replaces the model's, from the body or the command line; None for the model's own."""
    if options.chat_template is None:
        return model.chat_template
    if not trusts_template:
        raise invalid(
            "chat_template is not taken from requests here; leave it out, or have the server run with "
            "--trust-request-chat-template",
            "chat_template",
        )
    return options.chat_template


def _to_template(message: Message, where: str) -> dict[str, Any]:
    """Return a message in the form that templates expect, as in `transformers`."""
    shown = message.model_dump(include=_SHOWN, exclude_none=True)
    if message.role == "developer":  # OpenAI's newer name, which templates do not know
        shown["role"] = "system"
    thought = message.reasoning_content or message.reasoning
    if isinstance(thought, str) and thought:  # templates read one name or the other
        shown |= {"reasoning_content": thought, "reasoning": thought}
    if message.tool_calls:
        shown.setdefault("content", None)
        for number, call in enumerate(shown["tool_calls"]):
            field = f"{where}.tool_calls[{number}].function.arguments"
            call["function"]["arguments"] = _arguments(call["function"]["arguments"], field)
    elif message.content is None:
        what = "a text, or a list of text parts; only an assistant with tool_calls may have none"
        raise ApiError(400, f"{where}.content is missing: {what}", f"{where}.content", "missing_required_parameter")
    return shown


def _arguments(given: str | dict[str, Any], field: str) -> dict[str, Any]:
    """Return a function's arguments as the object that templates expect; answers have them as text.

    Arguments that `max_tokens` cut off stay in the history of agents, so their complete part counts.
    """
    if isinstance(given, dict):
        return given
    try:
        arguments = json.loads(given or "{}")
    except (ValueError, RecursionError):
        return read_cut_arguments(given)
    if not isinstance(arguments, dict):
        raise invalid(f"{field}={given!r:.100} is not a JSON object; send one, such as {{}}", field)
    return arguments


def _check_characters(model: ServedModel, text: str, param: str, *, is_truncated: bool) -> None:
    """Reject a text that is certainly too long before tokenizing, which takes 200 bytes a character. One that is
    counted or cut (`is_truncated`) may be as long as some four contexts."""
    longest = model.async_engine.engine.max_model_len
    if len(text) <= _USUAL_CHARACTERS * longest:
        return
    if is_truncated and len(text) > (most := max(_ALWAYS_TOKENIZED, _USUAL_CHARACTERS * longest)):
        message = f"{param} has {len(text)} characters, and at most {most} are tokenized here at once; send pieces"
        raise ApiError(400, message, param, "context_length_exceeded")
    if not is_truncated and len(text) > model.longest_token * longest:
        raise _too_long(f"has {len(text)} characters, more than so many tokens can hold", longest, param)


def _too_long(what: str, max_model_len: int, param: str) -> ApiError:
    return ApiError(
        400,
        f"the prompt {what}; this model's maximum context length is {max_model_len} tokens, prompt and answer "
        f"together, so that it takes at most {max_model_len - 1}; shorten it, or set truncate_prompt_tokens",
        param,
        "context_length_exceeded",  # OpenAI's code
    )


def tokenizer_of(model: ServedModel) -> Any:
    """Return the model's tokenizer. Raises ApiError for a model without one."""
    tokenizer = model.async_engine.engine.tokenizer
    if tokenizer is None:
        raise invalid(f"the model {model.name!r} is served without a tokenizer: send token ids as `prompt`", "prompt")
    return tokenizer


_ALWAYS_DETOKENIZED = 2**16  # token ids, for any model


def tokenize_routes(registry: ModelRegistry, settings: ServerSettings) -> Routes:
    routes = Routes("tokens", responses=ERROR_RESPONSES)
    trusts_template = settings.trust_request_chat_template

    async def find_model(request: Request, name: str | None) -> ServedModel:
        model = registry.get(name)
        await wait_until_known(model, request.receive)
        return model

    @routes.post("/tokenize", response_model=TokenizeReply, summary="Convert text to token ids")
    async def tokenize(request: Request, body: TokenizeRequest) -> Response:
        model = await find_model(request, body.model)
        return await model.async_engine.in_thread(key_id_of(request.scope), _tokenize, model, body, trusts_template)

    @routes.post("/detokenize", response_model=DetokenizeReply, summary="Convert token ids to text")
    async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
        model = await find_model(request, body.model)
        if len(body.tokens) > (most := max(_ALWAYS_DETOKENIZED, 4 * model.async_engine.engine.max_model_len)):
            what = f"tokens has {len(body.tokens)} ids, and at most {most} are detokenized here at once; send pieces"
            raise ApiError(400, what, "tokens", "context_length_exceeded")
        decode = partial(tokenizer_of(model).decode, body.tokens, skip_special_tokens=False)
        return json_reply(DetokenizeReply(prompt=await model.async_engine.in_thread(key_id_of(request.scope), decode)))

    @routes.post("/apply-template", response_model=TemplateReply, summary="Render a conversation as text")
    async def apply_template(request: Request, body: TemplateRequest) -> Response:
        model = await find_model(request, body.model)
        encode = partial(
            encode_messages, model, body.messages, body, trusts_template=trusts_template, is_truncated=False
        )
        prompt = await model.async_engine.in_thread(key_id_of(request.scope), encode)
        return json_reply(TemplateReply(prompt=prompt.text or ""))

    return routes


def _tokenize(model: ServedModel, body: TokenizeRequest, trusts_template: bool) -> Response:
    ids = list(_encode(model, body, trusts_template).token_ids)
    pieces = list(map(tokenizer_of(model).backend.id_to_token, ids)) if body.return_token_strs else None
    longest = model.async_engine.engine.max_model_len
    return json_reply(TokenizeReply(count=len(ids), max_model_len=longest, tokens=ids, token_strs=pieces))


def _encode(model: ServedModel, body: TokenizeRequest, trusts_template: bool) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        raise invalid("give a prompt or messages, one of the two", "prompt")
    if body.messages is not None:
        return encode_messages(model, body.messages, body, trusts_template=trusts_template, is_truncated=True)
    if body.model_fields_set & (TemplateOptions.model_fields.keys() - {"add_special_tokens"}):
        raise invalid("the options of chat templates go with messages", "messages")
    assert body.prompt is not None
    add_special_tokens = body.add_special_tokens is not False
    (prompt,) = encode_texts(model, [body.prompt], add_special_tokens=add_special_tokens, is_truncated=True)
    return prompt
