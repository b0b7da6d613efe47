"""The server between hostile clients and well-behaved ones.

Starts `zipage serve`, takes the reference answer of each of some prompts, and then for the given time runs
  - streams that repeat those prompts: each text must be the reference, none may be lost,
  - a probe of /health every 20 ms,
  - hostile clients: bodies of too many keys, messages, documents, biases and nested values, bodies that come slowly or never,
    requests without a key, broken Transfer-Encoding, half a request, connections that are reset or left open, clients that read nothing.
Prints what was asked, the 99th percentiles of /health and of the time between two chunks with and without the hostile
clients, and the largest resident memory; exit code 1 when an answer is lost or wrong, or a limit is passed.

usage: soak_server.py --zipage PROGRAM --model FOLDER [--minutes 10] [--streams 50] [--hostile 8]
                      [--health-ms 50] [--itl-ratio 1.5] [--memory-mib 320] [--seed 1]
"""
import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import time

KEY = "soak"
HOST = "127.0.0.1"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zipage", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--hostile", type=int, default=8)
    parser.add_argument("--health-ms", type=float, default=50, help="most for the 99th percentile of /health")
    parser.add_argument("--itl-ratio", type=float, default=1.5, help="most for the ratio of the 99th percentiles between two chunks")
    parser.add_argument("--memory-mib", type=float, default=320, help="most that the resident memory may grow")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def head(method, path, length=None, *more, key=KEY):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", "Content-Type: application/json"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join([*lines, *more]) + "\r\n\r\n").encode()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


# --- the well-behaved

def prompts():
    questions = [f"mul {a}*{b}" for a, b in ((1234, 5678), (12, 34), (4321, 8765), (999, 111), (2345, 6789), (31, 77), (505, 404), (86, 42))]
    return [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n<think>\n" for q in questions]


async def stream_once(port, prompt, gaps):
    """The text of one streamed answer."""
    body = json.dumps({"prompt": prompt, "max_tokens": 120, "temperature": 0, "stream": True}).encode()
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(head("POST", "/v1/completions", len(body), "Connection: close") + body)
        await writer.drain()
        status = (await reader.readline()).split()[1]
        text, last, done = "", None, False
        if status != b"200":
            raise RuntimeError(f"status {status.decode()}: {(await reader.read())[-300:]}")
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(f"an error in the stream: {event}")
            now = time.perf_counter()
            if last is not None:
                gaps.append(now - last)
            last = now
            text += event["choices"][0]["text"]
        if not done:
            raise RuntimeError("the stream ended without [DONE]")
        return text
    finally:
        writer.close()


async def streams(port, count, until, reference, gaps, failures, done):
    async def one(index):
        i = index
        while time.time() < until:
            prompt = prompts()[i % len(reference)]
            try:
                text = await stream_once(port, prompt, gaps)
                if text != reference[i % len(reference)]:
                    failures.append(f"another text: {text[:80]!r}")
                done.append(1)
            except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
                failures.append(repr(error)[:300])
            i += 1
    await asyncio.gather(*(one(i) for i in range(count)))


async def probe_health(port, until, times, failures):
    while time.time() < until:
        started = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            if b" 200 " not in answer[:20]:
                failures.append(f"/health: {answer[:60]}")
            times.append(time.perf_counter() - started)
        except (OSError, asyncio.TimeoutError) as error:
            failures.append(f"/health: {error!r}")
        await asyncio.sleep(0.02)


def stream_process(port, count, until, reference, results):
    gaps, failures, done = [], [], []
    asyncio.run(streams(port, count, until, reference, gaps, failures, done))
    results.put(("streams", {"gaps": gaps, "failures": failures, "done": len(done)}))


def health_process(port, until, results):
    times, failures = [], []
    asyncio.run(probe_health(port, until, times, failures))
    results.put(("health", {"times": times, "failures": failures}))


# --- the hostile

def send_all(port, data, read=True, pause=0.0, piece=1 << 16):
    with socket.create_connection((HOST, port), timeout=20) as s:
        try:
            for at in range(0, len(data), piece):
                s.sendall(data[at:at + piece])
                if pause:
                    time.sleep(pause)
        except OSError:
            pass
        if not read:
            return b""
        answer = b""
        try:
            while part := s.recv(1 << 16):
                answer += part
        except OSError:
            pass
        return answer


def large_bodies():
    chat = '{"messages":[{"role":"user","content":"a"}],'
    many = lambda item, count: ",".join([item] * count)
    return {
        "kwargs": chat + '"chat_template_kwargs":{' + ",".join(f'"k{i}":{i}' for i in range(700000)) + "}}",
        "messages": '{"messages":[' + many('{"role":"user","content":"a"}', 400000) + "]}",
        "documents": chat + '"documents":[' + many("1", 4000000) + "]}",
        "logit_bias": chat + '"logit_bias":{' + ",".join(f'"{i}":1' for i in range(1000000)) + "}}",
        "nested": chat + '"documents":' + "[" * 1000000 + "]" * 1000000 + "}",
        "duplicates": "{" + many('"n":1', 1000000) + "}",
        "one string": '{"messages":[{"role":"user","content":"' + "a" * 8000000 + '"}]}',
        "bad_words": chat + '"bad_words":["' + "a" * 6000000 + '"]}',
        "stop_token_ids": chat + '"n":128,"stop_token_ids":[' + many("1", 4000000) + "]}",
        "not JSON": "\\" * 4000000,
        "ids": '{"prompt":[' + many("5", 2000000) + "]}",
    }


def hostile_process(port, until, seed, counts):
    randomly = random.Random(seed)
    bodies = {name: body.encode() for name, body in large_bodies().items()}
    kept = collections.deque(maxlen=20)

    def large():
        name = randomly.choice(list(bodies))
        path = "/v1/completions" if name == "ids" else "/v1/chat/completions"
        return name, send_all(port, head("POST", path, len(bodies[name])) + bodies[name])

    def keyless():
        return "keyless", send_all(port, head("POST", "/v1/completions", 8 << 20, key=None) + b"x" * (1 << 20))

    def slow():
        return "slow", send_all(port, head("POST", "/tokenize", 100000) + b'{"prompt":"' + b"x" * 600, pause=0.002, piece=16)

    def half():
        s = socket.create_connection((HOST, port), timeout=20)
        s.sendall(head("POST", "/v1/completions", 1 << 20) + b'{"prompt":"' + b"x" * randomly.randrange(1 << 18))
        kept.append(s)
        return "half a body", b""

    def silent():
        s = socket.create_connection((HOST, port), timeout=20)
        s.sendall(b"GET /hea"[:randomly.randrange(8)])
        kept.append(s)
        return "silent", b""

    def encoding():
        value = randomly.choice(["gzip", "gzip, chunked", "xchunked", "chunked, chunked", "identity"])
        request = head("POST", "/tokenize", None, f"Transfer-Encoding: {value}")
        return "Transfer-Encoding", send_all(port, request + b"0\r\n\r\n" + head("GET", "/version"))

    def reset():
        body = json.dumps({"prompt": "a", "max_tokens": 500, "stream": True, "ignore_eos": True}).encode()
        s = socket.create_connection((HOST, port), timeout=20)
        s.sendall(head("POST", "/v1/completions", len(body)) + body)
        if randomly.random() < 0.5:
            s.recv(300)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        return "reset", b""

    def garbage():
        return "garbage", send_all(port, bytes(randomly.randrange(256) for _ in range(2000)))

    kinds = [large, large, large, keyless, slow, half, silent, encoding, reset, garbage]
    while time.time() < until:
        kind = randomly.choice(kinds)
        try:
            name, answer = kind()
            status = answer[9:12].decode("latin1") if answer.startswith(b"HTTP/1.1 ") else "none"
            counts[name + " " + status] = counts.get(name + " " + status, 0) + 1
        except OSError as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
        time.sleep(randomly.random() * 0.1)


# --- the whole

class Server:
    def __init__(self, options):
        self.port = free_port()
        self.log = open(os.path.join(os.environ.get("TMPDIR", "/tmp"), f"soak-server-{os.getpid()}.log"), "w+")
        self.process = subprocess.Popen(
            [options.zipage, "serve", options.model, "--port", str(self.port), "--api-key", KEY, "--dtype", "float32",
             "--kv-cache-dtype", "float32", "--kv-cache-memory", "256MiB", "--kv-budget", "full", "--max-num-seqs", "64",
             "--max-body-memory", "64MiB", "--timeout-read", "10", "--disable-access-log"],
            stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                if b" 200 " in send_all(self.port, head("GET", "/health", None, "Connection: close"))[:20]:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.log.seek(0)
        sys.exit(f"the server did not start: {self.log.read()[-2000:]}")

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "killed: it did not end"


def phase(server, options, seconds, hostile, reference):
    """Runs everybody for so long; what the streams and the probe saw, and the largest memory."""
    until = time.time() + seconds
    results = multiprocessing.Queue()
    counts = [multiprocessing.Manager().dict() for _ in range(hostile)]
    processes = [multiprocessing.Process(target=stream_process, args=(server.port, options.streams, until, reference, results)),
                 multiprocessing.Process(target=health_process, args=(server.port, until, results))]
    processes += [multiprocessing.Process(target=hostile_process, args=(server.port, until, options.seed + i, counts[i]))
                  for i in range(hostile)]
    for process in processes:
        process.start()
    seen, most = {}, 0
    while len(seen) < 2:
        try:
            name, result = results.get(timeout=0.2)
            seen[name] = result
        except queue.Empty:
            most = max(most, server.memory())
            if server.process.poll() is not None:
                sys.exit("the server has ended")
    for process in processes:
        process.join(timeout=60)
        if process.is_alive():
            process.kill()
    total = collections.Counter()
    for each in counts:
        total.update(dict(each))
    return seen["streams"], seen["health"], most, total


def main():
    options = arguments()
    server = Server(options)
    reference = [asyncio.run(stream_once(server.port, prompt, [])) for prompt in prompts()]
    calm_seconds = min(60.0, max(10.0, options.minutes * 6))
    calm, calm_health, before, _ = phase(server, options, calm_seconds, 0, reference)
    stormy, health, most, counts = phase(server, options, options.minutes * 60, options.hostile, reference)
    code = server.stop()
    mib = 1 << 20
    calm_itl, itl = percentile(calm["gaps"], 0.99), percentile(stormy["gaps"], 0.99)
    health_p99 = percentile(health["times"], 0.99)
    print(f"{options.streams} streams, {options.hostile} hostile clients, {options.minutes:g} minutes")
    print(f"answers           {stormy['done']} right, {len(stormy['failures'])} wrong or lost ({calm['done']} alone before)")
    print(f"between chunks    p50 {1e3 * percentile(stormy['gaps'], 0.5):.1f} ms, p99 {1e3 * itl:.1f} ms; "
          f"alone p50 {1e3 * percentile(calm['gaps'], 0.5):.1f} ms, p99 {1e3 * calm_itl:.1f} ms: {itl / calm_itl:.2f} times")
    print(f"/health           p50 {1e3 * percentile(health['times'], 0.5):.1f} ms, p99 {1e3 * health_p99:.1f} ms, "
          f"longest {1e3 * max(health['times']):.1f} ms; alone p99 {1e3 * percentile(calm_health['times'], 0.99):.1f} ms")
    print(f"resident memory   {before / mib:.0f} MiB before, at most {most / mib:.0f} MiB")
    print("hostile requests  " + ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    wrong = [*stormy["failures"], *calm["failures"], *health["failures"], *calm_health["failures"]]
    if code != 0:
        wrong.append(f"exit code {code}")
    if health_p99 > options.health_ms / 1e3:
        wrong.append(f"/health takes more than {options.health_ms} ms")
    if itl > options.itl_ratio * calm_itl:
        wrong.append(f"the time between chunks is more than {options.itl_ratio} times that without hostile clients")
    if most - before > options.memory_mib * mib:
        wrong.append(f"the memory grew by more than {options.memory_mib} MiB")
    for line in wrong[:20]:
        print("WRONG:", line)
    sys.exit(1 if wrong else 0)


main()
