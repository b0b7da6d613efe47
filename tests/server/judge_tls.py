"""httpx over TLS. usage: judge_tls.py FOLDER   (port.txt, cert.pem)"""
import pathlib
import ssl
import sys

import httpx

FOLDER = pathlib.Path(sys.argv[1])
PORT = int((FOLDER / "port.txt").read_text())
trust = ssl.create_default_context(cafile=str(FOLDER / "cert.pem"))
with httpx.Client(base_url=f"https://127.0.0.1:{PORT}", verify=trust) as http:
    assert http.get("/health").status_code == 200
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 5})
    assert answer.json()["choices"][0]["text"] == "hello", answer.text
    lines = []
    with http.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]" and len(lines) >= 2, lines
    # A body of several records.
    assert http.post("/tokenize", json={"prompt": "y" * 100000}).status_code == 400
    # Left in the middle.
    with http.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as stream:
        next(stream.iter_lines())
try:
    httpx.get(f"http://127.0.0.1:{PORT}/health", timeout=5)
    raise AssertionError("plain HTTP was answered on a TLS port")
except httpx.HTTPError:
    pass
