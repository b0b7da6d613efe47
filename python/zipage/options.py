"""Keyword options of ZipLLM and AsyncLLM: Zipage's own names, the published ones, and vLLM's.

`engine_settings` turns them into the engine's names and values. A known vLLM option without effect here warns; any other
unknown one is a TypeError with the nearest name.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from zipage import _core
from zipage._names import unknown_name

FULL_KV = 0  # kv_budget of an engine or request without a cap
_DTYPES = {"half": "float16", "float": "float32", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def _fail(name: str, value: Any, expected: str) -> ValueError | TypeError:
    kind = ValueError if isinstance(value, str) else TypeError
    return kind(f"{name}={value!r}: expected {expected}")


def _integer(low: int, high: int) -> Callable[[str, Any], int]:
    def convert(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise _fail(name, value, "an integer")
        number = value.__index__()
        if not low <= number <= high:
            raise ValueError(f"{name}={number}: expected an integer in [{low}, {high}]")
        return number

    return convert


_int32 = _integer(-(2**31), 2**31 - 1)
_count = _integer(0, 2**31 - 1)
_int64 = _integer(0, 2**62)


_seed = _integer(0, 2**64 - 1)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise _fail(name, value, "a number")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool) and value not in (0, 1):
        raise _fail(name, value, "True or False")
    return bool(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _fail(name, value, "a string")
    return value


def _dtype(name: str, value: Any) -> str:
    text = str(value).removeprefix("torch.")  # torch.bfloat16 prints as that
    return _DTYPES.get(text, text)


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise _fail(name, value, "a path")
    return str(value)


def parse_bytes(name: str, value: Any) -> int:
    """A number of bytes, or text such as '64MiB' or '48GB'."""
    if not isinstance(value, str):
        return _int64(name, value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise _fail(name, value, "a size such as 64MiB, 48GB or a number of bytes")
    return int(float(match[1]) * unit)


def _gibibytes(name: str, value: Any) -> int:
    return int(_real(name, value) * 2**30)


def parse_tokens(name: str, value: Any) -> int:
    """A number of tokens, or text such as '8192' or '32k'."""
    if value == "auto" or value == -1:
        return 0  # the model's
    if not isinstance(value, str):
        return _int64(name, value)
    match = re.fullmatch(r"\s*(\d+)\s*([kKmM]?)\s*", value)
    if not match:
        raise _fail(name, value, "a number of tokens such as 8192 or 32k")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]


def parse_budget(name: str, value: Any) -> int:
    """kv_budget: a number of tokens, or 'full'."""
    if value == "full":
        return FULL_KV
    tokens = -1 if value in ("auto", -1) else parse_tokens(name, value)
    if tokens < 0 or (tokens == 0 and isinstance(value, str)):
        raise ValueError(f"{name}={value!r}: expected a number of tokens above 0, or 'full'")
    return tokens


# The engine's own options.
NATIVE: dict[str, Callable[[str, Any], Any]] = {
    "tokenizer": _path, "device": _text, "dtype": _dtype, "kv_cache_dtype": _dtype, "load_format": _text,
    "max_model_len": parse_tokens, "block_size": _count, "kv_cache_memory_bytes": parse_bytes,
    "num_gpu_blocks_override": _int64, "gpu_memory_utilization": _real, "swap_space_bytes": parse_bytes,
    "max_num_seqs": _count, "max_num_batched_tokens": _count, "max_queued_requests": _count,
    "enable_prefix_caching": _flag, "async_compression": _flag, "enforce_eager": _flag, "scheduling": _text,
    "scheduling_policy": _text,
    "kv_trace": _path,
    "num_threads": _count, "seed": _seed, "tensor_parallel_size": _count,
    "kv_policy": _text, "kv_budget": parse_budget, "window_size": _count, "score_weight": _real,
    "score_decay": _real, "score_reduce": _text, "pooling": _text, "pooling_width": _count, "redundancy": _text,
    "redundancy_temperature": _real, "similarity_threshold": _real, "combine": _text, "derotate": _flag,
    "attention_half_life": _count, "sink_tokens": _count, "protect_prompt": _flag, "protect_newest": _count,
    "layer_stride": _count, "random_seed": _seed,
}  # fmt: skip

# Other names for one of them, with the conversion of their value where it differs.
_RENAMED: dict[str, tuple[str, Callable[[str, Any], Any] | None]] = {
    "kv_cache_memory": ("kv_cache_memory_bytes", None),
    "kv_cache_space": ("kv_cache_memory_bytes", _gibibytes),
    "swap_space": ("swap_space_bytes", _gibibytes),
    "threads": ("num_threads", None),
    "max_blocks_per_seq": ("max_cache_blocks_per_seq", None),  # the paper's N_max
    # Published names (method.md 8), some of them misspelt there; both spellings are taken.
    "query_cache_len": ("window_size", None),
    "kvcache_block_size": ("block_size", None),
    "enable_async_compress": ("async_compression", None),
    "enable_prefix_cache": ("enable_prefix_caching", None),
    "decay_factor": ("score_decay", None),
    "redudancy_lambda": ("score_weight", None),
    "redundancy_lambda": ("score_weight", None),
    "redudancy_temperature": ("redundancy_temperature", None),
    "pooling_size": ("pooling_width", None),
    "use_redudancy": ("use_similarity", None),
    "use_redundancy": ("use_similarity", None),
    "lightning_redudancy": ("lightning_similarity", None),
    "lightning_redundancy": ("lightning_similarity", None),
}

# Published options that become another option of ours, in `_translate`.
_PUBLISHED = {
    "max_cache_blocks_per_seq": _count, "enable_hybrid_engine": _flag, "use_attention_sink": _flag, "sink_len": _count,
    "use_global_score": _flag, "use_similarity": _flag, "lightning_similarity": _flag, "enable_pooling": _flag,
    "continues_pooling": _flag,
}  # fmt: skip
# Those that say how the published policy scores: they select it.
_SCORE_OPTIONS = {
    "use_global_score", "decay_factor", "use_similarity", "use_redudancy", "use_redundancy", "lightning_similarity",
    "lightning_redudancy", "lightning_redundancy", "redudancy_lambda", "redundancy_lambda", "redudancy_temperature",
    "enable_pooling", "continues_pooling", "pooling_size",
}  # fmt: skip

# vLLM options without effect here, with the values that ask for nothing.
_VLLM_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "tokenizer_mode": ("auto",), "trust_remote_code": (False,), "revision": (None,), "tokenizer_revision": (None,),
    "code_revision": (None,), "hf_token": (None, False), "hf_overrides": (None,), "hf_config_path": (None,),
    "config_format": ("auto",), "download_dir": (None,), "quantization": (None,), "allowed_local_media_path": ("",),
    "allowed_media_domains": (None,), "enable_chunked_prefill": (None, True), "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,), "enable_expert_parallel": (False,), "distributed_executor_backend": (None,),
    "disable_custom_all_reduce": (False,), "cpu_offload_gb": (0,), "max_seq_len_to_capture": (8192,),
    "compilation_config": (None,), "cudagraph_capture_sizes": (None,), "attention_backend": (None,),
    "structured_outputs_config": (None,), "guided_decoding_backend": (None,), "reasoning_parser": (None, ""),
    "speculative_config": (None,), "speculative_model": (None,), "num_speculative_tokens": (None,),
    "enable_lora": (None, False), "max_loras": (1,), "max_lora_rank": (16,), "max_cpu_loras": (None,),
    "lora_dtype": ("auto",), "enable_prompt_embeds": (False,), "task": (None, "auto", "generate"),
    "runner": ("auto", "generate"), "convert": ("auto", "none"), "mm_processor_kwargs": (None,),
    "limit_mm_per_prompt": (None,), "max_logprobs": (20,), "logits_processors": (None,), "logits_processor_pattern": (None,),
    "pooler_config": (None,), "override_pooler_config": (None,), "async_scheduling": (None,),
    "scheduler_cls": (None,), "num_scheduler_steps": (1,), "scheduler_delay_factor": (0.0,), "preemption_mode": (None,),
    "max_num_partial_prefills": (1,), "max_long_partial_prefills": (1,), "long_prefill_token_threshold": (0,),
    "disable_sliding_window": (False,), "disable_cascade_attn": (False,), "calculate_kv_scales": (False,),
    "prefix_caching_hash_algo": ("sha256", "builtin"), "kv_transfer_config": (None,), "kv_events_config": (None,),
    "kv_sharing_fast_prefill": (False,), "disable_log_stats": (False, True), "disable_log_requests": (False, True),
    "enable_log_requests": (False,), "otlp_traces_endpoint": (None,), "collect_detailed_traces": (None,),
    "show_hidden_metrics_for_version": (None,), "model_loader_extra_config": (None,), "ignore_patterns": (None,),
    "use_tqdm_on_load": (True, False), "rope_scaling": (None,), "rope_theta": (None,), "enable_sleep_mode": (False,),
    "worker_cls": ("auto",), "worker_extension_cls": ("",), "additional_config": (None,), "model_impl": ("auto",),
    "override_attention_dtype": (None,), "ray_workers_use_nsight": (False,), "disable_hybrid_kv_cache_manager": (False,),
    "enable_dbo": (False,), "all2all_backend": (None,), "io_processor_plugin": (None,), "skip_mm_profiling": (False,),
    "stream_interval": (1,), "use_v2_block_manager": (True,), "enable_multimodal_encoder_data_parallel": (False,),
}  # fmt: skip
KNOWN = {*NATIVE, *_RENAMED, *_PUBLISHED, *_VLLM_WITHOUT_EFFECT}


def engine_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's names and values for the options that a user gave."""
    settings: dict[str, Any] = {}  # by the engine's or a published name
    written: dict[str, str] = {}  # as the user wrote it
    for name, value in given.items():
        if name in _VLLM_WITHOUT_EFFECT:
            if value not in _VLLM_WITHOUT_EFFECT[name] and value not in ({}, []):
                warnings.warn(f"{name}={value!r} is an option of vLLM that has no effect in Zipage", stacklevel=4)
            continue
        target, convert = _RENAMED.get(name, (name, None))
        convert = convert or NATIVE.get(target) or _PUBLISHED.get(target)
        if convert is None:
            raise unknown_name("ZipLLM", name, KNOWN)
        if value is None:
            continue  # vLLM's way to ask for the default
        converted = convert(name, value)
        if target in settings and settings[target] != converted:
            raise ValueError(f"{written[target]} and {name} name the same option and differ: "
                             f"{settings[target]!r} and {converted!r}")
        settings[target] = converted
        written[target] = name
    return _translate(settings, written)


def _translate(settings: dict[str, Any], written: dict[str, str]) -> dict[str, Any]:
    """Replaces published options by the ones of the engine that they stand for."""
    take = lambda name: settings.pop(name, None)  # noqa: E731

    def put(name: str, value: Any, because: str) -> None:
        if name in settings and settings[name] != value:
            raise ValueError(f"{because} means {name}={value!r}, and {name}={settings[name]!r} is given too")
        settings[name] = value

    blocks = take("max_cache_blocks_per_seq")
    if blocks is not None:
        if blocks < 2:
            raise ValueError(f"{written['max_cache_blocks_per_seq']}={blocks}: at least 2, one block to keep and one "
                             f"to decode into")
        block_size = settings.get("block_size", _core.EngineOptions().block_size)
        put("kv_budget", (blocks - 1) * block_size, f"{written['max_cache_blocks_per_seq']}={blocks}")
    hybrid = take("enable_hybrid_engine")
    if hybrid is not None:
        put("scheduling", "hybrid" if hybrid else "constrained", f"enable_hybrid_engine={hybrid}")
    sink, sink_len = take("use_attention_sink"), take("sink_len")
    if sink is not None:
        put("sink_tokens", (4 if sink_len is None else sink_len) if sink else 0, f"use_attention_sink={sink}")
    elif sink_len is not None:
        raise ValueError(f"sink_len={sink_len} has a meaning only with use_attention_sink=True; or say sink_tokens")
    _translate_scores(take, put, {name for name in written.values() if name in _SCORE_OPTIONS})
    return settings


def _translate_scores(take: Callable, put: Callable, score_options: set[str]) -> None:
    global_score, redundancy = take("use_global_score"), take("use_similarity")
    lightning, pooling, always = take("lightning_similarity"), take("enable_pooling"), take("continues_pooling")
    if not score_options:
        return
    # A part that is switched off leaves one of the policies that the paper compares with.
    policy = {
        (True, True): "paper", (True, False): "global", (False, True): "redundancy", (False, False): "attention",
    }[global_score is not False, redundancy is not False]  # fmt: skip
    put("kv_policy", policy, " and ".join(sorted(score_options)))
    if lightning is not None:
        put("redundancy", "lightning" if lightning else "flash", f"lightning_similarity={lightning}")
    if pooling is False:
        put("pooling", "never", "enable_pooling=False")
    elif always:
        put("pooling", "always", "continues_pooling=True")
    elif pooling:
        put("pooling", "first", "enable_pooling=True")


def engine_options(model: str, settings: Mapping[str, Any]) -> _core.EngineOptions:
    options = _core.EngineOptions()
    options.model = model
    for name, value in settings.items():
        setattr(options, name, value)
    return options
