#!/usr/bin/env python3
"""Writes a small corpus for every fuzzer: FOLDER/NAME/* and, for languages with words, FOLDER/NAME.dict.

usage: make_seeds.py FOLDER   (standard library only; made from the repository's own model, problems and traces)
"""
import itertools
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "models/reasoner-16m"


def model_json(name):
    return json.loads((MODEL / name).read_text())


def first_lines(path, count, most_bytes=1500):
    with open(ROOT / path) as lines:
        return [line for line in itertools.islice(lines, 200) if len(line) <= most_bytes][:count]


def config_json():
    whole = model_json("config.json")
    small = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 4096}
    yield whole
    yield dict(small, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 1024}, mlp_bias=True)
    yield dict(small, rope_scaling={"type": "linear", "factor": 2.0}, head_dim=32, attention_bias=True)
    yield dict(small, rope_scaling={"type": "dynamic", "factor": 2.0}, torch_dtype="float16")
    yield dict(small, architectures=["Qwen2ForCausalLM"], model_type="qwen2", num_key_value_heads=2,
               use_sliding_window=False, sliding_window=4096, max_window_layers=2, eos_token_id=[1, 2],
               rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024,
                             "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False})
    yield dict(small, architectures=["MistralForCausalLM"], model_type="mistral", num_key_value_heads=2,
               sliding_window=None, dtype="float32", rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    yield dict(small, architectures=["Qwen3ForCausalLM"], model_type="qwen3", num_key_value_heads=1, head_dim=16,
               partial_rotary_factor=0.5, rms_norm_eps=1e-5, tie_word_embeddings=True)


def generation_config():
    yield model_json("generation_config.json")
    yield {"eos_token_id": 2, "bos_token_id": [1], "pad_token_id": -1, "do_sample": True, "temperature": 0.6, "top_k": 20,
           "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repetition_penalty": 1.1, "max_new_tokens": 256}


def tokenizer_json():
    whole = model_json("tokenizer.json")
    vocab = {token: i for i, token in enumerate(list(whole["model"]["vocab"])[:32] + ["a", "b", "c", "ab", "abc", "1"])}
    added = [{"id": len(vocab), "content": "<s>", "special": True, "lstrip": True},
             {"id": len(vocab) + 1, "content": "<t>", "normalized": True, "single_word": True, "rstrip": True}]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    bpe = {"type": "BPE", "vocab": vocab, "merges": ["a b", ["ab", "c"]]}
    base = dict(whole, added_tokens=added, model=bpe)
    yield base
    llama3 = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    yield dict(base, normalizer={"type": "NFC"}, model=dict(bpe, ignore_merges=True), pre_tokenizer={
        "type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": llama3}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True}, dict(byte_level, use_regex=False)]},
        post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [len(vocab)], "tokens": ["<s>"]}}}]})
    space = "\u2581"
    metaspace = {"type": "Metaspace", "replacement": space, "prepend_scheme": "first", "split": False}
    sp_vocab = {"<unk>": 0, "<0x0A>": 1, space: 2, "a": 3, "b": 4, space + "a": 5, "ab": 6}
    yield {"added_tokens": [{"id": 0, "content": "<unk>", "special": True}], "pre_tokenizer": metaspace,
           "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": space}, {
               "type": "Replace", "pattern": {"String": " "}, "content": space}]},
           "decoder": {"type": "Sequence", "decoders": [
               {"type": "Replace", "pattern": {"String": space}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
               {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
           "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": sp_vocab,
                     "merges": [f"{space} a", "a b"]}}
    yield dict(base, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "WhitespaceSplit"}, {"type": "Whitespace"}]},
        normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFKC"}, {
            "type": "Strip", "strip_left": True, "strip_right": True}]}, decoder={"type": "Metaspace"})


def tokenizer_config():
    config = model_json("tokenizer_config.json")
    yield dict(config, eos_token="</s>", pad_token={"content": "<s>", "lstrip": False})
    yield {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "add_bos_token": True,
           "add_eos_token": False, "chat_template": [{"name": "default", "template": "{{ messages }}"},
                                                     {"name": "tool_use", "template": "{{ tools | tojson }}"}]}


def safetensors():
    def file(header, data):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    tensor = lambda dtype, shape, begin, end: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    yield file({"__metadata__": {"format": "pt"}, "a.weight": tensor("BF16", [2, 4], 0, 16)}, bytes(range(16)))
    yield file({"x": tensor("F32", [2], 0, 8), "y": tensor("F16", [1, 1, 2], 8, 12), "z": tensor("F64", [1], 12, 20)},
               bytes(20))
    yield file({"empty": tensor("I8", [0, 3], 0, 0), "scalar": tensor("U8", [], 0, 1)}, b"\1")
    yield file({}, b"")


# GGUF's numbers of value types, with how each is packed.
GGUF_TYPES = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
              "f32": (6, "<f"), "bool": (7, "<?"), "string": (8, None), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}


def gguf_value(kind, value):
    if kind != "string":
        return struct.pack(GGUF_TYPES[kind][1], value)
    text = value.encode()
    return struct.pack("<Q", len(text)) + text


def gguf_file(metadata, tensors, version=3):
    """metadata: {key: (type, value or list)}; tensors: [(name, extents innermost first, ggml type, bytes of its data)]."""
    def entry(key, kind, value):
        number = GGUF_TYPES[kind][0]
        if not isinstance(value, list):
            return gguf_value("string", key) + struct.pack("<I", number) + gguf_value(kind, value)
        head = struct.pack("<IIQ", 9, number, len(value))
        return gguf_value("string", key) + head + b"".join(gguf_value(kind, item) for item in value)

    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    out += b"".join(entry(key, *pair) for key, pair in metadata.items())
    data = b""
    for name, extents, kind, content in tensors:
        out += gguf_value("string", name) + struct.pack("<I", len(extents))
        out += b"".join(struct.pack("<Q", extent) for extent in extents) + struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return out + bytes(-len(out) % 32) + data


# ggml's number, elements and bytes of a block.
PACKED = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
          "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
          "BF16": (30, 1, 2)}


def gguf_tensor(name, extents, kind):
    number, elements, size = PACKED[kind]
    count = 1
    for extent in extents:
        count *= extent
    return name, extents, number, bytes(i * 7 % 251 for i in range(count // elements * size))


def gguf_model(architecture, matrix, extra, hidden=32):
    keys = {"general.architecture": ("string", architecture), "general.alignment": ("u32", 32)}
    for name, value in {"embedding_length": hidden, "feed_forward_length": hidden, "block_count": 1, "context_length": 64,
                        "attention.head_count": 2, "attention.head_count_kv": 1}.items():
        keys[f"{architecture}.{name}"] = ("u32", value)
    keys[f"{architecture}.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    keys[f"{architecture}.rope.freq_base"] = ("f32", 10000.0)
    keys.update({key.replace("ARCH", architecture): value for key, value in extra.items()})
    half = hidden // 2
    tensors = [gguf_tensor("token_embd.weight", [hidden, 4], matrix), gguf_tensor("output_norm.weight", [hidden], "F32"),
               gguf_tensor("blk.0.attn_norm.weight", [hidden], "F32"), gguf_tensor("blk.0.ffn_norm.weight", [hidden], "F32")]
    for name, rows in {"attn_q": hidden, "attn_k": half, "attn_v": half, "attn_output": hidden, "ffn_gate": hidden,
                       "ffn_up": hidden, "ffn_down": hidden}.items():
        tensors.append(gguf_tensor(f"blk.0.{name}.weight", [hidden, rows], matrix))
    if architecture == "qwen2":
        tensors += [gguf_tensor(f"blk.0.attn_{x}.bias", [n], "F32") for x, n in (("q", hidden), ("k", half), ("v", half))]
    if architecture == "qwen3":
        tensors += [gguf_tensor(f"blk.0.attn_{x}_norm.weight", [half], "F32") for x in "qk"]
    return gguf_file(keys, tensors)


def gguf():
    yarn = {"ARCH.rope.scaling.type": ("string", "yarn"), "ARCH.rope.scaling.factor": ("f32", 4.0),
            "ARCH.rope.scaling.original_context_length": ("u32", 16)}
    ids = {"tokenizer.ggml.eos_token_id": ("u32", 2), "tokenizer.ggml.eot_token_id": ("u32", 3),
           "tokenizer.ggml.bos_token_id": ("u32", 1), "general.sampling.temp": ("f32", 0.7)}
    yield gguf_model("llama", "Q4_1", ids)
    yield gguf_model("qwen2", "Q8_0", yarn)
    yield gguf_model("qwen3", "Q5_0", {})
    yield gguf_model("llama", "BF16", {"ARCH.rope.scaling.type": ("string", "linear")})
    for kind in PACKED:
        shape = [256, 2] if PACKED[kind][1] == 256 else [32, 2]
        yield gguf_file({"general.name": ("string", kind), "n": ("u64", 1), "list": ("i16", [1, 2])},
                        [gguf_tensor("t", shape, kind)], version=2)


def gguf_vocab():
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "H", "e", "l", "o", "ll", "He", "\u2581w"]
    common = {"tokenizer.ggml.bos_token_id": ("u32", 1), "tokenizer.ggml.eos_token_id": ("u32", 2),
              "tokenizer.ggml.unknown_token_id": ("u32", 0), "tokenizer.ggml.add_bos_token": ("bool", True),
              "tokenizer.chat_template": ("string", model_json("tokenizer_config.json")["chat_template"])}
    yield gguf_file(dict(common, **{
        "tokenizer.ggml.model": ("string", "llama"), "tokenizer.ggml.tokens": ("string", tokens),
        "tokenizer.ggml.scores": ("f32", [-float(i) for i in range(len(tokens))]),
        "tokenizer.ggml.token_type": ("i32", [2, 3, 3, 6] + [1] * (len(tokens) - 4)),
        "tokenizer.ggml.add_space_prefix": ("bool", True)}), [])
    alphabet = list(model_json("tokenizer.json")["model"]["vocab"])
    for pre in ("gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "deepseek-coder", "deepseek-v3", "gpt-4o"):
        yield gguf_file(dict(common, **{
            "tokenizer.ggml.model": ("string", "gpt2"), "tokenizer.ggml.pre": ("string", pre),
            "tokenizer.ggml.tokens": ("string", ["<unk>", "<s>", "</s>", "H", "e", "l", "o", "He", "ll"] + alphabet[:40]),
            "tokenizer.ggml.token_type": ("i32", [3, 3, 4] + [1] * 46),
            "tokenizer.ggml.merges": ("string", ["H e", "l l"])}), [])


def jinja():
    yield model_json("tokenizer_config.json")["chat_template"]
    yield ("{%- set ns = namespace(n=0, last='') -%}{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 %}"
           "{{ loop.index0 ~ '/' ~ loop.length }}{% if loop.first and not loop.last %}{{ m.content[:3] | upper }}"
           "{% elif m.content is defined and 'l' in m.content %}{{ m.content.split('l') | join('-') }}{% else %}!{% endif %}"
           "{% endfor %}{{ ns.n }}")
    yield ("{% macro show(x, sep=', ') %}{{ x | map(attribute='role') | list | join(sep) }}{% endmacro %}"
           "{{ show(messages, sep='; ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}")
    yield "{{ {'a': [1, 2.5, none, true], 'b': {'c': \"x\\n\"}} | tojson(indent=2) }}{{ (1, 2)[0] // 3 % 4 ** 2 - -1 }}"
    yield "{% for i in range(3) %}{% for k, v in {'a': i}.items() %}{{ k }}={{ v }}{% endfor %}{% else %}none{% endfor %}"
    yield "{{ raise_exception('no') if not messages else strftime_now('%d %b %Y') }}{# comment #}{% raw %}{{ x }}{% endraw %}"
    yield ("{% set x %}block {{ 1 if false else 'two' }}{% endset %}{{ x | trim | replace('b', 'c') | default('d', true) }}"
           "{{ '%s-%05d' | format('a', 7) }}{% filter upper %}abc{% endfilter %}{{ [3, 1, 2] | sort | reverse | first }}")
    yield ("{% if messages[0]['content'] is string and messages is iterable and 1 is not none %}{{ messages[-1].role.title() }}"
           "{{ messages[0].get('x', 'y').strip().startswith('y') }}{% endif %}{% generation %}x{% endgeneration %}")
    yield "{% for m in messages recursive %}{{ loop.cycle('a', 'b') }}{% break %}{% endfor %}{{ dict(a=1) | items | list }}"


JINJA_WORDS = ("{{ }} {% %} {%- -%} {# #} for in endfor if elif else endif set endset macro endmacro call endcall filter "
               "endfilter raw endraw namespace( loop. loop.index recursive is defined none not and or true false range( "
               "| tojson | join | map( | selectattr( attribute= | length | default( messages role content .items() .split( "
               "** // ~ == != <= >= [:: ] [-1] | batch( | indent( | replace( *args **kwargs caller()").split(" ")


def chat_messages():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello \u00e9"},
                {"role": "user", "content": [{"type": "text", "text": "part"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for switches, n in ((b"\0", 1), (b"\1", 4), (b"\2", 2), (b"\2", 3)):
        yield switches + b"\0".join(json.dumps(part).encode() for part in (messages[:n], tools, {"enable_thinking": True}))


def problem_file():
    yield "".join(first_lines("bench/problems/reasoner-dev.jsonl", 2))
    yield '{"prompt": "1+1=", "answer": "2"}\n\n{"id": "x", "task": "t", "prompt": "\\u00e9", "answer": ""}\r\n'


def trace_file():
    yield "".join(first_lines("bench/traces/amc23-like.jsonl", 3))
    yield '{"prompt_tokens": 1, "output_tokens": 2, "age": 1}\n \n{"prompt_tokens": 5, "output_tokens": 16777216}'


def yaml_config():
    yield "kv-policy: paper\nkv_budget: 512\n--ignore-eos: true\npolicies: [peak, paper]\n"
    yield "# comment\nkv-policy: &p 'peak'\npolicies:\n  - *p\n  - |\n    text\n  - >-\n    folded\n"
    yield "---\n? kv-budget\n: !!int 0x10\n...\n---\n{kv-policy: \"a\\x41\\n\", <<: {kv-budget: 1}}\n"


def kv_trace():
    def varint(value):
        out = b""
        while value >= 0x80:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    def record(heads, keep, *rest, name=b"chatcmpl-1"):
        payload = varint(77) + varint(1) + varint(len(name)) + name
        payload += b"".join(map(varint, (7, 300, 1, 2, heads, 1000, keep, *rest)))
        for head in range(heads):
            payload += b"".join(varint(1 + (head + i) % 200) for i in range(keep)) + bytes(range(2 * keep))
        return struct.pack("<I", len(payload)) + payload

    yield b"ZPKVTR1\n"
    yield b"ZPKVTR1\n" + record(2, 3, 0, 64, 1000)
    yield b"ZPKVTR1\n" + record(1, 40, 30, 64, 1000) + record(2, 1, 0, 0, 0, name=b"")


def http():
    def request(method, path, body=None, *headers, version="1.1"):
        head = [f"{method} {path} HTTP/{version}", "Host: x", *headers]
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None and not any("ransfer-" in header for header in headers):
            head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + data

    chat = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    completion = {"model": "fake", "prompt": "hi", "max_tokens": 3}
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "n": 2, "stop": ["lo"], "logprobs": 2,
                "presence_penalty": 0.1, "frequency_penalty": 0.2, "repetition_penalty": 1.1, "logit_bias": {"65": 1.5},
                "min_tokens": 1, "ignore_eos": True, "kv_budget": 256, "kv_policy": "peak", "user": "u", "echo": True}
    yield request("POST", "/v1/chat/completions", chat)
    yield request("POST", "/v1/chat/completions", dict(chat, stream=True, stream_options={"include_usage": True}))
    yield request("POST", "/v1/chat/completions", dict(chat, logprobs=True, top_logprobs=2, chat_template_kwargs={"a": 1},
                                                       tools=[], tool_choice="none", response_format={"type": "text"}))
    yield request("POST", "/v1/completions", completion) + request("GET", "/metrics")
    yield request("POST", "/v1/completions", dict(completion, **sampling), "Accept: text/event-stream")
    yield request("POST", "/v1/completions", dict(completion, prompt=[[104, 105], [3]], stream=True))
    yield request("POST", "/tokenize", {"prompt": "hi", "return_token_strs": True, "add_special_tokens": False})
    yield request("POST", "/tokenize", {"messages": chat["messages"]}) + request("POST", "/detokenize", {"tokens": [104, 105]})
    for path in ("/v1/models", "/v1/models/fake", "/health", "/ping", "/version", "/load", "/openapi.json"):
        yield request("GET", path, None, "Connection: keep-alive", "Authorization: Bearer k")
    yield request("OPTIONS", "/v1/completions", None, "Origin: http://a.example", "Access-Control-Request-Method: POST")
    yield request("HEAD", "/health", version="1.0") + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    text = json.dumps(completion).encode()
    chunks = b"%x\r\n%s\r\n%x;ext=1\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (9, text[:9], len(text) - 9, text[9:])
    yield request("POST", "/v1/completions", chunks, "Transfer-Encoding: chunked", "Expect: 100-continue")


SEEDS = {maker.__name__: maker for maker in (
    config_json, generation_config, tokenizer_json, tokenizer_config, safetensors, gguf, gguf_vocab, jinja, chat_messages,
    problem_file, trace_file, yaml_config, kv_trace, http)}
WORDS = {
    "jinja": JINJA_WORDS,
    "yaml_config": ["kv-policy:", "kv_budget:", "- ", "&a", "*a", "!!str", "|\n", ">-\n", "? ", ": ", "---\n", "...\n", "<<", "%YAML"],
    "http": ["HTTP/1.1", "\r\n\r\n", "Content-Length: ", "Transfer-Encoding: chunked", "Connection: close", "POST ", "GET ",
             "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "\"stream\": true", "\"messages\"",
             "\"prompt\"", "\"stop\"", "\"n\": 2", "\"logprobs\"", "\"stream_options\"", "\"kv_budget\"", "\"seed\""],
}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for name, maker in SEEDS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(maker()):
            if isinstance(seed, dict):
                seed = json.dumps(seed, ensure_ascii=False, separators=(",", ":"))
            (folder / name / f"seed-{i:02d}").write_bytes(seed if isinstance(seed, bytes) else seed.encode())
    for name, words in WORDS.items():
        escaped = ["".join(f"\\x{byte:02x}" for byte in word.encode()) for word in words]
        (folder / f"{name}.dict").write_text("".join(f'"{word}"\n' for word in escaped))


if __name__ == "__main__":
    main()
