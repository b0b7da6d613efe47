from typing import Any

class EngineError(RuntimeError): ...

class EngineOptions:
    model: str
    tokenizer: str
    device: str
    dtype: str
    kv_cache_dtype: str
    load_format: str
    max_model_len: int
    block_size: int
    kv_cache_memory_bytes: int
    num_gpu_blocks_override: int
    gpu_memory_utilization: float
    swap_space_bytes: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_queued_requests: int
    enable_prefix_caching: bool
    async_compression: bool
    enforce_eager: bool
    kv_trace: str
    num_threads: int
    seed: int | None
    tensor_parallel_size: int
    scheduling: str
    scheduling_policy: str
    kv_policy: str
    kv_budget: int
    window_size: int
    score_weight: float | None
    score_decay: float
    score_reduce: str
    pooling: str
    pooling_width: int
    redundancy: str
    redundancy_temperature: float
    similarity_threshold: float
    combine: str
    derotate: bool
    attention_half_life: int
    sink_tokens: int
    protect_prompt: bool
    protect_newest: int | None
    layer_stride: int
    random_seed: int
    def __init__(self) -> None: ...

class SamplingParams:
    n: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    max_tokens: int | None
    min_tokens: int
    stop: list[str]
    stop_token_ids: list[int]
    ignore_eos: bool
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    detokenize: bool
    logprobs: int | None
    prompt_logprobs: int | None
    skip_reading_prefix_cache: bool
    logit_bias: dict[int, float]
    allowed_token_ids: list[int] | None
    bad_words: list[str]
    kv_budget: int | None
    kv_policy: str | None
    def __init__(self) -> None: ...
    def validate(self) -> None: ...

class Tokenizer:
    @staticmethod
    def load(path: str) -> Tokenizer: ...
    def encode(self, text: str, add_special_tokens: bool, parse_special_tokens: bool) -> list[int]: ...
    def decode(self, ids: list[int], skip_special_tokens: bool) -> str: ...
    def apply_chat_template(
        self,
        messages_json: str,
        add_generation_prompt: bool,
        continue_final_message: bool,
        chat_template: str,
        template_kwargs: str,
        tools: str,
        content_format: str,
    ) -> str: ...
    def token_to_id(self, token: str) -> int | None: ...
    def id_to_token(self, id: int) -> str: ...
    def id_to_bytes(self, id: int) -> bytes: ...
    def is_special(self, id: int) -> bool: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def has_chat_template(self) -> bool: ...

class Engine:
    @staticmethod
    def open(options: EngineOptions) -> Engine: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def check(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def take_log(self) -> list[tuple[str, str]]: ...
    def default_sampling_params(self) -> SamplingParams: ...
    def reset_prefix_cache(self) -> None: ...

class SequenceDelta:
    @property
    def text(self) -> str: ...
    @property
    def token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> list[list[tuple[int, float, int]]]: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def error(self) -> str: ...

class RequestDelta:
    @property
    def sequences(self) -> list[SequenceDelta]: ...
    @property
    def prompt_logprobs(self) -> list[list[tuple[int, float, int]]]: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def finished(self) -> bool: ...

class Collector:
    def __init__(self, engine: Engine, every_token: bool) -> None: ...
    def submit(
        self,
        key: int,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        priority: int,
        cache_salt: str,
        external_id: str,
    ) -> None: ...
    def abort(self, key: int) -> None: ...
    def wait(self, timeout_seconds: float) -> list[int]: ...
    def take(self, key: int) -> RequestDelta: ...
    def num_live(self) -> int: ...
    def fileno(self) -> int: ...
