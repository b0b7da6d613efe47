"""What LLM and AsyncLLM share: an engine, its options and its requests."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from zipage import _core, logs
from zipage.metrics import Metric, metrics_of
from zipage.models import resolve_model
from zipage.options import engine_options, engine_settings
from zipage.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from zipage.prompts import Prompt
from zipage.sampling_params import RequestOutputKind, SamplingParams
from zipage.tokenizer import Tokenizer

EngineError = _core.EngineError

_open_engines: weakref.WeakSet[_core.Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Step threads end before the interpreter does."""
    for engine in list(_open_engines):
        engine.close()


class EngineUser:
    """Owns an engine. Closed by shutdown(), at the end of a with block, or when nothing refers to it any more."""

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        settings = engine_settings({k: v for k, v in options.items() if k not in _PACKAGE_OPTIONS})
        own = {k: v for k, v in options.items() if k in _PACKAGE_OPTIONS and v is not None}
        logs.configure()
        self.model = resolve_model(model)
        self._served_model_name = own.get("served_model_name")
        if isinstance(self._served_model_name, (list, tuple)):
            self._served_model_name = self._served_model_name[0]
        self._chat_template = _read_template(own.get("chat_template"))
        self._tokenizer_path = settings.get("tokenizer", self.model)
        self._engine = _core.Engine.open(engine_options(self.model, settings))
        _open_engines.add(self._engine)
        self._drain_log()
        self._tokenizer: Tokenizer | None = None
        self._defaults = self._read_defaults(own.get("generation_config", "auto"), own.get("override_generation_config"))

    def _read_defaults(self, generation_config: str, overrides: dict[str, Any] | None) -> SamplingParams:
        if generation_config not in ("auto", "vllm"):
            raise ValueError(f"generation_config={generation_config!r}: expected 'auto' (the model's) or 'vllm' (none)")
        defaults = SamplingParams()
        if generation_config == "auto":
            defaults = SamplingParams.from_core(self._engine.default_sampling_params())
        if overrides:
            changed = {name: getattr(defaults, name) for name in vars(defaults)} | dict(overrides)
            if "max_new_tokens" in changed:
                changed["max_tokens"] = changed.pop("max_new_tokens")
            defaults = SamplingParams(**changed)
        return defaults

    def get_tokenizer(self) -> Tokenizer:
        """A tokenizer of its own: it outlives the engine."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.load(self._tokenizer_path)
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """From the model's generation_config.json."""
        return self._defaults.clone()

    def get_metrics(self) -> list[Metric]:
        name = self._served_model_name or self._engine.info()["model_name"]
        return metrics_of(self._engine.stats(), name)

    def get_info(self) -> dict[str, Any]:
        """What the engine decided at its start: sizes, dtypes, the memory plan."""
        return self._engine.info()

    def shutdown(self) -> None:
        """Ends what runs and frees the engine's memory. A second call does nothing."""
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:
            engine.close()
            self._drain_log()

    def _drain_log(self) -> None:
        logs.write(self._engine.take_log())

    def _chat_prompt(self, messages: Any, options: dict[str, Any]) -> Prompt:
        options["chat_template"] = _read_template(options["chat_template"]) or self._chat_template
        tokenizer = self.get_tokenizer()
        text = tokenizer.chat_text(messages, variables=options.pop("chat_template_kwargs") or {}, **options)
        return Prompt(text, tokenizer.encode(text, add_special_tokens=False))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


_PACKAGE_OPTIONS = ("served_model_name", "chat_template", "generation_config", "override_generation_config")


def _read_template(template: str | None) -> str | None:
    """A template, or the file that holds it."""
    if template and "{" not in template and os.path.isfile(template):
        with open(template, encoding="utf-8") as file:
            return file.read()
    return template


def check_not_supported(lora_request: Any) -> None:
    if lora_request is not None:
        raise NotImplementedError("lora_request: LoRA is not supported")


class RunningRequest:
    """A request and what came of it so far."""

    def __init__(self, request_id: str, prompt: Prompt, params: SamplingParams,
                 tokenizer_of: Callable[[], Tokenizer]) -> None:
        self.request_id, self.prompt, self.params = request_id, prompt, params
        self.error: str | None = None
        self.finished = False
        self._tokenizer_of = tokenizer_of
        self._metrics = RequestMetrics(time.monotonic())
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._num_cached_tokens = 0
        self._outputs = [self._empty(i) for i in range(params.n)]
        self._logprob_sums = [0.0] * params.n  # of whole sequences, whatever a stream has handed out
        self._gained: dict[int, int] = {}  # tokens that each sequence gained since the last output()
        self._is_urgent = True  # the first token, or a sequence's end: not to be held back

    def _empty(self, index: int) -> CompletionOutput:
        with_logprobs = self.params.logprobs is not None
        return CompletionOutput(index, "", [], 0.0 if with_logprobs else None, [] if with_logprobs else None)

    def add(self, delta: _core.RequestDelta) -> None:
        now = time.monotonic()
        self._num_cached_tokens = delta.num_cached_tokens
        if self.params.prompt_logprobs is not None and delta.prompt_logprobs:
            self._prompt_logprobs = [self._alternatives(entries) or None for entries in delta.prompt_logprobs]
        for output, gained in zip(self._outputs, delta.sequences):
            if gained.token_ids or gained.finish_reason:
                self._gained[output.index] = self._gained.get(output.index, 0) + len(gained.token_ids)
                self._is_urgent |= gained.finish_reason is not None
            self._add_to(output, gained)
        if self._metrics.first_token_time is None and any(o.token_ids for o in self._outputs):
            self._metrics.first_token_time = now
        self.finished = delta.finished
        if self.finished:
            self._metrics.finished_time = now

    def _add_to(self, output: CompletionOutput, gained: _core.SequenceDelta) -> None:
        output.text += gained.text
        output.token_ids += gained.token_ids
        if output.logprobs is not None:
            for entries in gained.logprobs:
                output.logprobs.append(self._alternatives(entries))
                self._logprob_sums[output.index] += entries[0][1]
            output.cumulative_logprob = self._logprob_sums[output.index]
        if gained.finish_reason:
            output.finish_reason = gained.finish_reason
            reason = gained.stop_reason
            # The engine gives a stop token's id as text, too.
            is_token = reason not in self.params.stop and reason.isdecimal()  # type: ignore[operator]
            output.stop_reason = (int(reason) if is_token else reason) if reason else None
            if gained.finish_reason == "error":
                self.error = gained.error

    def _alternatives(self, entries: list[tuple[int, float, int]]) -> dict[int, Logprob]:
        found: dict[int, Logprob] = {}
        for token, logprob, rank in entries:
            text = self._tokenizer_of().token_text(token) if self.params.detokenize else None
            found.setdefault(token, Logprob(logprob, rank, text))
        return found

    def num_output_tokens(self) -> int:
        return sum(len(output.token_ids) for output in self._outputs)

    def is_due(self) -> bool:
        """Whether a stream's reader gets an output now."""
        if self.finished:
            return True
        if not self._gained or self.params.output_kind is RequestOutputKind.FINAL_ONLY:
            return False
        return self._is_urgent or max(self._gained.values()) >= (self.params.stream_interval or 1)

    def output(self, kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY) -> RequestOutput:
        """What there is so far; with DELTA only what came since the last call."""
        if kind is RequestOutputKind.DELTA:
            shown = [self._outputs[i] for i in sorted(self._gained)]
            for output in shown:
                if output.finish_reason is None:
                    self._outputs[output.index] = self._empty(output.index)
        else:
            shown = [_copy(output) for output in self._outputs] if not self.finished else list(self._outputs)
        self._gained.clear()
        self._is_urgent = False
        return RequestOutput(self.request_id, self.prompt.text, self.prompt.token_ids, self._prompt_logprobs, shown,
                             self.finished, self._metrics, None, self._num_cached_tokens)


def _copy(output: CompletionOutput) -> CompletionOutput:
    return CompletionOutput(output.index, output.text, list(output.token_ids), output.cumulative_logprob,
                            None if output.logprobs is None else list(output.logprobs), output.finish_reason,
                            output.stop_reason)


def submit(collector: _core.Collector, key: int, request: RunningRequest, priority: int) -> None:
    prompt = request.prompt
    collector.submit(key, prompt.token_ids, request.params.to_core(), priority, prompt.cache_salt, request.request_id)
