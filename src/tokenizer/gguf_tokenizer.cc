#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_vocab.h"
#include "tokenizer/hf_steps.h"
#include "tokenizer/pre_patterns.h"
#include "tokenizer/utf8.h"

namespace zipage {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";
constexpr size_t kMaxScoredTokenBytes = 512;

class Builder {
 public:
  Builder(VocabData vocab, const std::string& file) : vocab_(std::move(vocab)), file_(file) {}

  TokenizerParts build() {
    check();
    parts_.tokens = vocab_.tokens;
    parts_.special.assign(vocab_.tokens.size(), false);
    for (size_t i = 0; i < vocab_.tokens.size(); ++i) add_token(static_cast<int32_t>(i));
    if (vocab_.model == "gpt2") {
      build_byte_level();
    } else if (vocab_.model == "llama") {
      build_sentencepiece();
    } else {
      build_gemma();
    }
    finish();
    return std::move(parts_);
  }

 private:
  TokenType type_of(int32_t id) const {
    return vocab_.token_types.empty()
               ? TokenType::kNormal
               : static_cast<TokenType>(vocab_.token_types[static_cast<size_t>(id)]);
  }

  void check() {
    if (vocab_.model.empty()) {
      fail_invalid("{}: \"tokenizer.ggml.model\" is missing: the file has no tokenizer", file_);
    }
    if (vocab_.model != "gpt2" && vocab_.model != "llama" && vocab_.model != "gemma4") {
      fail(StatusCode::kUnimplemented,
           "{}: \"tokenizer.ggml.model\" is {:?}; supported are gpt2, llama and gemma4", file_,
           vocab_.model);
    }
    const size_t count = vocab_.tokens.size();
    if (count == 0) fail_invalid("{}: \"tokenizer.ggml.tokens\" is missing or empty", file_);
    const auto check_count = [&](const char* key, size_t size) {
      if (size != 0 && size != count) {
        fail_invalid("{}: {:?} has {} items and \"tokenizer.ggml.tokens\" has {}", file_, key, size,
                     count);
      }
    };
    check_count("tokenizer.ggml.token_type", vocab_.token_types.size());
    check_count("tokenizer.ggml.scores", vocab_.scores.size());
    for (size_t i = 0; i < vocab_.token_types.size(); ++i) {
      const int32_t type = vocab_.token_types[i];
      if (type < 0 || type > 6) {
        fail_invalid("{}: \"tokenizer.ggml.token_type\"[{}] is {}; types go from 0 to 6", file_, i,
                     type);
      }
    }
    if (vocab_.model == "llama" && vocab_.scores.empty()) {
      fail_invalid("{}: \"tokenizer.ggml.scores\" is missing; model llama needs it", file_);
    }
    for (size_t i = 0; i < vocab_.scores.size(); ++i) {
      if (std::isnan(vocab_.scores[i])) {
        fail_invalid("{}: \"tokenizer.ggml.scores\"[{}] is not a number", file_, i);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (!is_valid_utf8(vocab_.tokens[i])) {
        fail_invalid("{}: \"tokenizer.ggml.tokens\"[{}] is not UTF-8", file_, i);
      }
    }
    if (vocab_.model != "llama" && vocab_.merges.empty()) {
      fail_invalid("{}: \"tokenizer.ggml.merges\" is missing or empty; model {} needs it", file_,
                   vocab_.model);
    }
    const auto check_id = [&](const char* key, const std::optional<int32_t>& id) {
      if (id && static_cast<size_t>(*id) >= count) {
        fail_invalid("{}: {:?} is {}; there are {} tokens", file_, key, *id, count);
      }
    };
    check_id("tokenizer.ggml.bos_token_id", vocab_.bos_id);
    check_id("tokenizer.ggml.eos_token_id", vocab_.eos_id);
    check_id("tokenizer.ggml.unknown_token_id", vocab_.unk_id);
    check_id("tokenizer.ggml.padding_token_id", vocab_.pad_id);
  }

  void add_token(int32_t id) {
    const TokenType type = type_of(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    const std::string& text = vocab_.tokens[static_cast<size_t>(id)];
    parts_.special[static_cast<size_t>(id)] = special;
    if ((!special && type != TokenType::kUserDefined) || text.empty()) return;
    AddedToken token;
    token.id = id;
    token.content = text;
    token.special = special;
    parts_.added.push_back(std::move(token));
  }

  // The tokens that merging may make.
  StringIndex merge_index() const {
    StringIndex index(vocab_.tokens.size());
    for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const TokenType type = type_of(id);
      if (type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kByte) {
        continue;
      }
      if (!vocab_.tokens[i].empty()) index.insert(vocab_.tokens[i], id);
    }
    return index;
  }

  // A merge of tokens that the vocabulary lacks can never happen; some writers leave such ones in.
  std::vector<Merge> listed_merges(const StringIndex& index) const {
    std::vector<Merge> merges;
    merges.reserve(vocab_.merges.size());
    std::string joined;
    for (size_t i = 0; i < vocab_.merges.size(); ++i) {
      const std::string_view text = vocab_.merges[i];
      const size_t space = text.find(' ', 1);
      if (space == std::string_view::npos) {
        fail_invalid("{}: \"tokenizer.ggml.merges\"[{}] must be two tokens with a space between",
                     file_, i);
      }
      joined.assign(text.substr(0, space)).append(text.substr(space + 1));
      const int32_t left = index.find(text.substr(0, space));
      const int32_t right = index.find(text.substr(space + 1));
      const int32_t result = index.find(joined);
      if (left < 0 || right < 0 || result < 0) continue;
      merges.push_back({left, right, result, static_cast<uint32_t>(i)});
    }
    return merges;
  }

  // SentencePiece joins any two neighbours whose join is a token, the best score first.
  std::vector<Merge> scored_merges(const StringIndex& index) const {
    std::vector<float> order = vocab_.scores;
    std::sort(order.begin(), order.end(), std::greater<>());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    std::vector<Merge> merges;
    for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
      const std::string_view text = vocab_.tokens[i];
      const auto id = static_cast<int32_t>(i);
      if (text.size() < 2 || index.find(text) != id) continue;
      if (text.size() > kMaxScoredTokenBytes) {
        fail_invalid("{}: \"tokenizer.ggml.tokens\"[{}] has {} bytes; at most {} are supported",
                     file_, i, text.size(), kMaxScoredTokenBytes);
      }
      const auto rank = static_cast<uint32_t>(
          std::lower_bound(order.begin(), order.end(), vocab_.scores[i], std::greater<>()) -
          order.begin());
      for (size_t cut = utf8_length(text[0]); cut < text.size(); cut += utf8_length(text[cut])) {
        const int32_t left = index.find(text.substr(0, cut));
        const int32_t right = left < 0 ? -1 : index.find(text.substr(cut));
        if (right >= 0) merges.push_back({left, right, id, rank});
      }
    }
    return merges;
  }

  void build_byte_level() {
    if (vocab_.pre.empty()) {
      parts_.warnings.push_back(fmt::format(
          "{}: \"tokenizer.ggml.pre\" is missing: the pre-tokenizer \"default\" is used, and the "
          "tokens of a text may be others than those that the model was trained on; convert the "
          "model again with a current converter",
          file_));
    }
    const PreRule rule = find_pre_rule(vocab_.pre, file_);
    if (rule.nfc) parts_.normalizer = make_unicode_form(UnicodeForm::kNfc);
    for (const std::string& pattern : rule.patterns) {
      parts_.cuts.emplace_back(pattern, file_ + ": \"tokenizer.ggml.pre\" " + vocab_.pre);
    }
    add_bos_ = rule.add_bos;
    StringIndex index = merge_index();
    BpeConfig config;
    config.byte_level = true;
    config.ignore_merges = rule.ignore_merges;
    const std::vector<Merge> merges = listed_merges(index);
    parts_.model = make_bpe_model(config, parts_.tokens, merges, std::move(index));
    const ByteAlphabet alphabet;
    parts_.token_bytes = parts_.tokens;
    for (std::string& bytes : parts_.token_bytes) {
      if (auto raw = alphabet.to_bytes(bytes)) bytes = *std::move(raw);
    }
  }

  void build_sentencepiece() {
    const bool prefix = vocab_.add_space_prefix.value_or(true);
    add_bos_ = true;
    build_metaspace(prefix, [&](const StringIndex& index) { return scored_merges(index); });
  }

  void build_gemma() {
    add_bos_ = true;
    parts_.cuts.emplace_back("[^\\n]+|[\\n]+", file_);
    build_metaspace(vocab_.add_space_prefix.value_or(false),
                    [&](const StringIndex& index) { return listed_merges(index); });
  }

  template <typename MakeMerges>
  void build_metaspace(bool prefix, const MakeMerges& make_merges) {
    std::vector<std::unique_ptr<Normalizer>> steps;
    if (prefix) steps.push_back(make_prepend(std::string(kMetaspace)));
    steps.push_back(make_replace_string(" ", std::string(kMetaspace)));
    parts_.normalizer = make_normalizer_sequence(std::move(steps));
    StringIndex index = merge_index();
    const std::vector<Merge> merges = make_merges(index);
    BpeConfig config;
    config.byte_level = false;
    config.byte_fallback = true;
    config.fuse_unk = true;
    config.unk_id = vocab_.unk_id.value_or(-1);
    parts_.model = make_bpe_model(config, parts_.tokens, merges, std::move(index));
    parts_.token_bytes = parts_.tokens;
    for (size_t i = 0; i < parts_.token_bytes.size(); ++i) {
      std::string& bytes = parts_.token_bytes[i];
      const int byte = byte_of_token(bytes);
      if (byte >= 0) {
        bytes = byte_string(byte);
      } else {
        replace_all(bytes, kMetaspace, " ");
      }
    }
    if (prefix) {
      parts_.decoder.strip_left = std::string(" ");
      parts_.decoder.max_strip_left = 1;
    }
  }

  void finish() {
    if (vocab_.token_types.empty()) {
      parts_.warnings.push_back(fmt::format(
          "{}: \"tokenizer.ggml.token_type\" is missing: no token is known as a control token, and "
          "those in chat templates are taken for text",
          file_));
    }
    parts_.bos_id = vocab_.bos_id;
    parts_.eos_id = vocab_.eos_id;
    if (vocab_.add_bos.value_or(add_bos_) && vocab_.bos_id) {
      parts_.prefix_ids.push_back(*vocab_.bos_id);
    }
    if (vocab_.add_eos.value_or(false) && vocab_.eos_id) {
      parts_.suffix_ids.push_back(*vocab_.eos_id);
    }
    const auto name = [&](const char* key, const std::optional<int32_t>& id) {
      if (id) parts_.named_tokens[key] = vocab_.tokens[static_cast<size_t>(*id)];
    };
    name("bos_token", vocab_.bos_id);
    name("eos_token", vocab_.eos_id);
    name("unk_token", vocab_.unk_id);
    name("pad_token", vocab_.pad_id);
    parts_.chat_templates = std::move(vocab_.chat_templates);
  }

  VocabData vocab_;
  const std::string& file_;
  TokenizerParts parts_;
  bool add_bos_ = false;
};

}  // namespace

TokenizerParts make_tokenizer_parts(VocabData vocab, const std::string& file) {
  return Builder(std::move(vocab), file).build();
}

}  // namespace zipage
