// The tokenizer inside a GGUF file: reading its metadata, and making a tokenizer of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/parts.h"

namespace zipage {

// The keys "tokenizer.*" as plain data.
struct VocabData {
  std::string model;  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece) ...
  std::string pre;    // tokenizer.ggml.pre: how text is cut, "qwen2", "llama-bpe" ...; "": default
  std::vector<std::string> tokens;
  std::vector<int32_t> token_types;  // of TokenType; empty: all normal
  std::vector<float> scores;         // "llama" only
  std::vector<std::string> merges;   // "a b", the first is merged first
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unk_id;
  std::optional<int32_t> pad_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::map<std::string, std::string> chat_templates;  // by name; the main one is "default"
};

enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Throw Error naming the file and what is wrong.
VocabData read_gguf_vocab(const std::string& path);
// The same for the bytes of such a file.
VocabData parse_gguf_vocab(std::string_view bytes, const std::string& file);

// Throws Error naming the file and the key.
TokenizerParts make_tokenizer_parts(VocabData vocab, const std::string& file);

}  // namespace zipage
