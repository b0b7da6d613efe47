// Text to token ids and back, and chat messages to prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zipage/status.h"

namespace zipage {

// Turns ids into text as they come. Never emits half a UTF-8 character.
class IncrementalDecoder {
 public:
  virtual ~IncrementalDecoder() = default;
  // The text that `id` completes; may be empty.
  virtual std::string push(int32_t id) = 0;
  // What is left at the end; broken bytes become U+FFFD.
  virtual std::string finish() = 0;
};

struct EncodeOptions {
  bool add_special_tokens = true;    // BOS and the like, as the tokenizer's post-processor says
  bool parse_special_tokens = true;  // "<|im_end|>" in the text becomes its id
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string chat_template;    // empty: the model's
  std::string template_kwargs;  // JSON object of extra variables; empty: none
  std::string tools;            // JSON array; empty: none
};

// Thread-safe: const members may be called from any thread.
class Tokenizer {
 public:
  // `path`: a folder with tokenizer.json (and tokenizer_config.json), or a GGUF file.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);
  virtual ~Tokenizer() = default;

  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;
  virtual std::string decode(std::span<const int32_t> ids,
                             bool skip_special_tokens = true) const = 0;
  virtual std::unique_ptr<IncrementalDecoder> new_decoder(
      bool skip_special_tokens = true) const = 0;

  virtual int32_t vocab_size() const = 0;  // largest id + 1
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::string id_to_token(
      int32_t id) const = 0;  // as in the vocabulary file; "" if unknown
  virtual std::string id_to_bytes(int32_t id) const = 0;  // the raw bytes that the token adds
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;

  virtual bool has_chat_template() const = 0;
  // `messages`: a JSON array of {"role", "content", ...}. The prompt's text.
  virtual Result<std::string> apply_chat_template(const std::string& messages_json,
                                                  const ChatOptions& options = {}) const = 0;
};

}  // namespace zipage
