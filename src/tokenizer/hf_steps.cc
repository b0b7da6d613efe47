#include "tokenizer/hf_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tokenizer/byte_level.h"

namespace zipage {
namespace {

[[noreturn]] void unsupported(const JsonView& json, std::string_view type, const char* supported) {
  fail(StatusCode::kUnimplemented, "{}: type {} is not supported; supported are {}", json.where(),
       type, supported);
}

// {"String": s} or {"Regex": s}
Pattern read_pattern(const JsonView& json) {
  if (const auto literal = json.find("String")) {
    return Pattern(escape_regex(literal->string()), literal->where());
  }
  const JsonView regex = json.at("Regex");
  return Pattern(std::string(regex.string()), regex.where());
}

SplitBehavior read_behavior(const JsonView& json) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  for (const auto& [name, behavior] : kNames) {
    if (json.string() == name) return behavior;
  }
  fail_invalid(
      "{} is {}; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
      json.where(), json.string());
}

PrependScheme read_prepend_scheme(const JsonView& json) {
  const auto scheme = json.find("prepend_scheme");
  if (!scheme) {
    return json.boolean_or("add_prefix_space", true) ? PrependScheme::kAlways
                                                     : PrependScheme::kNever;
  }
  if (scheme->string() == "always") return PrependScheme::kAlways;
  if (scheme->string() == "first") return PrependScheme::kFirst;
  if (scheme->string() == "never") return PrependScheme::kNever;
  fail_invalid("{} is {}; it must be always, first or never", scheme->where(), scheme->string());
}

void add_pre_tokenizer(const JsonView& json, PreTokenizerSteps& steps, bool& byte_level) {
  const std::string type(json.at("type").string());
  const auto split = [&](Pattern pattern, SplitBehavior behavior, bool invert = false) {
    if (behavior == SplitBehavior::kIsolated) {
      steps.cut(std::move(pattern));
    } else {
      steps.add(make_split(std::move(pattern), behavior, invert));
    }
  };
  const auto pattern = [&](const char* text) { return Pattern(text, json.where()); };
  if (byte_level) {
    fail(StatusCode::kUnimplemented,
         "{}: {} after ByteLevel is not supported; ByteLevel must be last", json.where(), type);
  }
  if (type == "Sequence") {
    const JsonView list = json.at("pretokenizers");
    for (size_t i = 0; i < list.array().size(); ++i) {
      add_pre_tokenizer(list.item(i), steps, byte_level);
    }
  } else if (type == "ByteLevel") {
    if (json.boolean_or("add_prefix_space", true)) steps.add(make_prefix_space());
    if (json.boolean_or("use_regex", true)) steps.cut(pattern(kGpt2Pattern));
    byte_level = true;
  } else if (type == "Split") {
    split(read_pattern(json.at("pattern")), read_behavior(json.at("behavior")),
          json.boolean_or("invert", false));
  } else if (type == "Metaspace") {
    steps.add(make_metaspace(json.string_or("replacement", "\xE2\x96\x81"),
                             read_prepend_scheme(json), json.boolean_or("split", true)));
  } else if (type == "Digits") {
    steps.cut(pattern(json.boolean_or("individual_digits", false) ? "\\p{N}" : "\\p{N}+"));
  } else if (type == "Punctuation") {
    const auto behavior = json.find("behavior");
    split(pattern("[\\p{P}!-/:-@\\[-`{-~]"),
          behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated);
  } else if (type == "Whitespace") {
    split(pattern("\\w+|[^\\w\\s]+"), SplitBehavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    split(pattern("\\s"), SplitBehavior::kRemoved);
  } else {
    unsupported(json, type,
                "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
                "WhitespaceSplit");
  }
}

int32_t read_token_id(const JsonView& json, const TokenizerParts& parts) {
  const int64_t id = json.integer();
  if (id < 0 || id >= static_cast<int64_t>(parts.tokens.size())) {
    fail_invalid("{} is {}; ids go from 0 to {}", json.where(), id, parts.tokens.size() - 1);
  }
  return static_cast<int32_t>(id);
}

void read_template(const JsonView& json, TokenizerParts& parts) {
  const JsonView single = json.at("single");
  bool after_text = false;
  for (size_t i = 0; i < single.array().size(); ++i) {
    const JsonView piece = single.item(i);
    if (piece.find("Sequence")) {
      after_text = true;
      continue;
    }
    const JsonView name = piece.at("SpecialToken").at("id");
    const JsonView ids = json.at("special_tokens").at(name.string()).at("ids");
    for (size_t k = 0; k < ids.array().size(); ++k) {
      (after_text ? parts.suffix_ids : parts.prefix_ids)
          .push_back(read_token_id(ids.item(k), parts));
    }
  }
  parts.has_template = true;
}

// A decoder flattened into what it does to tokens and, after "Fuse", to the whole text.
class DecoderReader {
 public:
  explicit DecoderReader(TokenizerParts& parts) : parts_(parts) {}

  void read(const JsonView& json) {
    const std::string type(json.at("type").string());
    if (type == "Sequence") {
      const JsonView list = json.at("decoders");
      for (size_t i = 0; i < list.array().size(); ++i) read(list.item(i));
    } else if (type == "ByteLevel") {
      for (std::string& bytes : parts_.token_bytes) {
        if (auto raw = alphabet_.to_bytes(bytes)) bytes = *std::move(raw);
      }
    } else if (type == "ByteFallback") {
      for (std::string& bytes : parts_.token_bytes) {
        const int byte = byte_of_token(bytes);
        if (byte >= 0) bytes = byte_string(byte);
      }
    } else if (type == "Replace") {
      replace(json);
    } else if (type == "Fuse") {
      fused_ = true;
    } else if (type == "Strip") {
      strip(json);
    } else if (type == "Metaspace") {
      const std::string replacement = json.string_or("replacement", "\xE2\x96\x81");
      for (std::string& bytes : parts_.token_bytes) replace_all(bytes, replacement, " ");
      if (read_prepend_scheme(json) != PrependScheme::kNever)
        parts_.decoder.drop_in_first = std::string(" ");
    } else {
      unsupported(json, type, "Sequence, ByteLevel, ByteFallback, Replace, Fuse, Strip, Metaspace");
    }
  }

 private:
  void replace(const JsonView& json) {
    if (fused_) {
      fail(StatusCode::kUnimplemented, "{}: Replace after Fuse is not supported", json.where());
    }
    const std::string to(json.at("content").string());
    const JsonView pattern = json.at("pattern");
    std::unique_ptr<Normalizer> step;
    if (const auto literal = pattern.find("String")) {
      step = make_replace_string(std::string(literal->string()), to);
    } else {
      step = make_replace_pattern(read_pattern(pattern), to);
    }
    for (std::string& bytes : parts_.token_bytes) step->apply(bytes);
  }

  void strip(const JsonView& json) {
    const std::string content(json.at("content").string());
    const int64_t start = json.at("start").integer();
    const int64_t stop = json.at("stop").integer();
    if (content.empty() || start < 0 || stop < 0) {
      fail_invalid("{}: content {:?}, start {} and stop {} must be a character and counts",
                   json.where(), content, start, stop);
    }
    if (!fused_) {
      for (std::string& bytes : parts_.token_bytes) {
        for (int64_t i = 0; i < start && bytes.starts_with(content); ++i) {
          bytes.erase(0, content.size());
        }
        for (int64_t i = 0; i < stop && bytes.ends_with(content); ++i) {
          bytes.erase(bytes.size() - content.size());
        }
      }
      return;
    }
    if (stop > 0) {
      fail(StatusCode::kUnimplemented, "{}: stop is {} after Fuse; only 0 is supported",
           json.where(), stop);
    }
    parts_.decoder.strip_left = content;
    parts_.decoder.max_strip_left = start;
  }

  TokenizerParts& parts_;
  ByteAlphabet alphabet_;
  bool fused_ = false;
};

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

std::string byte_string(int byte) {
  const char text[1] = {static_cast<char>(byte)};
  return std::string(text, 1);
}

std::unique_ptr<Normalizer> read_normalizer(const JsonView& json) {
  const std::string type(json.at("type").string());
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    const JsonView list = json.at("normalizers");
    for (size_t i = 0; i < list.array().size(); ++i) steps.push_back(read_normalizer(list.item(i)));
    return make_normalizer_sequence(std::move(steps));
  }
  if (type == "NFC") return make_unicode_form(UnicodeForm::kNfc);
  if (type == "NFD") return make_unicode_form(UnicodeForm::kNfd);
  if (type == "NFKC") return make_unicode_form(UnicodeForm::kNfkc);
  if (type == "NFKD") return make_unicode_form(UnicodeForm::kNfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Strip") {
    return make_strip(json.boolean_or("strip_left", true), json.boolean_or("strip_right", true));
  }
  if (type == "Prepend") return make_prepend(std::string(json.at("prepend").string()));
  if (type == "Replace") {
    const std::string to(json.at("content").string());
    const JsonView pattern = json.at("pattern");
    if (const auto literal = pattern.find("String")) {
      return make_replace_string(std::string(literal->string()), to);
    }
    return make_replace_pattern(read_pattern(pattern), to);
  }
  unsupported(json, type,
              "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace");
}

void read_pre_tokenizer(const JsonView& json, TokenizerParts& parts, bool& byte_level) {
  PreTokenizerSteps steps;
  add_pre_tokenizer(json, steps, byte_level);
  parts.pre_tokenizer = steps.take_steps();
  parts.cuts = steps.take_cuts();
}

void read_post_processor(const JsonView& json, TokenizerParts& parts) {
  const std::string type(json.at("type").string());
  if (type == "Sequence") {
    const JsonView list = json.at("processors");
    for (size_t i = 0; i < list.array().size(); ++i) read_post_processor(list.item(i), parts);
  } else if (type == "TemplateProcessing") {
    read_template(json, parts);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    parts.prefix_ids.push_back(read_token_id(json.at("cls").item(1), parts));
    parts.suffix_ids.push_back(read_token_id(json.at("sep").item(1), parts));
    parts.has_template = true;
  } else if (type != "ByteLevel") {  // ByteLevel only corrects offsets
    unsupported(json, type,
                "Sequence, TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel");
  }
}

void read_decoder(const JsonView* json, TokenizerParts& parts) {
  parts.token_bytes = parts.tokens;
  if (json == nullptr) {
    parts.decoder.join_with_spaces = true;
    return;
  }
  DecoderReader(parts).read(*json);
}

}  // namespace zipage
