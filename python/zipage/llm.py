"""Offline generation: ZipLLM, which scripts written for vLLM's LLM or the published Zipage can use unchanged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zipage import _core
from zipage._engine import EngineError, EngineUser, RunningRequest, check_not_supported, submit
from zipage.outputs import RequestOutput
from zipage.progress import open_bar
from zipage.prompts import Prompt, PromptType, as_list, read_prompt
from zipage.sampling_params import SamplingParams

_WAIT_SECONDS = 0.1  # between two looks for Ctrl-C
_ABORT_SECONDS = 10.0


class GenerationError(EngineError):
    """Some requests failed in the engine. `outputs` holds all, the failed ones with finish_reason "error"."""

    def __init__(self, message: str, outputs: list[RequestOutput]) -> None:
        super().__init__(message)
        self.outputs = outputs


class ZipLLM(EngineUser):
    """A model and its engine.

    `model` is a folder of safetensors files, a GGUF file, or "owner/name" of a model on the Hugging Face hub. Options are
    those of docs/python.md: Zipage's, the published ones and vLLM's.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(model, **options)
        self._num_requests = 0
        self._lock = threading.Lock()

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        *,
        prompt_token_ids: list[int] | list[list[int]] | None = None,
    ) -> list[RequestOutput]:
        """The outputs of all prompts, in their order. Without `sampling_params` the model's defaults."""
        self._engine.check()
        check_not_supported(lora_request)
        if (prompts is None) == (prompt_token_ids is None):
            raise TypeError("generate() needs prompts, or prompt_token_ids instead of them")
        inputs = as_list(prompts if prompt_token_ids is None else prompt_token_ids)  # type: ignore[arg-type]
        return self._run([_at(i, read_prompt, one, self.get_tokenizer) for i, one in enumerate(inputs)], sampling_params, use_tqdm,
                         priority)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """The answers to one conversation, or to each of a list of conversations. `chat_template_content_format`: how
        the template is handed contents, "auto" (what it is found to read), "string" or "openai" (a list of parts)."""
        self._engine.check()
        check_not_supported(lora_request)
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else messages
        options = {"chat_template": chat_template, "add_generation_prompt": add_generation_prompt,
                   "continue_final_message": continue_final_message, "tools": tools,
                   "chat_template_kwargs": chat_template_kwargs,
                   "content_format": chat_template_content_format}  # fmt: skip
        inputs = [_at(i, self._chat_prompt, one, dict(options)) for i, one in enumerate(conversations)]
        return self._run(inputs, sampling_params, use_tqdm, None)

    def reset_prefix_cache(self) -> bool:
        self._engine.reset_prefix_cache()
        return True

    def _run(self, prompts: list[Prompt], sampling_params: Any, use_tqdm: Any, priority: Any) -> list[RequestOutput]:
        params = _one_each("sampling_params", sampling_params, len(prompts), self.get_default_sampling_params, SamplingParams)
        priorities = _one_each("priority", priority, len(prompts), int, int)
        with self._lock:
            first = self._num_requests
            self._num_requests += len(prompts)
        requests = [RunningRequest(str(first + i), prompt, params[i], self.get_tokenizer) for i, prompt in enumerate(prompts)]
        collector = _core.Collector(self._engine, False)
        try:
            bar = open_bar(use_tqdm, len(requests), "Adding requests")
            try:
                for i, request in enumerate(requests):
                    _at(i, submit, collector, i, request, priorities[i])
                    if bar is not None:
                        bar.update(1)
            finally:
                if bar is not None:
                    bar.close()
            self._wait(collector, requests, use_tqdm)
        except BaseException:
            # Ctrl-C too: the caller gets control back when the engine has let go of the requests.
            self._abort(collector, requests)
            raise
        finally:
            self._drain_log()
        outputs = [request.output() for request in requests]
        failed = [request for request in requests if request.error is not None]
        if failed:
            raise GenerationError(f"{len(failed)} of {len(requests)} requests failed; the first, {failed[0].request_id}: "
                                  f"{failed[0].error}", outputs)
        return outputs

    def _wait(self, collector: _core.Collector, requests: list[RunningRequest], use_tqdm: Any) -> None:
        start = time.monotonic()
        num_left, num_in, num_out = len(requests), 0, 0
        bar = open_bar(use_tqdm, num_left, "Processed prompts")
        try:
            while num_left > 0:
                for key in collector.wait(_WAIT_SECONDS):
                    request = requests[key]
                    request.add(collector.take(key))
                    num_left -= 1
                    if bar is None:
                        continue
                    num_in += len(request.prompt.token_ids)
                    num_out += request.num_output_tokens()
                    seconds = max(time.monotonic() - start, 1e-9)
                    bar.set_postfix_str(f"est. speed input: {num_in / seconds:.2f} toks/s, "
                                        f"output: {num_out / seconds:.2f} toks/s", refresh=False)
                    bar.update(1)
                if self._engine.closed:
                    raise EngineError("the engine was shut down while requests ran")
        finally:
            if bar is not None:
                bar.close()

    def _abort(self, collector: _core.Collector, requests: list[RunningRequest]) -> None:
        if self._engine.closed:
            return
        for key in range(len(requests)):
            collector.abort(key)  # a request that ended, or never began, is not minded
        deadline = time.monotonic() + _ABORT_SECONDS
        while collector.num_live() > 0 and time.monotonic() < deadline:
            collector.wait(_WAIT_SECONDS)

    def __enter__(self) -> ZipLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _at(index: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """The call's result; an error for a bad prompt says which one it is."""
    try:
        return call(*arguments)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise type(error)(f"prompt {index}: {error}") from error


def _one_each(name: str, given: Any, count: int, default: Callable[[], Any], kind: type) -> list[Any]:
    """One value a prompt, out of none, one, or one each."""
    if given is None:
        given = default()
    if isinstance(given, kind):
        return [given] * count
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"{name}: expected {kind.__name__} or a list of them, not {type(given).__name__}")
    if len(given) != count:
        raise ValueError(f"{name}: {len(given)} of them for {count} prompts")
    for one in given:
        if not isinstance(one, kind):
            raise TypeError(f"{name}: expected {kind.__name__}, not {type(one).__name__}")
    return list(given)
