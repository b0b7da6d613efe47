// What comes out is what the definition gives: regular expressions cut, one after the other; then
// of all neighbours in a word the pair of the lowest rank is joined, the leftmost of equals, until
// none is left.
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_vocab.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_patterns.h"
#include "tokenizer/random_text.h"
#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word_encoder.h"

namespace zipage {
namespace {

using Ids = std::vector<int32_t>;

// Tokens that grow out of symbols, and the merges that make them.
struct Vocabulary {
  std::vector<std::string> tokens;  // by id; the first ones are the symbols
  std::map<std::string, int32_t> ids;
  std::vector<Merge> merges;

  int32_t add(const std::string& token) {
    const auto [found, is_new] = ids.emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return found->second;
  }

  // Joins neighbours of `sample`, chosen at random, so that merges reach far; the rank follows no
  // rule, and a token may be made in several ways.
  void grow(Ids sample, int num_merges, std::mt19937& random) {
    for (int i = 0; i < num_merges && sample.size() > 1; ++i) {
      const size_t at = random() % (sample.size() - 1);
      const int32_t left = sample[at];
      const int32_t right = sample[at + 1];
      const std::string joined =
          tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      if (joined.size() > 24) continue;
      merges.push_back({left, right, add(joined), static_cast<uint32_t>(random() % 1000)});
      Ids out;
      for (size_t k = 0; k < sample.size(); ++k) {
        if (k + 1 < sample.size() && sample[k] == left && sample[k + 1] == right) {
          out.push_back(merges.back().result);
          ++k;
        } else {
          out.push_back(sample[k]);
        }
      }
      sample = std::move(out);
    }
  }

  Ids merge(Ids symbols) const {
    std::map<std::pair<int32_t, int32_t>, const Merge*> pairs;
    for (const Merge& merge : merges) pairs.emplace(std::pair(merge.left, merge.right), &merge);
    for (;;) {
      const Merge* best = nullptr;
      size_t best_at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = pairs.find({symbols[i], symbols[i + 1]});
        if (found == pairs.end()) continue;
        if (best == nullptr || found->second->rank < best->rank) {
          best = found->second;
          best_at = i;
        }
      }
      if (best == nullptr) return symbols;
      symbols[best_at] = best->result;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
    }
  }
};

std::vector<std::string> cut(const std::vector<std::string>& pieces, const Regex& regex) {
  std::vector<std::string> out;
  for (const std::string& piece : pieces) {
    size_t done = 0;
    const auto emit = [&](size_t begin, size_t end) {
      if (end > begin) out.push_back(piece.substr(begin, end - begin));
    };
    regex.for_each_match(piece, [&](size_t begin, size_t end) {
      emit(done, begin);
      emit(begin, end);
      done = end;
    });
    emit(done, piece.size());
  }
  return out;
}

std::string long_text(const test::RandomText& texts, std::mt19937& random) {
  std::vector<std::string> words;
  for (int i = 0; i < 8; ++i) words.push_back(texts.make(random));
  std::string text;
  for (size_t i = random() % 12; i > 0; --i) text += words[random() % words.size()];
  return text;
}

// The characters that stand for bytes in files.
std::vector<std::string> byte_characters() {
  const ByteAlphabet alphabet;
  std::vector<std::string> characters(256);
  for (char32_t c = 0; c < 0x144; ++c) {
    std::string character;
    append_utf8(c, character);
    if (const auto byte = alphabet.to_bytes(character)) {
      characters[static_cast<uint8_t>((*byte)[0])] = character;
    }
  }
  return characters;
}

class ByteLevel {
 public:
  ByteLevel(const std::string& pre, const test::RandomText& texts, std::mt19937& random)
      : rule_(find_pre_rule(pre, "test")) {
    for (const std::string& pattern : rule_.patterns) regexes_.emplace_back(pattern, "test");
    for (int byte = 0; byte < 256; ++byte) vocabulary_.add(std::string(1, static_cast<char>(byte)));
    Ids sample;
    for (int i = 0; i < 60; ++i) {
      for (const char c : texts.make(random)) sample.push_back(static_cast<uint8_t>(c));
    }
    vocabulary_.grow(sample, 400, random);
    // Files list merges in the order of their rank.
    std::stable_sort(vocabulary_.merges.begin(), vocabulary_.merges.end(),
                     [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    for (size_t i = 0; i < vocabulary_.merges.size(); ++i) {
      vocabulary_.merges[i].rank = static_cast<uint32_t>(i);
    }
  }

  std::unique_ptr<Tokenizer> make(const std::string& pre) const {
    const std::vector<std::string> characters = byte_characters();
    const auto in_file = [&](int32_t id) {
      std::string text;
      for (const char c : vocabulary_.tokens[static_cast<size_t>(id)]) {
        text += characters[static_cast<uint8_t>(c)];
      }
      return text;
    };
    VocabData data;
    data.model = "gpt2";
    data.pre = pre;
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      data.tokens.push_back(in_file(static_cast<int32_t>(id)));
    }
    for (const Merge& merge : vocabulary_.merges) {
      data.merges.push_back(in_file(merge.left) + " " + in_file(merge.right));
    }
    return make_tokenizer(make_tokenizer_parts(std::move(data), "test"), "test");
  }

  Ids encode(std::string text) const {
    if (rule_.nfc) make_unicode_form(UnicodeForm::kNfc)->apply(text);
    std::vector<std::string> pieces = {text};
    for (const Regex& regex : regexes_) pieces = cut(pieces, regex);
    Ids out;
    for (const std::string& piece : pieces) {
      const auto known = vocabulary_.ids.find(piece);
      Ids ids;
      if (rule_.ignore_merges && known != vocabulary_.ids.end()) {
        ids = {known->second};
      } else {
        for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
        ids = vocabulary_.merge(std::move(ids));
      }
      out.insert(out.end(), ids.begin(), ids.end());
    }
    return out;
  }

 private:
  PreRule rule_;
  std::vector<Regex> regexes_;
  Vocabulary vocabulary_;
};

TEST(Definition, ByteLevelOfEveryPattern) {
  const test::RandomText texts;
  std::mt19937 random(23);
  for (const std::string& pre : pre_rule_names()) {
    const ByteLevel definition(pre, texts, random);
    const auto tokenizer = definition.make(pre);
    for (int i = 0; i < 60; ++i) {
      const std::string text = long_text(texts, random);
      const Ids expected = definition.encode(text);
      ASSERT_EQ(tokenizer->encode(text), expected) << pre << " " << testing::PrintToString(text);
      ASSERT_EQ(tokenizer->encode(text), expected) << pre << ", from memory";
    }
  }
}

constexpr const char* kMetaspace = "\xE2\x96\x81";

// Symbols are characters. Some have no token: they become bytes, one unknown token, or nothing.
class CharacterLevel {
 public:
  explicit CharacterLevel(std::mt19937& random) {
    config_.byte_level = false;
    config_.byte_fallback = random() % 2 == 0;
    config_.fuse_unk = random() % 2 == 0;
    config_.ignore_merges = random() % 4 == 0;
    byte_ids_.fill(-1);
    for (const char* character : {kMetaspace, "a", "b", "c", "(", ")", "\xC3\xA9", "\xE4\xB8\xAD",
                                  "\xE6\x96\x87", "\xF0\x9F\xA6\x99"}) {
      vocabulary_.add(character);
    }
    const bool crosses_spaces = random() % 2 == 0;
    Ids sample;
    for (int i = 0; i < 3000; ++i) {
      sample.push_back(random() % 4 == 0 ? 0 : static_cast<int32_t>(random() % 10));
    }
    vocabulary_.grow(sample, 120, random);
    if (!crosses_spaces) {
      std::erase_if(vocabulary_.merges, [&](const Merge& merge) {
        const std::string& token = vocabulary_.tokens[static_cast<size_t>(merge.result)];
        return token.find(kMetaspace, 1) != std::string::npos;
      });
    }
    if (random() % 3 != 0) config_.unk_id = vocabulary_.add("<unk>");
    if (config_.byte_fallback) {
      for (int byte = 0; byte < 256; ++byte) {
        if (byte % 16 == 5) continue;  // then the character is unknown
        byte_ids_[static_cast<size_t>(byte)] = vocabulary_.add("<" + std::to_string(byte) + ">");
      }
    }
  }

  WordEncoder make() const {
    StringIndex words(vocabulary_.tokens.size());
    for (const auto& [token, id] : vocabulary_.ids) {
      if (token[0] != '<') words.insert(token, id);
    }
    return WordEncoder(
        {}, std::make_unique<BpeModel>(config_, std::move(words), vocabulary_.merges, byte_ids_,
                                       static_cast<int32_t>(vocabulary_.tokens.size())));
  }

  Ids encode(const std::string& text) const {
    const auto known = vocabulary_.ids.find(text);
    if (config_.ignore_merges && known != vocabulary_.ids.end()) return {known->second};
    Ids symbols;
    bool after_unknown = false;
    for (size_t i = 0, length = 0; i < text.size(); i += length) {
      length = utf8_length(text[i]);
      const std::string character = text.substr(i, length);
      const auto symbol = vocabulary_.ids.find(character);
      bool has_bytes = config_.byte_fallback;
      for (const char c : character) has_bytes &= byte_ids_[static_cast<uint8_t>(c)] >= 0;
      bool unknown = false;
      if (symbol != vocabulary_.ids.end()) {
        symbols.push_back(symbol->second);
      } else if (has_bytes) {
        for (const char c : character) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      } else {
        unknown = true;
        const bool fused = config_.fuse_unk && after_unknown;
        if (config_.unk_id >= 0 && !fused) symbols.push_back(config_.unk_id);
      }
      after_unknown = unknown;
    }
    return vocabulary_.merge(std::move(symbols));
  }

 private:
  BpeConfig config_;
  Vocabulary vocabulary_;
  std::array<int32_t, 256> byte_ids_;
};

std::string random_words(std::mt19937& random) {
  static const char* const kParts[] = {kMetaspace,
                                       kMetaspace,
                                       "a",
                                       "b",
                                       "c",
                                       "(",
                                       ")",
                                       "\xC3\xA9",
                                       "\xE4\xB8\xAD",
                                       "\xE6\x96\x87",
                                       "\xF0\x9F\xA6\x99",
                                       "ab",
                                       "x",
                                       "5",
                                       "\xC3\x85",
                                       "\xF0\x9F\xA6\x95"};
  std::string text;
  for (size_t count = random() % 80; count > 0; --count)
    text += kParts[random() % std::size(kParts)];
  return text;
}

TEST(Definition, CharacterLevelOfEveryConfig) {
  std::mt19937 random(29);
  for (int i = 0; i < 60; ++i) {
    const CharacterLevel definition(random);
    const WordEncoder encoder = definition.make();
    BpeModel::Scratch scratch;
    for (int k = 0; k < 60; ++k) {
      const std::string text = random_words(random);
      const Ids expected = definition.encode(text);
      for (int again = 0; again < 2; ++again) {
        Ids ids;
        encoder.encode(text, scratch, ids);
        ASSERT_EQ(ids, expected) << i << " " << testing::PrintToString(text);
      }
    }
  }
}

// What a word became must not be taken for what the same letters become inside another word.
TEST(Definition, AWordIsNotAPart) {
  BpeConfig config;
  config.ignore_merges = true;
  StringIndex words;
  const std::string tokens[] = {"a", "b", "c", "d", "ab", "bd", "abd"};
  for (int32_t id = 0; id < 7; ++id) words.insert(tokens[id], id);
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  for (int32_t id = 0; id < 4; ++id) byte_ids[static_cast<uint8_t>(tokens[id][0])] = id;
  const std::vector<Merge> merges = {{1, 3, 5, 0}, {0, 1, 4, 1}};
  const WordEncoder encoder({},
                            std::make_unique<BpeModel>(config, std::move(words), merges, byte_ids,
                                                       static_cast<int32_t>(std::size(tokens))));
  BpeModel::Scratch scratch;
  Ids ids;
  for (const char* text : {"cabd", "abd", "cabd", "abd"}) encoder.encode(text, scratch, ids);
  EXPECT_EQ(ids, (Ids{2, 0, 5, 6, 2, 0, 5, 6}));
}

TEST(Definition, ThreadsShareATokenizer) {
  const test::RandomText texts;
  std::mt19937 random(31);
  const ByteLevel definition("deepseek-llm", texts, random);
  const auto tokenizer = definition.make("deepseek-llm");
  std::vector<std::pair<std::string, Ids>> cases;
  for (int i = 0; i < 50; ++i) {
    std::string text = long_text(texts, random);
    Ids ids = definition.encode(text);
    cases.emplace_back(std::move(text), std::move(ids));
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 10 * cases.size(); ++i) {
        const auto& [text, ids] = cases[(i * (t + 1)) % cases.size()];
        EXPECT_EQ(tokenizer->encode(text), ids);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace zipage
