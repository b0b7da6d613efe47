#include "tokenizer/gguf_vocab.h"

#include <limits>

#include "base/error.h"
#include "base/gguf_file.h"

namespace zipage {
namespace {

std::string text_or_empty(const GgufFile& file, std::string_view key) {
  return std::string(file.find_string(key).value_or(""));
}

std::vector<std::string> texts_or_empty(const GgufFile& file, std::string_view key) {
  const auto found = file.find_strings(key);
  return found ? std::vector<std::string>(found->begin(), found->end())
               : std::vector<std::string>();
}

std::optional<int32_t> find_id(const GgufFile& file, std::string_view key) {
  constexpr int64_t kNone = std::numeric_limits<uint32_t>::max();  // some writers store this
  const auto id = file.find_int(key, 0, kNone);
  if (!id || *id == kNone) return std::nullopt;
  if (*id > std::numeric_limits<int32_t>::max()) {
    fail_invalid("{}: {} is {}; ids are below 2^31", file.path(), key, *id);
  }
  return static_cast<int32_t>(*id);
}

VocabData read_vocab(const GgufFile& file) {
  VocabData vocab;
  vocab.model = text_or_empty(file, "tokenizer.ggml.model");
  vocab.pre = text_or_empty(file, "tokenizer.ggml.pre");
  vocab.tokens = texts_or_empty(file, "tokenizer.ggml.tokens");
  vocab.merges = texts_or_empty(file, "tokenizer.ggml.merges");
  if (const auto types = file.find_ints("tokenizer.ggml.token_type")) {
    for (const int64_t type : *types) {
      vocab.token_types.push_back(type < 0 || type > 6 ? -1 : static_cast<int32_t>(type));
    }
  }
  vocab.scores = file.find_floats("tokenizer.ggml.scores").value_or(std::vector<float>());
  vocab.bos_id = find_id(file, "tokenizer.ggml.bos_token_id");
  vocab.eos_id = find_id(file, "tokenizer.ggml.eos_token_id");
  vocab.unk_id = find_id(file, "tokenizer.ggml.unknown_token_id");
  vocab.pad_id = find_id(file, "tokenizer.ggml.padding_token_id");
  vocab.add_bos = file.find_bool("tokenizer.ggml.add_bos_token");
  vocab.add_eos = file.find_bool("tokenizer.ggml.add_eos_token");
  vocab.add_space_prefix = file.find_bool("tokenizer.ggml.add_space_prefix");
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : file.metadata()) {
    if (key == kTemplate) {
      vocab.chat_templates["default"] = file.get_string(key);
    } else if (key.starts_with(kTemplate) && key.substr(kTemplate.size()).starts_with('.')) {
      vocab.chat_templates[std::string(key.substr(kTemplate.size() + 1))] = file.get_string(key);
    }
  }
  return vocab;
}

}  // namespace

VocabData read_gguf_vocab(const std::string& path) { return read_vocab(GgufFile::open(path)); }

VocabData parse_gguf_vocab(std::string_view bytes, const std::string& file) {
  return read_vocab(GgufFile::parse(std::as_bytes(std::span(bytes)), file));
}

}  // namespace zipage
