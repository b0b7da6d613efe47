#include "zipage/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/mmap.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/gguf_vocab.h"
#include "tokenizer/hf_companions.h"
#include "tokenizer/hf_tokenizer.h"
#include "tokenizer/json_view.h"
#include "tokenizer/parts.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word_encoder.h"

namespace zipage {
namespace {

class TokenizerImpl : public Tokenizer {
 public:
  TokenizerImpl(TokenizerParts parts, const std::string& path)
      : normalizer_(std::move(parts.normalizer)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        words_(std::move(parts.cuts), std::move(parts.model)),
        prefix_ids_(std::move(parts.prefix_ids)),
        suffix_ids_(std::move(parts.suffix_ids)),
        decoder_(std::move(parts.decoder), parts.token_bytes, std::move(parts.special)),
        bos_id_(parts.bos_id),
        eos_id_(parts.eos_id),
        named_tokens_(std::move(parts.named_tokens)),
        warnings_(std::move(parts.warnings)),
        ids_(parts.tokens.size()) {
    tokens_.assign(parts.tokens);
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    for (AddedToken& token : parts.added) {
      ids_.insert(token.content, token.id);
      if (token.normalized && normalizer_ != nullptr) {
        normalizer_->apply(token.content);
        normalized.push_back(std::move(token));
      } else {
        raw.push_back(std::move(token));
      }
    }
    for (size_t id = 0; id < parts.tokens.size(); ++id) {
      if (!parts.tokens[id].empty()) ids_.insert(parts.tokens[id], static_cast<int32_t>(id));
    }
    raw_tokens_ = AddedTokenFinder(std::move(raw));
    normalized_tokens_ = AddedTokenFinder(std::move(normalized));
    if (const auto found = parts.chat_templates.find("default");
        found != parts.chat_templates.end())
      template_source_ = found->second;
    for (const auto& [name, source] : parts.chat_templates) {
      if (source.empty()) continue;
      try {
        templates_.emplace(name, ChatTemplate(source, path + ": chat template", named_tokens_));
      } catch (const Error& error) {
        template_errors_.emplace(name, error.status());  // only a chat needs it
      }
    }
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::string repaired;
    if (!is_valid_utf8(text)) {
      append_lossy_utf8(text, repaired);
      text = repaired;
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 8);
    BpeModel::Scratch scratch;
    if (options.add_special_tokens) ids = prefix_ids_;
    raw_tokens_.split(text, options.parse_special_tokens, [&](const Section& section) {
      if (section.id >= 0) {
        ids.push_back(section.id);
      } else {
        encode_section(section.text, section.text.data() == text.data(), options, scratch, ids);
      }
    });
    if (options.add_special_tokens) ids.insert(ids.end(), suffix_ids_.begin(), suffix_ids_.end());
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    return decoder_.decode(ids, skip_special_tokens);
  }
  std::unique_ptr<IncrementalDecoder> new_decoder(bool skip_special_tokens) const override {
    return decoder_.new_decoder(skip_special_tokens);
  }

  int32_t vocab_size() const override { return tokens_.size(); }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const int32_t id = ids_.find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  std::string id_to_token(int32_t id) const override { return std::string(tokens_.at(id)); }
  std::string id_to_bytes(int32_t id) const override { return std::string(decoder_.bytes(id)); }
  bool is_special(int32_t id) const override { return decoder_.is_special(id); }
  std::optional<int32_t> bos_id() const override { return bos_id_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }

  std::vector<std::string> warnings() const override { return warnings_; }

  bool has_chat_template() const override {
    return !templates_.empty() || !template_errors_.empty();
  }
  std::string chat_template() const override { return template_source_; }
  Result<std::string> apply_chat_template(const std::string& messages_json,
                                          const ChatOptions& options) const override {
    try {
      if (!options.chat_template.empty()) {
        return ChatTemplate(options.chat_template, "chat template", named_tokens_)
            .render(messages_json, options);
      }
      // Models with several templates have one for tools.
      const bool tools = !options.tools.empty();
      for (const char* name : {tools ? "tool_use" : "default", "default"}) {
        if (const auto found = templates_.find(name); found != templates_.end()) {
          return found->second.render(messages_json, options);
        }
        if (const auto found = template_errors_.find(name); found != template_errors_.end()) {
          return found->second;
        }
      }
      return Status(StatusCode::kFailedPrecondition,
                    "the model has no chat template; pass one as chat_template");
    } catch (...) {
      return current_exception_status();
    }
  }

 private:
  void encode_section(std::string_view text,
                      bool first,
                      const EncodeOptions& options,
                      BpeModel::Scratch& scratch,
                      std::vector<int32_t>& ids) const {
    std::string normalized;
    if (normalizer_ != nullptr && !normalizer_->leaves(text)) {
      normalized = text;
      normalizer_->apply(normalized);
      text = normalized;
    }
    if (normalized_tokens_.empty()) {
      encode_text(text, first, scratch, ids);
      return;
    }
    normalized_tokens_.split(text, options.parse_special_tokens, [&](const Section& section) {
      if (section.id >= 0) {
        ids.push_back(section.id);
      } else {
        encode_text(section.text, first && section.text.data() == text.data(), scratch, ids);
      }
    });
  }

  void encode_text(std::string_view text,
                   bool first,
                   BpeModel::Scratch& scratch,
                   std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    if (pre_tokenizer_ == nullptr) {
      words_.encode(text, scratch, ids);
      return;
    }
    pre_tokenizer_->split({text, first},
                          [&](Piece piece) { words_.encode(piece.text, scratch, ids); });
  }

  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  WordEncoder words_;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  TokenDecoder decoder_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  std::map<std::string, std::string> named_tokens_;
  std::vector<std::string> warnings_;
  std::string template_source_;
  StringTable tokens_;
  StringIndex ids_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  std::map<std::string, ChatTemplate> templates_;
  std::map<std::string, Status> template_errors_;
};

TokenizerParts load_folder(const std::string& folder) {
  const std::string json = join_path(folder, "tokenizer.json");
  if (!is_regular_file(json)) {
    fail(StatusCode::kNotFound, "{} has no tokenizer.json", folder);
  }
  TokenizerParts parts = read_tokenizer_json(read_text_file(json), json);
  const auto read = [&](const char* name) -> std::optional<NamedText> {
    const std::string path = join_path(folder, name);
    if (!is_regular_file(path)) return std::nullopt;
    return NamedText{read_text_file(path), path};
  };
  read_companion_files({.tokenizer_config = read("tokenizer_config.json"),
                        .special_tokens_map = read("special_tokens_map.json"),
                        .added_tokens = read("added_tokens.json")},
                       parts);
  const std::string chat = join_path(folder, "chat_template.jinja");
  if (is_regular_file(chat)) parts.chat_templates["default"] = read_text_file(chat);
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts, const std::string& name) {
  return std::make_unique<TokenizerImpl>(std::move(parts), name);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  try {
    if (!is_directory(path) && !is_regular_file(path)) {
      fail(StatusCode::kNotFound, "{}: no such file or folder", path);
    }
    TokenizerParts parts =
        is_directory(path) ? load_folder(path) : make_tokenizer_parts(read_gguf_vocab(path), path);
    return make_tokenizer(std::move(parts), path);
  } catch (...) {
    return current_exception_status();
  }
}

}  // namespace zipage
