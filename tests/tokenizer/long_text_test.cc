// Long texts are encoded with a memory of their words; what comes out is what short texts give.
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/gguf_vocab.h"
#include "tokenizer/utf8.h"

namespace zipage {
namespace {

using Ids = std::vector<int32_t>;

// The character that stands for a byte in the files of byte-level models.
std::string character_of(int byte, int& num_others) {
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
  std::string text;
  append_utf8(static_cast<char32_t>(itself ? byte : 256 + num_others++), text);
  return text;
}

// All single bytes, and joins of a few letters, some across a space.
VocabData byte_vocab(const std::string& pre) {
  VocabData vocab;
  vocab.model = "gpt2";
  vocab.pre = pre;
  int num_others = 0;
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.push_back(character_of(byte, num_others));
  const std::string space = vocab.tokens[' '];
  for (const std::string& merge :
       std::vector<std::string>{"t h", "th e", space + " t", space + " the", "a n", "an d", "e r",
                                "1 2", "12 3", "; ;", space + " an", "i n", "in g"}) {
    vocab.merges.push_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' ', 1), 1);
    vocab.tokens.push_back(joined);
  }
  return vocab;
}

VocabData scored_vocab() {
  VocabData vocab;
  vocab.model = "llama";
  const std::string space = "\xE2\x96\x81";
  vocab.tokens = {"<unk>", space, "t",  "h",   "e",         "a",         "n",  "d",          "i",
                  "g",     "th",  "he", "the", space + "t", space + "a", "nd", space + "the"};
  vocab.token_types.assign(vocab.tokens.size(), 1);
  vocab.token_types[0] = 2;
  vocab.unk_id = 0;
  vocab.add_space_prefix = false;
  vocab.add_bos = false;
  for (size_t i = 0; i < vocab.tokens.size(); ++i)
    vocab.scores.push_back(-static_cast<float>((i * 7) % 17));
  return vocab;
}

// Words of 1 to 25 bytes that come again and again, some of them several bytes a character.
std::string random_word(std::mt19937& random) {
  static const char* const kParts[] = {"the",
                                       "and",
                                       "ing",
                                       "er",
                                       "t",
                                       "h",
                                       "123",
                                       "12",
                                       ";;",
                                       "\xC3\xA9",
                                       "a",
                                       "n",
                                       ".",
                                       "'s",
                                       "d",
                                       "\xE4\xB8\xAD",
                                       "\xF0\x9F\xA6\x99",
                                       "-"};
  std::string word;
  const auto num_parts = random() % 5;
  for (size_t i = 0; i <= num_parts; ++i) word += kParts[random() % std::size(kParts)];
  return word;
}

void expect_same(const VocabData& vocab, const std::string& separator) {
  const auto tokenizer = make_tokenizer(make_tokenizer_parts(vocab, "x"), "x");
  std::mt19937 random(11);
  std::string whole;
  Ids expected;
  for (int i = 0; i < 400; ++i) {
    std::string part = separator;
    for (size_t words = 1 + random() % 9; words > 0; --words) part += random_word(random) + " ";
    if (separator == " ") part.pop_back();  // a cut lies before each space
    whole += part;
    const Ids ids = tokenizer->encode(part);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  ASSERT_GT(whole.size(), size_t{8192});
  EXPECT_EQ(tokenizer->encode(whole), expected) << vocab.pre;
  EXPECT_EQ(tokenizer->encode(whole), expected) << vocab.pre << ", again";
}

TEST(LongText, HasTheIdsOfItsLines) {
  for (const char* pre : {"deepseek-coder", "deepseek-llm"}) expect_same(byte_vocab(pre), "\n");
}

TEST(LongText, HasTheIdsOfItsWords) { expect_same(scored_vocab(), " "); }

}  // namespace
}  // namespace zipage
