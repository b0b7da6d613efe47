"""AsyncLLM: streams, and what ends them."""

import asyncio
import math
import threading

import pytest
from conftest import GREEDY, MUL

from zipage import EngineError, RequestOutputKind, SamplingParams
from zipage.prompts import read_prompt

LONG = {"temperature": 0, "max_tokens": 3000, "ignore_eos": True}


async def collect(llm, prompt, params, request_id=None):
    return [output async for output in llm.generate(prompt, params, request_id)]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 600))


def test_kinds_of_output_agree(async_llm, llm):
    wanted = llm.generate(MUL, GREEDY, use_tqdm=False)[0]["text"]

    async def all_kinds():
        return await asyncio.gather(*(collect(async_llm, MUL, SamplingParams(temperature=0, max_tokens=12, output_kind=kind))
                                      for kind in RequestOutputKind))

    cumulative, delta, final = run(all_kinds())
    assert cumulative[-1].outputs[0].text == wanted
    assert all(b.outputs[0].text.startswith(a.outputs[0].text) for a, b in zip(cumulative, cumulative[1:]))
    assert "".join(o.outputs[0].text for o in delta) == wanted
    assert sum(len(o.outputs[0].token_ids) for o in delta) == 12
    assert [o.outputs[0].text for o in final] == [wanted]
    assert [o.finished for o in cumulative] == [False] * (len(cumulative) - 1) + [True]
    assert final[0].metrics.finished_time >= final[0].metrics.first_token_time >= final[0].metrics.arrival_time


def test_cumulative_logprob_is_of_the_whole_sequence(async_llm):
    params = SamplingParams(temperature=0, max_tokens=400, logprobs=0, n=2, output_kind=RequestOutputKind.DELTA)
    sums = {0: 0.0, 1: 0.0}
    pieces = {0: 0, 1: 0}
    for output in run(collect(async_llm, MUL, params)):
        for gained in output.outputs:
            for token, alternatives in zip(gained.token_ids, gained.logprobs):
                sums[gained.index] += alternatives[token].logprob
            pieces[gained.index] += 1
            assert math.isclose(gained.cumulative_logprob, sums[gained.index], rel_tol=1e-6, abs_tol=1e-9)
    assert min(pieces.values()) > 1


def test_a_long_answer_comes_in_pieces(async_llm):
    # A reader that lags gets what has gathered, so a short answer may come whole.
    params = SamplingParams(temperature=0, max_tokens=400, output_kind=RequestOutputKind.DELTA)
    assert len(run(collect(async_llm, MUL, params))) > 1


def test_many_streams_at_once(async_llm, llm):
    prompts = [MUL.replace("12", str(n)) for n in range(10, 34)]

    async def all_streams():
        return await asyncio.gather(*(collect(async_llm, p, GREEDY) for p in prompts))

    streams = run(all_streams())
    wanted = [o["text"] for o in llm.generate(prompts, GREEDY, use_tqdm=False)]
    assert [s[-1].outputs[0].text for s in streams] == wanted


def test_stream_interval(async_llm):
    params = SamplingParams(temperature=0, max_tokens=12, stream_interval=5)
    outputs = run(collect(async_llm, MUL, params))
    gained = [len(o.outputs[0].token_ids) for o in outputs]
    assert gained[-1] == 12 and all(b - a >= 5 for a, b in zip(gained, gained[1:-1]))


async def wait_until_idle(llm):
    for _ in range(600):
        stats = llm._engine.stats()
        if stats["num_running"] + stats["num_waiting"] == 0:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(stats)


def test_leaving_a_stream_aborts_its_request(async_llm):
    async def leave():
        stream = async_llm.generate(MUL, SamplingParams(**LONG))
        async for output in stream:
            assert len(output.outputs[0].token_ids) < 3000
            break
        await stream.aclose()
        await wait_until_idle(async_llm)

    run(leave())


def test_cancelling_a_task_aborts_its_request(async_llm):
    async def cancel():
        task = asyncio.ensure_future(collect(async_llm, MUL, SamplingParams(**LONG)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until_idle(async_llm)

    run(cancel())


def test_abort_by_id(async_llm):
    async def abort():
        task = asyncio.ensure_future(collect(async_llm, MUL, SamplingParams(**LONG), "mine"))
        await asyncio.sleep(0.2)
        with pytest.raises(ValueError, match="mine"):
            await collect(async_llm, MUL, GREEDY, "mine")
        await async_llm.abort("mine")
        await async_llm.abort("nobody's")
        outputs = await task
        assert outputs[-1].outputs[0].finish_reason == "abort" and outputs[-1].finished
        return await collect(async_llm, MUL, GREEDY, "mine")  # the id is free again

    assert run(abort())[-1].outputs[0].finish_reason == "length"


def test_bad_prompt(async_llm):
    with pytest.raises(ValueError, match="empty"):
        run(collect(async_llm, "", GREEDY))
    assert async_llm._running == {}


def test_loops_in_two_threads(async_llm):
    results = {}

    def work(name):
        results[name] = run(collect(async_llm, MUL, GREEDY))[-1].outputs[0].text

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1] != ""


def test_shutdown_ends_streams():
    from conftest import ENGINE, MODEL

    from zipage import AsyncLLM

    async def stop():
        async with AsyncLLM(MODEL, **ENGINE) as llm:
            task = asyncio.ensure_future(collect(llm, MUL, SamplingParams(**LONG)))
            await asyncio.sleep(0.2)
            llm.shutdown()
            with pytest.raises(EngineError, match="shut down"):
                await task

    run(stop())


def test_prompt_needs_a_known_form(llm):
    with pytest.raises(TypeError, match="a prompt is"):
        read_prompt(3.5, llm.get_tokenizer)
