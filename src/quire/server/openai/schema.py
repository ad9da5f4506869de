"""The bodies of requests and answers: names, types, ranges and meanings of their fields, as OpenAPI shows them.

A field that is not here is refused by name (unless the server is told to ignore it); one that is here works. Null
counts as absent.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from quire.sampling_params import SamplingParams, StructuredOutputsParams
from quire.server.bodies.conversation import Message, Tool, ToolChoice
from quire.server.bodies.fields import (
    Body,
    Count,
    Hint,
    Items,
    ModelBody,
    NoItems,
    NonEmpty,
    NumLogprobs,
    Reply,
    StopString,
    TokenId,
    option,
)
from quire.server.bodies.replies import Generated, PromptLogprobs, Usage
from quire.server.bodies.retrieval import Retrieval
from quire.server.bodies.sampling import SamplingFields
from quire.server.bodies.structure import ResponseFormat, StructuredOutputs


class StreamOptions(Body):
    include_usage: bool | None = option("A last chunk with the usage, and `usage: null` in the others.")
    continuous_usage_stats: bool | None = option("The usage so far in every chunk; goes with include_usage.")
    include_obfuscation: Literal[False] | None = option("Nothing is obfuscated here: false is taken.")


class GenerationRequest(SamplingFields):
    """The fields that completions and chat completions share."""

    # How tokens are chosen, beside `SamplingFields`: the fields of SamplingParams by the same names, ranges included.
    n: int | None = option("Answers to each prompt; they share the prompt's KV. 1 by default.", ge=1, le=1024)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = option(
        "Token id, in plain digits -> added to its logit, from -100 to 100."
    )
    bad_words: Annotated[list[StopString], Field(fail_fast=True, max_length=1024)] | None = option(
        "Words that are never completed."
    )
    bad_words_token_ids: Items[NonEmpty[TokenId]] | None = option("The same as token ids.")
    allowed_token_ids: NonEmpty[TokenId] | None = option("Only these are ever chosen.")
    response_format: ResponseFormat | None = option("The answer is plain text, a JSON object or what a schema says.")
    structured_outputs: StructuredOutputs | None = option(
        "The answer is JSON of a schema, matches a regex, is one of some choices or in a grammar's language."
    )
    guided_json: str | bool | dict[str, Any] | None = option("The older name of structured_outputs.json.")
    guided_regex: str | None = option("The older name of structured_outputs.regex.")
    guided_choice: Annotated[list[str], Field(fail_fast=True, min_length=1)] | None = option(
        "The older name of structured_outputs.choice."
    )
    guided_grammar: str | None = option("The older name of structured_outputs.grammar.")
    guided_whitespace_pattern: str | None = option("The older name of structured_outputs.whitespace_pattern.")
    stop_token_ids: Items[TokenId] | None = option("Tokens that end the answer, beside the model's own.")
    include_stop_str_in_output: bool | None = option("Show the stop string that ended the answer.")
    ignore_eos: bool | None = option("The model's own end tokens do not end the answer.")
    min_tokens: int | None = option("Nothing ends the answer before so many tokens.", ge=0, lt=2**31)
    use_beam_search: bool | None = option(
        "The n best answers by their whole probability, best first, in place of sampled ones; not with stream, and "
        "not with fields of sampling."
    )
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = option(
        "With use_beam_search: an answer's log-probability is divided by its length to this power; 1 by default."
    )
    prompt_logprobs: NumLogprobs | None = option(
        "Log-probabilities of the prompt's tokens, and of so many likeliest ones (-1: all); not with stream."
    )
    logprob_token_ids: NonEmpty[TokenId] | None = option(
        "With logprobs, show those of these tokens in place of the likeliest ones; not with echo."
    )
    return_tokens_as_token_ids: bool | None = option("Show tokens in logprobs as token_id:123, not as text.")
    skip_special_tokens: bool | None = option("Leave special tokens out of the text; true by default.")
    detokenize: bool | None = option("Make text at all; true by default.")

    # How the prompt is made.
    truncate_prompt_tokens: int | None = option(
        "Keep the last so many tokens of the prompt; -1: as many as leave room for max_tokens.", ge=-1, lt=2**31
    )
    truncation_side: Literal["left", "right"] | None = option(
        "Where truncate_prompt_tokens cuts: left, the default, keeps the prompt's end, right its beginning."
    )
    retrieval: Retrieval | None = option("Answer from the passages of a collection that are nearest to the question.")

    # How the answer comes.
    stream: bool | None = option("Send the answer as it grows, as server-sent events.")
    stream_options: StreamOptions | None = option("Only with stream.")
    return_token_ids: bool | None = option("Show the token ids of prompt and answer.")
    min_stage: Count | None = option("Wait until the model has arrived up to this stage; 1 by default, any.")
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = option(
        "Names the request: the answer's id ends with it. 1 to 128 printable ASCII characters, no spaces."
    )

    def given_sampling(self) -> dict[str, Any]:
        """The fields of `SamplingParams` that were given; max_tokens and logprobs are each endpoint's own."""
        given = {name: getattr(self, name) for name in _SAMPLING & self.model_fields_set}
        if (wanted := self.given_structure()) is not None:
            given["structured_outputs"] = StructuredOutputsParams(**wanted[1])
        return given

    def given_structure(self) -> tuple[str, dict[str, Any]] | None:
        """The field that says what the answer may be, and what it says in the words of `StructuredOutputsParams`.

        Raises:
            ValueError: several fields say so.
        """
        found: list[tuple[str, dict[str, Any]]] = []
        if self.structured_outputs is not None:
            given = self.structured_outputs.model_dump(exclude_none=True, by_alias=True)
            found.append(("structured_outputs", given))
        for name in ("json", "regex", "choice", "grammar"):
            if (value := getattr(self, f"guided_{name}")) is not None:
                found.append((f"guided_{name}", {name: value}))
        match self.response_format:
            case ResponseFormat(type="json_object"):
                found.append(("response_format", {"json_object": True}))
            case ResponseFormat(type="json_schema", json_schema=about):
                if about is None:
                    raise ValueError('response_format={"type": "json_schema"} needs json_schema beside it')
                schema = True if about.schema_ is None else about.schema_
                found.append(("response_format", {"json": schema}))
        if len(found) > 1:
            names = " and ".join(name for name, _ in found)
            raise ValueError(f"{found[1][0]}=... is not valid: {names} both say what the answer is; give one of them")
        if self.guided_whitespace_pattern is not None:
            if not found:
                raise ValueError("guided_whitespace_pattern needs guided_json beside it")
            found[0][1]["whitespace_pattern"] = self.guided_whitespace_pattern
        return found[0] if found else None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


_SAMPLING = {field.name for field in fields(SamplingParams)} & set(GenerationRequest.model_fields)
_SAMPLING -= {"structured_outputs"}  # which is said in several ways


# -- POST /v1/chat/completions -------------------------------------------------------------------------------------


class TemplateOptions(Body):
    """How messages become a prompt; /tokenize takes the same."""

    add_generation_prompt: bool | None = option(
        "Open the assistant's turn at the end; true by default, but with continue_final_message."
    )
    continue_final_message: bool | None = option("Leave the last message open: the answer goes on with it.")
    chat_template: Annotated[str, Field(min_length=1)] | None = option(
        "Jinja text in place of the model's chat template, or the name of one of the model's; only where the server "
        "runs with --trust-request-chat-template."
    )
    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = option(
        "Handed to the chat template as the variable of this name; none also sets enable_thinking to false. Templates "
        "that know neither ignore them."
    )
    add_special_tokens: bool | None = option(
        "Put around the rendered template what the model expects; false by default: templates write it themselves."
    )
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=1024)] | None = option(
        "Up to 1024 functions that the model may call; the chat template shows them."
    )


class ChatCompletionRequest(TemplateOptions, GenerationRequest):
    messages: NonEmpty[Message] = Field(description="The conversation: at least one message.")
    max_completion_tokens: Count | None = option("At most so many tokens; by default as many as fit.")
    max_tokens: Count | None = option("The older name of max_completion_tokens.")
    logprobs: bool | None = option("The log-probability of each token.")
    top_logprobs: NumLogprobs | None = option("Also those of so many likeliest tokens (-1: all); goes with logprobs.")
    echo: bool | None = option("Put the last message's text before the answer, where the assistant said it.")

    tool_choice: ToolChoice | None = option(
        "auto, the default, leaves calls to the model; none shows it no tools; required forces one call at least; "
        '{"type": "function", "function": {"name": ...}} forces one of this function.'
    )
    parallel_tool_calls: bool | None = option("False leaves out all calls of an answer but the first.")
    include_reasoning: bool | None = option("False leaves the model's reasoning out of the answer; true by default.")

    # Fields that clients send out of habit.
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = option('Only ["text"].')
    functions: NoItems | None = option("Only an empty list: send tools, which took its place.")
    function_call: Literal["none", "auto"] | None = option(
        "Only none and auto: send tool_choice, which took its place."
    )


class TopLogprob(Reply):
    token: str
    logprob: float
    bytes: list[int] | None = Field(description="Tokens may be parts of a character: its bytes in UTF-8.")


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None = None


class CalledFunction(Reply):
    name: str | None = Field(default=None, description="Of a stream, in the first chunk of each call.")
    arguments: str = Field(description="A JSON object as text; of a stream, the next piece of it.")


class MadeToolCall(Reply):
    id: str = Field(description="Which a message of the role tool answers.")
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str | None = Field(description="Null where the model only calls functions.")
    refusal: None = None
    reasoning_content: str | None = Field(default=None, description="What the model thought, if it did.")
    tool_calls: list[MadeToolCall] | None = Field(default=None, description="What it calls, if it does.")


class ChatChoice(Reply):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str = Field(description="stop, length or tool_calls.")
    stop_reason: int | str | None = Field(default=None, description="The stop string or stop token that ended it.")
    token_ids: list[int] | None = None


class ChatCompletion(Generated):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    service_tier: None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class ToolCallDelta(Reply):
    index: int = Field(description="Of the call in its message.")
    id: str | None = Field(default=None, description="In the first chunk of each call.")
    type: Literal["function"] | None = Field(default=None, description="Likewise.")
    function: CalledFunction


class MessageDelta(Reply):
    role: Literal["assistant"] | None = Field(default=None, description="In the first chunk of each choice.")
    content: str | None = None
    refusal: None = Field(default=None, description="In the first chunk of each choice.")
    reasoning_content: str | None = Field(default=None, description="What the model thinks.")
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Reply):
    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(Generated):
    """One event of a stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None


# -- POST /v1/completions ------------------------------------------------------------------------------------------


class CompletionRequest(GenerationRequest):
    prompt: str | NonEmpty[str] | NonEmpty[TokenId] | NonEmpty[NonEmpty[TokenId]] = Field(
        description="A text, a list of texts, token ids, or a list of lists of token ids.", union_mode="left_to_right"
    )
    max_tokens: int | None = option("At most so many tokens; 16 by default. 0 goes with echo.", ge=0, lt=2**31)
    echo: bool | None = option("Put the prompt before the answer; with logprobs, its log-probabilities too.")
    logprobs: NumLogprobs | None = option("The log-probability of each token, and of so many likeliest ones (-1: all).")
    add_special_tokens: bool | None = option("Put around a text what the model expects (a bos token); true by default.")
    include_reasoning: Hint = option("vLLM's; a completion is text and nothing else, nothing depends on it.")
    best_of: int | None = option("Only the same as n: as many answers are made as are shown.", ge=1, le=1024)

    @property
    def prompts(self) -> list[Any]:
        """All of them, be it one: texts, or lists of token ids."""
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


class CompletionLogprobs(Reply):
    """Lists that run in parallel, one entry a token."""

    text_offset: list[int] = Field(description="Where in the text the token begins, in characters.")
    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="Null for the first token of an echoed prompt.")
    top_logprobs: list[dict[str, float] | None] | None


class CompletionChoice(Reply):
    index: int = Field(description="Prompt by prompt, each with its n answers.")
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = Field(default=None, description="stop or length; null while a stream goes on.")
    stop_reason: int | str | None = Field(default=None, description="The stop string or stop token that ended it.")
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(Generated):
    """The answer, and each chunk of a streamed one."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = None


# -- POST /tokenize and POST /detokenize ---------------------------------------------------------------------------


class TokenizeRequest(TemplateOptions, ModelBody):
    """A prompt, or messages."""

    prompt: str | None = option("A text.")
    messages: NonEmpty[Message] | None = option("A conversation, which the chat template makes a text of.")
    add_special_tokens: bool | None = option(
        "Put around the text what the model expects (a bos token); by default for a prompt, not for messages."
    )
    return_token_strs: bool | None = option("Show each token as text too.")


class TokenizeReply(Reply):
    count: int
    max_model_len: int = Field(description="The longest sequence, prompt and answer together.")
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(ModelBody):
    tokens: Items[TokenId] = Field(description="The token ids.")


class DetokenizeReply(Reply):
    prompt: str = Field(description="The text, special tokens included.")


# -- POST /apply-template ------------------------------------------------------------------------------------------


class TemplateRequest(TemplateOptions, ModelBody):
    messages: NonEmpty[Message] = Field(description="The conversation: at least one message.")


class TemplateReply(Reply):
    prompt: str = Field(description="What the chat template makes of the messages.")
