// Messages are handed to a template in the form that it reads.
#include "tokenizer/chat_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace zipage {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string render(const std::string& source,
                   const std::string& messages,
                   ChatContentFormat format = ChatContentFormat::kAuto,
                   bool generate = false) {
  ChatOptions options;
  options.add_generation_prompt = generate;
  options.content_format = format;
  return ChatTemplate(source, "template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}})
      .render(messages, options);
}

const std::string kString = R"([{"role":"user","content":"Hello"}])";
const std::string kParts = R"([{"role":"user","content":[{"type":"text","text":"Hello"}]}])";
const std::string kTwoParts =
    R"([{"role":"user","content":[{"type":"text","text":"Hello"},{"type":"text","text":"there"}]}])";

// Ways to read parts. Each shows "Hello" whatever the client sends.
const std::vector<std::string> kPartReaders = {
    "{% for m in messages %}<{{ m['content'][0]['text'] }}>{% endfor %}",
    "{% for m in messages %}<{{ m.content[0].text }}>{% endfor %}",
    "{% for m in messages %}<{{ (m.content | first).text }}>{% endfor %}",
    "{% for m in messages %}<{% for p in m['content'] %}{{ p['text'] }}{% endfor %}>{% endfor %}",
    "{% for m in messages %}<{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}>"
    "{% endfor %}",
    "{% for m in messages %}{% set c = m.content %}<{% for p in c %}{{ p.text|trim }}{% endfor %}>"
    "{% endfor %}",
    "{% for m in messages %}<{{ m.content | selectattr('type', 'equalto', 'text') "
    "| map(attribute='text') | join }}>{% endfor %}",
    "{% macro show(content) %}{% for p in content %}{{ p.text }}{% endfor %}{% endmacro %}"
    "{% for m in messages %}<{{ show(m.content) }}>{% endfor %}",
    "{% set ns = namespace(t='') %}{% for m in messages %}{% for p in m['content'] %}"
    "{% set ns.t = ns.t + p['text'] %}{% endfor %}<{{ ns.t }}>{% endfor %}",
    "{% for m in messages %}{% if m.content is string %}{{ raise_exception('parts only') }}"
    "{% endif %}<{% for p in m.content %}{{ p.text }}{% endfor %}>{% endfor %}",
    "{% for m in messages %}<{% for p in m.content %}{% if p.type != 'text' %}{% continue %}"
    "{% endif %}{{ p.text }}{% endfor %}>{% endfor %}",
};
const std::vector<std::string> kStringReaders = {
    "{% for m in messages %}<{{ m.content }}>{% endfor %}",
    "{% for m in messages %}<{{ m['content'] | trim }}>{% endfor %}",
    "{% for m in messages %}{{ '<' + m['content'] + '>' }}{% endfor %}",
    "{% for m in messages %}<{{ m.content | lower | capitalize }}>{% endfor %}",
    "{% for m in messages %}{% if '</think>' in m.content %}x{% else %}<{{ m.content }}>{% endif %}"
    "{% endfor %}",
    "{% macro show(c) %}{{ c }}{% endmacro %}{% for m in messages %}<{{ show(m.content) }}>"
    "{% endfor %}",
    "{% for m in messages %}<{{ m.content.split('|')[0] }}>{% endfor %}",
};
const std::string kBoth =
    "{% for m in messages %}{% if m.content is string %}<{{ m.content }}>{% else %}"
    "[{% for p in m.content %}{{ p.text }}{% endfor %}]{% endif %}{% endfor %}";

TEST(ChatShape, ATextNeverVanishes) {
  for (const auto& sources : {kPartReaders, kStringReaders}) {
    for (const std::string& source : sources) {
      EXPECT_EQ(render(source, kString), "<Hello>") << source;
      EXPECT_EQ(render(source, kParts), "<Hello>") << source;
    }
  }
}

TEST(ChatShape, AllPartsAreShown) {
  for (const std::string& source : kPartReaders) {
    const std::string prompt = render(source, kTwoParts);
    EXPECT_THAT(prompt, HasSubstr("Hello")) << source;
    EXPECT_THAT(prompt, HasSubstr("there")) << source;
  }
  for (const std::string& source : kStringReaders) {
    EXPECT_THAT(render(source, kTwoParts), testing::MatchesRegex("<Hello\n.here>")) << source;
  }
}

TEST(ChatShape, WhatReadsBothGetsWhatTheClientSent) {
  EXPECT_EQ(render(kBoth, kString), "<Hello>");
  EXPECT_EQ(render(kBoth, kTwoParts), "[Hellothere]");
}

TEST(ChatShape, TheFormatCanBeForced) {
  EXPECT_EQ(render(kBoth, kString, ChatContentFormat::kOpenai), "[Hello]");
  EXPECT_EQ(render(kBoth, kTwoParts, ChatContentFormat::kString), "<Hello\nthere>");
  EXPECT_EQ(render(kBoth, R"([{"role":"assistant","content":null}])", ChatContentFormat::kString),
            "<>");
  EXPECT_TRUE(parse_chat_content_format("openai").ok());
  EXPECT_THAT(parse_chat_content_format("parts").status().message(), HasSubstr("string or openai"));
}

// Roles may differ: here the system's text is a string, and everybody else's are parts.
TEST(ChatShape, EachRoleHasItsForm) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + ';' }}{% else %}"
      "{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %};{% endif %}{% endfor %}";
  EXPECT_EQ(render(source, R"([{"role":"system","content":[{"type":"text","text":"S"}]},)"
                           R"({"role":"user","content":"U"},{"role":"assistant","content":"A"},)"
                           R"({"role":"user","content":[{"type":"text","text":"V"}]}])"),
            "S;user:U;assistant:A;user:V;");
}

TEST(ChatShape, ATemplateThatRefusesRolesIsTriedAllTheSame) {
  const std::string source =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('must alternate') }}{% endif %}{{ m.content[0].text }};{% endfor %}";
  EXPECT_EQ(render(source, R"([{"role":"user","content":"U"},{"role":"assistant","content":"A"}])"),
            "U;A;");
}

TEST(ChatShape, AnImageIsPassedToATemplateOfPartsAndRefusedByOneOfStrings) {
  const std::string image =
      R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"Hello"}]}])";
  EXPECT_EQ(render("{% for p in messages[0].content %}{{ '<img>' if p.type == 'image' else p.text "
                   "}}{% endfor %}",
                   image),
            "<img>Hello");
  EXPECT_THROW(render(kStringReaders[0], image), Error);
}

std::string calling(const std::string& arguments, const std::string& content = "null") {
  return R"([{"role":"user","content":"q"},{"role":"assistant","content":)" + content +
         R"(,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":)" +
         arguments + R"(}}]},{"role":"tool","tool_call_id":"a","content":"5"}])";
}
const char* const kAsText = R"("{\"city\": \"K\u00f6ln\", \"n\": 2}")";
const char* const kAsObject = R"({"city": "Köln", "n": 2})";

std::string with_calls(const std::string& call) {
  return "{% for m in messages %}{% for c in m.tool_calls or [] %}" + call +
         "{% endfor %}{{ m.content }};{% endfor %}";
}

TEST(ChatShape, ArgumentsAreEncodedOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ c.function.arguments | tojson }}", R"({"city": "Köln", "n": 2})"},
      {"{{ c['function'] | tojson }}", R"({"name": "f", "arguments": {"city": "Köln", "n": 2}})"},
      {"{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }},{% endfor %}",
       "city=Köln,n=2,"},
      {"{% set f = c.function %}{% for k in f.arguments %}{{ k }}:{{ f.arguments[k] }} {% endfor "
       "%}",
       "city:Köln n:2 "},
      {"{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
       "{{ c.function.arguments | tojson }}{% endif %}",
       R"({"city": "Köln", "n": 2})"},
      {"{{ c.function.arguments | tojson(indent=2) }}", "{\n  \"city\": \"Köln\",\n  \"n\": 2\n}"},
  };
  for (const auto& [call, shown] : cases) {
    for (const char* arguments : {kAsText, kAsObject}) {
      EXPECT_THAT(render(with_calls(call), calling(arguments, "\"\"")), HasSubstr(shown)) << call;
    }
  }
  // A template that joins the text of the arguments gets a text.
  for (const char* join : {"{{ c.function.arguments }}", "{{ '' + c.function.arguments }}"}) {
    EXPECT_THAT(render(with_calls(join), calling(kAsText, "\"\"")),
                HasSubstr(R"({"city": "Köln", "n": 2})"));
    EXPECT_THAT(render(with_calls(join), calling(kAsObject, "\"\"")),
                HasSubstr(R"({"city":"Köln","n":2})"));
  }
}

TEST(ChatShape, ArgumentsThatAreNoJsonStay) {
  const std::string source = with_calls("{{ c.function.arguments | tojson }}");
  EXPECT_THAT(render(source, calling(R"("{\"city\": ")", "\"\"")), HasSubstr(R"("{\"city\": ")"));
  EXPECT_THAT(render(source, calling(R"("")", "\"\"")), HasSubstr("{}"));
  EXPECT_THAT(render(source, calling(R"("null")", "\"\"")), HasSubstr("{}"));
  EXPECT_THAT(render(source, calling(R"("[1, 2]")", "\"\"")), HasSubstr("[1, 2]"));
  const std::string deep = "\"" + std::string(500, '[') + std::string(500, ']') + "\"";
  EXPECT_THAT(render(source, calling(deep, "\"\"")), HasSubstr(deep));
}

TEST(ChatShape, ANullIsNeverPrinted) {
  // Joined with a text, printed, or asked for.
  EXPECT_EQ(render(with_calls("C"), calling(kAsText)), "q;C;5;");
  EXPECT_EQ(render("{% for m in messages %}{{ m.content + ';' }}{% endfor %}", calling(kAsText)),
            "q;;5;");
  EXPECT_EQ(render("{% for m in messages %}{{ m.content | trim }};{% endfor %}", calling(kAsText)),
            "q;;5;");
  EXPECT_EQ(render("{% for m in messages %}{% if m.content is none %}none{% else %}{{ m.content }}"
                   "{% endif %};{% endfor %}",
                   calling(kAsText)),
            "q;none;5;");
  EXPECT_EQ(render("{% for m in messages %}{% if m.content is not none %}{{ m.content }}{% endif %}"
                   "{{ m.tool_calls|length }};{% endfor %}",
                   calling(kAsText)),
            "q0;1;50;");
  // Without calls it is an empty text.
  EXPECT_EQ(render(kStringReaders[0], R"([{"role":"assistant","content":null}])"), "<>");
  EXPECT_EQ(render(kPartReaders[0], R"([{"role":"assistant","content":null}])"), "<>");
  EXPECT_EQ(render(kStringReaders[0], R"([{"role":"assistant"}])"), "<>");
}

TEST(ChatShape, AHostileTemplateIsTriedWithinLimits) {
  EXPECT_THROW(
      render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
             kString),
      Error);
}

TEST(ChatShape, AFinalMessageOfPartsIsContinued) {
  ChatOptions options;
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  for (const std::string& source : kPartReaders) {
    if (source.find("raise_exception") != std::string::npos) continue;
    EXPECT_EQ(ChatTemplate(source, "t", {})
                  .render(R"([{"role":"assistant","content":"Hello"}])", options),
              "<Hello")
        << source;
  }
}

}  // namespace
}  // namespace zipage
