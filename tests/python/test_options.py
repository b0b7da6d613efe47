"""Published names, vLLM's, and what becomes of others. No engine is made here."""

import warnings

import pytest

from zipage.options import engine_options, engine_settings, parse_bytes


def settings(**options):
    return engine_settings(options)


def test_published_quick_start_selects_the_published_policy():
    assert settings(
        gpu_memory_utilization=0.9, max_cache_blocks_per_seq=8, enable_async_compress=True, enable_hybrid_engine=True,
        enable_prefix_cache=True, use_global_score=True, use_similarity=True, lightning_similarity=True, enable_pooling=True,
    ) == {"gpu_memory_utilization": 0.9, "kv_budget": 1792, "async_compression": True, "scheduling": "hybrid",
          "enable_prefix_caching": True, "kv_policy": "paper", "redundancy": "lightning", "pooling": "first"}  # fmt: skip


@pytest.mark.parametrize(("option", "value", "expected"), [
    ("query_cache_len", 16, {"window_size": 16}),
    ("decay_factor", 0.7, {"score_decay": 0.7, "kv_policy": "paper"}),
    ("use_global_score", False, {"kv_policy": "redundancy"}),
    ("use_redudancy", False, {"kv_policy": "global"}),
    ("lightning_redudancy", False, {"kv_policy": "paper", "redundancy": "flash"}),
    ("redudancy_lambda", 0.3, {"score_weight": 0.3, "kv_policy": "paper"}),
    ("redudancy_temperature", 0.5, {"redundancy_temperature": 0.5, "kv_policy": "paper"}),
    ("enable_pooling", False, {"kv_policy": "paper", "pooling": "never"}),
    ("continues_pooling", True, {"kv_policy": "paper", "pooling": "always"}),
    ("pooling_size", 7, {"kv_policy": "paper", "pooling_width": 7}),
    ("enable_hybrid_engine", False, {"scheduling": "constrained"}),
    ("layer_stride", 4, {"layer_stride": 4}),
    ("use_attention_sink", True, {"sink_tokens": 4}),
    ("kvcache_block_size", 128, {"block_size": 128}),
    ("tensor_parallel_size", 1, {"tensor_parallel_size": 1}),
    ("max_model_len", "32k", {"max_model_len": 32768}),
    ("max_model_len", "auto", {"max_model_len": 0}),
    ("kv_budget", "full", {"kv_budget": 0}),
    ("dtype", "half", {"dtype": "float16"}),
    ("swap_space", 4, {"swap_space_bytes": 4 << 30}),
    ("max_num_seqs", None, {}),
])  # fmt: skip
def test_alias(option, value, expected):
    assert settings(**{option: value}) == expected


def test_blocks_count_in_the_given_block_size():
    assert settings(max_cache_blocks_per_seq=8, kvcache_block_size=64) == {"block_size": 64, "kv_budget": 448}
    assert settings(use_attention_sink=True, sink_len=8) == {"sink_tokens": 8}


def test_every_setting_has_its_place_in_the_engine():
    given = settings(score_weight=0.25, protect_newest=32, kv_policy="peak", pooling="always", scheduling="constrained",
                     max_num_seqs=7, seed=2**63, random_seed=5, redundancy="raw", combine="subtract", score_reduce="sum")
    options = engine_options("somewhere", given)
    assert {name: getattr(options, name) for name in given} == given
    assert options.model == "somewhere"


def test_seed_and_scheduling_policy():
    assert engine_options("somewhere", settings()).seed is None
    assert engine_options("somewhere", settings(seed=None)).seed is None
    assert engine_options("somewhere", settings(seed=0)).seed == 0
    assert engine_options("somewhere", settings()).scheduling_policy == "fcfs"
    assert engine_options("somewhere", settings(scheduling_policy="priority")).scheduling_policy == "priority"
    with pytest.raises(ValueError, match="expected fcfs or priority"):
        engine_options("somewhere", settings(scheduling_policy="fair"))


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"gpu_memory_utilisation": 0.9}, TypeError, "gpu_memory_utilization"),
    ({"max_cache_blocks": 8}, TypeError, "max_cache_blocks_per_seq"),
    ({"use_simlarity": True}, TypeError, "use_similarity"),
    ({"max_num_seqs": "many"}, ValueError, "max_num_seqs"),
    ({"max_num_seqs": 1.5}, TypeError, "max_num_seqs"),
    ({"max_num_seqs": -1}, ValueError, "max_num_seqs"),
    ({"enable_pooling": "yes"}, ValueError, "enable_pooling"),
    ({"max_cache_blocks_per_seq": 1}, ValueError, "at least 2"),
    ({"max_cache_blocks_per_seq": 8, "kv_budget": 512}, ValueError, "kv_budget"),
    ({"kv_policy": "peak", "use_global_score": True}, ValueError, "kv_policy"),
    ({"block_size": 64, "kvcache_block_size": 128}, ValueError, "block_size"),
    ({"kv_cache_memory": "12 parsecs"}, ValueError, "64MiB"),
    ({"kv_budget": "0"}, ValueError, "full"),
    ({"kv_budget": -1}, ValueError, "full"),
    ({"sink_len": 4}, ValueError, "use_attention_sink"),
])  # fmt: skip
def test_bad_option(options, error, words):
    with pytest.raises(error, match=words):
        settings(**options)


def test_word_that_the_engine_does_not_know():
    with pytest.raises(ValueError, match="peak, paper"):
        engine_options("somewhere", settings(kv_policy="best"))


def test_vllm_option_without_effect_warns():
    with pytest.warns(UserWarning, match="trust_remote_code"):
        assert settings(trust_remote_code=True) == {}


def test_vllm_option_that_asks_for_nothing_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert settings(trust_remote_code=False, quantization=None, enable_chunked_prefill=True) == {}


def test_sizes():
    assert [parse_bytes("x", text) for text in (5, "64MiB", "48GB", "1.5k")] == [5, 64 << 20, 48 * 10**9, 1536]
