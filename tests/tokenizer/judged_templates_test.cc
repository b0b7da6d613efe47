// Real chat templates and small ones, rendered as jinja2 renders them, byte for byte.
#include <ctime>
#include <memory>

#include "base/error.h"
#include "judge.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/chat_values.h"

namespace zipage {
namespace {

std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

// The template alone, without what ChatTemplate does to messages.
std::string render_plainly(const boost::json::value& item) {
  jinja::DictBuilder variables;
  variables.set("bos_token", jinja::Value::string("<s>"));
  variables.set("eos_token", jinja::Value::string("</s>"));
  variables.set("messages", to_template_value(boost::json::parse(text_of(item.at("messages")))));
  variables.set("add_generation_prompt", jinja::Value::boolean(item.at("generate").as_bool()));
  const std::string tools = text_of(item.at("tools"));
  variables.set(
      "tools", tools.empty() ? jinja::Value::none() : to_template_value(boost::json::parse(tools)));
  variables.set("documents", jinja::Value::none());
  const boost::json::value extra = boost::json::parse(text_of(item.at("extra")));
  for (const auto& [name, value] : extra.as_object()) {
    variables.set({name.data(), name.size()}, to_template_value(value));
  }
  return jinja::Template(text_of(item.at("source"))).render(variables.finish(), std::time(nullptr));
}

std::string render_fitted(const ChatTemplate& parsed, const boost::json::value& item) {
  ChatOptions options;
  options.add_generation_prompt = item.at("generate").as_bool();
  options.template_kwargs = text_of(item.at("extra"));
  options.tools = text_of(item.at("tools"));
  return parsed.render(text_of(item.at("messages")), options);
}

void expect_same(const std::string& name, const std::string& rendered, const std::string& wanted) {
  size_t same = 0;
  while (same < rendered.size() && same < wanted.size() && rendered[same] == wanted[same]) ++same;
  ADD_FAILURE() << name << "\n  ours  " << testing::PrintToString(rendered.substr(same, 120))
                << "\n  right " << testing::PrintToString(wanted.substr(same, 120))
                << "\n  from byte " << same;
}

TEST(JudgedTemplates, RenderAsJinja2Does) {
  ZIPAGE_NEEDS_JUDGES();
  const test::TempFolder folder;
  const auto judged = ask_judge("templates", folder);
  ASSERT_FALSE(judged.is_null());
  const auto& cases = judged.at("cases").as_array();
  int num_rendered = 0;
  int num_wrong = 0;
  for (const auto& item : cases) {
    const std::string name = text_of(item.at("name"));
    std::string rendered;
    std::string error;
    try {
      rendered = render_plainly(item);
    } catch (const Error& failure) {
      error = failure.what();
    }
    const auto* expected = item.as_object().if_contains("expected");
    if (expected == nullptr) {
      // jinja2 refuses: so must we.
      if (error.empty() && ++num_wrong <= 60) {
        ADD_FAILURE() << name << ": should fail with " << text_of(item.at("error"));
      }
      continue;
    }
    ++num_rendered;
    const std::string wanted = text_of(*expected);
    if ((!error.empty() || rendered != wanted) && ++num_wrong <= 60) {
      expect_same(name + ": " + error, rendered, wanted);
    }
  }
  EXPECT_EQ(num_wrong, 0) << "of " << cases.size();
  EXPECT_GT(num_rendered, 1500);
  RecordProperty("rendered", num_rendered);
}

// A real template gets what it reads: conversations of strings come out as jinja2 shows them, parts
// never vanish or appear as lists, arguments are encoded once, whatever form a client sends.
TEST(JudgedTemplates, RealOnesAreHandedWhatTheyRead) {
  ZIPAGE_NEEDS_JUDGES();
  const test::TempFolder folder;
  const auto judged = ask_judge("templates", folder);
  ASSERT_FALSE(judged.is_null());
  std::string source;
  std::unique_ptr<ChatTemplate> parsed;
  int num_strings = 0, num_parts = 0, num_calls = 0;
  for (const auto& item : judged.at("cases").as_array()) {
    const std::string name = text_of(item.at("name"));
    if (name.starts_with("snippet")) continue;
    if (text_of(item.at("source")) != source) {
      source = text_of(item.at("source"));
      parsed = std::make_unique<ChatTemplate>(
          source, name,
          std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    }
    const std::string messages = text_of(item.at("messages"));
    const bool has_parts = messages.find("part one") != std::string::npos;
    const bool has_calls = messages.find("tool_calls") != std::string::npos;
    const auto* expected = item.as_object().if_contains("expected");
    std::string rendered;
    try {
      rendered = render_fitted(*parsed, item);
    } catch (const Error&) {
      // The template's own refusal of the conversation.
      EXPECT_TRUE(expected == nullptr || has_calls) << name;
      continue;
    }
    if (has_parts) {
      // Unless the template leaves the turn out altogether.
      const bool shown = rendered.find("part one") != std::string::npos;
      EXPECT_EQ(shown, rendered.find("two") != std::string::npos) << name << rendered;
      EXPECT_EQ(rendered.find("'type': 'text'"), std::string::npos) << name << rendered;
      num_parts += shown ? 1 : 0;
    } else if (has_calls) {
      EXPECT_EQ(rendered.find(R"(\"city\")"), std::string::npos) << name << rendered;
      EXPECT_EQ(rendered.find("{'city': 'Paris'"), std::string::npos) << name << rendered;
      ++num_calls;
    } else if (expected != nullptr &&
               text_of(*expected).find("How are you?") != std::string::npos) {
      if (rendered != text_of(*expected)) expect_same(name, rendered, text_of(*expected));
      ++num_strings;
    }
  }
  EXPECT_GT(num_strings, 300);
  EXPECT_GT(num_parts, 50);
  EXPECT_GT(num_calls, 50);
}

}  // namespace
}  // namespace zipage
