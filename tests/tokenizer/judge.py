"""What others say is right: HF tokenizers, llama.cpp's vocabularies and jinja2.

usage: judge.py templates|vocabularies|reasoner OUT.json
The vocabularies and templates are those inside the source package of llama-cpp-python, which is fetched from
PyPI once, unpacked and never run; they are kept in $ZIPAGE_CACHE (default ~/.cache/zipage).
"""
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
from datetime import datetime
from pathlib import Path

VERSION = "0.3.36"
SOURCE = Path(__file__).resolve().parents[2]


def models():
    cache = Path(os.environ.get("ZIPAGE_CACHE") or Path.home() / ".cache" / "zipage")
    folder = cache / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp" / "models"
    if (folder / "complete").exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"llama_cpp_python-{VERSION}.tar.gz"
    if not archive.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                        "llama-cpp-python", f"llama-cpp-python=={VERSION}", "-d", str(cache)], check=True)
    prefix = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models/"
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.startswith(prefix) and ".." not in member.name:
                tar.extract(member, cache)
    (folder / "complete").touch()
    return folder


# Chat templates

def environment():
    """As transformers sets jinja2 up."""
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

        def _support(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda text: datetime.now().strftime(text)
    return env


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather.\nUse it \"often\" <&'é🦙>.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city", "enum": ["Paris", "Zürich"]},
            "days": {"type": "integer", "description": "How many", "default": 3},
            "options": {"type": "object", "properties": {"metric": {"type": "boolean"}}},
            "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["city"]},
        "return": {"type": "object", "properties": {"temp": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "no_args", "description": "Nothing",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    user = {"role": "user", "content": "Hello, wörld! 🦙\n  How are you? "}
    system = {"role": "system", "content": "You are  helpful.\n"}
    answer = {"role": "assistant", "content": " I am <fine>, & you?\n"}
    thought = {"role": "assistant", "content": "<think>\nLet me think.\n</think>\n\nFine."}
    reasoned = {"role": "assistant", "content": "Fine.", "reasoning_content": "Let me think.\nTwice."}
    parts = {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}]}
    args = {"city": "Paris", "days": 2, "x": [1, 2.5, None, True], "nested": {"a": "b\"c"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", args)]}
    asks_empty = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", args)]}
    asks_text = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", json.dumps(args))]}
    asks_two = {"role": "assistant", "content": "Two.", "tool_calls": [
        call("get_weather", {"city": "Zürich"}), call("no_args", {}, "call00002")]}
    result = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"}
    second = dict(result, content="nothing", name="no_args", tool_call_id="call00002")
    yield "user", [user], {}
    yield "system", [system, user], {}
    yield "turns", [system, user, answer, {"role": "user", "content": "And?"}], {}
    yield "long", [user, answer, user, thought, user, answer, user], {}
    yield "thought", [user, thought, {"role": "user", "content": "And?"}], {}
    yield "reasoning", [system, user, reasoned, {"role": "user", "content": "And?"}], {}
    yield "reasoning-last", [user, reasoned], {}
    yield "parts", [system, parts], {}
    yield "assistant-last", [user, answer], {}
    yield "two-users", [user, user], {}
    yield "thinking-off", [system, user], {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}
    yield "thinking-on", [user], {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}
    yield "tools", [system, user], {"tools": TOOLS}
    yield "tools-no-system", [user], {"tools": TOOLS}
    for name, ask in (("none", asks), ("empty", asks_empty), ("text", asks_text)):
        yield f"tool-call-{name}", [user, ask, result], {"tools": TOOLS}
        yield f"tool-turns-{name}", [system, user, ask, result, answer, user], {"tools": TOOLS}
    yield "tool-two", [user, asks_two, result, second, answer, user], {"tools": TOOLS}
    yield "tool-reasoning", [user, dict(asks_empty, reasoning_content="Need it."), result], {"tools": TOOLS}
    yield "tool-call-last", [user, asks_empty], {"tools": TOOLS}
    yield "empty", [], {}


# What real templates use little: each is rendered with the conversations' first.
SNIPPETS = [
    "{{ messages[0].role }}|{{ messages[-1]['content'][:5] }}|{{ messages[5] is defined }}|{{ nope }}|{{ 'a' if nope else 'b' }}",
    "{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% else %}none{% endfor %}",
    "{% for k, v in {'a': 1, 'b': [1, 'x'], 'c': none}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'a': {'b': 1.0}} }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }},{{ b }},{{ c }},{{ varargs }},{{ kwargs }}]{% endmacro %}{{ m(1) }}{{ m(1, 3, 4, 5, z=6) }}{{ m(b=1, a=0) }}",
    "{% macro w() %}<{{ caller('q') }}>{% endmacro %}{% call(x) w() %}in {{ x }}{% endcall %}",
    "{% set x %} block {{ 1 + 2 }} {% endset %}{{ x | trim | upper }}{% filter upper %}abc{% endfilter %}",
    "{% set x = 1 %}{% for i in range(2) %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 7 %}{% endif %}{{ x }}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "  {% if true %}  \n  a\n  {%- endif %}  \n  {# c #}\n b {{- ' x ' -}} \n c\n{%+ if true %}d{% endif %}\n\n",
    "a\n{% raw %}{{ x }}{% if %}{% endraw %}\nb {%- raw -%}  y  {%- endraw -%} z",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 5 % 3.5 }}",
    "{{ 'abc'[::-1] }}{{ 'häß🦙x'[1:4] }}{{ [1,2,3,4][::2] }}{{ [1,2,3,4][-2:] }}{{ (1,2)[0] }}{{ 'abc'[-1] }}",
    "{{ 'a,b,,c'.split(',') }}{{ ' a  b c '.split() }}{{ 'a b c d'.split(' ', 1) }}{{ 'a b c'.rsplit(None, 1) }}{{ 'x\\ny\\r\\nz'.splitlines() }}",
    "{{ ' xx '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'abc'.find('c') }}",
    "{{ 'hello world'.title() }}{{ 'hello-world foo'|title }}{{ 'hELLO'|capitalize }}{{ 'ab'.center(7, '*') }}{{ 'x'.zfill(3) }}{{ 'ß'.upper() }}",
    "{{ '%s-%d-%.2f-%5s|%-5s|' % ('a', 3, 2.5, 'x', 'y') }}{{ '{} {1} {a}'.replace('{} ', '').format('p', 'q', a='r') }}{{ '{:>5}|{:<5}|{:.2f}|{:03d}'.format('a', 'b', 1.239, 7) }}",
    "{{ [3, 1, 2]|sort }}{{ ['b', 'A', 'c']|sort|join('-') }}{{ [1, 2, 2, 3]|unique|list }}{{ [1, 2, 3]|sum }}{{ ['a', 'B']|map('lower')|list }}{{ [1, 5, 2]|max }}",
    "{{ messages|map(attribute='role')|list }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('role', 'in', ['user'])|list }}",
    "{{ [1, 2, 3, 4, 5]|batch(2)|list }}{{ [1, 2, 3, 4, 5]|slice(2)|list }}{{ [1, 2, 3]|select('odd')|list }}{{ [0, 1]|reject|list }}{{ 'abc'|reverse }}{{ [1,2]|reverse|list }}",
    "{{ {'b': 1, 'a': 2}|dictsort }}{{ {'b': 1}|items|list }}{{ {'x': [1, {'y': 'é<>&'}], 'n': none, 't': true, 'f': 1.0}|tojson }}{{ [1, [2, {}], []]|tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 'ü'}|tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}{{ 'a\\tb\"\\\\\\n\\x07'|tojson }}{{ ['a\\'b', 'c\"d', 'e\\n', 'ü'] }}",
    "{{ none|default('d') }}{{ nope|default('d') }}{{ ''|default('d', true) }}{{ '12'|int + 1 }}{{ 'x'|int(5) }}{{ '2.7'|int }}{{ '1.5'|float }}{{ 2.5|round }}{{ 3.567|round(1) }}{{ -3|abs }}",
    "{{ 'a\\nb\\n\\nc'|indent(2) }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent('>', blank=true) }}|{{ 'a b c'|wordcount }}|{{ '<a href=\"x\">'|e }}",
    "{{ 1 is number }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is sequence }}{{ [] is iterable }}{{ none is none }}{{ true is boolean }}{{ 1 is integer }}{{ 1.0 is float }}{{ 4 is divisibleby 2 }}{{ 3 is odd }}{{ 'a' is in ['a'] }}{{ nope is undefined }}",
    "{{ 1 < 2 < 3 }}{{ 1 == 1.0 }}{{ 'a' in 'abc' }}{{ 'x' not in ['a'] }}{{ not true or true }}{{ [1] == [1] }}{{ (1,) == [1] }}{{ 'a' < 'b' }}{{ 1 and 2 }}{{ 0 or 'x' }}",
    "{{ messages[0].items()|list|length }}{{ messages[0].get('nope', 'dflt') }}{{ messages[0].keys()|list }}{{ messages[0].values()|list|length }}{{ {'items': 5}['items'] }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% generation %}gen{% endgeneration %}{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}",
    "{% for r in [[1, [2, [3]]]] recursive %}{% if r is iterable %}<{{ loop(r) }}>{% else %}{{ r }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for i in 'añb' %}{{ loop.cycle('x', 'y') }}{{ i }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(i) }}{{ loop.revindex0 }} {% endfor %}",
    "{% set a, b = 1, 'x' %}{{ b }}{{ a }}{% set t = (1, 2) %}{{ t }}{{ () }}{{ (1,) }}{{ [] }}{{ {} }}{{ dict(a=1, b=2) }}{{ range(3)|list }}",
    "{{ 'x' if false }}|{{ (1 if true else 2) + 1 }}|{{ [1, 2]|length > 1 }}|{{ 'a' 'b' }}|{{ 'é'|length }}|{{ 10 - 2 * 3 }}|{{ -2 ** 2 }}|{{ 'ab' * 2 }}|{{ [0] * 3 }}",
    "{% if messages|selectattr('role', 'eq', 'nobody') %}always{% endif %}{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b",
    "{{ 'A1'.isalnum() }}{{ '12'.isdigit() }}{{ ' '.isspace() }}{{ 'ab'.islower() }}{{ 'x-y-z'.partition('-') }}{{ 'x-y-z'.rpartition('-') }}{{ '-'.join(['a', 'b']) }}{{ 'aaa'.count('a') }}{{ 'xay'.removeprefix('x').removesuffix('y') }}",
    "{{ [{'n': 'b', 'v': 1}, {'n': 'a', 'v': 2}]|sort(attribute='n')|map(attribute='v')|join(',') }}{% for g, l in [{'k': 1, 'v': 2}, {'k': 1, 'v': 3}]|groupby('k') %}{{ g }}{{ l }}{% endfor %}",
    "{{ messages[0]['content'] | replace('\\n', ' ') | truncate(9) }}{{ 'caf\\u00e9 \\x41' }}{{ 'a\\\nb' }}{{ '%s' | format('z') }}{{ 1_000 }}",
    "{{ '<a>'|safe + '<b>' }}{{ '<'|e + '>'|e|e }}{{ '<a>'|safe ~ '<b>' }}{{ 'x'|e is escaped }}{{ ['<']|join('>') }}",
    "line1\r\nline2\r{{ 'x' }}\n{%- set y = 1 -%}\n  {{ y }}   \n{#- gone -#}\n  end\n",
]


def templates():
    env = environment()
    cases, skipped = [], []
    sources = [(p.name, p.read_text(encoding="utf-8")) for p in sorted((models() / "templates").glob("*.jinja"))]
    sources += [(f"snippet {i}", text) for i, text in enumerate(SNIPPETS)]
    rendered = set()
    for name, source in sources:
        try:
            template = env.from_string(source)
        except Exception as error:  # what jinja2 does not take is not asked for
            skipped.append(f"{name}: {error}")
            continue
        for title, messages, options in conversations():
            for generate in (False, True):
                extra = {k: v for k, v in options.items() if k != "tools"}
                variables = dict(extra, messages=messages, tools=options.get("tools"), documents=None,
                                 add_generation_prompt=generate, bos_token="<s>", eos_token="</s>")
                case = {"name": f"{name} / {title} / {'generate' if generate else 'closed'}", "source": source,
                        "messages": json.dumps(messages), "extra": json.dumps(extra), "generate": generate,
                        "tools": json.dumps(options["tools"]) if options.get("tools") else ""}
                try:
                    case["expected"] = template.render(**variables)
                    rendered.add(name)
                except Exception as error:
                    case["error"] = str(error)
                cases.append(case)
            if name.startswith("snippet"):
                break
    return {"cases": cases, "skipped": skipped, "rendered": len(rendered), "templates": len(sources)}


# Tokens

def read_metadata(path):
    """The key-value part of a GGUF file."""
    data = path.read_bytes()
    at = 0
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(fmt):
        nonlocal at
        value = struct.unpack_from("<" + fmt, data, at)[0]
        at += struct.calcsize("<" + fmt)
        return value

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            item, count = take("I"), take("Q")
            return [value(item) for _ in range(count)]
        return take(formats[kind])

    at = 8
    take("Q")
    out = {}
    for _ in range(take("Q")):
        key = text()
        out[key] = value(take("I"))
    return out


GPT2_SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = dict(GPT2_SPLIT, use_regex=False)


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = "[一-龥ࠀ-一가-퟿]+"
# Vocabulary file, pre-tokenizer steps, normalizer, ignore_merges, "pre" of the GGUF file if another.
FAMILIES = [
    ("gpt-2", [GPT2_SPLIT], None, False),
    ("starcoder", [{"type": "Digits", "individual_digits": True}, GPT2_SPLIT], None, False),
    ("qwen2", [split(CONTRACTIONS + r"\p{N}" + REST), BYTES], {"type": "NFC"}, False),
    ("llama-bpe", [split(CONTRACTIONS + r"\p{N}{1,3}" + REST), BYTES], None, True),
    ("deepseek-coder", [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN),
                        {"type": "Digits", "individual_digits": True}, BYTES], None, False),
    # No vocabulary of these comes along: another one's tokens, cut by their patterns.
    ("qwen2:gpt-4o", [split(GPT4O), BYTES], None, False),
    ("qwen2:deepseek-v3", [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3), BYTES], None, False),
    ("gpt-2:smollm", [{"type": "Digits", "individual_digits": True}, GPT2_SPLIT], None, False),
]


def byte_level_json(meta, steps, normalizer, ignore_merges):
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": t, "special": k != 4, "normalized": False, "single_word": False, "lstrip": False,
              "rstrip": False} for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (2, 3, 4)]
    vocab = {t: i for i, t in enumerate(tokens)}
    return {"version": "1.0", "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": None,
            "decoder": GPT2_SPLIT,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": ignore_merges, "vocab": vocab,
                      "merges": [m.split(" ") for m in meta["tokenizer.ggml.merges"]]}}


def sentencepiece_json(meta):
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    scores = meta["tokenizer.ggml.scores"]
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        if kind != 1:
            continue
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None and kinds[left] == 1 and kinds[right] == 1:
                merges.append((-scores[i], left, right))
    merges.sort(key=lambda m: m[0])
    added = [{"id": i, "content": t, "special": True, "normalized": False, "single_word": False, "lstrip": False,
              "rstrip": False} for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (2, 3)]
    return {"version": "1.0", "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": ids, "merges": [[tokens[l], tokens[r]] for _, l, r in merges]}}


def texts():
    """Varied text: prose, code, scripts, white space, digits, broken words, specials, random characters."""
    rng = random.Random(20240229)
    pieces = ["Hello", " world", "'s", "'LL", "don't", " I'VE", "  ", "\n", "\n\n", "\t", " \n ", "\r\n", "3", "12345", " 1,000.50",
              "é", "e\u0301", "Å", "ﬁ", "中文字", "日本語テキスト", "한국어", "привет", "مرحبا", "हिन्दी", "ไทย", "🦙", "👩‍👩‍👧",
              "\u00a0", "\u180e", "\u200b", "\u3000", "\u2028", "\u0085", "ſ", "K", "²³", "Ⅷ", "½", "!!!", " ?!", "---", "://", "_x_",
              "<|endoftext|>", "<s>", "</s>", "<|im_start|>", "camelCaseWord", "XMLHttpRequest", "a" * 70, "ab" * 60, " " * 40, "=" * 90,
              "antidisestablishmentarianism", "def f(x):\n    return x**2", "▁", "▁▁", "\x00", "\x7f", "~`@#$%^&*()", "“quoted”", "naïve", "ĠĊ"]
    out = ["", " ", "a", "\n", *pieces]
    for _ in range(150):
        out.append("".join(rng.choice(pieces) for _ in range(rng.randint(1, 30))))
    for _ in range(60):
        pool = rng.choice([(0x20, 0x7E), (0x20, 0x24F), (0x300, 0x52F), (0x900, 0xDFF), (0x2000, 0x2BFF), (0x3040, 0x9FFF), (0x1F300, 0x1FAFF)])
        out.append("".join(chr(rng.randint(*pool)) for _ in range(rng.randint(1, 60))))
    for path in ("README.md", "LICENSE", "src/base/thread_pool.h"):
        if (SOURCE / path).exists():
            out.append((SOURCE / path).read_text(encoding="utf-8")[:20000])
    return out


def judged(tokenizer, rng, size):
    cases = []
    for text in texts():
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    decoded = []
    for _ in range(100):
        ids = [rng.randrange(size) for _ in range(rng.randint(1, 20))]
        decoded.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True)})
    return {"cases": cases, "decoded": decoded}


def vocabularies(folder):
    from tokenizers import Tokenizer
    out = {"files": [], "outs": []}
    for path in sorted(models().glob("*.gguf.out")):
        name = path.name[len("ggml-vocab-"):-len(".gguf.out")]
        if name in ("bert-bge", "nomic-bert-moe"):
            continue  # WordPiece and unigram: not BPE
        gguf = path.with_suffix("")
        inputs = Path(str(gguf) + ".inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
        lines = path.read_text().split("\n")
        cases = [{"text": t, "ids": [int(i) for i in l.split()]} for t, l in zip(inputs, lines)]
        out["outs"].append({"name": name, "gguf": str(gguf), "cases": cases})
    rng = random.Random(7)
    families = [(name, byte_level_json, rest) for name, *rest in FAMILIES] + [("llama-spm", sentencepiece_json, [])]
    for name, make, rest in families:
        vocab, _, pre = name.partition(":")
        gguf = models() / f"ggml-vocab-{vocab}.gguf"
        meta = read_metadata(gguf)
        document = make(meta, *rest)
        target = folder / name.replace(":", "_")
        target.mkdir(parents=True, exist_ok=True)
        (target / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        tokenizer = Tokenizer.from_str(json.dumps(document))
        size = len(meta["tokenizer.ggml.tokens"])
        out["files"].append({"name": name, "gguf": str(gguf), "pre": pre, "folder": str(target),
                             **judged(tokenizer, rng, size)})
    return out


def reasoner():
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(SOURCE / "models" / "reasoner-16m" / "tokenizer.json"))
    return judged(tokenizer, random.Random(3), tokenizer.get_vocab_size())


# Tokens that stand in files beside tokenizer.json

def companions(folder):
    """Folders whose companions name tokens that tokenizer.json lacks, and what transformers makes of texts."""
    import shutil

    from transformers import AutoTokenizer
    base = SOURCE / "models" / "reasoner-16m"
    config = json.loads((base / "tokenizer_config.json").read_text())
    known = {k: v for k, v in config.items() if k != "added_tokens_decoder"}
    listed = json.loads((base / "tokenizer.json").read_text())["added_tokens"]

    def token(content, **flags):
        return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False,
                "special": True, **flags}

    own = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in listed}
    first = max(t["id"] for t in listed) + 1
    files = {
        "decoder": {"tokenizer_config.json": {**known, "added_tokens_decoder": {
            **own, str(first): token("<tool>"), str(first + 1): token("<new>", lstrip=True),
            str(first + 2): token("<soft>", special=False, rstrip=True),
            str(first + 3): token("word", single_word=True, special=False)}}},
        "other id": {"tokenizer_config.json": {**known, "added_tokens_decoder": {**own, "900": token("<tool>")}}},
        "other flags": {"tokenizer_config.json": {**known, "added_tokens_decoder": {
            **own, "259": token("<think>", special=False, lstrip=True, rstrip=True)}}},
        "a token of the vocabulary": {"tokenizer_config.json": {**known, "added_tokens_decoder": {
            **own, "97": token("a")}}},
        "named": {"tokenizer_config.json": {**known, "pad_token": "<tool>", "image_token": "<new>",
                                            "added_tokens_decoder": own}},
        "further": {"tokenizer_config.json": {**known, "additional_special_tokens": ["<tool>", "<think>"],
                                              "added_tokens_decoder": own}},
        "extra": {"tokenizer_config.json": {**known, "extra_special_tokens": ["<new>", "<tool>"],
                                            "added_tokens_decoder": own}},
        "map": {"tokenizer_config.json": known,
                "special_tokens_map.json": {"pad_token": token("<tool>"), "eos_token": "<new>",
                                            "additional_special_tokens": ["<soft>"]}},
        "old list": {"tokenizer_config.json": known,
                     "added_tokens.json": {"<new>": first + 1, "<tool>": first, "<think>": 259}},
        "old list and map": {"tokenizer_config.json": known, "special_tokens_map.json": {"pad_token": "<new>"},
                             "added_tokens.json": {"<soft>": first, "<new>": first + 1}},
        "old files that do not count": {"tokenizer_config.json": {**known, "added_tokens_decoder": own},
                                        "special_tokens_map.json": {"pad_token": "<tool>"},
                                        "added_tokens.json": {"<new>": first}},
    }
    texts = ["<tool>hi", "a  <new> b", "x <soft>  y", "words word sword", "<think>a</think>", "plain",
             " <think> ", "<|im_end|><tool><new>", "<new><soft>", "a"]
    out = []
    for name, contents in files.items():
        target = folder / name.replace(" ", "_")
        target.mkdir()
        shutil.copy(base / "tokenizer.json", target)
        for file, content in contents.items():
            (target / file).write_text(json.dumps(content), encoding="utf-8")
        tokenizer = AutoTokenizer.from_pretrained(target)
        cases = []
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                          "plain": tokenizer.decode(ids, skip_special_tokens=True)})
        out.append({"name": name, "folder": str(target), "cases": cases, "eos": tokenizer.eos_token_id})
    return out


def main():
    task, target = sys.argv[1], Path(sys.argv[2])
    result = {"templates": templates, "vocabularies": lambda: vocabularies(target.parent), "reasoner": reasoner,
              "companions": lambda: companions(target.parent)}[task]()
    target.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
