#include "tokenizer/hf_companions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/hf_tokenizer.h"
#include "tokenizer/json_view.h"

namespace zipage {
namespace {

// The order in which transformers adds those that are no tokens yet.
constexpr std::array<std::string_view, 7> kNamedTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

class CompanionReader {
 public:
  explicit CompanionReader(TokenizerParts& parts) : parts_(parts), index_(parts.tokens.size()) {
    for (size_t id = 0; id < parts.tokens.size(); ++id) {
      if (!parts.tokens[id].empty()) index_.insert(parts.tokens[id], static_cast<int32_t>(id));
    }
    for (size_t i = 0; i < parts.added.size(); ++i) {
      added_.insert(parts.added[i].content, static_cast<int32_t>(i));
      highest_added_ = std::max(highest_added_, parts.added[i].id);
    }
  }

  void read(const CompanionFiles& files) {
    const std::string name =
        files.tokenizer_config ? files.tokenizer_config->file : "tokenizer_config.json";
    const boost::json::value document = files.tokenizer_config
                                            ? parse_json(files.tokenizer_config->text, name)
                                            : boost::json::value(boost::json::object());
    const JsonView root(document, name);
    read_special_tokens(root);
    if (const auto listed = root.find("added_tokens_decoder")) {
      read_added_tokens_decoder(*listed);
    } else {
      read_old_files(files);
    }
    add_named_tokens();
    read_bos_and_eos(root);
    read_chat_templates(root);
  }

 private:
  // Fields such as "bos_token", and the lists of further special tokens.
  void read_special_tokens(const JsonView& root) {
    for (const auto& [key, value] : root.object()) {
      const std::string_view name(key.data(), key.size());
      if (name == "additional_special_tokens" || name == "extra_special_tokens") {
        if (value.is_array()) read_further_tokens(root.at(name));
        if (value.is_object()) read_special_tokens(root.at(name));
        continue;
      }
      if (!name.ends_with("_token") || name.starts_with("add_")) continue;
      if (!value.is_string() && !value.is_object()) continue;
      AddedToken token = read_token(root.at(name));
      parts_.named_tokens[std::string(name)] = token.content;
      named_[std::string(name)] = {std::move(token), root.file()};
    }
  }

  void read_further_tokens(const JsonView& list) {
    for (size_t i = 0; i < list.array().size(); ++i) {
      further_.push_back({read_token(list.item(i)), list.file()});
    }
  }

  // A text, or an object with flags. Special either way.
  static AddedToken read_token(const JsonView& json) {
    AddedToken token;
    if (json.value().is_string()) {
      token.content = json.string();
    } else {
      token = read_added_token(json);
      token.normalized = json.boolean_or("normalized", false);
    }
    token.special = true;
    return token;
  }

  void read_added_tokens_decoder(const JsonView& listed) {
    std::map<int64_t, AddedToken> by_id;
    for (const auto& [key, value] : listed.object()) {
      const std::string_view name(key.data(), key.size());
      int64_t id = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
      if (error != std::errc() || end != name.data() + name.size() || id < 0) {
        fail_invalid("{}: {:?} is no token id", listed.where(), name);
      }
      by_id[id] = read_added_token(listed.at(name));
    }
    for (auto& [id, token] : by_id) add(std::move(token), listed.file(), id);
  }

  void read_old_files(const CompanionFiles& files) {
    if (files.special_tokens_map) {
      const boost::json::value document =
          parse_json(files.special_tokens_map->text, files.special_tokens_map->file);
      read_special_tokens(JsonView(document, files.special_tokens_map->file));
    }
    if (!files.added_tokens) return;
    const boost::json::value document =
        parse_json(files.added_tokens->text, files.added_tokens->file);
    const JsonView root(document, files.added_tokens->file);
    std::map<int64_t, std::string> by_id;
    for (const auto& [key, value] : root.object()) {
      const std::string content(key.data(), key.size());
      by_id[root.at(content).integer()] = content;
    }
    for (const auto& [id, content] : by_id) {
      // tokenizer.json knows more of its own tokens than this file does.
      if (content.empty() || added_.find(content) >= 0) continue;
      AddedToken token;
      token.content = content;
      token.special = is_named(content);
      token.normalized = !token.special;
      add(std::move(token), root.file(), id);
    }
  }

  bool is_named(const std::string& content) const {
    const auto has = [&](const AddedToken& token) { return token.content == content; };
    return std::any_of(named_.begin(), named_.end(),
                       [&](const auto& entry) { return has(entry.second.first); }) ||
           std::any_of(further_.begin(), further_.end(),
                       [&](const auto& entry) { return has(entry.first); });
  }

  void add_named_tokens() {
    for (const std::string_view name : kNamedTokens) {
      if (const auto found = named_.find(name); found != named_.end()) add_missing(found->second);
    }
    for (const auto& entry : named_) add_missing(entry.second);
    for (const auto& entry : further_) add_missing(entry);
  }

  // As a special token, unless it is an added token already.
  void add_missing(const std::pair<AddedToken, std::string>& entry) {
    if (entry.first.content.empty() || added_.find(entry.first.content) >= 0) return;
    add(entry.first, entry.second, -1);
  }

  // The id that the tokenizers library gives, whatever the file says: that of the vocabulary, else
  // the next one. `listed_id`: the file's, for a warning; -1: none.
  void add(AddedToken token, const std::string& file, int64_t listed_id) {
    if (token.content.empty()) return;
    if (const int32_t known = added_.find(token.content); known >= 0) {
      AddedToken& old = parts_.added[static_cast<size_t>(known)];
      token.id = old.id;
      token.special = token.special || old.special;
      old = std::move(token);
      parts_.special[static_cast<size_t>(old.id)] = old.special;
      return;
    }
    token.id = index_.find(token.content);
    if (token.id < 0) token.id = append(token.content);
    if (listed_id >= 0 && listed_id != token.id) {
      parts_.warnings.push_back(
          fmt::format("{}: token {:?} has id {} there, but {} in the vocabulary, which counts",
                      file, token.content, listed_id, token.id));
    }
    highest_added_ = std::max(highest_added_, token.id);
    if (token.special) parts_.special[static_cast<size_t>(token.id)] = true;
    added_.insert(token.content, static_cast<int32_t>(parts_.added.size()));
    parts_.added.push_back(std::move(token));
  }

  int32_t append(const std::string& content) {
    auto id = static_cast<size_t>(std::max(highest_added_ + 1, parts_.num_vocab));
    while (id < parts_.tokens.size() && !parts_.tokens[id].empty()) ++id;
    if (id >= parts_.tokens.size()) {
      parts_.tokens.resize(id + 1);
      parts_.token_bytes.resize(id + 1);
      parts_.special.resize(id + 1, false);
    }
    parts_.tokens[id] = content;
    parts_.token_bytes[id] = content;
    index_.insert(content, static_cast<int32_t>(id));
    return static_cast<int32_t>(id);
  }

  void read_bos_and_eos(const JsonView& root) {
    const auto id_of = [&](const char* name) -> std::optional<int32_t> {
      const auto named = parts_.named_tokens.find(name);
      if (named == parts_.named_tokens.end() || named->second.empty()) return std::nullopt;
      return index_.find(named->second);
    };
    parts_.bos_id = id_of("bos_token");
    parts_.eos_id = id_of("eos_token");
    if (parts_.has_template) return;
    if (root.boolean_or("add_bos_token", false) && parts_.bos_id) {
      parts_.prefix_ids.push_back(*parts_.bos_id);
    }
    if (root.boolean_or("add_eos_token", false) && parts_.eos_id) {
      parts_.suffix_ids.push_back(*parts_.eos_id);
    }
  }

  void read_chat_templates(const JsonView& root) {
    const auto chat = root.find("chat_template");
    if (!chat) return;
    if (chat->value().is_string()) {
      parts_.chat_templates["default"] = chat->string();
      return;
    }
    for (size_t i = 0; i < chat->array().size(); ++i) {
      const JsonView item = chat->item(i);
      parts_.chat_templates[std::string(item.at("name").string())] = item.at("template").string();
    }
  }

  TokenizerParts& parts_;
  StringIndex index_;  // all tokens
  StringIndex added_;  // content -> place in parts_.added
  int32_t highest_added_ = -1;
  // With the file that says so.
  std::map<std::string, std::pair<AddedToken, std::string>, std::less<>> named_;
  std::vector<std::pair<AddedToken, std::string>> further_;
};

}  // namespace

void read_companion_files(const CompanionFiles& files, TokenizerParts& parts) {
  CompanionReader(parts).read(files);
}

}  // namespace zipage
