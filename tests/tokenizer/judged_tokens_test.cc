// Ids and texts against HF tokenizers, and against the .out files that come with llama.cpp's
// vocabularies.
#include <algorithm>

#include "zipage/tokenizer.h"

#include "judge.h"
#include "support/source.h"
#include "tokenizer/gguf_vocab.h"

namespace zipage {
namespace {

using boost::json::value_to;
using Ids = std::vector<int32_t>;

const EncodeOptions kPlain{.add_special_tokens = false};

std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

std::unique_ptr<Tokenizer> load(const std::string& path) {
  auto loaded = Tokenizer::load(path);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status().message();
    return nullptr;
  }
  return std::move(loaded).value();
}

// The pieces that an incremental decoder gives, each of which must be whole characters.
std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  const auto decoder = tokenizer.new_decoder(skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder->push(id);
    if (!piece.empty()) {
      EXPECT_NE(static_cast<uint8_t>(piece[0]) & 0xC0, 0x80) << "half a character";
    }
    text += piece;
  }
  return text + decoder->finish();
}

void check_cases(const Tokenizer& tokenizer, const boost::json::value& judged, bool check_decode) {
  int num_wrong = 0;
  for (const auto& item : judged.at("cases").as_array()) {
    const std::string text = text_of(item.at("text"));
    const auto expected = value_to<Ids>(item.at("ids"));
    const Ids ids = tokenizer.encode(text, kPlain);
    if (ids != expected && ++num_wrong <= 5) {
      ADD_FAILURE() << testing::PrintToString(text.substr(0, 200)) << "\n  ours "
                    << testing::PrintToString(ids) << "\n  right "
                    << testing::PrintToString(expected);
    }
    if (!check_decode) continue;
    const std::string decoded = tokenizer.decode(expected, false);
    EXPECT_EQ(decoded, text_of(item.at("decoded")));
    EXPECT_EQ(stream(tokenizer, expected, false), decoded);
  }
  EXPECT_EQ(num_wrong, 0) << "of " << judged.at("cases").as_array().size();
}

// Random ids: mostly broken text. `exact`: as HF shows it; else only that both ways agree.
void check_decoding(const Tokenizer& tokenizer, const boost::json::value& judged, bool exact) {
  for (const auto& item : judged.at("decoded").as_array()) {
    const auto ids = value_to<Ids>(item.at("ids"));
    const std::string decoded = tokenizer.decode(ids);
    if (exact) {
      EXPECT_EQ(decoded, text_of(item.at("text"))) << testing::PrintToString(ids);
    }
    EXPECT_EQ(stream(tokenizer, ids, true), decoded);
  }
}

TEST(JudgedTokens, Reasoner) {
  ZIPAGE_NEEDS_JUDGES();
  const test::TempFolder folder;
  const auto judged = ask_judge("reasoner", folder);
  ASSERT_FALSE(judged.is_null());
  const auto tokenizer = load(test::source_path("models/reasoner-16m"));
  ASSERT_NE(tokenizer, nullptr);
  check_cases(*tokenizer, judged, true);
  check_decoding(*tokenizer, judged, true);
}

// Tokens that stand in tokenizer_config.json and its companions only.
TEST(JudgedTokens, Companions) {
  ZIPAGE_NEEDS_JUDGES();
  const test::TempFolder folder;
  const auto judged = ask_judge("companions", folder);
  ASSERT_FALSE(judged.is_null());
  for (const auto& file : judged.as_array()) {
    SCOPED_TRACE(text_of(file.at("name")));
    const auto tokenizer = load(text_of(file.at("folder")));
    ASSERT_NE(tokenizer, nullptr);
    check_cases(*tokenizer, file, true);
    for (const auto& item : file.at("cases").as_array()) {
      EXPECT_EQ(tokenizer->decode(value_to<Ids>(item.at("ids")), true), text_of(item.at("plain")));
    }
    EXPECT_EQ(tokenizer->eos_id(), value_to<int32_t>(file.at("eos")));
  }
}

TEST(JudgedTokens, Families) {
  ZIPAGE_NEEDS_JUDGES();
  const test::TempFolder folder;
  const auto judged = ask_judge("vocabularies", folder);
  ASSERT_FALSE(judged.is_null());
  for (const auto& file : judged.at("outs").as_array()) {
    SCOPED_TRACE("llama.cpp's " + text_of(file.at("name")));
    if (const auto tokenizer = load(text_of(file.at("gguf")))) check_cases(*tokenizer, file, false);
  }
  for (const auto& file : judged.at("files").as_array()) {
    const std::string name = text_of(file.at("name"));
    // A run of byte tokens that is no text is shown otherwise by HF: see token_decoder.h.
    const bool exact = name != "llama-spm";
    {
      SCOPED_TRACE("tokenizer.json of " + name);
      if (const auto tokenizer = load(text_of(file.at("folder")))) {
        check_cases(*tokenizer, file, true);
        check_decoding(*tokenizer, file, exact);
      }
    }
    SCOPED_TRACE("GGUF of " + name);
    VocabData vocab = read_gguf_vocab(text_of(file.at("gguf")));
    if (!text_of(file.at("pre")).empty()) vocab.pre = text_of(file.at("pre"));
    const auto tokenizer = make_tokenizer(make_tokenizer_parts(std::move(vocab), name), name);
    check_cases(*tokenizer, file, true);
    check_decoding(*tokenizer, file, exact);
  }
}

}  // namespace
}  // namespace zipage
