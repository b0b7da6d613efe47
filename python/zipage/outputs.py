"""What generation returns, with vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class Logprob:
    """Log-probability of a token at its place, and its rank among all tokens (1: the most likely)."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


PromptLogprobs = list["dict[int, Logprob] | None"]  # [prompt tokens]; None for the first
SampleLogprobs = list["dict[int, Logprob]"]  # [output tokens]


@dataclass
class CompletionOutput:
    """One of the `n` outputs of a request."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None  # with logprobs only
    logprobs: SampleLogprobs | None = None
    finish_reason: str | None = None  # "stop", "length", "abort", "error"; None while it runs
    stop_reason: int | str | None = None  # the stop token or string; None for end of sequence
    lora_request: None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestMetrics:
    """Times of a request, in seconds as of time.monotonic()."""

    arrival_time: float
    first_token_time: float | None = None  # of streams
    finished_time: float | None = None


@dataclass
class RequestOutput:
    """A request's prompt and outputs. `output["text"]` and `output["token_ids"]`, of the first of its outputs, are how
    the published Zipage (and nano-vllm) spell them."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: PromptLogprobs | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: RequestMetrics | None = None
    lora_request: None = None
    num_cached_tokens: int | None = None

    def __getitem__(self, key: str) -> Any:
        if key in ("text", "token_ids"):
            return getattr(self.outputs[0], key)
        if key in self.keys():
            return getattr(self, key)
        raise KeyError(f"{key!r}: one of {', '.join(self.keys())}")

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> tuple[str, ...]:
        return ("text", "token_ids", *(f.name for f in fields(self)))
