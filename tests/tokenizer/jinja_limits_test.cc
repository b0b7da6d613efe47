// Templates that are wrong, or hostile, fail with an error; they never hang, crash or fill the
// memory.
#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/jinja/template.h"

namespace zipage::jinja {
namespace {

std::string render(const std::string& source, const Limits& limits = {}) {
  DictBuilder variables;
  variables.set("x", Value::string("abc"));
  return Template(source).render(variables.finish(), 0, limits);
}

std::string error_of(const std::string& source, const Limits& limits = {}) {
  try {
    return "renders: " + render(source, limits).substr(0, 100);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaErrors, NameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb{{ x", "line 2"},
      {"{% if x %}", "endif"},
      {"{% for %}", "a name"},
      {"\n\n{{ x y }}", "line 3"},
      {"{{ x.y.z }}", "no attribute 'y'"},
      {"{{ nope.y }}", "'nope' is undefined"},
      {"{{ x + 1 }}", "unsupported operand"},
      {"{{ x | nofilter }}", "nofilter"},
      {"{{ x is notest }}", "notest"},
      {"{% nothing %}", "nothing"},
      {"{% endif %}", "unexpected tag"},
      {"{% break %}", "outside of a loop"},
      {"{{ 'abc }}", "string has no end"},
      {"{{ (1] }}", "unexpected ']'"},
      {"{# c", "comment"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ raise_exception('roles must alternate') }}", "roles must alternate"},
      {"{% set l = [] %}{{ l.append(1) }}", "unsafe"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "not more than 1"},
      {"{{ range(10, 0, 0) }}", "zero"},
      {"{{ [1, 'a']|sort }}", "ordered"},
      {"{{ none|length }}", "len()"},
      {"{{ x[1, :2] }}", "a slice inside a tuple"},  // found by fuzzing
      {"{{ x[:2, 1] }}", "a slice inside a tuple"},
  };
  for (const auto& [source, wanted] : cases) {
    const std::string error = error_of(source);
    EXPECT_NE(error.find(wanted), std::string::npos) << source << ": " << error;
    EXPECT_NE(error.find("line "), std::string::npos) << source << ": " << error;
  }
}

TEST(JinjaLimits, HostileTemplatesEnd) {
  const std::string cases[] = {
      repeated("{{ ", 1) + repeated("(", 10000) + repeated(")", 10000) + " }}",
      "{{ " + repeated("[", 100000),
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ x" + repeated(".y", 100000) + " }}",
      "{{ 1" + repeated(" + 1", 100000) + " }}",
      "{{ x" + repeated("|upper", 100000) + " }}",
      "{{ x" + repeated(" if x else x", 100000) + " }}",
      repeated("{% if x %}", 100000),
      "{% if x %}" + repeated("{% elif x %}", 100000) + "{% endif %}",
      repeated("{% for a in x %}", 40) + repeated("{% endfor %}", 40),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 10000000000 }}",
      "{{ [0] * 10000000000 }}",
      "{{ range(1000000000) }}",
      "{{ 'x'.center(10000000000) }}",
      "{{ '%10000000000d' % 1 }}",
      "{{ '{:>10000000000}'.format(1) }}",
      "{{ 'a'|indent(10000000000) }}",
      "{{ x.zfill(10000000000) }}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}",
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(1000) %}"
      "{% set ns.s = ns.s.replace('a', 'aaaaaaaa') %}{% endfor %}",
      "{{ 2 ** 1000 }}",
  };
  for (const std::string& source : cases) {
    const std::string error = error_of(source);
    EXPECT_FALSE(error.starts_with("renders")) << source.substr(0, 100) << ": " << error;
  }
}

// 2^60 nodes if walked as a tree.
const std::string kShared =
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
const std::string kSharedTuples =
    "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}"
    "{% set ns.b = (ns.b, ns.b) %}{% endfor %}";
const std::string kSharedDicts =
    "{% set ns = namespace(a={}, b={}) %}{% for i in range(60) %}"
    "{% set ns.a = {'x': ns.a, 'y': ns.a} %}{% set ns.b = {'x': ns.b, 'y': ns.b} %}{% endfor %}";
// Texts of a million bytes.
const std::string kLong = "{% set a = 'a' * 1000000 %}{% set ab = 'a' * 500000 ~ 'b' %}";
const std::string kMany = "{% for i in range(99999) %}{% for j in range(99) %}";
const std::string kEnd = "{% endfor %}{% endfor %}";

// Three thousand variables of one scope.
std::string many_variables() {
  std::string sets;
  for (int i = 0; i < 3000; ++i) sets += "{% set v" + std::to_string(i) + " = 0 %}";
  return sets;
}

// Each would take years, or all memory, if anything of it were not charged.
const std::string kEscapes[] = {
    kShared + "{{ ns.a == ns.b }}",
    kShared + "{{ ns.a < ns.b }}",
    kShared + "{{ ns.a is eq ns.b }}",
    kShared + "{{ ns.a }}",
    kShared + "{{ ns.a | string | length }}",
    kShared + "{{ ns.a | pprint }}",
    kShared + "{{ ns.a | tojson }}",
    kShared + "{{ '%s' % ns.a }}",
    kShared + "{{ '%r' % (ns.a,) }}",
    kShared + "{{ '{}'.format(ns.a) }}",
    kShared + "{{ '{!r:>5}'.format(ns.a) }}",
    kShared + "{{ [ns.a, ns.a] | join }}",
    kShared + "{{ ns.a ~ '' }}",
    kShared + "{{ ns.a in [ns.b] }}",
    kShared + "{{ [ns.b].index(ns.a) }}",
    kShared + "{{ [ns.b].count(ns.a) }}",
    kShared + "{{ [ns.a, ns.b] | sort }}",
    kShared + "{{ [ns.a, ns.b] | max }}",
    kShared + "{{ [{'k': ns.a}, {'k': ns.b}] | groupby('k') }}",
    kShared + "{{ [ns.a, ns.b] | map('upper') | list }}",
    kShared + "{{ raise_exception(ns.a) }}",
    kShared + "{% for i in [1, 2] %}{{ loop.changed(ns.a if i == 1 else ns.b) }}{% endfor %}",
    kSharedTuples + "{{ {ns.a: 1} }}",
    kSharedTuples + "{{ [ns.a, ns.b] | unique | list }}",
    kSharedTuples + "{{ ns.a == ns.b }}",
    kSharedDicts + "{{ ns.a == ns.b }}",
    kSharedDicts + "{{ ns.a | tojson(sort_keys=true) }}",
    kSharedDicts + "{{ ns.a | items | list }}",
    kLong + kMany + "{{ ab in a }}" + kEnd,
    kLong + kMany + "{% set x = a.find(ab) %}" + kEnd,
    kLong + kMany + "{% set x = a.rfind(ab) %}" + kEnd,
    kLong + kMany + "{% set x = a.count('aa') %}" + kEnd,
    kLong + kMany + "{% set x = a.replace('b', '') %}" + kEnd,
    kLong + kMany + "{% set x = a.upper() | lower | title %}" + kEnd,
    kLong + kMany + "{% set x = a | wordcount %}" + kEnd,
    kLong + kMany + "{% set x = a == a ~ '' %}" + kEnd,
    kLong + kMany + "{% set x = a.startswith(ab) %}" + kEnd,
    kLong + kMany + "{% set x = a[i] %}{% set x = a[::-1] %}" + kEnd,
    kLong + kMany + "{% set x = a.strip('ab') %}" + kEnd,
    kLong + kMany + "{% set x = a is lower %}" + kEnd,
    kLong + kMany + "{% set x = [1] | map(attribute=a) | list %}" + kEnd,
    kLong + "{% set u = range(99999) | map(attribute=a) | list %}",
    kLong + "{{ a.split('a') | map('center', 10000) | list | length }}",
    kLong + "{{ range(99999) | tojson(separators=(a, a)) }}",
    kLong + "{{ range(99999) | join(a) }}",
    kLong + "{{ a.join(a) }}",
    kLong + "{{ a | replace('a', a) }}",
    kLong + "{{ a.replace('', a) }}",
    kLong + "{{ a | list | sum(start='') }}",
    kLong + "{% for c in a %}{% for d in a %}{% endfor %}{% endfor %}",
    kLong + "{{ a | indent(100000, blank=true) }}{{ '\\n' * 1000000 | indent(1000, blank=true) }}",
    "{{ range(99999) | map('string') | sum(start='') }}",
    "{{ [[1]] * 9999 | sum(start=[]) }}{{ range(99999) | batch(1) | sum(start=[]) | length }}",
    kMany + "{% set x = '%.9999f' % 1e300 %}" + kEnd,
    kMany + "{% set x = '{:.9999f}'.format(1e300) %}" + kEnd,
    kMany + "{% set x = range(99999) %}" + kEnd,
    kMany + "{% set x = dict(a=i, b=j) %}{% set y = namespace(a=i) %}" + kEnd,
    kMany + "{% macro m() %}{% endmacro %}" + kEnd,
    kMany + "{% set x = strftime_now('%Y' * 1000) %}" + kEnd,
    kMany + "{% set x = nope_nope %}{% set y = x is defined %}" + kEnd,
    many_variables() + kMany + "{{ v2999 }}" + kEnd,
};

TEST(JinjaLimits, NothingEscapesTheBudget) {
  for (const std::string& source : kEscapes) {
    const auto start = std::chrono::steady_clock::now();
    // A tenth of the usual work, for the test's sake.
    const std::string error = error_of(source, {.max_steps = 500'000, .max_bytes = 128 << 20});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_FALSE(error.starts_with("renders")) << source.substr(0, 400) << ": " << error;
    EXPECT_LT(error.size(), 1000u);
    // On a machine that does other things as well, and with sanitizers.
    EXPECT_LT(seconds, 20.0) << source.substr(0, 400);
  }
}

TEST(JinjaLimits, DictsOfManyKeysAreFast) {
  DictBuilder dict;
  constexpr int kKeys = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kKeys; ++i) dict.set("key" + std::to_string(i), Value::integer(i));
  for (int i = 0; i < kKeys; ++i) dict.set(Value::integer(i), Value::integer(-i));
  const Value made = dict.finish();
  const auto& entries = made.get<DictObject>();
  EXPECT_EQ(entries.entries.size(), 2u * kKeys);
  EXPECT_EQ(entries.find("key999999")->as_int(), 999'999);
  EXPECT_EQ(entries.find(Value::floating(77.0))->as_int(), -77);
  EXPECT_EQ(entries.find("key1000000"), nullptr);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 30.0);
}

TEST(JinjaLimits, KeysAreEqualAsInPython) {
  EXPECT_EQ(
      render("{% set d = {1: 'a', 'x': 'b', (1, 'y'): 'c', none: 'd', 2.5: 'e'} %}"
             "{{ d[1.0] }}{{ d[true] }}{{ d['x'] }}{{ d[(1.0, 'y')] }}{{ d[none] }}{{ d[2.5] }}"
             "{{ d[(1,)] is undefined }}{{ [] in d }}"),
      "aabcdeTrueFalse");
  // The same once there are many.
  EXPECT_EQ(render("{% set ns = namespace(d={}) %}{% set d = dict(range(100)|map('string')|list|"
                   "batch(2)) %}{{ d['98'] }}{{ d['0'] }}{{ d['1'] is defined }}{{ d|length }}"),
            "991False50");
}

// A million characters, in every way that real templates handle a message.
TEST(JinjaLimits, ALongConversationRenders) {
  std::vector<Value> messages;
  const std::string text(5000, 'x');
  for (int i = 0; i < 200; ++i) {
    DictBuilder message;
    message.set("role", Value::string(i % 2 == 0 ? "user" : "assistant"));
    message.set("content", Value::string(" " + text + "<think>\n\xC3\xA9</think>\n" + text));
    messages.push_back(message.finish());
  }
  DictBuilder variables;
  variables.set("messages", Value::list(std::move(messages)));
  const Template parsed(
      "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'user' and "
      "ns.last < 0 %}{% set ns.last = (messages|length - 1) - loop.index0 %}{% endif %}{% endfor %}"
      "{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}"
      "{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
      "{% if c.startswith('<tool>') and c.endswith('</tool>') %}{{ c[6:-7] }}{% endif %}"
      "{{ '<' + m.role + '>' + c | replace('\\r', '') }}{{ m | tojson | length }}{% endfor %}");
  const auto start = std::chrono::steady_clock::now();
  const std::string prompt = parsed.render(variables.finish(), 0);
  EXPECT_GT(prompt.size(), 1'000'000u);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10.0);
}

TEST(JinjaLimits, TextsAreFoundFromBothEnds) {
  EXPECT_EQ(render("{% set n = 'abcabcabcabcabcabcabd' %}{% set t = n ~ n ~ 'x' ~ n ~ 'abcabc' %}"
                   "{{ t.find(n) }},{{ t.rfind(n) }},{{ t.rfind(n ~ 'y') }},{{ t.find('d', 30) }},"
                   "{{ t.rindex(n) }},{{ t.rpartition(n)[2] }},{{ t.rsplit(n)|length }},"
                   "{{ ''.rfind('') }},{{ 'ab'.rfind('') }},{{ 'ab'.find('', 2) }}"),
            "0,43,-1,41,43,abcabc,4,0,2,2");
}

TEST(JinjaLimits, CyclesThroughANamespaceAreHarmless) {
  EXPECT_EQ(
      render(
          "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.l|length }}"),
      "1");
}

TEST(JinjaScopes, AMacroOutlivesItsLoop) {
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for i in [7] %}{% set y = i %}"
             "{% macro m() %}{{ y }}{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
      "7");
}

}  // namespace
}  // namespace zipage::jinja
