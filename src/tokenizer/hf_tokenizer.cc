#include "tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/hf_steps.h"
#include "tokenizer/json_view.h"

namespace zipage {
namespace {

void place_token(const JsonView& where,
                 std::string_view token,
                 int64_t id,
                 int64_t max_id,
                 std::vector<std::string>& tokens,
                 std::vector<bool>& taken) {
  if (id < 0 || id > max_id) {
    fail_invalid("{}: token {:?} has id {}; ids must lie in [0, {}]", where.where(), token, id,
                 max_id);
  }
  const auto i = static_cast<size_t>(id);
  if (i >= tokens.size()) {
    tokens.resize(i + 1);
    taken.resize(i + 1);
  }
  if (taken[i] && tokens[i] != token) {
    fail_invalid("{}: id {} belongs to {:?} and to {:?}", where.where(), id, tokens[i], token);
  }
  tokens[i] = token;
  taken[i] = true;
}

// "a b", or ["a", "b"]
std::pair<std::string_view, std::string_view> read_merge(const JsonView& merges, size_t index) {
  const auto& value = merges.array()[index];
  if (value.is_string()) {
    const auto& text = value.get_string();
    const std::string_view pair(text.data(), text.size());
    const size_t space = pair.find(' ');
    if (space != std::string_view::npos && pair.find(' ', space + 1) == std::string_view::npos) {
      return {pair.substr(0, space), pair.substr(space + 1)};
    }
  } else if (value.is_array() && value.get_array().size() == 2 &&
             value.get_array()[0].is_string() && value.get_array()[1].is_string()) {
    const auto& left = value.get_array()[0].get_string();
    const auto& right = value.get_array()[1].get_string();
    return {{left.data(), left.size()}, {right.data(), right.size()}};
  }
  fail_invalid("{} must be two tokens, as \"a b\" or [\"a\", \"b\"]", merges.item(index).where());
}

std::vector<Merge> read_merges(const JsonView& json, const StringIndex& vocab) {
  std::vector<Merge> merges;
  const size_t count = json.array().size();
  merges.reserve(count);
  std::string joined;
  for (size_t i = 0; i < count; ++i) {
    const auto [left, right] = read_merge(json, i);
    joined.assign(left).append(right);
    const auto id_of = [&](std::string_view token) {
      const int32_t id = vocab.find(token);
      if (id < 0) {
        fail_invalid("{}: token {:?} of the merge is not in model.vocab", json.item(i).where(),
                     token);
      }
      return id;
    };
    merges.push_back({id_of(left), id_of(right), id_of(joined), static_cast<uint32_t>(i)});
  }
  return merges;
}

void check_model(const JsonView& model) {
  const auto type = model.find("type");
  if (type && type->string() != "BPE") {
    fail(StatusCode::kUnimplemented, "{} is {}; supported is BPE", type->where(), type->string());
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto text = model.find(affix); text && !text->string().empty()) {
      fail(StatusCode::kUnimplemented, "{} is {:?}; only none is supported", text->where(),
           text->string());
    }
  }
  if (const auto dropout = model.find("dropout");
      dropout && !(dropout->value().is_number() && dropout->value().to_number<double>() == 0.0)) {
    fail(StatusCode::kUnimplemented, "{} is set; encoding at random is not supported",
         dropout->where());
  }
}

// The options of the BPE model; `byte_level` comes from the pre-tokenizer.
BpeConfig read_bpe_config(const JsonView& model, const StringIndex& index, bool byte_level) {
  BpeConfig config;
  config.byte_level = byte_level;
  config.ignore_merges = model.boolean_or("ignore_merges", false);
  config.byte_fallback = model.boolean_or("byte_fallback", false);
  config.fuse_unk = model.boolean_or("fuse_unk", false);
  if (const auto unk = model.find("unk_token")) {
    config.unk_id = index.find(unk->string());
    if (config.unk_id < 0) {
      fail_invalid("{} is {:?}, which is not in model.vocab", unk->where(), unk->string());
    }
  }
  return config;
}

}  // namespace

AddedToken read_added_token(const JsonView& json) {
  AddedToken token;
  token.content = json.at("content").string();
  if (token.content.empty()) fail_invalid("{}: content is empty", json.where());
  token.special = json.boolean_or("special", false);
  token.normalized = json.boolean_or("normalized", !token.special);
  token.single_word = json.boolean_or("single_word", false);
  token.lstrip = json.boolean_or("lstrip", false);
  token.rstrip = json.boolean_or("rstrip", false);
  return token;
}

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file) {
  const boost::json::value document = parse_json(text, file);
  const JsonView root(document, file);
  TokenizerParts parts;
  const JsonView model = root.at("model");
  check_model(model);
  const JsonView vocab = model.at("vocab");
  const auto added = root.find("added_tokens");
  const size_t num_entries = vocab.object().size() + (added ? added->array().size() : 0);
  const int64_t max_id = 2 * static_cast<int64_t>(num_entries) + 65536;
  std::vector<bool> taken;
  StringIndex index(vocab.object().size());
  for (const auto& [token, id] : vocab.object()) {
    const std::string_view name(token.data(), token.size());
    if (!id.is_int64()) fail_invalid("{}: the id of {:?} is not an integer", vocab.where(), name);
    place_token(vocab, name, id.get_int64(), max_id, parts.tokens, taken);
    index.insert(name, static_cast<int32_t>(id.get_int64()));
  }
  parts.num_vocab = static_cast<int32_t>(vocab.object().size());
  const std::vector<Merge> merges = read_merges(model.at("merges"), index);

  for (size_t i = 0; added && i < added->array().size(); ++i) {
    AddedToken token = read_added_token(added->item(i));
    token.id = static_cast<int32_t>(
        std::clamp<int64_t>(added->item(i).at("id").integer(), INT32_MIN, INT32_MAX));
    if (const int32_t known = index.find(token.content); known >= 0 && known != token.id) {
      fail_invalid("{}: {:?} has id {}, and {} in model.vocab", added->item(i).where(),
                   token.content, token.id, known);
    }
    place_token(added->item(i), token.content, token.id, max_id, parts.tokens, taken);
    parts.added.push_back(std::move(token));
  }
  if (parts.tokens.empty()) fail_invalid("{}: model.vocab has no token", file);
  parts.special.assign(parts.tokens.size(), false);
  for (const AddedToken& token : parts.added) {
    if (token.special) parts.special[static_cast<size_t>(token.id)] = true;
  }

  if (const auto json = root.find("normalizer")) parts.normalizer = read_normalizer(*json);
  bool byte_level = false;
  if (const auto json = root.find("pre_tokenizer")) read_pre_tokenizer(*json, parts, byte_level);
  if (const auto json = root.find("post_processor")) read_post_processor(*json, parts);
  const auto decoder = root.find("decoder");
  read_decoder(decoder ? &*decoder : nullptr, parts);

  const BpeConfig config = read_bpe_config(model, index, byte_level);
  parts.model = make_bpe_model(config, parts.tokens, merges, std::move(index));
  return parts;
}

}  // namespace zipage
