// Templates that are wrong, or hostile, fail with an error; they never hang, crash or fill the
// memory.
#include <gtest/gtest.h>
#include <string>

#include "base/error.h"
#include "tokenizer/jinja/template.h"

namespace zipage::jinja {
namespace {

std::string render(const std::string& source) {
  DictBuilder variables;
  variables.set("x", Value::string("abc"));
  return Template(source).render(variables.finish(), 0);
}

std::string error_of(const std::string& source) {
  try {
    return "renders: " + render(source).substr(0, 100);
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
