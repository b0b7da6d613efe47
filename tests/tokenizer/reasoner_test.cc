// The embedded model's tokenizer: bytes are tokens.
#include <gtest/gtest.h>

#include "zipage/tokenizer.h"

#include "support/source.h"

namespace zipage {
namespace {

std::unique_ptr<Tokenizer> reasoner() {
  auto loaded = Tokenizer::load(test::source_path("models/reasoner-16m"));
  if (!loaded.ok()) throw std::runtime_error(loaded.status().message());
  return std::move(loaded).value();
}

TEST(Reasoner, BytesAreTokens) {
  const auto tokenizer = reasoner();
  EXPECT_EQ(tokenizer->encode("Ab\n"), (std::vector<int32_t>{65, 98, 10}));
  EXPECT_EQ(tokenizer->encode("é"), (std::vector<int32_t>{0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{65, 0xC3, 0xA9}), "Aé");
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->eos_id(), 258);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
}

TEST(Reasoner, SpecialTokens) {
  const auto tokenizer = reasoner();
  EXPECT_EQ(tokenizer->encode("a<|im_end|>b"), (std::vector<int32_t>{97, 258, 98}));
  EXPECT_EQ(tokenizer->encode("<|im_end|>", {.parse_special_tokens = false}).size(), 10u);
  // <think> is an added token and not a special one.
  EXPECT_EQ(tokenizer->encode("<think>", {.parse_special_tokens = false}),
            (std::vector<int32_t>{259}));
  const std::vector<int32_t> ids = {259, 97, 258};
  EXPECT_EQ(tokenizer->decode(ids), "<think>a");
  EXPECT_EQ(tokenizer->decode(ids, false), "<think>a<|im_end|>");
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_FALSE(tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_EQ(tokenizer->token_to_id("<|im_end|>"), 258);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(10), "Ċ");
  EXPECT_EQ(tokenizer->id_to_bytes(10), "\n");
  EXPECT_EQ(tokenizer->id_to_token(261), "");
}

TEST(Reasoner, StreamNeverEmitsHalfACharacter) {
  const auto tokenizer = reasoner();
  const std::string text = "é🦙 done \xF0\x9F";  // ends in half a character
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  const auto decoder = tokenizer->new_decoder();
  EXPECT_EQ(decoder->push(ids[0]), "");
  EXPECT_EQ(decoder->push(ids[1]), "é");
  for (int i = 2; i < 5; ++i) EXPECT_EQ(decoder->push(ids[static_cast<size_t>(i)]), "");
  EXPECT_EQ(decoder->push(ids[5]), "🦙");
  std::string rest;
  for (size_t i = 6; i < ids.size(); ++i) rest += decoder->push(ids[i]);
  EXPECT_EQ(rest, " done ");
  EXPECT_EQ(decoder->finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer->decode(ids), "é🦙 done \xEF\xBF\xBD");
}

TEST(Reasoner, ChatTemplate) {
  const auto tokenizer = reasoner();
  ASSERT_TRUE(tokenizer->has_chat_template());
  const std::string messages = R"([{"role":"user","content":"1+1?"}])";
  const auto prompt = tokenizer->apply_chat_template(messages);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(prompt.value(), "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\n");
  ChatOptions options;
  options.add_generation_prompt = false;
  const auto plain = tokenizer->apply_chat_template(messages, options);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value(), "<|im_start|>user\n1+1?<|im_end|>\n");
  options.continue_final_message = true;
  const auto open = tokenizer->apply_chat_template(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b "}])", options);
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_EQ(open.value(), "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb ");
}

TEST(Load, NamesWhatIsMissing) {
  const auto missing = Tokenizer::load("/nonexistent/model");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nonexistent/model"), std::string::npos);
}

}  // namespace
}  // namespace zipage
