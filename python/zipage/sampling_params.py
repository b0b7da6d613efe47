"""SamplingParams with vLLM's fields and defaults."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from zipage import _core
from zipage._names import unknown_name
from zipage.options import parse_budget

_MIN_TEMPERATURE = 1e-2  # a smaller one above 0 makes logits that overflow


class RequestOutputKind(Enum):
    """What each output of AsyncLLM.generate holds."""

    CUMULATIVE = 0  # all so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2  # one output, at the end


# Fields of vLLM that ask for what this engine cannot do, with the values that ask for nothing.
_CANNOT: dict[str, tuple[Any, ...]] = {
    "logprob_token_ids": (None, []), "flat_logprobs": (False,), "structured_outputs": (None,), "extra_args": (None, {}),
    "thinking_token_budget": (None,), "repetition_detection": (None,),
    "guided_decoding": (None,), "logits_processors": (None, []), "best_of": (None, 1), "use_beam_search": (False,),
    "length_penalty": (1.0,), "truncate_prompt_tokens": (None,),
}  # fmt: skip


@dataclass(init=False)
class SamplingParams:
    """What a request asks of the sampler. Names, meanings and defaults as in vLLM; the last two are Zipage's."""

    n: int = 1  # outputs a prompt
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: all
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: up to the model's length
    min_tokens: int = 0
    logprobs: int | None = None  # alternatives a token
    prompt_logprobs: int | None = None  # the same of each prompt token but the first
    skip_reading_prefix_cache: bool | None = None  # True where prompt_logprobs are wanted
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: int | None = None  # tokens between two outputs of a stream
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None  # None: all
    bad_words: list[str] | None = None
    kv_budget: int | str | None = None  # tokens, or "full"; None: the engine's
    kv_policy: str | None = None  # None: the engine's

    def __init__(self, n: int = 1, **options: Any) -> None:
        options["n"] = n
        for name, value in options.items():
            if name in _CANNOT:
                if value not in _CANNOT[name]:
                    raise NotImplementedError(f"SamplingParams: {name}={value!r} is not supported; leave it at "
                                              f"{_CANNOT[name][0]!r}")
            elif name not in _FIELDS:
                raise unknown_name("SamplingParams", name, [*_FIELDS, *_CANNOT])
        for name, default in _FIELDS.items():
            setattr(self, name, options.get(name, default))
        self._normalize()

    def _normalize(self) -> None:
        self.stop = _list_of("stop", self.stop, str)
        self.stop_token_ids = _list_of("stop_token_ids", self.stop_token_ids, int)
        self.bad_words = _list_of("bad_words", self.bad_words, str)
        if self.allowed_token_ids is not None:
            self.allowed_token_ids = _list_of("allowed_token_ids", self.allowed_token_ids, int)
            if not self.allowed_token_ids:
                raise ValueError("allowed_token_ids=[]: expected at least one token id, or None for all tokens")
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, Mapping):
                raise TypeError(f"logit_bias={self.logit_bias!r}: expected a dict of token id and bias")
            self.logit_bias = {int(token): float(bias) for token, bias in self.logit_bias.items()}
        for name, value in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if isinstance(value, bool):  # vLLM's shorthand
                setattr(self, name, 1 if value else None)
        for name in ("n", "top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "stream_interval", "seed"):
            _check_integer(name, getattr(self, name), may_be_none=_FIELDS[name] is None or name == "max_tokens")
        for name, default in _FIELDS.items():
            if isinstance(default, float):
                setattr(self, name, _number(name, getattr(self, name)))
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.seed == -1:
            self.seed = None
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ValueError(f"seed={self.seed}: expected an integer in [0, 2**64)")
        if self.stream_interval is not None and self.stream_interval < 1:
            raise ValueError(f"stream_interval={self.stream_interval}: expected at least 1")
        if 0 < self.temperature < _MIN_TEMPERATURE:
            warnings.warn(f"temperature={self.temperature} is raised to {_MIN_TEMPERATURE}; 0 is greedy", stacklevel=4)
            self.temperature = _MIN_TEMPERATURE
        if not isinstance(self.output_kind, RequestOutputKind):
            raise TypeError(f"output_kind={self.output_kind!r}: expected a RequestOutputKind")
        if self.kv_budget is not None:
            self.kv_budget = parse_budget("kv_budget", self.kv_budget)
        self.to_core().validate()

    def clone(self) -> SamplingParams:
        return copy.deepcopy(self)

    def to_core(self) -> _core.SamplingParams:
        """The engine's form."""
        core = _core.SamplingParams()
        for name in _CORE_FIELDS:
            value = getattr(self, name)
            if value is None and name in _EMPTY:
                value = _EMPTY[name]
            setattr(core, name, value)
        return core

    @classmethod
    def from_core(cls, core: _core.SamplingParams) -> SamplingParams:
        return cls(**{name: getattr(core, name) for name in _CORE_FIELDS})


_FIELDS = {field.name: field.default for field in fields(SamplingParams)}
_CORE_FIELDS = [name for name in _FIELDS if name not in ("output_kind", "stream_interval")]
_EMPTY: dict[str, Any] = {"logit_bias": {}, "skip_reading_prefix_cache": False}


def _list_of(name: str, value: Any, kind: type) -> list:
    if value is None:
        return []
    values = [value] if isinstance(value, kind) else value
    if isinstance(values, str) or not isinstance(values, (Sequence, set, frozenset)):
        raise TypeError(f"{name}={value!r}: expected a list of {kind.__name__}")
    for entry in values:
        if not isinstance(entry, kind) or isinstance(entry, bool):
            raise TypeError(f"{name} has {entry!r}: expected {kind.__name__}")
    return list(values)


def _check_integer(name: str, value: Any, may_be_none: bool) -> None:
    if value is None and may_be_none:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: expected an integer{' or None' if may_be_none else ''}")
    if name != "seed" and not -(2**31) <= value < 2**31:
        raise ValueError(f"{name}={value}: expected an integer in [-2**31, 2**31)")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise TypeError(f"{name}={value!r}: expected a number")
    return float(value)
