"""The forms in which prompts come, as one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Union

from zipage.tokenizer import Tokenizer


class TextPrompt(TypedDict, total=False):
    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    prompt_token_ids: list[int]
    prompt: str
    cache_salt: str


PromptType = Union[str, TextPrompt, TokensPrompt, "list[int]"]


@dataclass
class Prompt:
    text: str | None
    token_ids: list[int]
    cache_salt: str = ""


_FIELDS = ("prompt", "prompt_token_ids", "cache_salt")
_OTHER_INPUTS = ("multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids", "prompt_embeds", "encoder_prompt",
                 "decoder_prompt")  # fmt: skip


def is_token_ids(value: Any) -> bool:
    """A non-empty sequence of integers."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence) and not hasattr(value, "tolist"):
        return False
    return len(value) > 0 and all(hasattr(token, "__index__") and not isinstance(token, bool) for token in value)


def as_list(prompts: PromptType | Sequence[PromptType]) -> list[PromptType]:
    """One prompt or many, as many."""
    if isinstance(prompts, (str, Mapping)) or is_token_ids(prompts):
        return [prompts]  # type: ignore[list-item]
    if isinstance(prompts, bytes):
        raise TypeError("prompts: expected str, not bytes")
    return list(prompts)  # type: ignore[arg-type]


def read_prompt(prompt: PromptType, tokenizer_of: Callable[[], Tokenizer]) -> Prompt:
    """The prompt's tokens; ValueError or TypeError where it is none."""
    if isinstance(prompt, str):
        return Prompt(prompt, tokenizer_of().encode(prompt))
    if is_token_ids(prompt):
        return Prompt(None, [int(token) for token in prompt])  # type: ignore[arg-type]
    if not isinstance(prompt, Mapping):
        raise TypeError(f"a prompt is a str, a list of token ids, or a dict with 'prompt' or 'prompt_token_ids', not "
                        f"{prompt!r:.100}")
    for name in prompt:
        if name in _OTHER_INPUTS:
            raise NotImplementedError(f"prompt: {name!r} is not supported; this engine reads text")
        if name not in _FIELDS:
            nearest = difflib.get_close_matches(str(name), _FIELDS, n=1, cutoff=0.0)[0]
            raise ValueError(f"prompt has the unknown key {name!r}; did you mean {nearest!r}?")
    salt = str(prompt.get("cache_salt") or "")
    text: Any = prompt.get("prompt")
    ids: Any = prompt.get("prompt_token_ids")
    if ids is None:
        if not isinstance(text, str):
            raise ValueError("a prompt dict needs 'prompt' (a str) or 'prompt_token_ids' (a list of ints)")
        return Prompt(text, tokenizer_of().encode(text), salt)
    if len(ids) > 0 and not is_token_ids(ids):
        raise TypeError(f"prompt_token_ids: expected a list of ints, not {ids!r:.100}")
    return Prompt(text, [int(token) for token in ids], salt)
