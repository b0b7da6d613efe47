// Real chat templates and small ones, rendered as jinja2 renders them, byte for byte.
#include "base/error.h"
#include "judge.h"
#include "tokenizer/chat_template.h"

namespace zipage {
namespace {

std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
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
    ChatOptions options;
    options.add_generation_prompt = item.at("generate").as_bool();
    options.template_kwargs = text_of(item.at("extra"));
    options.tools = text_of(item.at("tools"));
    std::string rendered;
    std::string error;
    try {
      rendered = ChatTemplate(text_of(item.at("source")), name)
                     .render(text_of(item.at("messages")), options,
                             {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
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
      size_t same = 0;
      while (same < rendered.size() && same < wanted.size() && rendered[same] == wanted[same])
        ++same;
      ADD_FAILURE() << name << ": " << error << "\n  ours  "
                    << testing::PrintToString(rendered.substr(same, 120)) << "\n  right "
                    << testing::PrintToString(wanted.substr(same, 120)) << "\n  from byte " << same;
    }
  }
  EXPECT_EQ(num_wrong, 0) << "of " << cases.size();
  EXPECT_GT(num_rendered, 1500);
  RecordProperty("rendered", num_rendered);
}

}  // namespace
}  // namespace zipage
