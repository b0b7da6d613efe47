"""The model's tokenizer, with the names that users of Hugging Face tokenizers know."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zipage import _core

Message = Mapping[str, Any]  # {"role", "content", ...}


class Tokenizer:
    def __init__(self, core: _core.Tokenizer) -> None:
        self._core = core
        self._process = os.getpid()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """From a folder with tokenizer.json, or a GGUF file."""
        return cls(_core.Tokenizer.load(os.fspath(path)))

    @property
    def core(self) -> _core.Tokenizer:
        if os.getpid() != self._process:
            raise RuntimeError(f"this tokenizer belongs to process {self._process}, and locks of a forked copy may be "
                               f"held for ever: Tokenizer.load() another one in the child")
        return self._core

    def encode(self, text: str, add_special_tokens: bool = True, parse_special_tokens: bool = True) -> list[int]:
        return self.core.encode(text, add_special_tokens, parse_special_tokens)

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        if isinstance(text, str):
            return {"input_ids": self.encode(text, add_special_tokens)}
        return {"input_ids": [self.encode(one, add_special_tokens) for one in text]}

    def decode(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> str:
        return self.core.decode([ids] if isinstance(ids, int) else list(ids), skip_special_tokens)

    def chat_text(self, conversation: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None,
                  chat_template: str | None, add_generation_prompt: bool, continue_final_message: bool,
                  variables: Mapping[str, Any], content_format: str = "auto") -> str:
        """The text of a conversation's prompt; `variables` are the template's. `content_format`: auto, string or
        openai."""
        return self.core.apply_chat_template(
            json.dumps(list(conversation)), add_generation_prompt, continue_final_message, chat_template or "",
            json.dumps(dict(variables)) if variables else "", json.dumps(list(tools)) if tools else "",
            content_format)

    def apply_chat_template(
        self,
        conversation: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> str | list[int]:
        """The prompt of a conversation: token ids, or text with tokenize=False. `kwargs` are variables of the
        template."""
        text = self.chat_text(conversation, tools, chat_template, add_generation_prompt, continue_final_message, kwargs)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | None | list[int | None]:
        if isinstance(tokens, str):
            return self.core.token_to_id(tokens)
        return [self.core.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> str | list[str]:
        if isinstance(ids, int):
            return self.core.id_to_token(ids)
        return [self.core.id_to_token(one) for one in ids]

    def token_text(self, token: int) -> str:
        """What one token adds; bytes that are no whole character become U+FFFD."""
        return self.core.id_to_bytes(token).decode("utf-8", "replace")

    def __len__(self) -> int:
        return self.core.vocab_size

    @property
    def vocab_size(self) -> int:
        return self.core.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        return self.core.bos_id

    @property
    def eos_token_id(self) -> int | None:
        return self.core.eos_id

    @property
    def has_chat_template(self) -> bool:
        return self.core.has_chat_template
