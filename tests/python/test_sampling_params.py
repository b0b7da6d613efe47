import pytest

from zipage import RequestOutputKind, SamplingParams


def test_defaults_are_vllms():
    p = SamplingParams()
    assert (p.n, p.max_tokens, p.temperature, p.top_p, p.top_k, p.min_p, p.min_tokens) == (1, 16, 1.0, 1.0, 0, 0.0, 0)
    assert (p.seed, p.logprobs, p.prompt_logprobs, p.stop, p.detokenize) == (None, None, None, [], True)
    assert p.output_kind is RequestOutputKind.CUMULATIVE


def test_every_field_reaches_the_engine():
    p = SamplingParams(n=2, temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, typical_p=0.8, presence_penalty=0.1,
                       frequency_penalty=0.2, repetition_penalty=1.1, seed=2**64 - 1, max_tokens=None, min_tokens=3,
                       stop="END", stop_token_ids=[7], ignore_eos=True, include_stop_str_in_output=True,
                       skip_special_tokens=False, skip_reading_prefix_cache=True, logprobs=2, prompt_logprobs=1,
                       logit_bias={"3": 1}, allowed_token_ids=[1, 2, 3], bad_words=["no"], kv_budget="full",
                       kv_policy="paper")
    core = p.to_core()
    for name in ("n", "temperature", "top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty",
                 "repetition_penalty", "seed", "max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos",
                 "include_stop_str_in_output", "skip_special_tokens", "skip_reading_prefix_cache", "logprobs",
                 "prompt_logprobs", "logit_bias", "allowed_token_ids", "bad_words", "kv_budget", "kv_policy"):
        assert getattr(core, name) == getattr(p, name), name
    assert core.kv_budget == 0 and core.stop == ["END"] and core.logit_bias == {3: 1.0}
    assert p.clone() == p and p.clone() is not p


@pytest.mark.parametrize(("field", "value"), [
    ("n", 0), ("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -2), ("min_p", 2), ("max_tokens", -1),
    ("min_tokens", 17), ("presence_penalty", 3), ("repetition_penalty", 0), ("seed", -5), ("seed", 2**64), ("stop", [""]),
    ("logprobs", -2), ("allowed_token_ids", []), ("kv_policy", "best"), ("stream_interval", 0), ("max_tokens", 2**40),
    ("spaces_between_special_tokens", False),
])  # fmt: skip
def test_value_out_of_range(field, value):
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


@pytest.mark.parametrize(("field", "value"), [
    ("max_tokens", 1.5), ("temperature", "hot"), ("stop", 5), ("stop_token_ids", ["a"]), ("n", True), ("logit_bias", [1]),
    ("output_kind", "delta"), ("n", None),
])  # fmt: skip
def test_value_of_the_wrong_type(field, value):
    with pytest.raises(TypeError, match=field):
        SamplingParams(**{field: value})


def test_unknown_field_names_the_nearest():
    with pytest.raises(TypeError, match="temperature"):
        SamplingParams(temprature=0.5)


@pytest.mark.parametrize(("field", "neutral", "asks"), [
    ("structured_outputs", None, {"regex": "a"}), ("flat_logprobs", False, True), ("thinking_token_budget", None, 5),
    ("extra_args", None, {"x": 1}), ("best_of", 1, 4),
])  # fmt: skip
def test_what_the_engine_cannot_do(field, neutral, asks):
    SamplingParams(**{field: neutral})
    with pytest.raises(NotImplementedError, match=field):
        SamplingParams(**{field: asks})


def test_tiny_temperature_is_raised_and_zero_is_not():
    with pytest.warns(UserWarning, match="temperature"):
        assert SamplingParams(temperature=1e-3).temperature == 1e-2
    assert SamplingParams(temperature=0).temperature == 0.0
