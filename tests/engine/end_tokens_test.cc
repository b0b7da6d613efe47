// An answer ends at every token that any of the model's files calls an end.
#include "engine/end_tokens.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/gguf_vocab.h"
#include "tokenizer/parts.h"

namespace zipage {
namespace {

using Ids = std::vector<int32_t>;

// A vocabulary of these tokens beside a few letters; the type of each is GGUF's.
std::unique_ptr<Tokenizer> tokenizer_of(
    const std::vector<std::pair<std::string, TokenType>>& tokens,
    std::optional<int32_t> eos = std::nullopt) {
  VocabData vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  vocab.tokens = {"a", "b", "ab"};
  vocab.merges = {"a b"};
  vocab.token_types = {1, 1, 1};
  for (const auto& [text, type] : tokens) {
    vocab.tokens.push_back(text);
    vocab.token_types.push_back(static_cast<int32_t>(type));
  }
  vocab.eos_id = eos;
  return make_tokenizer(make_tokenizer_parts(std::move(vocab), "x"), "x");
}

ModelConfig config_of(Ids eos, int32_t vocab_size = 100) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.eos_token_ids = std::move(eos);
  return config;
}

TEST(EndTokensTest, AllFilesAreJoined) {
  GenerationConfig generation;
  generation.eos_token_ids = {7, 1};
  const auto tokenizer = tokenizer_of({{"<fin>", TokenType::kControl}}, 3);
  const EndTokens ends = collect_end_tokens(generation, config_of({1, 9}), tokenizer.get());
  EXPECT_EQ(ends.ids, (Ids{7, 1, 9, 3}));
  EXPECT_EQ(ends.description, "7, b (1), 9, <fin> (3)");
  EXPECT_EQ(collect_end_tokens(generation, config_of({}), nullptr).ids, (Ids{7, 1}));
  EXPECT_TRUE(collect_end_tokens({}, config_of({}), nullptr).ids.empty());
}

TEST(EndTokensTest, KnownEndsOfTurnsCountWhereTheyAreControlTokens) {
  const char* const known[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>", "<|eot|>",
                               "<end_of_turn>", "<|end|>",         "</s>",       "<|endoftext|>",
                               "<EOT>",         "<|end_of_text|>", "<eos>",      "<|return|>"};
  for (const char* text : known) {
    SCOPED_TRACE(text);
    const auto control = tokenizer_of({{text, TokenType::kControl}});
    EXPECT_EQ(collect_end_tokens({}, config_of({}), control.get()).ids, Ids{3});
    for (const TokenType type : {TokenType::kUserDefined, TokenType::kNormal}) {
      const auto other = tokenizer_of({{text, type}});
      EXPECT_TRUE(collect_end_tokens({}, config_of({}), other.get()).ids.empty());
    }
  }
  const auto others = tokenizer_of({{"<|im_start|>", TokenType::kControl},
                                    {"<|eot_id|>x", TokenType::kControl},
                                    {"<think>", TokenType::kControl}});
  EXPECT_TRUE(collect_end_tokens({}, config_of({}), others.get()).ids.empty());
}

TEST(EndTokensTest, AnIdThatTheHeadLacksIsSetAside) {
  GenerationConfig generation;
  generation.eos_token_ids = {4, 100};
  const auto tokenizer = tokenizer_of({{"<|im_end|>", TokenType::kControl}});
  const EndTokens ends = collect_end_tokens(generation, config_of({}, 3), tokenizer.get());
  EXPECT_TRUE(ends.ids.empty());
  EXPECT_EQ(ends.out_of_range, (Ids{4, 100}));
}

}  // namespace
}  // namespace zipage
