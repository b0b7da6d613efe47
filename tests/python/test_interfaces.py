"""Names and types that scripts rely on: vLLM's signatures and fields, and stubs that say what the module has."""

import ast
import dataclasses
import importlib.resources
import inspect

import pytest

import zipage
from zipage import AsyncLLM, CompletionOutput, Logprob, RequestOutput, SamplingParams, ZipLLM, _core
from zipage.options import KNOWN, engine_settings

# What the pages of vLLM's LLM, SamplingParams and outputs list.
LLM_OPTIONS = """tokenizer tokenizer_mode trust_remote_code dtype quantization revision seed gpu_memory_utilization max_model_len
    enforce_eager tensor_parallel_size max_num_seqs max_num_batched_tokens enable_prefix_caching kv_cache_dtype
    disable_log_stats hf_overrides""".split()
HONOURED = {
    "n": 2, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.5, "temperature": 0.5, "top_p": 0.5, "top_k": 5,
    "min_p": 0.5, "seed": 7, "stop": ["x"], "stop_token_ids": [5], "ignore_eos": True, "max_tokens": 5, "min_tokens": 2, "logprobs": 3,
    "prompt_logprobs": 3, "detokenize": False, "skip_special_tokens": False, "include_stop_str_in_output": True,
    "logit_bias": {3: 1.0}, "allowed_token_ids": [1], "bad_words": ["x"], "skip_reading_prefix_cache": True,
}  # fmt: skip
OF_STREAMS = {"output_kind": zipage.RequestOutputKind.DELTA, "stream_interval": 3}  # read by AsyncLLM: tests/python/test_async.py
REFUSED = {
    "logprob_token_ids": [1], "flat_logprobs": True, "structured_outputs": {"regex": "a"}, "extra_args": {"a": 1},
    "thinking_token_budget": 5, "repetition_detection": {"a": 1}, "spaces_between_special_tokens": False,
}  # fmt: skip
SAMPLING_FIELDS = """n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k min_p seed stop stop_token_ids
    ignore_eos max_tokens min_tokens logprobs prompt_logprobs logprob_token_ids flat_logprobs detokenize skip_special_tokens
    spaces_between_special_tokens include_stop_str_in_output output_kind stream_interval structured_outputs logit_bias
    allowed_token_ids bad_words extra_args skip_reading_prefix_cache thinking_token_budget repetition_detection""".split()


def test_every_option_of_vllms_llm_is_taken():
    own = ["served_model_name"]  # of the package, not of the engine
    for name in LLM_OPTIONS:
        assert name in KNOWN, name
    assert set(own) <= set(zipage._engine._PACKAGE_OPTIONS)
    assert engine_settings({"seed": 3, "dtype": "half", "enforce_eager": True}) == {
        "seed": 3, "dtype": "float16", "enforce_eager": True}  # fmt: skip


@pytest.mark.parametrize("field", SAMPLING_FIELDS)
def test_every_sampling_field_is_honoured_or_refused(field):
    if field in REFUSED:
        with pytest.raises((NotImplementedError, ValueError), match=field):
            SamplingParams(**{field: REFUSED[field]})
        return
    value = (HONOURED | OF_STREAMS)[field]
    params = SamplingParams(**{field: value})
    assert getattr(params, field) == value != getattr(SamplingParams(), field)
    if field in HONOURED:
        core = getattr(params.to_core(), field)
        assert core == pytest.approx(value) if isinstance(value, float) else core == value


def test_calls_take_vllms_arguments():
    def names(call):
        return list(inspect.signature(call).parameters)[1:]

    assert names(ZipLLM.generate)[:5] == ["prompts", "sampling_params", "use_tqdm", "lora_request", "priority"]
    assert names(ZipLLM.chat) == ["messages", "sampling_params", "use_tqdm", "lora_request", "chat_template",
                                  "chat_template_content_format", "add_generation_prompt", "continue_final_message", "tools", "chat_template_kwargs"]
    assert names(AsyncLLM.generate)[:3] == ["prompt", "sampling_params", "request_id"]
    for name in ("get_tokenizer", "get_default_sampling_params", "get_metrics", "reset_prefix_cache"):
        assert callable(getattr(ZipLLM, name)), name


@pytest.mark.parametrize(("kind", "names"), [
    (RequestOutput, "request_id prompt prompt_token_ids prompt_logprobs outputs finished metrics lora_request num_cached_tokens"),
    (CompletionOutput, "index text token_ids cumulative_logprob logprobs finish_reason stop_reason"),
    (Logprob, "logprob rank decoded_token"),
])  # fmt: skip
def test_outputs_have_vllms_fields(kind, names):
    assert set(names.split()) <= {field.name for field in dataclasses.fields(kind)}


def test_the_package_is_typed():
    files = importlib.resources.files("zipage")
    assert (files / "py.typed").is_file()
    for call in (ZipLLM.generate, ZipLLM.chat, AsyncLLM.generate, AsyncLLM.abort, SamplingParams.clone):
        signature = inspect.signature(call)
        assert signature.return_annotation is not inspect.Signature.empty, call
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, (call, parameter)


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_stubs_name_what_the_module_has():
    tree = ast.parse((importlib.resources.files("zipage") / "_core.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert public(stubs) == public(vars(_core))
    for name, node in stubs.items():
        if issubclass(getattr(_core, name), Exception):
            continue
        members = {m.name if isinstance(m, ast.FunctionDef) else m.target.id for m in node.body
                   if isinstance(m, (ast.FunctionDef, ast.AnnAssign))}
        assert public(members) == public(vars(getattr(_core, name))), name
