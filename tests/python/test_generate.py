"""ZipLLM on the embedded model."""

import gc
import math
import os
import weakref

import pytest
from conftest import ENGINE, GREEDY, MODEL, MUL, wait_until_idle

from zipage import EngineError, GenerationError, SamplingParams, ZipLLM
from zipage._engine import RunningRequest

OTHER = MUL.replace("12345*67890", "345*678")


def test_solves_a_problem_and_both_spellings_work(llm):
    output = llm.generate(MUL, SamplingParams(temperature=0, max_tokens=None), use_tqdm=False)[0]
    assert output["text"] == output.outputs[0].text
    assert output["text"].endswith("\\boxed{838102050}")
    assert output.finished and output.outputs[0].finish_reason == "stop" and output.outputs[0].stop_reason is None
    assert output.prompt == MUL and output.prompt_token_ids == llm.get_tokenizer().encode(MUL)
    assert output["token_ids"] == output.outputs[0].token_ids
    with pytest.raises(KeyError, match="'txt'"):
        output["txt"]


def test_all_forms_of_a_prompt_give_the_same(llm):
    ids = llm.get_tokenizer().encode(MUL)
    forms = [MUL, [MUL], {"prompt": MUL}, {"prompt_token_ids": ids}, ids, [ids], [{"prompt": MUL, "cache_salt": "s"}]]
    texts = {llm.generate(form, GREEDY, use_tqdm=False)[0].outputs[0].text for form in forms}
    texts.add(llm.generate(prompt_token_ids=[ids], sampling_params=GREEDY, use_tqdm=False)[0]["text"])
    assert len(texts) == 1 and len(texts.pop()) > 0


def test_order_and_params_of_each(llm):
    prompts = [MUL.replace("12", str(n)) for n in range(10, 22)]
    params = [SamplingParams(temperature=0, max_tokens=24 - 2 * i) for i in range(12)]  # the last one ends first
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in outputs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outputs] == [p.max_tokens for p in params]
    alone = [llm.generate(p, s, use_tqdm=False)[0]["text"] for p, s in zip(prompts[:2], params)]
    assert [o["text"] for o in outputs[:2]] == alone
    assert len({o.request_id for o in outputs}) == 12


def test_nothing_to_do(llm):
    assert llm.generate([], GREEDY) == []


def test_n_seed_and_logprobs(llm):
    params = SamplingParams(n=3, temperature=6.0, seed=7, max_tokens=8, logprobs=2)
    first, second = (llm.generate(MUL, params, use_tqdm=False)[0] for _ in range(2))
    assert [o.index for o in first.outputs] == [0, 1, 2]
    assert [o.token_ids for o in first.outputs] == [o.token_ids for o in second.outputs]
    assert len({tuple(o.token_ids) for o in first.outputs}) > 1
    for output in first.outputs:
        assert len(output.logprobs) == len(output.token_ids) == 8
        total = 0.0
        for token, alternatives in zip(output.token_ids, output.logprobs):
            assert 2 <= len(alternatives) <= 3
            assert sorted(a.rank for a in alternatives.values())[:2] == [1, 2]
            best = min(alternatives.values(), key=lambda a: a.rank)
            assert best.logprob == max(a.logprob for a in alternatives.values()) <= 0
            assert alternatives[token].decoded_token == llm.get_tokenizer().token_text(token)
            total += alternatives[token].logprob
        assert math.isclose(output.cumulative_logprob, total, rel_tol=1e-6)
    assert llm.generate(MUL, GREEDY, use_tqdm=False)[0].outputs[0].logprobs is None


def test_prompt_logprobs(llm):
    answer = llm.generate(MUL, SamplingParams(temperature=0, max_tokens=8, logprobs=2), use_tqdm=False)[0]
    assert answer.prompt_logprobs is None
    ids = answer.prompt_token_ids + answer["token_ids"]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2, n=2)
    for _ in range(2):  # the second time the prefix cache has them all
        scored = llm.generate([ids], params, use_tqdm=False)[0]
        assert len(scored.prompt_logprobs) == len(ids) and scored.prompt_logprobs[0] is None
        for token, entry in zip(ids[1:], scored.prompt_logprobs[1:]):
            assert 2 <= len(entry) <= 3 and token in entry
            assert {a.rank for a in entry.values()} >= {1, 2}
            assert entry[token].decoded_token == llm.get_tokenizer().token_text(token)
        for token, then, now in zip(answer["token_ids"], answer.outputs[0].logprobs, scored.prompt_logprobs[-8:]):
            assert now[token].rank == 1 and math.isclose(now[token].logprob, then[token].logprob, abs_tol=1e-3)
    with pytest.raises(ValueError, match="prompt_logprobs"):
        llm.generate(MUL, SamplingParams(prompt_logprobs=21), use_tqdm=False)


def test_stops(llm):
    text = llm.generate(MUL, SamplingParams(temperature=0, max_tokens=40), use_tqdm=False)[0]["text"]
    word = text[10:13]
    cut = text[: text.index(word)]
    output = llm.generate(MUL, SamplingParams(temperature=0, max_tokens=40, stop=[word]), use_tqdm=False)[0].outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == (cut, "stop", word)
    token = ord(text[10])
    params = SamplingParams(temperature=0, max_tokens=40, stop_token_ids=[token])
    output = llm.generate(MUL, params, use_tqdm=False)[0].outputs[0]
    assert (output.finish_reason, output.stop_reason) == ("stop", token)
    assert llm.generate(MUL, GREEDY, use_tqdm=False)[0].outputs[0].finish_reason == "length"


def test_chat(llm):
    conversation = [{"role": "user", "content": "mul 12345*67890"}]
    one = llm.chat(conversation, GREEDY, use_tqdm=False)
    assert one[0].prompt == MUL
    two = llm.chat([conversation, [{"role": "user", "content": "mul 345*678"}]], GREEDY, use_tqdm=False)
    assert [o.prompt for o in two] == [MUL, OTHER]
    assert two[0]["text"] == one[0]["text"] == llm.generate(MUL, GREEDY, use_tqdm=False)[0]["text"]
    plain = llm.chat(conversation, GREEDY, use_tqdm=False, chat_template="{{ messages[0].content }}{{ tail }}",
                     chat_template_kwargs={"tail": "!"})
    assert plain[0].prompt == "mul 12345*67890!"


@pytest.mark.parametrize(("prompts", "options", "error", "words"), [
    ([MUL, ""], {}, ValueError, "prompt 1: .*empty"),
    ([MUL, {"promt": MUL}], {}, ValueError, "did you mean 'prompt'"),
    ([{"prompt": MUL, "multi_modal_data": {}}], {}, NotImplementedError, "multi_modal_data"),
    ([MUL, 5], {}, TypeError, "prompt 1"),
    ({"prompt_token_ids": [999999]}, {}, ValueError, "token id 999999"),
    ([MUL, MUL], {"sampling_params": [GREEDY]}, ValueError, "1 of them for 2"),
    (MUL, {"sampling_params": {"n": 1}}, TypeError, "sampling_params"),
    (MUL, {"lora_request": object()}, NotImplementedError, "lora"),
    (None, {}, TypeError, "prompts"),
    ([[97] * 5000], {}, ValueError, "max_model_len"),
])  # fmt: skip
def test_bad_call(llm, prompts, options, error, words):
    with pytest.raises(error, match=words):
        llm.generate(prompts, use_tqdm=False, **options)
    wait_until_idle(llm)
    assert len(llm.generate(MUL, GREEDY, use_tqdm=False)[0]["token_ids"]) == 12


def test_the_cap_of_a_request_is_its_own(llm):
    before = llm._engine.stats()["compressions"]
    params = SamplingParams(temperature=0, max_tokens=600, ignore_eos=True)
    capped = llm.generate(MUL, params, use_tqdm=False)[0]
    assert llm._engine.stats()["compressions"] > before
    before = llm._engine.stats()["compressions"]
    params = SamplingParams(temperature=0, max_tokens=600, ignore_eos=True, kv_budget="full")
    full = llm.generate(MUL, params, use_tqdm=False)[0]
    assert llm._engine.stats()["compressions"] == before
    assert capped["token_ids"][:500] == full["token_ids"][:500]  # nothing is evicted before the trigger


def test_prefix_cache(llm):
    prompt = MUL * 12
    llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY, use_tqdm=False)[0].num_cached_tokens == 0
    assert llm.generate(prompt, GREEDY, use_tqdm=False)[0].num_cached_tokens >= 64
    assert llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY, use_tqdm=False)[0].num_cached_tokens == 0


def test_defaults_metrics_and_tokenizer(llm):
    defaults = llm.get_default_sampling_params()
    assert defaults.temperature == 0.0 and defaults.max_tokens == 16
    assert len(llm.generate(MUL, use_tqdm=False)[0]["token_ids"]) == 16
    wait_until_idle(llm)
    values = {metric.name: metric.value for metric in llm.get_metrics()}
    assert values["zipage:generation_tokens"] >= 16 and values["zipage:num_requests_running"] == 0
    tokenizer = llm.get_tokenizer()
    assert tokenizer.decode(tokenizer.encode("naïve ☃")) == "naïve ☃"
    assert tokenizer.eos_token_id == 258 and len(tokenizer) >= 261
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "<|im_start|>user\nx<|im_end|>\n"
    assert tokenizer.decode([258]) == "<|im_end|>" and tokenizer.decode([258], skip_special_tokens=True) == ""


def test_bars_only_when_asked(llm, capsys):
    llm.generate([MUL], GREEDY, use_tqdm=False)
    assert capsys.readouterr() == ("", "")
    llm.generate([MUL], GREEDY)
    out, err = capsys.readouterr()
    assert out == "" and "Processed prompts: 100%" in err and "toks/s" in err


def test_a_closed_engine_says_so_and_memory_goes_with_the_last_reference():
    engine = ZipLLM(MODEL, **ENGINE)
    core = weakref.ref(engine._engine)
    tokenizer = engine.get_tokenizer()
    engine.shutdown()
    engine.shutdown()
    with pytest.raises(EngineError, match="shut down"):
        engine.generate(MUL, GREEDY, use_tqdm=False)
    assert tokenizer.decode([97]) == "a"
    engine.cycle = engine
    del engine
    gc.collect()
    assert core() is None


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        ZipLLM(str(tmp_path / "nothing"), device="cpu")


def test_a_request_that_fails_leaves_the_others_their_outputs(llm, monkeypatch):
    add = RunningRequest.add

    def fail_one(request, delta):
        add(request, delta)
        if request.prompt.text == OTHER:
            request.error = "a compression failed"

    monkeypatch.setattr(RunningRequest, "add", fail_one)
    with pytest.raises(GenerationError, match="1 of 2 requests failed.*a compression failed") as raised:
        llm.generate([MUL, OTHER], GREEDY, use_tqdm=False)
    assert [len(output["token_ids"]) for output in raised.value.outputs] == [12, 12]


def test_engines_come_and_go_without_a_trace():
    def threads():
        return len(os.listdir("/proc/self/task"))

    def resident_kib():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def use_one():
        ZipLLM(MODEL, **ENGINE).generate([MUL] * 3, GREEDY, use_tqdm=False)
        gc.collect()

    use_one()
    before, kib = threads(), resident_kib()
    for _ in range(4):
        use_one()
    assert threads() == before
    assert resident_kib() - kib < 40_000  # one engine's weights and used blocks would be more


def test_a_priority_needs_its_policy(llm):
    with pytest.raises(ValueError, match="priority"):
        llm.generate(MUL, GREEDY, use_tqdm=False, priority=3)
    assert llm.generate(MUL, GREEDY, use_tqdm=False, priority=0)[0].finished


def test_prompt_alone(llm):
    answer = llm.generate(MUL, SamplingParams(max_tokens=0, prompt_logprobs=0), use_tqdm=False)[0]
    assert len(answer.prompt_logprobs) == len(answer.prompt_token_ids)
    assert answer["token_ids"] == [] and answer.outputs[0].finish_reason == "length"


def test_parameters_that_leave_no_token(llm):
    with pytest.raises(ValueError, match="allowed_token_ids"):
        llm.generate(MUL, SamplingParams(allowed_token_ids=[49], bad_words=["1"]), use_tqdm=False)
