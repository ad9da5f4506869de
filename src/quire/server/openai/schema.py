"""Bodies and answers of chat, completions and tokenization: fields, types, ranges and descriptions for OpenAPI."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from quire.sampling_params import SamplingParams, StructuredOutputsParams
from quire.server.bodies.conversation import AllowedToolChoice, Message, TextPart, Tool, ToolChoice
from quire.server.bodies.fields import (
    AllowedTokens,
    BannedWords,
    Biases,
    Body,
    Count,
    Effort,
    Hint,
    Items,
    ModelBody,
    NoItems,
    NonEmpty,
    NumLogprobs,
    Reply,
    StopString,
    StopTokens,
    TokenId,
    Tools,
    callable_only,
    option,
)
from quire.server.bodies.replies import Generated, PromptLogprobs, Usage
from quire.server.bodies.retrieval import Retrieval
from quire.server.bodies.sampling import ResponseFormat, SamplingFields, StructuredOutputs


class StreamOptions(Body):
    include_usage: bool | None = option("Send the usage in a last chunk, and `usage: null` in the others.")
    continuous_usage_stats: bool | None = option("Send the usage so far in every chunk; needs include_usage.")
    include_obfuscation: Literal[False] | None = option("False only: nothing is obfuscated.")


#: Other names of fields of structured_outputs.
_STRUCTURES = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json",
    "grammar": "grammar",
}


class PredictedOutput(Body):
    """Text that the answer may repeat. It changes no token; where it is right, the answer comes sooner."""

    type: Literal["content"] = Field(description="Always content.")
    content: str | Items[TextPart] = Field(description="The text, or its parts.")

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class GenerationRequest(SamplingFields):
    """The fields that chat and completions share."""

    prediction: PredictedOutput | None = option("Text that the answer may repeat, as drafts.")
    # Choosing tokens: names and ranges of `SamplingParams`.
    n: int | None = option("Number of answers to each prompt, which share its KV. Default 1.", ge=1, le=1024)
    logit_bias: Biases | None = option(
        "Map from token ids, in plain digits, to addends for their logits, from -100 to 100."
    )
    bad_words: Annotated[list[StopString], Field(fail_fast=True, max_length=1024)] | None = option(
        "Words that are never completed."
    )
    bad_words_token_ids: BannedWords | None = option("Words that are never completed, as token ids.")
    allowed_token_ids: AllowedTokens | None = option("Tokens to choose from; all others are banned.")
    response_format: ResponseFormat | None = option("Format: plain text, a JSON object, or JSON of a schema.")
    structured_outputs: StructuredOutputs | None = option(
        "Language of the answer: a JSON schema, a regex, choices or a grammar."
    )
    guided_json: str | bool | dict[str, Any] | None = option("Older name of structured_outputs.json.")
    guided_regex: str | None = option("Older name of structured_outputs.regex.")
    guided_choice: NonEmpty[str] | None = option("Older name of structured_outputs.choice.")
    guided_grammar: str | None = option("Older name of structured_outputs.grammar.")
    json_schema: str | bool | dict[str, Any] | None = option("llama.cpp's name of structured_outputs.json.")
    grammar: str | None = option("llama.cpp's name of structured_outputs.grammar.")
    guided_whitespace_pattern: str | None = option("Older name of structured_outputs.whitespace_pattern.")
    stop_token_ids: StopTokens | None = option("Tokens that end the answer, in addition to the model's own.")
    include_stop_str_in_output: bool | None = option("Include the stop string in the answer.")
    ignore_eos: bool | None = option("Ignore the model's own end tokens.")
    min_tokens: int | None = option("Minimum length of the answer in tokens.", ge=0, lt=2**31)
    use_beam_search: bool | None = option(
        "Search for the n likeliest answers, best first, in place of sampling; without stream and sampling fields."
    )
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = option(
        "Exponent of the length by which beam search divides an answer's log-probability. Default 1."
    )
    prompt_logprobs: NumLogprobs | None = option(
        "Number of likeliest tokens (-1: all) in log-probabilities of the prompt; without stream."
    )
    logprob_token_ids: NonEmpty[TokenId] | None = option(
        "Tokens to show in logprobs beside the chosen one, in place of the likeliest; without echo."
    )
    return_tokens_as_token_ids: bool | None = option("Show tokens in logprobs as token_id:123.")
    skip_special_tokens: bool | None = option("Leave special tokens out of the text. Default true.")
    detokenize: bool | None = option("Return text. Default true.")

    # Making the prompt.
    truncate_prompt_tokens: int | None = option(
        "Number of prompt tokens to keep; -1 leaves room for max_tokens.", ge=-1, lt=2**31
    )
    truncation_side: Literal["left", "right"] | None = option(
        "Side to cut: left, the default, keeps the end of the prompt, right its beginning."
    )
    retrieval: Retrieval | None = option("Search of a collection whose passages are put in front of the question.")

    # Sending the answer.
    stream: bool | None = option("Send the answer as server-sent events while it is generated.")
    stream_options: StreamOptions | None = option("Options for stream.")
    return_token_ids: bool | None = option("Show the token ids of prompt and answer.")
    min_stage: Count | None = option("Stage of the model to wait for. Default 1.")
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = option(
        "Suffix of the answer's id: 1 to 128 printable ASCII characters, no spaces."
    )

    def given_sampling(self) -> dict[str, Any]:
        """Return the given fields of `SamplingParams`, but for max_tokens and logprobs, which endpoints read."""
        given = {name: getattr(self, name) for name in _SAMPLING & self.model_fields_set}
        if (wanted := self.given_structure()) is not None:
            given["structured_outputs"] = StructuredOutputsParams(**wanted[1])
        return given

    def given_structure(self) -> tuple[str, dict[str, Any]] | None:
        """Return the field that constrains the answer, and its value as keywords of `StructuredOutputsParams`.
        ValueError if several fields constrain it."""
        found: list[tuple[str, dict[str, Any]]] = []
        if self.structured_outputs is not None:
            given = self.structured_outputs.model_dump(exclude_none=True, by_alias=True)
            found.append(("structured_outputs", given))
        for field, name in _STRUCTURES.items():
            if (value := getattr(self, field)) is not None:
                found.append((field, {name: value}))
        match self.response_format:
            case ResponseFormat(type="json_object", schema_=given_schema):
                wanted = {"json_object": True} if given_schema is None else {"json": given_schema}
                found.append(("response_format", wanted))
            case ResponseFormat(type="json_schema", json_schema=about):
                if about is None:
                    raise ValueError('response_format={"type": "json_schema"} needs json_schema beside it')
                schema = True if about.schema_ is None else about.schema_
                found.append(("response_format", {"json": schema}))
        if len(found) > 1:
            names = " and ".join(name for name, _ in found)
            raise ValueError(f"{found[1][0]}=... is not valid: {names} both constrain the answer; give one of them")
        if self.guided_whitespace_pattern is not None:
            if not found:
                raise ValueError("guided_whitespace_pattern needs guided_json beside it")
            found[0][1]["whitespace_pattern"] = self.guided_whitespace_pattern
        return found[0] if found else None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


_SAMPLING = {field.name for field in fields(SamplingParams)} & set(GenerationRequest.model_fields)
_SAMPLING -= {"structured_outputs"}  # `given_structure` reads it


# -- POST /v1/chat/completions -------------------------------------------------------------------------------------


class TemplateOptions(Body):
    """How messages become a prompt."""

    add_generation_prompt: bool | None = option(
        "Open the assistant's turn at the end. Default: true without continue_final_message."
    )
    continue_final_message: bool | None = option("Leave the last message open: the answer continues it.")
    chat_template: Annotated[str, Field(min_length=1)] | None = option(
        "Jinja text in place of the model's chat template, or the name of one of its templates; needs a server with "
        "--trust-request-chat-template."
    )
    chat_template_kwargs: dict[str, Any] | None = option("Variables of the chat template, such as enable_thinking.")
    reasoning_effort: Effort | None = option(
        "Variable of the chat template; none also sets enable_thinking to false. Templates may ignore both."
    )
    add_special_tokens: bool | None = option(
        "Add the model's special tokens around the rendered template. Default false: templates contain them."
    )
    tools: Annotated[Tools[Tool], callable_only("function")] | None = option(
        "Functions that the model may call, up to 1024, for the chat template. Other types are left out."
    )


class ChatCompletionRequest(TemplateOptions, GenerationRequest):
    messages: NonEmpty[Message] = Field(description="Conversation of at least one message.")
    max_completion_tokens: Count | None = option("Maximum length of the answer in tokens; default: as many as fit.")
    max_tokens: Count | None = option("Older name of max_completion_tokens.")
    logprobs: bool | None = option("Show the log-probability of each token.")
    top_logprobs: NumLogprobs | None = option("Number of likeliest tokens (-1: all) in logprobs.")
    echo: bool | None = option("Repeat the assistant's last message before the answer.")
    tool_choice: ToolChoice | None = option(
        "Calls: auto (default) leaves them to the model, none hides the tools, required forces at least one, "
        '{"type": "function", "function": {"name": ...}} forces a call of this function, '
        '{"type": "allowed_tools", "allowed_tools": {"mode", "tools"}} leaves out other functions.'
    )
    parallel_tool_calls: bool | None = option("False removes all calls but the first.")
    include_reasoning: bool | None = option("False removes the model's reasoning. Default true.")

    # Fields that clients send with a neutral value.
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = option('Only ["text"].')
    functions: NoItems | None = option("Empty list only; use tools.")
    function_call: Literal["none", "auto"] | None = option("Only none or auto; use tool_choice.")

    @model_validator(mode="after")
    def _leave_out_tools(self) -> Self:
        if isinstance(self.tool_choice, AllowedToolChoice):
            allowed = self.tool_choice.allowed_tools
            names = {tool.function.name for tool in allowed.tools}
            self.tools = [tool for tool in self.tools or () if tool.function.name in names]
            self.tool_choice = allowed.mode
        return self


class TopLogprob(Reply):
    token: str
    logprob: float
    bytes: list[int] | None = Field(description="UTF-8 bytes of the token, which may be a part of a character.")


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None = None


class CalledFunction(Reply):
    name: str | None = option("Name; in a stream only in the first chunk of a call.")
    arguments: str = Field(description="JSON object as text; in a stream the next piece of it.")


class MadeToolCall(Reply):
    id: str = Field(description="Id for the tool_call_id of a tool message.")
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str | None = Field(description="Text; null beside reasoning or calls only.")
    refusal: None = None
    reasoning_content: str | None = option("Reasoning of the model.")
    reasoning: str | None = option("The same under its newer name.")
    tool_calls: list[MadeToolCall] | None = None


class ChatChoice(Reply):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str = Field(description="Reason of the end: stop, length or tool_calls.")
    stop_reason: int | str | None = option("Stop string or stop token that ended it.")
    token_ids: list[int] | None = None


class ChatCompletion(Generated):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    service_tier: None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class ToolCallDelta(Reply):
    index: int = Field(description="Index of the call in its message.")
    id: str | None = option("Id; only in the first chunk of a call.")
    type: Literal["function"] | None = option("Type; only in the first chunk of a call.")
    function: CalledFunction


class MessageDelta(Reply):
    role: Literal["assistant"] | None = option("Role; only in the first chunk of a choice.")
    content: str | None = None
    refusal: None = option("Always null; only in the first chunk of a choice.")
    reasoning_content: str | None = option("Reasoning of the model.")
    reasoning: str | None = option("The same under its newer name.")
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
        description="Text, list of texts, token ids, or list of lists of token ids.", union_mode="left_to_right"
    )
    max_tokens: int | None = option("Maximum length of the answer in tokens. Default 16; 0 needs echo.", ge=0, lt=2**31)
    echo: bool | None = option("Repeat the prompt before the answer, with its log-probabilities if logprobs is set.")
    logprobs: NumLogprobs | None = option("Number of likeliest tokens (-1: all) in log-probabilities of each token.")
    add_special_tokens: bool | None = option("Add the model's special tokens, such as bos, to a text. Default true.")
    include_reasoning: Hint = option("Hint without effect: a completion is plain text.")
    best_of: int | None = option("The same number as n.", ge=1, le=1024)

    @property
    def prompts(self) -> list[Any]:
        """The prompts as a list of texts or of token id lists."""
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


class CompletionLogprobs(Reply):
    """Parallel lists with one entry a token."""

    text_offset: list[int] = Field(description="Position of the token in the text, in characters.")
    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="Log-probability; null for an echoed prompt's first token.")
    top_logprobs: list[dict[str, float] | None] | None


class CompletionChoice(Reply):
    index: int = Field(description="Index over all prompts, n answers each.")
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = option("Reason of the end: stop or length; null before it.")
    stop_reason: int | str | None = option("Stop string or stop token that ended it.")
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(Generated):
    """The answer, and each chunk of a streamed one."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | None = None


# -- POST /tokenize, /detokenize and /apply-template ---------------------------------------------------------------


class TokenizeRequest(TemplateOptions, ModelBody):
    """A prompt or messages."""

    prompt: str | None = option("Text to tokenize.")
    messages: NonEmpty[Message] | None = option("Conversation to render with the chat template and tokenize.")
    add_special_tokens: bool | None = option(
        "Add the model's special tokens, such as bos. Default: true for a prompt, false for messages."
    )
    return_token_strs: bool | None = option("Show the tokenizer's pieces, too.")


class TokenizeReply(Reply):
    count: int
    max_model_len: int = Field(description="Maximum length of prompt and answer together, in tokens.")
    tokens: list[int]
    token_strs: list[str | None] | None = option("The tokenizer's pieces; null for ids without one.")


class DetokenizeRequest(ModelBody):
    tokens: Items[TokenId] = Field(description="Token ids.")


class DetokenizeReply(Reply):
    prompt: str = Field(description="Text, special tokens included.")


class TemplateRequest(TemplateOptions, ModelBody):
    messages: NonEmpty[Message] = Field(description="Conversation of at least one message.")


class TemplateReply(Reply):
    prompt: str = Field(description="Messages rendered with the chat template.")
