"""Real clients against a server over the embedded model: openai (sync, async, streams, errors, retries) and httpx.

usage: judge_clients.py FOLDER   (FOLDER/port.txt: where it listens; key "sesame")
"""
import asyncio
import json
import pathlib
import sys
import threading
import time

import httpx
import openai

PORT = int((pathlib.Path(sys.argv[1]) / "port.txt").read_text())
BASE = f"http://127.0.0.1:{PORT}"
KEY = "sesame"
PROMPT = "mul 1234*5678"
MESSAGES = [{"role": "user", "content": PROMPT}]


def raises(kind, call, says):
    try:
        call()
    except kind as error:
        assert says in str(error), f"{says!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def chat(client):
    answer = client.chat.completions.create(model="reasoner", messages=MESSAGES, max_tokens=400, temperature=0)
    choice = answer.choices[0]
    assert choice.finish_reason == "stop", choice
    assert "7006652" in choice.message.content, choice
    assert choice.message.reasoning and choice.message.reasoning == choice.message.reasoning_content
    assert "<think>" not in choice.message.content and "</think>" not in choice.message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    return answer


def chat_stream(client, whole):
    reasoning, content, usage, roles, reason = "", "", None, [], None
    stream = client.chat.completions.create(
        model="reasoner", messages=MESSAGES, max_tokens=400, temperature=0, stream=True,
        stream_options={"include_usage": True})
    for chunk in stream:
        if chunk.usage:
            usage = chunk.usage
            assert chunk.choices == []
            continue
        delta = chunk.choices[0].delta
        if delta.role:
            roles.append(delta.role)
        reasoning += getattr(delta, "reasoning", None) or ""
        content += delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    assert roles == ["assistant"], roles
    assert content == whole.choices[0].message.content
    assert reasoning == whole.choices[0].message.reasoning
    assert reason == "stop" and usage == whole.usage, (reason, usage)


def completions(client):
    ids = httpx.post(BASE + "/tokenize", json={"prompt": PROMPT},
                     headers={"Authorization": f"Bearer {KEY}"}).json()["tokens"]
    greedy = dict(model="reasoner", max_tokens=12, temperature=0)
    text = client.completions.create(prompt=PROMPT, **greedy)
    by_ids = client.completions.create(prompt=ids, **greedy)
    assert text.choices[0].text == by_ids.choices[0].text and text.choices[0].finish_reason == "length"
    several = client.completions.create(prompt=[PROMPT, "mul 2*3"], n=2, logprobs=3, **greedy)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text == text.choices[0].text
    logprobs = several.choices[0].logprobs
    assert len(logprobs.tokens) == 12 == len(logprobs.token_logprobs) == len(logprobs.top_logprobs)
    assert all(value <= 0 for value in logprobs.token_logprobs)
    assert "".join(logprobs.tokens) == text.choices[0].text
    assert logprobs.text_offset[1] == len(logprobs.tokens[0])
    echoed = client.completions.create(prompt=PROMPT, echo=True, **greedy)
    assert echoed.choices[0].text == PROMPT + text.choices[0].text
    # A stop string that lies across tokens, and is not in the text.
    stop = text.choices[0].text[3:6]
    cut = text.choices[0].text[:text.choices[0].text.index(stop)]
    stopped = client.completions.create(prompt=PROMPT, stop=[stop], **greedy)
    assert stopped.choices[0].text == cut and stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].stop_reason == stop
    streamed = "".join(chunk.choices[0].text
                       for chunk in client.completions.create(prompt=PROMPT, stop=[stop], stream=True, **greedy))
    assert streamed == cut, (streamed, cut)
    extra = client.completions.create(
        prompt=PROMPT, extra_body={"kv_budget": "full", "kv_policy": "paper", "top_k": 1, "cache_salt": "a",
                                   "return_token_ids": True}, **greedy)
    assert len(extra.choices[0].token_ids) == 12 and extra.choices[0].prompt_token_ids == ids


def prompt_logprobs(client):
    greedy = dict(model="reasoner", temperature=0)
    tail = client.completions.create(prompt=PROMPT, max_tokens=6, logprobs=2, extra_body={"return_token_ids": True}, **greedy)
    choice = tail.choices[0]
    ids = choice.prompt_token_ids + choice.token_ids
    echo = client.completions.create(prompt=ids, echo=True, logprobs=2, max_tokens=0, **greedy).choices[0]
    assert echo.text == PROMPT + choice.text and echo.finish_reason == "length"
    scores = echo.logprobs
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(scores.text_offset) == len(ids)
    assert scores.token_logprobs[0] is None and scores.top_logprobs[0] is None and "".join(scores.tokens) == echo.text
    assert [echo.text[at] for at in scores.text_offset] == [token[0] for token in scores.tokens]
    assert scores.tokens[-6:] == choice.logprobs.tokens
    for ours, wanted in zip(scores.token_logprobs[-6:], choice.logprobs.token_logprobs):
        assert abs(ours - wanted) < 1e-4, (ours, wanted)
    # vLLM's field, in completions and in chat.
    plain = client.completions.create(prompt=ids, max_tokens=1, extra_body={"prompt_logprobs": 1}, **greedy).choices[0]
    assert plain.prompt_logprobs[0] is None and len(plain.prompt_logprobs) == len(ids)
    for token, entry, score in zip(ids[1:], plain.prompt_logprobs[1:], scores.token_logprobs[1:]):
        assert abs(entry[str(token)]["logprob"] - score) < 1e-4 and 1 in {e["rank"] for e in entry.values()}
    chat = client.chat.completions.create(messages=MESSAGES, max_tokens=1, extra_body={"prompt_logprobs": 0}, **greedy)
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens
    raises(openai.BadRequestError,
           lambda: client.completions.create(prompt=PROMPT, extra_body={"prompt_logprobs": 21}, **greedy), "prompt_logprobs")


def retries(client):
    # Streams that fill the server's queue of 16 prompts, and are read all along: one that nobody reads is dropped.
    stop, started = threading.Event(), threading.Semaphore(0)

    def read(stream):
        with stream:
            for _ in stream:
                started.release()
                if stop.is_set():
                    break

    readers = []
    try:
        for _ in range(16):
            stream = client.completions.create(model="reasoner", prompt=PROMPT, stream=True, max_tokens=4000,
                                               extra_body={"ignore_eos": True})
            readers.append(threading.Thread(target=read, args=(stream,)))
            readers[-1].start()
        assert started.acquire(timeout=60)
        patient = client.with_options(max_retries=8)
        ask = dict(model="reasoner", prompt=PROMPT, max_tokens=3, temperature=0)
        hasty = client.with_options(max_retries=0)
        error = raises(openai.RateLimitError, lambda: hasty.completions.create(**ask), "queue is full")
        assert int(error.response.headers["retry-after"]) >= 1, error.response.headers
        leave = threading.Timer(0.5, stop.set)
        leave.start()
        assert patient.completions.create(**ask).choices[0].finish_reason == "length"
        leave.join()
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def errors(client):
    error = raises(openai.BadRequestError,
                   lambda: client.chat.completions.create(model="reasoner", messages=MESSAGES, temperature=-1),
                   "temperature")
    assert error.status_code == 400 and error.param == "temperature" and error.type == "BadRequestError", error.body
    raises(openai.NotFoundError, lambda: client.models.retrieve("gpt-4"), "gpt-4")
    raises(openai.NotFoundError, lambda: client.completions.create(model="gpt-4", prompt="x"), "gpt-4")
    raises(openai.BadRequestError,
           lambda: client.chat.completions.create(model="reasoner", messages=MESSAGES,
                                                  response_format={"type": "json_object"}), "response_format")
    raises(openai.BadRequestError,
           lambda: client.completions.create(model="reasoner", prompt="x" * 20000), "prompt")
    raises(openai.BadRequestError,
           lambda: client.completions.create(model="reasoner", prompt="x", extra_body={"kv_budget": 77}), "kv_budget")
    raises(openai.BadRequestError,
           lambda: client.completions.create(model="reasoner", prompt="x", extra_body={"min_pp": 1}), "min_pp")
    raises(openai.AuthenticationError,
           lambda: openai.OpenAI(base_url=BASE + "/v1", api_key="wrong", max_retries=0).models.list(), "API key")


async def many(whole):
    client = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY)

    async def one(stream):
        arguments = dict(model="reasoner", messages=MESSAGES, max_tokens=400, temperature=0)
        if not stream:
            return (await client.chat.completions.create(**arguments)).choices[0].message.content
        text = ""
        async for chunk in await client.chat.completions.create(stream=True, **arguments):
            text += chunk.choices[0].delta.content or ""
        return text

    texts = await asyncio.gather(*[one(i % 2 == 0) for i in range(12)])
    assert set(texts) == {whole.choices[0].message.content}, texts
    # A stream that is left in the middle ends its request.
    async for _ in await client.chat.completions.create(model="reasoner", messages=MESSAGES, stream=True,
                                                        extra_body={"ignore_eos": True, "min_tokens": 2000},
                                                        max_tokens=4000):
        break
    await client.close()


def plain_http():
    with httpx.Client(base_url=BASE) as http:
        assert http.get("/health").status_code == 200 and http.get("/ping").status_code == 200
        for path in ("/v1/models", "/metrics", "/load", "/version", "/openapi.json", "/nothing"):
            assert http.get(path).status_code == 401, path
        http.headers["Authorization"] = f"Bearer {KEY}"
        model = http.get("/v1/models").json()["data"][0]
        assert model["id"] == "reasoner" and model["max_model_len"] == 8192, model
        answer = http.post("/v1/completions", content=b"{", headers={"X-Request-Id": "my-id"})
        assert answer.status_code == 400 and answer.headers["x-request-id"] == "my-id"
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        tokens = http.post("/tokenize", json={"prompt": "grüße 🙂", "return_token_strs": True}).json()
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
        assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json()["prompt"] == "grüße 🙂"
        assert http.post("/tokenize", json={"messages": MESSAGES}).json()["count"] > tokens["count"] // 2
        metrics = http.get("/metrics").text
        assert 'zipage:request_success_total{model_name="reasoner",engine="0",finished_reason="stop"}' in metrics
        json.loads(http.get("/openapi.json").text)
        for _ in range(100):
            load = http.get("/load").json()
            if load["server_load"] == 0 and load["used_blocks"] == 0:
                break
            time.sleep(0.1)
        assert load["server_load"] == 0 and load["running"] == 0 and load["used_blocks"] == 0, load


def main():
    client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
    assert [model.id for model in client.models.list()] == ["reasoner"]
    whole = chat(client)
    chat_stream(client, whole)
    completions(client)
    prompt_logprobs(client)
    errors(client)
    retries(client)
    asyncio.run(many(whole))
    plain_http()


main()
