"""Request bodies, as pydantic models: vLLM validates with pydantic too, so complaints are worded alike.

Fields stand in vLLM's order, because that is the order of its complaints. Only what the stand-in acts on is listed;
vLLM ignores unknown fields, and so do these models. Checks that vLLM makes before looking at types raise
`RequestError`, which passes through pydantic unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from e2e.fakevllm.wire.errors import BodyError, RequestError

MAX_STOP_STRINGS = 4
MAX_PROMPTS = 1024
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Stop = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None
TokenId = Annotated[int, Field(ge=0)]


class Body(BaseModel):
    """Any request body."""

    @classmethod
    def read(cls, document: object) -> Self:
        """Validate a parsed JSON document.

        Raises:
            BodyError: A field is missing or of the wrong type.
            RequestError: A value that vLLM refuses by itself.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise BodyError(_errors(error)) from None


def _errors(error: ValidationError) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for entry in error.errors(include_url=False):
        shown: dict[str, Any] = {**entry, "loc": ("body", *entry["loc"])}
        if shown["type"] == "model_type":
            shown |= {
                "type": "model_attributes_type",
                "msg": "Input should be a valid dictionary or object to extract fields from",
            }
            shown.pop("ctx", None)
        listed.append(shown)
    return listed


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


def refuse_stream_options(data: dict[str, Any]) -> None:
    """Refuse stream options of a request that does not stream."""
    if data.get("stream_options") and not data.get("stream"):
        raise RequestError("Stream options can only be defined when `stream=True`.", param="stream_options")


def refuse_logprobs(data: dict[str, Any], *names: str) -> None:
    """Refuse counts of log probabilities that are no numbers or negative."""
    for name in names:
        value = data.get(name)
        if value is not None and not isinstance(value, int | float):
            raise RequestError(f"`{name}` must be an integer.", param=name, value=value)
    for name in names:
        value = data.get(name)
        if value is None:
            continue
        if name == "prompt_logprobs" and data.get("stream") and (value > 0 or value == -1):
            raise RequestError("`prompt_logprobs` are not available when `stream=True`.", param=name)
        if value < 0 and value != -1:
            raise RequestError(f"`{name}` must be a positive value or -1.", param=name, value=value)


class Sampled(Body):
    """What completions and chat completions have in common after their own fields."""

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    priority: Seed = 0
    request_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None


class CompletionBody(Sampled):
    """`POST /v1/completions`."""

    model: str | None = None
    prompt: list[TokenId] | list[list[TokenId]] | str | list[str] | None = None
    echo: bool | None = False
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    max_tokens: int = 16
    n: int = 1
    presence_penalty: float | None = None
    seed: Seed | None = None
    stop: Stop = []
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    add_special_tokens: bool = True

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        prompt = data.get("prompt")
        several = prompt if isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt) else []
        if len(several) > MAX_PROMPTS:
            raise RequestError(
                f"prompt list length {len(several)} exceeds the maximum allowed count of {MAX_PROMPTS}. "
                "To increase this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
                param="prompt",
            )
        if prompt is None or prompt == "":
            raise RequestError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
        refuse_stream_options(data)
        refuse_logprobs(data, "prompt_logprobs", "logprobs")
        if data.get("max_tokens") is None:
            data = {key: value for key, value in data.items() if key != "max_tokens"}
        return data

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts one by one."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            return []
        if isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)


class TextPart(BaseModel):
    """A part of a message's content; anything but text is refused where it is used."""

    type: str
    text: str = ""


class Message(BaseModel):
    """One chat message."""

    role: str
    content: str | list[TextPart] | None = None

    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class ChatBody(Sampled):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)] = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    seed: Seed | None = None
    stop: Stop = []
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    echo: bool = False

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        if data.get("continue_final_message") and data.get("add_generation_prompt"):
            raise RequestError("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        if data.get("tools") == []:
            raise RequestError(
                "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
                param="tools",
            )
        refuse_logprobs(data, "prompt_logprobs", "top_logprobs")
        if data.get("top_logprobs") and not data.get("logprobs"):
            raise RequestError("when using `top_logprobs`, `logprobs` must be set to true.", param="top_logprobs")
        refuse_stream_options(data)
        return data


class ResponsesBody(Body):
    """`POST /v1/responses`."""

    background: bool | None = False
    input: str | list[Message]
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    logit_bias: dict[str, float] | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    prompt: object = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    store: bool | None = True
    stream: bool | None = False
    temperature: float | None = None
    tool_choice: object = "auto"
    top_p: float | None = None
    top_k: int | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None
    ignore_eos: bool = False
    stop: Stop = []
    seed: Seed | None = None
    priority: Seed = 0

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        if data.get("prompt") is not None:
            raise RequestError("prompt template is not supported", param="prompt")
        if data.get("background") and data.get("store") is False:
            raise RequestError("background can only be used when `store` is true", param="background")
        if data.get("tools"):
            return data
        choice = data.get("tool_choice", "auto")
        if choice == "required":
            raise RequestError("Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice")
        # Filled in here as in vLLM, because complaints count the fields of the body.
        return {**data, "tool_choice": "none"}


class AnthropicMessage(BaseModel):
    """One message of the messages interface."""

    role: Literal["user", "assistant", "system"]
    content: str | list[TextPart]

    def text(self) -> str:
        """Return the content as one text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class CountBody(Body):
    """`POST /v1/messages/count_tokens`."""

    model: str
    messages: list[AnthropicMessage]
    system: str | list[TextPart] | None = None

    def chat(self) -> list[Message]:
        """Return the same conversation as chat messages."""
        messages = [Message(role=message.role, content=message.text()) for message in self.messages]
        if self.system:
            text = self.system if isinstance(self.system, str) else "".join(part.text for part in self.system)
            messages.insert(0, Message(role="system", content=text))
        return messages


class MessagesBody(CountBody):
    """`POST /v1/messages`."""

    max_tokens: int
    stop_sequences: Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None

    @field_validator("model")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value:
            raise ValueError("Model is required")
        return value

    @field_validator("max_tokens")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("max_tokens must be positive")
        return value


class TokenizeTextBody(Body):
    """`POST /tokenize` with a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatBody(Body):
    """`POST /tokenize` with a conversation."""

    model: str | None = None
    messages: list[Message]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=2**63 - 1)]]
